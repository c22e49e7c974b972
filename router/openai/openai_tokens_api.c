#include "router/openai/openai_tokens_api.h"

#include "router/openai/openai_render.h"
#include "router/openai/openai_reply.h"
#include "router/openai/openai_submit.h"
#include "router/openai/openai_tokens.h"
#include "router/tokenize.h"

static const char *token_text(const void *context, uint32_t id, size_t *length)
{
    return tokenizer_token_bytes(context, id, length);
}

/* NULL: the answer is a refusal, and is sent. */
static const struct served_model *find_model(const struct openai_api *api,
                                             struct http_exchange *exchange, const char *name,
                                             const char *asked)
{
    size_t index;
    struct error err;
    enum reason reason = served_models_find(api->models, asked, &index, &err);
    if (!reason)
        return &api->models->items[index];
    openai_reply_error(exchange, name, reason, "model", err.text);
    return NULL;
}

static enum reason make_tokens(const struct served_model *model,
                               const struct openai_tokenize *asked, struct token_ids *ids,
                               struct error *err)
{
    if (asked->prompt)
        return tokenize_text(model, asked->prompt, asked->add_special_tokens, ids, err);
    enum reason reason = request_check_text(&model->limits, "", err); /* is there a tokenizer? */
    return reason ? reason : openai_render(model, &asked->chat, ids, err);
}

static void answer_tokenize(struct openai_api *api, struct http_exchange *exchange,
                            const char *name, const struct openai_tokenize *asked)
{
    const struct served_model *model = find_model(api, exchange, name, asked->model);
    if (!model)
        return;
    struct error err;
    struct token_ids ids;
    struct str body;
    struct openai_token_strings strings = {token_text, model->tokenizer};
    token_ids_init(&ids, tokenize_most_tokens(model));
    str_init(&body, api->max_answer_bytes);
    enum reason reason = make_tokens(model, asked, &ids, &err);
    if (!reason) {
        openai_tokenize_json(&body, ids.data, ids.count, model->limits.context,
                             asked->token_strings ? &strings : NULL);
        reason = body.truncated ? REASON_ANSWER_TOO_LARGE : REASON_NONE;
        error_set(&err, STATUS_LIMIT,
                  "%zu tokens are too many for one answer: ask for less at once", ids.count);
    }
    if (reason)
        openai_reply_error(exchange, name, reason, asked->prompt ? "prompt" : "messages", err.text);
    else
        openai_reply_json(exchange, name, &body);
    str_deinit(&body);
    token_ids_deinit(&ids);
}

void openai_handle_tokenize(void *context, struct http_exchange *exchange)
{
    struct openai_api *api = context;
    char name[REQUEST_MAX_ID_BYTES + 1];
    struct openai_refusal refusal;
    struct openai_tokenize asked;
    const struct str *body = http_exchange_body(exchange);
    openai_request_name(exchange, name);
    if (!openai_body_plain(exchange, &refusal) ||
        !openai_tokenize_read(&asked, body->data, body->length, api->max_body_bytes, &refusal)) {
        openai_reply_error(exchange, name, refusal.reason, refusal.param, refusal.err.text);
        return;
    }
    answer_tokenize(api, exchange, name, &asked);
    openai_tokenize_deinit(&asked);
}

static void answer_detokenize(struct openai_api *api, struct http_exchange *exchange,
                              const char *name, const struct openai_detokenize *asked)
{
    const struct served_model *model = find_model(api, exchange, name, asked->model);
    if (!model)
        return;
    struct error err;
    struct str text, body;
    str_init(&text, api->max_answer_bytes);
    str_init(&body, api->max_answer_bytes);
    enum reason reason = detokenize_ids(model, asked->ids, asked->id_count, false, &text, &err);
    if (!reason) {
        openai_detokenize_json(&body, text.data, text.length);
        reason = body.truncated ? REASON_ANSWER_TOO_LARGE : REASON_NONE;
        error_set(&err, STATUS_LIMIT, "the text is too large for one answer: ask for less at once");
    }
    if (reason)
        openai_reply_error(exchange, name, reason, "tokens", err.text);
    else
        openai_reply_json(exchange, name, &body);
    str_deinit(&body);
    str_deinit(&text);
}

void openai_handle_detokenize(void *context, struct http_exchange *exchange)
{
    struct openai_api *api = context;
    char name[REQUEST_MAX_ID_BYTES + 1];
    struct openai_refusal refusal;
    struct openai_detokenize asked;
    const struct str *body = http_exchange_body(exchange);
    openai_request_name(exchange, name);
    if (!openai_body_plain(exchange, &refusal) ||
        !openai_detokenize_read(&asked, body->data, body->length, api->max_body_bytes, &refusal)) {
        openai_reply_error(exchange, name, refusal.reason, refusal.param, refusal.err.text);
        return;
    }
    answer_detokenize(api, exchange, name, &asked);
    openai_detokenize_deinit(&asked);
}
