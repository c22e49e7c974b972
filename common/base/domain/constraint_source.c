#include "common/base/domain/constraint_source.h"

#include <stdlib.h>
#include <string.h>

const char *const constraint_kind_names[CONSTRAINT_KINDS] = {
    [CONSTRAINT_JSON_OBJECT] = "json_object",
    [CONSTRAINT_JSON_SCHEMA] = "json_schema",
    [CONSTRAINT_REGEX] = "regex",
    [CONSTRAINT_CHOICE] = "choice",
    [CONSTRAINT_TOOL_CALLS] = "tool_calls",
    [CONSTRAINT_BEHIND_REASONING] = "behind",
};

struct constraint_source *constraint_source_create(enum constraint_kind kind, const char *text,
                                                   size_t length)
{
    struct constraint_source *source = malloc(sizeof *source + length + 1);
    if (!source)
        return NULL;
    source->kind = kind;
    source->length = length;
    if (length)
        memcpy(source->text, text, length);
    source->text[length] = 0;
    return source;
}

struct constraint_source *constraint_source_copy(const struct constraint_source *source)
{
    return source ? constraint_source_create(source->kind, source->text, source->length) : NULL;
}

bool constraint_source_equal(const struct constraint_source *a, const struct constraint_source *b)
{
    return a->kind == b->kind && a->length == b->length && !memcmp(a->text, b->text, a->length);
}
