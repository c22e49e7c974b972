/* Any bytes as text for real tokenizers. Refused if and only if they aren't UTF-8; ids are in range
 * and give the text again where the family promises it; and ids that come one by one give the same
 * text as all at once. The first byte takes the tokenizer, the lowest bit of the second how its ids
 * are read: encoded from text, or straight from the bytes. */
#include "common/base/utf8.h"
#include "common/language/text/detokenizer.h"
#include "common/language/text/unicode.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum promise { SAME_TEXT, SAME_AFTER_NFC, NOTHING };

static const struct family {
    const char *path;
    enum promise promise; /* the promise for decode(encode(text)) */
    /* malformed runs of byte tokens read differently in a stream: detokenizer.h */
    bool byte_fallback;
} families[] = {
    {"tests/golden/tokenizers/gpt2.json", SAME_TEXT, false},
    {"tests/golden/tokenizers/llama3.json", SAME_TEXT, false},
    {"tests/golden/tokenizers/qwen2.json", SAME_AFTER_NFC, false},
    {"deploy/local/tiny-shakespeare/tokenizer.json", SAME_TEXT, false},
    {"tests/golden/tokenizers/tekken.json", SAME_TEXT, false},
    {"tests/golden/tokenizers/llama2.json", NOTHING, true},
    {"tests/golden/tokenizers/mistral-metaspace.json", NOTHING, true},
};
#define FAMILIES (sizeof families / sizeof *families)

static struct tokenizer *tokenizers[FAMILIES];

static void open_all(void)
{
    fuzz_quiet();
    struct error err;
    for (size_t i = 0; i < FAMILIES; i++)
        FUZZ_CHECK(tokenizer_open(families[i].path, &tokenizers[i], &err) == STATUS_OK);
}

/* At once and streamed, which is the same where `same`; the text is in `whole`. */
static void decode(const struct tokenizer *tokenizer, const struct token_ids *ids,
                   bool skip_special, bool same, struct str *whole)
{
    struct error err;
    struct str streamed;
    str_init(&streamed, 1 << 20);
    enum status status =
        detokenizer_decode(tokenizer, ids->data, ids->count, skip_special, whole, &err);
    FUZZ_CHECK(status == STATUS_OK);
    FUZZ_CHECK(utf8_valid(whole->data, whole->length, NULL));
    struct detokenizer detokenizer;
    detokenizer_init(&detokenizer, tokenizer, skip_special);
    for (size_t i = 0; i < ids->count; i++) {
        size_t before = streamed.length;
        detokenizer_push(&detokenizer, ids->data[i], &streamed);
        FUZZ_CHECK(utf8_valid(streamed.data + before, streamed.length - before, NULL));
    }
    detokenizer_flush(&detokenizer, &streamed);
    FUZZ_CHECK(!same || streamed.length == whole->length);
    FUZZ_CHECK(!same || !memcmp(streamed.data, whole->data, whole->length));
    str_deinit(&streamed);
}

static void check_promise(enum promise promise, const char *text, size_t length,
                          const struct str *decoded)
{
    struct str expected;
    str_init(&expected, 1 << 20);
    if (promise == SAME_AFTER_NFC)
        unicode_add_nfc(&expected, text, length);
    else
        str_append(&expected, text, length);
    if (promise != NOTHING) {
        FUZZ_CHECK(decoded->length == expected.length);
        FUZZ_CHECK(!memcmp(decoded->data, expected.data, expected.length));
    }
    str_deinit(&expected);
}

static void try_text(size_t family, bool add_special, const char *text, size_t length)
{
    const struct tokenizer *tokenizer = tokenizers[family];
    struct error err;
    struct token_ids ids;
    struct str decoded;
    token_ids_init(&ids, 1 << 20);
    str_init(&decoded, 1 << 20);
    bool good = utf8_valid(text, length, NULL);
    enum status status = tokenizer_encode(tokenizer, text, length, add_special, &ids, &err);
    FUZZ_CHECK(status == (good ? STATUS_OK : STATUS_INVALID));
    if (!good)
        fuzz_check_sentence(err.text);
    for (size_t i = 0; i < ids.count; i++) {
        size_t bytes;
        FUZZ_CHECK(ids.data[i] < tokenizer_vocab_size(tokenizer));
        FUZZ_CHECK(tokenizer_token_bytes(tokenizer, ids.data[i], &bytes));
    }
    decode(tokenizer, &ids, false, true, &decoded);
    if (good && !add_special)
        check_promise(families[family].promise, text, length, &decoded);
    token_ids_deinit(&ids);
    str_deinit(&decoded);
}

/* Two bytes an id: also ids that have no token. */
static void try_ids(size_t family, bool skip_special, struct fuzz_bytes bytes)
{
    const struct tokenizer *tokenizer = tokenizers[family];
    struct token_ids ids;
    struct str decoded;
    token_ids_init(&ids, 1 << 16);
    str_init(&decoded, 1 << 24);
    for (size_t i = 0; i + 1 < bytes.size && ids.count < 4096; i += 2) {
        uint32_t id = (uint32_t)bytes.data[i] | (uint32_t)bytes.data[i + 1] << 8;
        FUZZ_CHECK(token_ids_push(&ids, id % tokenizer_vocab_size(tokenizer)));
    }
    decode(tokenizer, &ids, skip_special, !families[family].byte_fallback, &decoded);
    token_ids_deinit(&ids);
    str_deinit(&decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!tokenizers[0])
        open_all();
    struct fuzz_input input = {data, data + size};
    size_t family = fuzz_take_below(&input, FAMILIES);
    uint8_t how = fuzz_take_u8(&input);
    struct fuzz_bytes rest = fuzz_take_rest(&input);
    if (how & 1)
        try_ids(family, how & 2, rest);
    else
        try_text(family, how & 2, (const char *)rest.data, rest.size);
    return 0;
}
