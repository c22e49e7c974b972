#include "common/language/text/detokenizer.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"
#include "common/language/text/decoder.h"

#include <string.h>

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                      bool skip_special)
{
    *detokenizer =
        (struct detokenizer){.tokenizer = tokenizer,
                             .skip_special = skip_special,
                             .strip_left = (uint8_t)tokenizer_decoder(tokenizer)->strip_count};
}

/* Appends bytes[0..count) without the start of a character at the end. Returns the number of bytes
 * that it took. */
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

static void push_bytes(struct detokenizer *detokenizer, const char *bytes, size_t length,
                       struct str *text)
{
    /* Takes byte by byte until nothing is held, then the rest at once. */
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

/* Appends text. The decoder's last step takes characters off the start of the whole text. */
static void put(struct detokenizer *detokenizer, const char *bytes, size_t length, struct str *text)
{
    const struct decoder *decoder = tokenizer_decoder(detokenizer->tokenizer);
    while (detokenizer->strip_left && length >= decoder->strip_length &&
           memcmp(bytes, decoder->strip, decoder->strip_length) == 0) {
        bytes += decoder->strip_length;
        length -= decoder->strip_length;
        detokenizer->strip_left--;
    }
    if (length)
        detokenizer->strip_left = 0;
    str_append(text, bytes, length);
}

static void put_replacements(struct detokenizer *detokenizer, size_t count, struct str *text)
{
    for (size_t i = 0; i < count; i++)
        put(detokenizer, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT), text);
}

/* Ends a run of byte tokens. */
static void end_bytes(struct detokenizer *detokenizer, struct str *text)
{
    put_replacements(detokenizer, detokenizer->held_count, text);
    detokenizer->held_count = 0;
}

/* Unlike byte-level BPE, ByteFallback gives one U+FFFD for each malformed byte. */
static void push_byte(struct detokenizer *detokenizer, char byte, struct str *text)
{
    char *held = detokenizer->held;
    held[detokenizer->held_count++] = byte;
    while (detokenizer->held_count) {
        struct utf8_char next = utf8_next(held, detokenizer->held_count);
        if (next.kind == UTF8_CUT)
            return;
        if (next.kind == UTF8_WHOLE)
            put(detokenizer, held, next.length, text);
        else
            put_replacements(detokenizer, next.length, text);
        detokenizer->held_count -= (uint8_t)next.length;
        memmove(held, held + next.length, detokenizer->held_count);
    }
}

/* Returns NULL if the token is no text. */
static const struct decoded_token *token_of(const struct detokenizer *detokenizer, uint32_t id)
{
    if (detokenizer->skip_special && tokenizer_is_special(detokenizer->tokenizer, id))
        return NULL;
    return decoder_token(tokenizer_decoder(detokenizer->tokenizer), id);
}

static void push_piece(struct detokenizer *detokenizer, const struct decoded_token *token,
                       struct str *text)
{
    const struct decoder *decoder = tokenizer_decoder(detokenizer->tokenizer);
    bool first = !detokenizer->started;
    end_bytes(detokenizer, text);
    if (decoder->kind == DECODER_SPACES && !first)
        str_append(text, " ", 1);
    put(detokenizer, decoder->pool + (first ? token->first_offset : token->offset),
        first ? token->first_length : token->length, text);
}

void detokenizer_push(struct detokenizer *detokenizer, uint32_t id, struct str *text)
{
    const struct decoder *decoder = tokenizer_decoder(detokenizer->tokenizer);
    const struct decoded_token *token = token_of(detokenizer, id);
    if (!token)
        return;
    if (decoder->kind == DECODER_BYTES)
        push_bytes(detokenizer, decoder->pool + token->offset, token->length, text);
    else if (token->is_byte)
        push_byte(detokenizer, decoder->pool[token->offset], text);
    else
        push_piece(detokenizer, token, text);
    detokenizer->started = true;
}

