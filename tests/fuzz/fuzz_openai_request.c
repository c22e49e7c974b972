/* Any bytes as a body of OpenAI's interface: refused with a sentence, or turned into messages for
 * the one validator, with a record that is JSON. Or any bytes as a model's text: the cuts don't
 * change its calls. Input: the kind, then the bytes. */
#include "common/language/chat/chat_request.h"
#include "router/doors/openai/openai_chat.h"
#include "router/doors/openai/openai_tokens.h"
#include "router/doors/openai/tool_shape.h"
#include "router/doors/request_constraint.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (1u << 20)

static const struct slo_classes classes = {
    .items = {{.name = "chat", .objective = {.ttft_us = 400000, .tpot_us = 40000}}},
    .count = 1,
    .standard = SLO_NONE};
static const struct request_model model = {
    .name = "m", .context = 256, .vocab = 600, .has_tokenizer = true, .slo = &classes};

static void check_message(struct openai_request *request, const struct openai_prompt *prompt)
{
    struct request_params params;
    struct error err;
    enum reason reason = request_parse(openai_request_message(request, prompt), &request->fields,
                                       &model, &params, &err);
    if (reason) {
        char param[OPENAI_PARAM_BYTES];
        fuzz_check_sentence(err.text);
        openai_request_param(request->kind, reason, err.text, param);
        return;
    }
    openai_request_fill(&model, 10, &params);
    FUZZ_CHECK(sampling_validate(&params.sampling, &err) == STATUS_OK);
    FUZZ_CHECK(params.slo_class ? params.slo_class == SLO_NONE && !params.objective.ttft_us
                                : params.objective.ttft_us >= 400000 && !params.objective.e2e_us);
}

static void check_record(const struct openai_request *request)
{
    struct json_limits limits = {.max_bytes = 64 * MAX_BYTES, .max_depth = 200};
    struct json *json;
    struct error err;
    struct str record;
    str_init(&record, 8 * MAX_BYTES);
    struct chat_request chat = openai_chat_request(request);
    chat_record_write(&chat, &record);
    if (!record.truncated) {
        FUZZ_CHECK(json_parse(record.data, record.length, limits, &json, &err) == STATUS_OK);
        json_destroy(json);
    }
    str_deinit(&record);
}

/* An answer that must call: described as JSON, or refused with a sentence. */
static void check_calls(struct openai_request *request)
{
    static const struct {
        enum tool_format format;
        struct chat_forms forms;
    } templates[] = {{TOOL_FORMAT_HERMES, {.calls = "<tool_call>"}},
                     {TOOL_FORMAT_MISTRAL, {.calls = "[TOOL_CALLS]["}},
                     {TOOL_FORMAT_MISTRAL, {.calls = "[TOOL_CALLS][ARGS]"}},
                     {TOOL_FORMAT_DEEPSEEK, {.calls = ""}}};
    if (request->tool_choice != OPENAI_TOOLS_REQUIRED && request->tool_choice != OPENAI_TOOLS_NAMED)
        return;
    size_t at = json_count(request->messages) % (sizeof templates / sizeof *templates);
    struct openai_refusal refusal = {.reason = REASON_NONE};
    if (!tool_shape_constrain(tool_shape_of(templates[at].format, &templates[at].forms), request,
                              &refusal)) {
        fuzz_check_sentence(refusal.err.text);
        return;
    }
    struct json_limits limits = {.max_bytes = 64 * MAX_BYTES, .max_depth = 4};
    struct str text;
    struct json *json;
    str_init(&text, 64 * MAX_BYTES);
    tool_calls_write(&request->tool_calls, &text);
    FUZZ_CHECK(json_parse(text.data, text.length, limits, &json, NULL) == STATUS_OK);
    json_destroy(json);
    str_deinit(&text);
}

static void check_request(enum openai_kind kind, struct fuzz_bytes body)
{
    struct openai_request request;
    struct openai_refusal refusal;
    if (!openai_request_read(&request, kind, (const char *)body.data, body.size, MAX_BYTES,
                             &refusal)) {
        FUZZ_CHECK(refusal.reason != REASON_NONE);
        fuzz_check_sentence(refusal.err.text);
        return;
    }
    FUZZ_CHECK(request.prompt_count * request.choices <= OPENAI_MAX_CHOICES);
    for (size_t i = 0; kind == OPENAI_COMPLETION && i < request.prompt_count; i++)
        check_message(&request, &request.prompts[i]);
    if (kind == OPENAI_CHAT) {
        check_message(&request, &(struct openai_prompt){.text = text_from("rendered")});
        check_record(&request);
        check_calls(&request);
    }
    openai_request_deinit(&request);
}

static void check_tokens(struct fuzz_bytes body)
{
    struct openai_tokenize tokenize;
    struct openai_detokenize detokenize;
    struct openai_refusal refusal;
    if (openai_tokenize_read(&tokenize, (const char *)body.data, body.size, MAX_BYTES, &refusal))
        openai_tokenize_deinit(&tokenize);
    else
        fuzz_check_sentence(refusal.err.text);
    if (openai_detokenize_read(&detokenize, (const char *)body.data, body.size, MAX_BYTES,
                               &refusal))
        openai_detokenize_deinit(&detokenize);
    else
        fuzz_check_sentence(refusal.err.text);
}

/* Events of one kind behind one another are one: where the text was cut doesn't count. */
struct heard {
    struct str text;
    int last;
};

static void on_event(void *context, const struct tool_event *event)
{
    struct heard *heard = context;
    FUZZ_CHECK(event->length && event->index < TOOL_MAX_CALLS);
    if (event->kind == TOOL_CALL || heard->last != (int)event->kind)
        str_addf(&heard->text, "\n%d %u ", (int)event->kind, event->index);
    str_append(&heard->text, event->text, event->length);
    heard->last = (int)event->kind;
}

static void parse(enum tool_format format, struct fuzz_bytes text, size_t step, struct heard *heard)
{
    static const char *const names[] = {"f", "get"};
    struct tool_parser_config config = {format, names, 2, on_event, heard};
    struct tool_parser parser;
    str_init(&heard->text, 64 * MAX_BYTES);
    heard->last = -1;
    tool_parser_init(&parser, &config);
    for (size_t at = 0; at < text.size; at += step) {
        size_t left = text.size - at;
        tool_parser_push(&parser, (const char *)text.data + at, left < step ? left : step);
    }
    tool_parser_end(&parser, text.size % 2);
    tool_parser_deinit(&parser);
}

static void check_parser(enum tool_format format, struct fuzz_bytes text, size_t step)
{
    struct heard whole, cut;
    parse(format, text, text.size + 1, &whole);
    parse(format, text, step, &cut);
    FUZZ_CHECK(!strcmp(whole.text.data, cut.text.data));
    str_deinit(&whole.text);
    str_deinit(&cut.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    size_t what = fuzz_take_below(&input, 8);
    if (what < 2) {
        check_request((enum openai_kind)what, fuzz_take_rest(&input));
    } else if (what == 2) {
        check_tokens(fuzz_take_rest(&input));
    } else {
        size_t step = 1 + fuzz_take_below(&input, 16);
        check_parser((enum tool_format)(what - 3), fuzz_take_rest(&input), step);
    }
    return 0;
}
