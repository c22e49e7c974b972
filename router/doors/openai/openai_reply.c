#include "router/doors/openai/openai_reply.h"

#include <stdio.h>

#define ERROR_BYTES (8u << 10)

/* A reply has room for many more headers than these. */
static void add(struct http_reply *reply, const char *name, const char *value)
{
    if (value && *value)
        (void)!http_reply_add_header(reply, name, value);
}

void openai_reply_json(struct http_exchange *exchange, const char *request_id, struct str *body)
{
    struct http_reply reply;
    http_reply_init(&reply, 1);
    str_deinit(&reply.body);
    reply.body = *body;
    reply.status = 200;
    reply.content_type = "application/json";
    add(&reply, "x-request-id", request_id);
    (void)!http_exchange_reply(exchange, &reply);
    http_reply_deinit(&reply);
    str_init(body, 1);
}

void openai_fill_refusal(struct http_reply *reply, const char *request_id,
                         const struct openai_why *why)
{
    struct openai_status status = openai_status_after(why->reason, why->retry_after_s);
    char seconds[16], milliseconds[16];
    reply->status = status.http;
    reply->content_type = "application/json";
    add(reply, "x-request-id", request_id);
    add(reply, "x-should-retry", status.should_retry ? "true" : "false");
    add(reply, "www-authenticate", status.http == 401 ? "Bearer" : NULL);
    if (status.retry_after_ms) {
        snprintf(milliseconds, sizeof milliseconds, "%u", status.retry_after_ms);
        snprintf(seconds, sizeof seconds, "%u", (status.retry_after_ms + 999) / 1000);
        add(reply, "retry-after-ms", milliseconds);
        add(reply, "retry-after", seconds);
    }
    openai_error_json(&reply->body, why->reason, why->param, why->sentence);
    str_add(&reply->body, "\n");
}

void openai_reply_refusal(struct http_exchange *exchange, const char *request_id,
                          const struct openai_why *why)
{
    struct http_reply reply;
    http_reply_init(&reply, ERROR_BYTES);
    openai_fill_refusal(&reply, request_id, why);
    (void)!http_exchange_reply(exchange, &reply);
    http_reply_deinit(&reply);
}

void openai_reply_error(struct http_exchange *exchange, const char *request_id, enum reason reason,
                        const char *param, const char *sentence)
{
    openai_reply_refusal(
        exchange, request_id,
        &(struct openai_why){.reason = reason, .param = param, .sentence = sentence});
}

enum status openai_reply_stream(struct http_exchange *exchange, const char *request_id)
{
    struct http_reply head;
    http_reply_init(&head, 1);
    head.status = 200;
    head.content_type = "text/event-stream; charset=utf-8";
    add(&head, "cache-control", "no-cache");
    add(&head, "x-accel-buffering", "no");
    add(&head, "x-request-id", request_id);
    enum status status = http_exchange_start(exchange, &head);
    http_reply_deinit(&head);
    return status;
}
