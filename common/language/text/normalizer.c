#include "common/base/assert.h"
#include "common/base/utf8.h"
#include "common/language/text/pipeline.h"
#include "common/language/text/unicode.h"

#include <stdlib.h>
#include <string.h>

static enum status read_content(struct normalizer_step *step, const struct json_value *json,
                                const char *key, struct error *err)
{
    const char *content;
    size_t length;
    TRY(json_get_string(json, key, &content, &length, err));
    if (length > NORMALIZER_LIMIT_CONTENT)
        return error_set(err, STATUS_LIMIT, "\"%s\" of %zu bytes is over the limit of %d", key,
                         length, NORMALIZER_LIMIT_CONTENT);
    step->content = malloc(length + 1);
    ASSERT(step->content);
    memcpy(step->content, content, length);
    step->content_length = length;
    return STATUS_OK;
}

static enum status read_step(struct normalizer_step *step, const struct json_value *json,
                             const char *type, struct error *err)
{
    if (strcmp(type, "NFC") == 0) {
        step->kind = NORMALIZER_NFC;
        return STATUS_OK;
    }
    if (strcmp(type, "Prepend") == 0) {
        step->kind = NORMALIZER_PREPEND;
        return read_content(step, json, "prepend", err);
    }
    if (strcmp(type, "Replace") != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"%.40s\" isn't supported (NFC, Prepend, Replace and Sequence are)",
                         type);
    const struct json_value *pattern;
    step->kind = NORMALIZER_REPLACE;
    TRY(json_get_object(json, "pattern", &pattern, err));
    TRY(pattern_read(&step->pattern, pattern, err));
    return read_content(step, json, "content", err);
}

static enum status read_component(struct normalizer *normalizer, const struct json_value *json,
                                  int depth, struct error *err)
{
    const char *type;
    const struct json_value *parts;
    TRY(json_get_string(json, "type", &type, NULL, err));
    if (strcmp(type, "Sequence") != 0) {
        if (normalizer->step_count == NORMALIZER_LIMIT_STEPS)
            return error_set(err, STATUS_LIMIT, "more than %d steps", NORMALIZER_LIMIT_STEPS);
        return read_step(&normalizer->steps[normalizer->step_count++], json, type, err);
    }
    TRY(json_get_array(json, "normalizers", &parts, err));
    if (depth == PIPELINE_LIMIT_DEPTH)
        return error_set(err, STATUS_LIMIT, "Sequences are nested deeper than %d", depth);
    for (size_t i = 0; i < json_count(parts); i++) {
        enum status status = read_component(normalizer, json_at(parts, i), depth + 1, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"normalizers\"[%zu]", i);
    }
    return STATUS_OK;
}

enum status normalizer_init(struct normalizer *normalizer, const struct json_value *json,
                            struct error *err)
{
    *normalizer = (struct normalizer){0};
    enum status status = json ? read_component(normalizer, json, 0, err) : STATUS_OK;
    if (status != STATUS_OK)
        normalizer_deinit(normalizer);
    return status;
}

void normalizer_deinit(struct normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->step_count; i++) {
        pattern_deinit(&normalizer->steps[i].pattern);
        free(normalizer->steps[i].content);
    }
    *normalizer = (struct normalizer){0};
}

void normalizer_room_init(struct normalizer_room *room)
{
    for (size_t i = 0; i < 2; i++)
        str_init(&room->texts[i], NORMALIZER_LIMIT_BYTES);
}

void normalizer_room_deinit(struct normalizer_room *room)
{
    for (size_t i = 0; i < 2; i++)
        str_deinit(&room->texts[i]);
}

/* Appends the piece in form C. *head is then its head: as many characters as form C of the old head
 * has. They are the same, unless form C moves marks across the head's end (docs/tokenizers.md). */
static void compose(struct piece piece, struct str *out, size_t *head)
{
    size_t count = 0;
    unicode_add_nfc(out, piece.text, piece.head);
    for (size_t at = 0; at < out->length; count++)
        at += utf8_next(out->data + at, out->length - at).length;
    str_clear(out);
    unicode_add_nfc(out, piece.text, piece.length);
    for (*head = 0; count > 0 && *head < out->length; count--)
        *head += utf8_next(out->data + *head, out->length - *head).length;
}

/* Appends the piece as the step makes it; *head is then its head. */
static enum status apply_step(const struct normalizer_step *step, struct regex_scratch *scratch,
                              struct piece piece, struct str *out, size_t *head, struct error *err)
{
    struct pattern_search search = {
        .scratch = scratch, .text = piece.text, .length = piece.length, .head = piece.head};
    switch (step->kind) {
    case NORMALIZER_NFC: compose(piece, out, head); return STATUS_OK;
    case NORMALIZER_PREPEND:
        if (piece.length > 0)
            str_append(out, step->content, step->content_length);
        str_append(out, piece.text, piece.length);
        *head = piece.head ? step->content_length + piece.head : 0;
        return STATUS_OK;
    case NORMALIZER_REPLACE:
        TRY(pattern_replace(&step->pattern, &search, step->content, step->content_length, out,
                            err));
        *head = search.head;
        return STATUS_OK;
    }
    ASSERT(false);
}

enum status normalizer_apply(const struct normalizer *normalizer, struct regex_scratch *scratch,
                             struct normalizer_room *room, struct piece *piece, struct error *err)
{
    for (size_t i = 0; i < normalizer->step_count; i++) {
        const struct normalizer_step *step = &normalizer->steps[i];
        if (step->kind == NORMALIZER_NFC && unicode_is_surely_nfc(piece->text, piece->length))
            continue;
        struct str *out = &room->texts[piece->text == room->texts[0].data];
        size_t head = 0;
        str_clear(out);
        TRY(apply_step(step, scratch, *piece, out, &head, err));
        if (out->truncated)
            return error_set(err, STATUS_LIMIT, "the normalized text is over the limit of %u bytes",
                             NORMALIZER_LIMIT_BYTES);
        *piece = (struct piece){out->data, out->length, head};
    }
    return STATUS_OK;
}
