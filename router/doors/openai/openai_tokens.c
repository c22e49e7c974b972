#include "router/doors/openai/openai_tokens.h"

#include "common/base/json/json_quote.h"
#include "router/doors/openai/openai_admit.h"
#include "router/doors/openai/openai_body.h"
#include "router/doors/openai/openai_chat.h"
#include "router/doors/openai/openai_fields.h"
#include "router/doors/openai/openai_reply.h"
#include "router/doors/openai/openai_submit.h"
#include "router/doors/tokenize.h"

/* Parses the body. NULL, or not an object: *refusal says why; the caller destroys the document. */
static struct json *read_object(const char *body, size_t length, size_t max_bytes,
                                struct openai_refusal *refusal)
{
    struct json_limits limits = {.max_bytes = max_bytes, .max_depth = OPENAI_MAX_DEPTH};
    struct json *json = NULL;
    struct error why;
    *refusal = (struct openai_refusal){.reason = REASON_NONE};
    if (json_parse(body, length, limits, &json, &why) != STATUS_OK)
        openai_refuse(refusal, REASON_MALFORMED, "", "the body: %s", why.text);
    else if (json_kind(json_root(json)) != JSON_OBJECT)
        openai_refuse(refusal, REASON_MALFORMED, "", "the body must be a JSON object, found %s",
                      json_kind_name(json_root(json)));
    return json;
}

bool openai_tokenize_read(struct openai_tokenize *tokenize, const char *body, size_t length,
                          size_t max_bytes, struct openai_refusal *refusal)
{
    *tokenize = (struct openai_tokenize){.model = "", .add_special_tokens = true};
    arena_init(&tokenize->arena, 64u << 10);
    tokenize->json = read_object(body, length, max_bytes, refusal);
    struct openai_fields fields = {tokenize->json ? json_root(tokenize->json) : NULL, "", refusal};
    openai_field_text(&fields, "model", &tokenize->model);
    openai_field_bool(&fields, "return_token_strs", &tokenize->token_strings);
    if (!openai_field_content(&fields, "prompt", &tokenize->prompt)) {
        tokenize->add_special_tokens = false; /* the template writes them itself */
        tokenize->chat =
            (struct openai_request){.kind = OPENAI_CHAT, .add_generation_prompt = true};
        if (!openai_field(&fields, "messages"))
            openai_field_refuse(&fields, "prompt", REASON_MISSING_INPUT,
                                "is missing, and there are no messages");
        else
            openai_read_chat(&fields, &tokenize->chat);
    }
    openai_field_bool(&fields, "add_special_tokens", &tokenize->add_special_tokens);
    if (refusal->reason)
        openai_tokenize_deinit(tokenize);
    return !refusal->reason;
}

void openai_tokenize_deinit(struct openai_tokenize *tokenize)
{
    json_destroy(tokenize->json);
    arena_deinit(&tokenize->arena);
}

static void read_tokens(const struct openai_fields *fields, struct openai_detokenize *detokenize)
{
    const struct json_value *array;
    if (!openai_field_array(fields, "tokens", &array)) {
        openai_field_refuse(fields, "tokens", REASON_MISSING_INPUT, "is missing");
        return;
    }
    struct openai_ids ids;
    if (!openai_array_ids(fields, "tokens", REASON_INVALID_TOKEN_ID, array, &detokenize->arena,
                          &ids))
        return;
    detokenize->ids = ids.ids;
    detokenize->id_count = ids.count;
}

bool openai_detokenize_read(struct openai_detokenize *detokenize, const char *body, size_t length,
                            size_t max_bytes, struct openai_refusal *refusal)
{
    *detokenize = (struct openai_detokenize){.model = ""};
    arena_init(&detokenize->arena, 4 * max_bytes + (64u << 10));
    detokenize->json = read_object(body, length, max_bytes, refusal);
    struct openai_fields fields = {detokenize->json ? json_root(detokenize->json) : NULL, "",
                                   refusal};
    openai_field_text(&fields, "model", &detokenize->model);
    read_tokens(&fields, detokenize);
    if (refusal->reason)
        openai_detokenize_deinit(detokenize);
    return !refusal->reason;
}

void openai_detokenize_deinit(struct openai_detokenize *detokenize)
{
    json_destroy(detokenize->json);
    arena_deinit(&detokenize->arena);
}

