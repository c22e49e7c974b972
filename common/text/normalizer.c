#include "common/text/normalizer.h"

#include "common/base/assert.h"
#include "common/text/unicode.h"

#include <string.h>

#define SEQUENCE_LIMIT_DEPTH 4

static enum status read_component(struct normalizer *normalizer, const struct json_value *json,
                                  int depth, struct error *err)
{
    const char *type;
    TRY(json_get_string(json, "type", &type, NULL, err));
    if (strcmp(type, "NFC") == 0) {
        normalizer->nfc = true;
        return STATUS_OK;
    }
    if (strcmp(type, "Sequence") != 0)
        return error_set(err, STATUS_UNSUPPORTED, "\"%.40s\" isn't supported (NFC is)", type);
    const struct json_value *parts;
    TRY(json_get_array(json, "normalizers", &parts, err));
    if (depth == SEQUENCE_LIMIT_DEPTH)
        return error_set(err, STATUS_LIMIT, "Sequences are nested deeper than %d", depth);
    for (size_t i = 0; i < json_count(parts); i++)
        TRY(read_component(normalizer, json_at(parts, i), depth + 1, err));
    return STATUS_OK;
}

enum status normalizer_init(struct normalizer *normalizer, const struct json_value *json,
                            struct error *err)
{
    *normalizer = (struct normalizer){0};
    return json ? read_component(normalizer, json, 0, err) : STATUS_OK;
}

size_t normalizer_limit(size_t length)
{
    return 3 * length; /* UAX #15: form C makes UTF-8 at most three times as long */
}

void normalizer_apply(const struct normalizer *normalizer, const char **text, size_t *length,
                      struct str *buffer)
{
    if (!normalizer->nfc || unicode_is_surely_nfc(*text, *length))
        return;
    unicode_add_nfc(buffer, *text, *length);
    ASSERT(!buffer->truncated);
    *text = buffer->data;
    *length = buffer->length;
}