void detokenizer_flush(struct detokenizer *detokenizer, struct str *text)
{
    if (tokenizer_decoder(detokenizer->tokenizer)->kind != DECODER_BYTES)
        end_bytes(detokenizer, text);
    else if (detokenizer->held_count)
        str_add(text, UTF8_REPLACEMENT);
    detokenizer->held_count = 0;
}

/* Appends a whole run of byte tokens as text, or U+FFFD for each byte. */
static void put_run(struct detokenizer *detokenizer, struct str *run, struct str *text)
{
    if (run->length && utf8_valid(run->data, run->length, NULL))
        put(detokenizer, run->data, run->length, text);
    else
        put_replacements(detokenizer, run->length, text);
    str_clear(run);
}

/* Decodes as pushes do, except that it takes each run of byte tokens as a whole. */
static void decode_pieces(struct detokenizer *detokenizer, const uint32_t *ids, size_t count,
                          struct str *text)
{
    const struct decoder *decoder = tokenizer_decoder(detokenizer->tokenizer);
    struct str run;
    str_init(&run, count);
    for (size_t i = 0; i < count; i++) {
        const struct decoded_token *token = token_of(detokenizer, ids[i]);
        if (!token)
            continue;
        if (token->is_byte) {
            str_append(&run, decoder->pool + token->offset, 1);
        } else {
            put_run(detokenizer, &run, text);
            push_piece(detokenizer, token, text);
        }
        detokenizer->started = true;
    }
    put_run(detokenizer, &run, text);
    str_deinit(&run);
}

enum status detokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count,
                               bool skip_special, struct str *text, struct error *err)
{
    struct detokenizer detokenizer;
    detokenizer_init(&detokenizer, tokenizer, skip_special);
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= tokenizer_vocab_size(tokenizer))
            return error_set(err, STATUS_INVALID, "token id %u is not below the vocabulary's %u",
                             ids[i], tokenizer_vocab_size(tokenizer));
    if (tokenizer_decoder(tokenizer)->kind == DECODER_BYTES) {
        for (size_t i = 0; i < count; i++)
            detokenizer_push(&detokenizer, ids[i], text);
        detokenizer_flush(&detokenizer, text);
    } else {
        decode_pieces(&detokenizer, ids, count, text);
    }
    if (text->truncated)
        return error_set(err, STATUS_LIMIT, "the text is over the limit of %zu bytes", text->limit);
    return STATUS_OK;
}

bool token_text_is_known(const struct tokenizer *tokenizer)
{
    return tokenizer_decoder(tokenizer)->kind != DECODER_SPACES;
}

const char *token_text(const struct tokenizer *tokenizer, uint32_t id, bool first, size_t *length)
{
    const struct decoder *decoder = tokenizer_decoder(tokenizer);
    const struct decoded_token *token = decoder_token(decoder, id);
    *length = 0;
    if (!token || tokenizer_is_special(tokenizer, id) || !token_text_is_known(tokenizer))
        return NULL;
    if (token->is_byte || decoder->kind == DECODER_BYTES)
        *length = token->is_byte ? 1 : token->length;
    else
        *length = first ? token->first_length : token->length;
    bool at_first = first && !token->is_byte && decoder->kind != DECODER_BYTES;
    const char *bytes = decoder->pool + (at_first ? token->first_offset : token->offset);
    for (size_t i = 0; first && i < decoder->strip_count && *length >= decoder->strip_length &&
                       !memcmp(bytes, decoder->strip, decoder->strip_length);
         i++) {
        bytes += decoder->strip_length;
        *length -= decoder->strip_length;
    }
    return bytes;
}

const char *token_special_text(const struct tokenizer *tokenizer, uint32_t id, size_t *length)
{
    const struct decoder *decoder = tokenizer_decoder(tokenizer);
    const struct decoded_token *token = decoder_token(decoder, id);
    bool known = token && tokenizer_is_special(tokenizer, id) && token_text_is_known(tokenizer);
    *length = known ? token->length : 0;
    return known ? decoder->pool + token->offset : NULL;
}