void openai_tokenize_json(struct str *out, const uint32_t *ids, size_t count, uint32_t context,
                          const struct openai_token_strings *strings)
{
    str_addf(out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", count, context);
    for (size_t i = 0; i < count; i++)
        str_addf(out, "%s%u", i ? "," : "", ids[i]);
    str_add(out, "],\"token_strs\":");
    for (size_t i = 0; strings && i < count; i++) {
        size_t length = 0;
        const char *text = strings->text(strings->context, ids[i], &length);
        str_add(out, i ? "," : "[");
        json_quote(out, text ? text : "", text ? length : 0);
    }
    str_add(out, !strings ? "null}\n" : count ? "]}\n" : "[]}\n");
}

void openai_detokenize_json(struct str *out, const char *text, size_t length)
{
    str_add(out, "{\"prompt\":");
    json_quote(out, text, length);
    str_add(out, "}\n");
}

/* ------------------------------------------------------------------------------------- handlers */

static const char *text_of_token(const void *context, uint32_t id, size_t *length)
{
    return tokenizer_token_bytes(context, id, length);
}

/* A request on its way. */
struct asking {
    struct openai_api *api;
    struct http_exchange *exchange;
    const char *method;
    const struct served_model *model; /* NULL: not known */
    char name[REQUEST_ID_BYTES];
};

/* Sends `body`, or a refusal. */
static void answer(const struct asking *asking, enum reason reason, const char *param,
                   const char *sentence, struct str *body)
{
    const char *model = asking->model ? asking->model->name : NULL;
    openai_log_answer(asking->api, asking->exchange, asking->method, asking->name, model, reason);
    if (reason)
        openai_reply_error(asking->exchange, asking->name, reason, param, sentence);
    else
        openai_reply_json(asking->exchange, asking->name, body);
}

/* False: a refusal was sent. */
static bool find_model(struct asking *asking, const char *asked)
{
    size_t index;
    struct error err;
    enum reason reason = served_models_find(asking->api->models, asked, &index, &err);
    if (reason)
        answer(asking, reason, "model", err.text, NULL);
    else
        asking->model = &asking->api->models->items[index];
    return !reason;
}

static void answer_tokenize(struct asking *asking, const struct openai_tokenize *asked)
{
    if (!find_model(asking, asked->model))
        return;
    const struct served_model *model = asking->model;
    struct error err = {""};
    struct token_ids ids;
    struct str body;
    struct openai_rendered rendered = {.ids = &ids};
    struct openai_token_strings strings = {text_of_token, model->tokenizer};
    token_ids_init(&ids, tokenize_most_tokens(model));
    str_init(&body, asking->api->max_answer_bytes);
    enum reason reason = asked->prompt.bytes ? tokenize_text(model, asked->prompt,
                                                             asked->add_special_tokens, &ids, &err)
                                             : openai_render(model, &asked->chat, &rendered, &err);
    if (!reason) {
        uint32_t context = status_board_context(asking->api->board, asking->api->models,
                                                (size_t)(model - asking->api->models->items));
        openai_tokenize_json(&body, ids.data, ids.count, context,
                             asked->token_strings ? &strings : NULL);
        reason = body.truncated ? REASON_ANSWER_TOO_LARGE : REASON_NONE;
        error_set(&err, STATUS_LIMIT,
                  "%zu tokens are too many for one answer: ask for less at once", ids.count);
    }
    answer(asking, reason, asked->prompt.bytes ? "prompt" : "messages", err.text, &body);
    str_deinit(&body);
    token_ids_deinit(&ids);
}

static void read_tokenize(struct openai_api *api, struct http_exchange *exchange,
                          uint64_t arrival_us)
{
    (void)arrival_us;
    struct asking asking = {.api = api, .exchange = exchange, .method = "tokenize"};
    struct openai_refusal refusal;
    struct openai_tokenize asked;
    const struct str *body = http_exchange_body(exchange);
    openai_request_id(exchange, asking.name);
    if (!openai_body_plain(exchange, &refusal) ||
        !openai_tokenize_read(&asked, body->data, body->length, api->max_body_bytes, &refusal)) {
        answer(&asking, refusal.reason, refusal.param, refusal.err.text, NULL);
        return;
    }
    answer_tokenize(&asking, &asked);
    openai_tokenize_deinit(&asked);
}

void openai_handle_tokenize(void *context, struct http_exchange *exchange)
{
    openai_body_take(context, exchange, "tokenize", read_tokenize);
}

static void answer_detokenize(struct asking *asking, const struct openai_detokenize *asked)
{
    if (!find_model(asking, asked->model))
        return;
    struct error err = {""};
    struct str text, body;
    str_init(&text, asking->api->max_answer_bytes);
    str_init(&body, asking->api->max_answer_bytes);
    enum reason reason =
        detokenize_ids(asking->model, asked->ids, asked->id_count, false, &text, &err);
    if (!reason) {
        openai_detokenize_json(&body, text.data, text.length);
        reason = body.truncated ? REASON_ANSWER_TOO_LARGE : REASON_NONE;
        error_set(&err, STATUS_LIMIT, "the text is too large for one answer: ask for less at once");
    }
    answer(asking, reason, "tokens", err.text, &body);
    str_deinit(&body);
    str_deinit(&text);
}

static void read_detokenize(struct openai_api *api, struct http_exchange *exchange,
                            uint64_t arrival_us)
{
    (void)arrival_us;
    struct asking asking = {.api = api, .exchange = exchange, .method = "detokenize"};
    struct openai_refusal refusal;
    struct openai_detokenize asked;
    const struct str *body = http_exchange_body(exchange);
    openai_request_id(exchange, asking.name);
    if (!openai_body_plain(exchange, &refusal) ||
        !openai_detokenize_read(&asked, body->data, body->length, api->max_body_bytes, &refusal)) {
        answer(&asking, refusal.reason, refusal.param, refusal.err.text, NULL);
        return;
    }
    answer_detokenize(&asking, &asked);
    openai_detokenize_deinit(&asked);
}

void openai_handle_detokenize(void *context, struct http_exchange *exchange)
{
    openai_body_take(context, exchange, "detokenize", read_detokenize);
}
