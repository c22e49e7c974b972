/* The source of a constraint on an answer, as the request gave it.
 * common/language/constrain/constraint.h compiles it. PURE data. */
#ifndef BATON_BASE_DOMAIN_CONSTRAINT_SOURCE_H
#define BATON_BASE_DOMAIN_CONSTRAINT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

/* The numbers are those of worker.proto. */
enum constraint_kind {
    CONSTRAINT_JSON_OBJECT,      /* no text: any object */
    CONSTRAINT_JSON_SCHEMA,      /* the schema, as JSON (schema.h) */
    CONSTRAINT_REGEX,            /* matches the whole answer (expression.h) */
    CONSTRAINT_CHOICE,           /* a JSON array of strings; the answer is one of them */
    CONSTRAINT_TOOL_CALLS,       /* JSON: common/language/constrain/constraint.h */
    CONSTRAINT_BEHIND_REASONING, /* a line about the reasoning, and one of the others: the same */
};
#define CONSTRAINT_KINDS 6
extern const char *const constraint_kind_names[CONSTRAINT_KINDS]; /* names in gRPC */

struct constraint_source {
    enum constraint_kind kind;
    size_t length; /* bytes of `text`, without the NUL behind it */
    char text[];
};

bool constraint_source_equal(const struct constraint_source *a, const struct constraint_source *b);
/* Returns one allocation, which the caller frees; NULL: no memory. */
struct constraint_source *constraint_source_create(enum constraint_kind kind, const char *text,
                                                   size_t length);
struct constraint_source *
constraint_source_copy(const struct constraint_source *source); /* NULL of NULL */

#endif
