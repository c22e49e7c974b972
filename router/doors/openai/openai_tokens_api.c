#include "router/doors/openai/openai_tokens_api.h"

#include "router/doors/openai/openai_admit.h"
#include "router/doors/openai/openai_render.h"
#include "router/doors/openai/openai_reply.h"
#include "router/doors/openai/openai_submit.h"
#include "router/doors/openai/openai_tokens.h"
#include "router/doors/tokenize.h"

static const char *token_text(const void *context, uint32_t id, size_t *length)
{
    return tokenizer_token_bytes(context, id, length);
}

/* One that is being answered. */
struct asking {
    struct openai_api *api;
    struct http_exchange *exchange;
    const char *method;
    const struct served_model *model; /* NULL: not known */
    char name[REQUEST_ID_BYTES];
};

static void begin(struct asking *asking, struct openai_api *api, struct http_exchange *exchange,
                  const char *method)
{
    *asking = (struct asking){.api = api, .exchange = exchange, .method = method};
    openai_request_id(exchange, asking->name);
}

/* The body, or why there is none. */
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

/* False: the answer is a refusal, and is sent. */
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

static enum reason make_tokens(const struct served_model *model,
                               const struct openai_tokenize *asked, struct token_ids *ids,
                               struct error *err)
{
    if (asked->prompt)
        return tokenize_text(model, asked->prompt, asked->add_special_tokens, ids, err);
    return openai_render(model, &asked->chat, ids, err);
}

static void answer_tokenize(struct asking *asking, const struct openai_tokenize *asked)
{
    if (!find_model(asking, asked->model))
        return;
    const struct served_model *model = asking->model;
    struct error err = {""};
    struct token_ids ids;
    struct str body;
    struct openai_token_strings strings = {token_text, model->tokenizer};
    token_ids_init(&ids, tokenize_most_tokens(model));
    str_init(&body, asking->api->max_answer_bytes);
    enum reason reason = make_tokens(model, asked, &ids, &err);
    if (!reason) {
        uint32_t context = status_board_context(asking->api->board, asking->api->models,
                                                (size_t)(model - asking->api->models->items));
        openai_tokenize_json(&body, ids.data, ids.count, context,
                             asked->token_strings ? &strings : NULL);
        reason = body.truncated ? REASON_ANSWER_TOO_LARGE : REASON_NONE;
        error_set(&err, STATUS_LIMIT,
                  "%zu tokens are too many for one answer: ask for less at once", ids.count);
    }
    answer(asking, reason, asked->prompt ? "prompt" : "messages", err.text, &body);
    str_deinit(&body);
    token_ids_deinit(&ids);
}

void openai_handle_tokenize(void *context, struct http_exchange *exchange)
{
    struct openai_api *api = context;
    struct asking asking;
    struct openai_refusal refusal;
    struct openai_tokenize asked;
    const struct str *body = http_exchange_body(exchange);
    begin(&asking, api, exchange, "tokenize");
    if (!openai_body_plain(exchange, &refusal) ||
        !openai_tokenize_read(&asked, body->data, body->length, api->max_body_bytes, &refusal)) {
        answer(&asking, refusal.reason, refusal.param, refusal.err.text, NULL);
        return;
    }
    answer_tokenize(&asking, &asked);
    openai_tokenize_deinit(&asked);
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

void openai_handle_detokenize(void *context, struct http_exchange *exchange)
{
    struct openai_api *api = context;
    struct asking asking;
    struct openai_refusal refusal;
    struct openai_detokenize asked;
    const struct str *body = http_exchange_body(exchange);
    begin(&asking, api, exchange, "detokenize");
    if (!openai_body_plain(exchange, &refusal) ||
        !openai_detokenize_read(&asked, body->data, body->length, api->max_body_bytes, &refusal)) {
        answer(&asking, refusal.reason, refusal.param, refusal.err.text, NULL);
        return;
    }
    answer_detokenize(&asking, &asked);
    openai_detokenize_deinit(&asked);
}
