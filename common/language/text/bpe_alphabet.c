#include "common/language/text/bpe_alphabet.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE BPE_ALPHABET_NONE

/* Bytes that no UTF-8 text has needn't have a token. */
static bool is_of_utf8(int byte)
{
    return byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
}

/* True when every byte that a text may have is a token. */
static bool find_bytes(struct bpe_alphabet *alphabet, const struct vocabulary *vocabulary,
                       bool spelled, int *missing)
{
    bool complete = true;
    for (int byte = 255; byte >= 0; byte--) {
        char name[8] = {(char)byte};
        size_t length = 1;
        if (spelled)
            length = (size_t)snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        alphabet->bytes[byte] = NONE;
        if (!vocabulary_find(vocabulary, name, length, &alphabet->bytes[byte]) &&
            is_of_utf8(byte)) {
            complete = false;
            *missing = byte;
        }
    }
    return complete;
}

static void find_characters(struct bpe_alphabet *alphabet, const struct vocabulary *vocabulary)
{
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        size_t length = 0;
        uint32_t found;
        const char *bytes = vocabulary_bytes(vocabulary, id, &length);
        if (!length || length > 4)
            continue;
        struct utf8_char character = utf8_next(bytes, length);
        if (character.kind != UTF8_WHOLE || character.length != length ||
            !vocabulary_find(vocabulary, bytes, length, &found) || found != id)
            continue;
        uint32_t **page = &alphabet->pages[character.code >> 8];
        if (!*page) {
            *page = malloc(256 * sizeof **page);
            ASSERT(*page);
            memset(*page, 0xFF, 256 * sizeof **page);
        }
        (*page)[character.code & 0xFF] = id;
    }
}

enum status bpe_alphabet_init(struct bpe_alphabet *alphabet, const struct vocabulary *vocabulary,
                              const struct bpe_alphabet_settings *settings, struct error *err)
{
    *alphabet =
        (struct bpe_alphabet){.kind = settings->kind, .fuse_unk = settings->fuse_unk, .unk = NONE};
    memset(alphabet->bytes, 0xFF, sizeof alphabet->bytes);
    bool complete = false;
    int missing = 0;
    if (settings->kind == BPE_ALPHABET_BYTES || settings->byte_fallback)
        complete = find_bytes(alphabet, vocabulary, settings->kind != BPE_ALPHABET_BYTES, &missing);
    if (settings->kind == BPE_ALPHABET_BYTES && !complete)
        return error_set(err, STATUS_INVALID, "the vocabulary has no token for the byte 0x%02X",
                         (unsigned)missing);
    if (settings->unk_token && !complete &&
        !vocabulary_find(vocabulary, settings->unk_token, strlen(settings->unk_token),
                         &alphabet->unk))
        return error_set(err, STATUS_INVALID, "the \"unk_token\" \"%.40s\" isn't in the vocabulary",
                         settings->unk_token);
    if (settings->kind == BPE_ALPHABET_CHARACTERS)
        find_characters(alphabet, vocabulary);
    return STATUS_OK;
}

void bpe_alphabet_deinit(struct bpe_alphabet *alphabet)
{
    for (size_t i = 0; i < sizeof alphabet->pages / sizeof *alphabet->pages; i++)
        free(alphabet->pages[i]);
    memset(alphabet, 0, sizeof *alphabet);
}

/* A word while it is read. Unknown characters wait, to be fused. */
struct reading {
    const struct bpe_alphabet *alphabet;
    const struct bpe_symbol_sink *sink;
    bool unk_waits;
};

static bool end_unknown(struct reading *reading)
{
    if (!reading->unk_waits)
        return true;
    reading->unk_waits = false;
    return reading->sink->take(reading->sink->context, reading->alphabet->unk, 0, 0);
}

/* As `tokenizers`: byte tokens don't end a run of unknown characters, they come before it. */
static bool take_bytes(struct reading *reading, const char *bytes, size_t length, bool *taken)
{
    const uint32_t *tokens = reading->alphabet->bytes;
    *taken = true;
    for (size_t i = 0; i < length; i++)
        *taken &= tokens[(unsigned char)bytes[i]] != NONE;
    for (size_t i = 0; *taken && i < length; i++)
        if (!reading->sink->take(reading->sink->context, tokens[(unsigned char)bytes[i]], 0, 0))
            return false;
    return true;
}

static bool take_unknown(struct reading *reading, const char *bytes, size_t length)
{
    bool taken;
    if (!take_bytes(reading, bytes, length, &taken))
        return false;
    if (taken || reading->alphabet->unk == NONE)
        return true;
    if (!reading->alphabet->fuse_unk && !end_unknown(reading))
        return false;
    reading->unk_waits = true;
    return true;
}

static bool read_characters(const struct bpe_alphabet *alphabet, const char *word, size_t length,
                            const struct bpe_symbol_sink *sink)
{
    struct reading reading = {alphabet, sink, false};
    for (size_t at = 0; at < length;) {
        unsigned char byte = (unsigned char)word[at];
        struct utf8_char next = {.code = byte, .length = 1};
        if (byte >= 0x80)
            next = utf8_next(word + at, length - at);
        uint32_t token = bpe_alphabet_character(alphabet, next.code);
        if (token == NONE) {
            if (!take_unknown(&reading, word + at, next.length))
                return false;
        } else if (!end_unknown(&reading) || !sink->take(sink->context, token, at, next.length)) {
            return false;
        }
        at += next.length;
    }
    return end_unknown(&reading);
}

bool bpe_alphabet_read(const struct bpe_alphabet *alphabet, const char *word, size_t length,
                       const struct bpe_symbol_sink *sink)
{
    if (alphabet->kind == BPE_ALPHABET_CHARACTERS)
        return read_characters(alphabet, word, length, sink);
    for (size_t i = 0; i < length; i++)
        if (!sink->take(sink->context, alphabet->bytes[(unsigned char)word[i]], i, 1))
            return false;
    return true;
}

uint32_t bpe_alphabet_first(const struct bpe_alphabet *alphabet, const char *bytes, size_t length)
{
    if (alphabet->kind == BPE_ALPHABET_BYTES)
        return alphabet->bytes[(unsigned char)bytes[0]];
    return bpe_alphabet_character(alphabet, utf8_next(bytes, length).code);
}

uint32_t bpe_alphabet_last(const struct bpe_alphabet *alphabet, const char *bytes, size_t length)
{
    size_t at = length - 1;
    if (alphabet->kind == BPE_ALPHABET_BYTES)
        return alphabet->bytes[(unsigned char)bytes[at]];
    while (at > 0 && ((unsigned char)bytes[at] & 0xC0) == 0x80)
        at--;
    return bpe_alphabet_character(alphabet, utf8_next(bytes + at, length - at).code);
}
