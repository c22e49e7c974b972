/* Any bytes as tokenizer.json. If the first byte is odd, any bytes (a piece each) as its components
 * around a valid model of single bytes. An accepted file encodes and decodes a fixed text, with ids
 * in range. */
#include "common/base/utf8.h"
#include "common/language/text/detokenizer.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static const char text[] = "<s> Hello,  world's 1234 \xc3\xa9t\xc3\xa9\n\n\t\xf0\x9f\x99\x82 x</s>";

static void check_decode(const struct tokenizer *tokenizer, const struct token_ids *ids,
                         bool skip_special)
{
    struct error err;
    struct str decoded;
    str_init(&decoded, 1 << 20);
    enum status status =
        detokenizer_decode(tokenizer, ids->data, ids->count, skip_special, &decoded, &err);
    /* Any characters: a template may name the ids of controls. */
    FUZZ_CHECK(status == STATUS_OK ? utf8_valid(decoded.data, decoded.length, NULL)
                                   : status == STATUS_LIMIT);
    str_deinit(&decoded);
}

static void check_tokenizer(const struct tokenizer *tokenizer)
{
    struct error err;
    struct token_ids ids;
    token_ids_init(&ids, 4096);
    for (int special = 0; special < 2; special++) {
        ids.count = 0;
        enum status status =
            tokenizer_encode(tokenizer, text, sizeof text - 1, special, &ids, &err);
        if (status != STATUS_OK)
            fuzz_check_sentence(err.text);
        for (size_t i = 0; i < ids.count; i++) {
            size_t length;
            FUZZ_CHECK(ids.data[i] < tokenizer_vocab_size(tokenizer));
            /* A template may name an id that no token has. */
            FUZZ_CHECK(special || tokenizer_token_bytes(tokenizer, ids.data[i], &length));
        }
        if (status == STATUS_OK)
            check_decode(tokenizer, &ids, special);
    }
    token_ids_deinit(&ids);
}

/* "model": the 256 bytes as GPT-2's alphabet spells them, and two merges. */
static void add_byte_model(struct str *out)
{
    str_add(out, "{\"type\":\"BPE\",\"vocab\":{\"he\":256,\"ll\":257");
    for (uint32_t byte = 0, other = 256; byte < 256; byte++) {
        bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
        char spelled[5] = {0};
        utf8_put(visible ? byte : other++, spelled);
        str_addf(out, ",\"%s%s\":%u", strchr("\"\\", spelled[0]) ? "\\" : "", spelled, byte);
    }
    str_add(out, "},\"merges\":[\"h e\",[\"l\",\"l\"]]}");
}

static void build(struct fuzz_input *input, struct str *out)
{
    static const char *const keys[] = {"added_tokens", "normalizer", "pre_tokenizer",
                                       "post_processor", "decoder"};
    str_add(out, "{");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct fuzz_bytes piece = fuzz_take_piece(input);
        str_addf(out, "\"%s\":", keys[i]);
        str_append(out, piece.data, piece.size);
        str_add(out, piece.size ? "," : "null,");
    }
    str_add(out, "\"model\":");
    add_byte_model(out);
    str_add(out, "}");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_quiet();
    struct fuzz_input input = {data, data + size};
    struct str json;
    str_init(&json, 1 << 20);
    if (fuzz_take_u8(&input) & 1)
        build(&input, &json);
    else
        str_append(&json, input.at, (size_t)(input.end - input.at));
    const char *path =
        fuzz_write("tokenizer.json", (struct fuzz_bytes){(const uint8_t *)json.data, json.length});
    str_deinit(&json);
    struct error err;
    struct tokenizer *tokenizer;
    if (tokenizer_open(path, &tokenizer, &err) == STATUS_OK) {
        check_tokenizer(tokenizer);
        tokenizer_close(tokenizer);
    } else {
        fuzz_check_sentence(err.text);
    }
    return 0;
}
