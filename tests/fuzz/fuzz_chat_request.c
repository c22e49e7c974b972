/* Any bytes as the JSON of a chat request, against published templates: a prompt in valid UTF-8, or
 * a sentence. Whatever the request says, a prompt that is the request's alone has no special token,
 * and the template's words have as many as without it. The first byte takes the template and the
 * tokenizer, the lowest bit of the second how OpenAI's clients send messages. */
#include "common/base/utf8.h"
#include "common/language/chat/chat_request.h"
#include "common/language/chat/chat_template.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

static const char *const templates[] = {
    "HuggingFaceTB-SmolLM3-3B",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "google-gemma-2-2b-it",
    "meta-llama-Llama-3.1-8B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
};
#define TEMPLATES (sizeof templates / sizeof *templates)
static const char *const tokenizer_names[] = {"qwen2", "llama2", "mistral-metaspace"};
#define TOKENIZERS (sizeof tokenizer_names / sizeof *tokenizer_names)

static struct chat_template *chats[TEMPLATES];
static struct tokenizer *tokenizers[TOKENIZERS];

static void open_all(void)
{
    char path[256];
    struct error err;
    fuzz_quiet();
    for (size_t i = 0; i < TEMPLATES; i++) {
        snprintf(path, sizeof path, "tests/golden/chat_templates/%s.jinja", templates[i]);
        FUZZ_CHECK(chat_template_open_file(path, &chats[i], &err) == STATUS_OK);
    }
    for (size_t i = 0; i < TOKENIZERS; i++) {
        snprintf(path, sizeof path, "tests/golden/tokenizers/%s.json", tokenizer_names[i]);
        FUZZ_CHECK(tokenizer_open(path, &tokenizers[i], &err) == STATUS_OK);
    }
}

static size_t count_special(const struct tokenizer *tokenizer, const struct chat_prompt *prompt)
{
    struct token_ids ids;
    struct error err;
    size_t count = 0;
    token_ids_init(&ids, 1 << 20);
    FUZZ_CHECK(chat_encode(tokenizer, prompt, &ids, &err) == STATUS_OK);
    for (size_t i = 0; i < ids.count; i++)
        count += tokenizer_is_special(tokenizer, ids.data[i]);
    token_ids_deinit(&ids);
    return count;
}

static void check_prompt(const struct tokenizer *tokenizer, const struct chat_prompt *prompt)
{
    FUZZ_CHECK(utf8_valid(prompt->text, prompt->length, NULL));
    size_t at = 0, trusted = 0, all = count_special(tokenizer, prompt);
    for (size_t i = 0; i <= prompt->input_count; i++) {
        struct byte_range input = {prompt->length, prompt->length};
        if (i < prompt->input_count)
            input = prompt->inputs[i];
        FUZZ_CHECK(input.from >= at && input.to >= input.from && input.to <= prompt->length);
        struct chat_prompt part = {.text = prompt->text + at, .length = input.from - at};
        trusted += count_special(tokenizer, &part);
        at = input.to;
    }
    FUZZ_CHECK(all == trusted);
    const struct byte_range everything = {0, prompt->length};
    struct chat_prompt untrusted = {
        .text = prompt->text, .length = prompt->length, .inputs = &everything, .input_count = 1};
    FUZZ_CHECK(count_special(tokenizer, &untrusted) == 0);
}

/* As the server has it: the record is JSON, whatever the request is. */
static enum status read_as_served(const struct json_value *json, struct chat_request *request,
                                  struct json **record, struct error *err)
{
    struct json_limits limits = {.max_bytes = 1 << 20, .max_depth = 110};
    struct str text;
    TRY(chat_request_read(json, request, err));
    str_init(&text, 1 << 20);
    chat_record_write(request, &text);
    FUZZ_CHECK(!text.truncated &&
               json_parse(text.data, text.length, limits, record, err) == STATUS_OK);
    str_deinit(&text);
    return chat_request_read(json_root(*record), request, err);
}

static void try_request(size_t choice, bool openai, const struct json_value *json)
{
    struct chat_request request = {
        .bos = "<s>", .openai = openai, .now = {.year = 2026, .month = 7, .day = 26}};
    struct error err = {""};
    struct chat_failure failure;
    struct chat_prompt prompt;
    struct json *record = NULL;
    enum status status = openai ? read_as_served(json, &request, &record, &err)
                                : chat_request_read(json, &request, &err);
    if (status == STATUS_OK)
        status = chat_template_render(chats[choice % TEMPLATES], &request, &prompt, &failure, &err);
    json_destroy(record);
    if (status != STATUS_OK) {
        FUZZ_CHECK(status == STATUS_INVALID || status == STATUS_LIMIT);
        fuzz_check_sentence(err.text);
        return;
    }
    check_prompt(tokenizers[choice % TOKENIZERS], &prompt);
    chat_prompt_deinit(&prompt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!chats[0])
        open_all();
    struct fuzz_input input = {data, data + size};
    size_t choice = fuzz_take_u8(&input);
    bool openai = fuzz_take_u8(&input) & 1;
    struct fuzz_bytes text = fuzz_take_rest(&input);
    struct json *json;
    struct error err;
    struct json_limits limits = {.max_bytes = 1 << 16, .max_depth = 110};
    if (json_parse((const char *)text.data, text.size, limits, &json, &err) != STATUS_OK)
        return 0; /* fuzz_json's matter */
    try_request(choice, openai, json_root(json));
    json_destroy(json);
    return 0;
}
