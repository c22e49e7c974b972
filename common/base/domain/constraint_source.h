/* What an answer must look like, as it was asked for: what a constraint is compiled from
 * (common/language/constrain/constraint.h). PURE data. */
#ifndef BATON_BASE_DOMAIN_CONSTRAINT_SOURCE_H
#define BATON_BASE_DOMAIN_CONSTRAINT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

enum constraint_kind {                         /* the numbers are those of worker.proto */
                       CONSTRAINT_JSON_OBJECT, /* no text: any object */
                       CONSTRAINT_JSON_SCHEMA, /* the schema, as JSON (schema.h) */
                       CONSTRAINT_REGEX,       /* takes the whole answer (expression.h) */
                       CONSTRAINT_CHOICE, /* a JSON array of strings, of which the answer is one */
                       CONSTRAINT_TOOL_CALLS, /* JSON: common/language/constrain/constraint.h */
};
#define CONSTRAINT_KINDS 5
extern const char *const constraint_kind_names[CONSTRAINT_KINDS]; /* as gRPC calls them */

struct constraint_source {
    enum constraint_kind kind;
    size_t length; /* of `text`, which a NUL follows */
    char text[];
};

bool constraint_source_equal(const struct constraint_source *a, const struct constraint_source *b);
/* In one piece, to be freed; NULL: no memory. */
struct constraint_source *constraint_source_create(enum constraint_kind kind, const char *text,
                                                   size_t length);
struct constraint_source *
constraint_source_copy(const struct constraint_source *source); /* NULL of NULL */

#endif
