#include "common/text/detokenizer.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"

#include <string.h>

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                      bool skip_special)
{
    *detokenizer = (struct detokenizer){.tokenizer = tokenizer, .skip_special = skip_special};
}

/* Appends what is decided of bytes[0..count) and returns how many bytes that is; the rest is the start of a character. */
static size_t add_whole(struct str *text, const char *bytes, size_t count)
{
    size_t at = 0;
    while (at < count) {
        struct utf8_char next = utf8_next(bytes + at, count - at);
        if (next.kind == UTF8_CUT)
            break;
        if (next.kind == UTF8_WHOLE)
            str_append(text, bytes + at, next.length);
        else
            str_add(text, UTF8_REPLACEMENT);
        at += next.length;
    }
    return at;
}

void detokenizer_push(struct detokenizer *detokenizer, uint32_t id, struct str *text)
{
    size_t length;
    const char *bytes = tokenizer_token_bytes(detokenizer->tokenizer, id, &length);
    if (!bytes || (detokenizer->skip_special && tokenizer_is_special(detokenizer->tokenizer, id)))
        return;
    /* Byte by byte until nothing is held, then the rest at once. */
    while (length && detokenizer->held_count) {
        detokenizer->held[detokenizer->held_count++] = *bytes++;
        length--;
        size_t used = add_whole(text, detokenizer->held, detokenizer->held_count);
        detokenizer->held_count -= (uint8_t)used;
        memmove(detokenizer->held, detokenizer->held + used, detokenizer->held_count);
    }
    size_t used = add_whole(text, bytes, length);
    if (used == length)
        return;
    ASSERT(length - used <= 3);
    detokenizer->held_count = (uint8_t)(length - used);
    memcpy(detokenizer->held, bytes + used, length - used);
}

void detokenizer_flush(struct detokenizer *detokenizer, struct str *text)
{
    if (detokenizer->held_count)
        str_add(text, UTF8_REPLACEMENT);
    detokenizer->held_count = 0;
}

enum status detokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count,
                               bool skip_special, struct str *text, struct error *err)
{
    struct detokenizer detokenizer;
    detokenizer_init(&detokenizer, tokenizer, skip_special);
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= tokenizer_vocab_size(tokenizer))
            return error_set(err, STATUS_INVALID, "token id %u is not below the vocabulary's %u",
                             ids[i], tokenizer_vocab_size(tokenizer));
        detokenizer_push(&detokenizer, ids[i], text);
    }
    detokenizer_flush(&detokenizer, text);
    if (text->truncated)
        return error_set(err, STATUS_LIMIT, "the text is over the limit of %zu bytes", text->limit);
    return STATUS_OK;
}
