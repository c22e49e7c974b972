#include "common/cli/load_run.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/json/json_quote.h"
#include "common/net/http/http_streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BODY_BYTES   (64u << 20)
#define MAX_ID_BYTES     256
#define FETCH_TIMEOUT_US 10000000

struct load_client {
    const struct load_target *target;
    void (*ended)(void *context, uint32_t id);
    void *context;
    struct http_streams *streams; /* NULL: gRPC */
    struct load_grpc *grpc;
    struct pending *first;
    uint32_t stillborn; /* pending ones */
};

/* An exchange over HTTP. */
struct pending {
    struct load_client *client;
    uint32_t id;
    struct str body;
    struct load_reader reader; /* reads an answer */
    struct load_reply *reply;  /* a reply instead */
    bool stillborn;            /* it couldn't be sent */
    struct error why;
    struct pending *previous, *next;
};

static bool is_chat(const struct load_target *target)
{
    return target->backend == LOAD_OPENAI_CHAT;
}

static void on_bytes(void *context, int status, const char *bytes, size_t count)
{
    struct pending *pending = context;
    if (pending->reply)
        str_append(&pending->reply->body, bytes, count);
    else
        load_reader_take(&pending->reader, status, bytes, count, clock_now_ns());
}

static void pending_free(struct pending *pending)
{
    struct load_client *client = pending->client;
    if (pending->next)
        pending->next->previous = pending->previous;
    *(pending->previous ? &pending->previous->next : &client->first) = pending->next;
    if (!pending->reply)
        load_reader_deinit(&pending->reader);
    str_deinit(&pending->body);
    free(pending);
}

static void on_ended(void *context, int status, enum status outcome, const struct error *err)
{
    struct pending *pending = context;
    struct load_client *client = pending->client;
    uint32_t id = pending->id;
    if (pending->reply)
        pending->reply->status = outcome == STATUS_OK ? status : 0;
    else if (outcome == STATUS_OK)
        load_reader_end(&pending->reader, status, clock_now_ns());
    else {
        pending->reader.answer->end_ns = clock_now_ns();
        load_answer_fail(pending->reader.answer,
                         outcome == STATUS_TIMEOUT       ? "timeout"
                         : outcome == STATUS_UNAVAILABLE ? "connection"
                                                         : status_name(outcome),
                         err->text);
    }
    pending_free(pending);
    client->ended(client->context, id);
}

enum status load_client_open(const struct load_target *target,
                             void (*ended)(void *context, uint32_t id), void *context,
                             struct load_client **out, struct error *err)
{
    static const struct http_stream_handlers handlers = {on_bytes, on_ended};
    struct load_client *client = calloc(1, sizeof *client);
    ASSERT(client);
    *client = (struct load_client){.target = target, .ended = ended, .context = context};
    enum status status = target->backend == LOAD_BATON
                             ? load_grpc_open(target, ended, context, &client->grpc, err)
                             : http_streams_open(&target->remote, &handlers, &client->streams, err);
    if (status != STATUS_OK) {
        free(client);
        return status;
    }
    *out = client;
    return STATUS_OK;
}

void load_client_close(struct load_client *client)
{
    if (!client)
        return;
    if (client->streams)
        http_streams_close(client->streams);
    if (client->grpc)
        load_grpc_close(client->grpc);
    while (client->first)
        pending_free(client->first);
    free(client);
}

/* --- requests --- */

static void name_request(const struct load_target *target, uint32_t id, char name[MAX_ID_BYTES])
{
    if (id == LOAD_PROBE)
        snprintf(name, MAX_ID_BYTES, "%.100sprobe", target->id_prefix);
    else
        snprintf(name, MAX_ID_BYTES, "%.100s%u", target->id_prefix, id);
}

static void add_member(struct str *body, const char *key, struct text value)
{
    str_addf(body, ", \"%s\": ", key);
    json_quote(body, value.bytes, value.length);
}

void load_client_prepare(const struct load_client *client, uint32_t id, const struct text *turns,
                         size_t turn_count, uint32_t output_tokens, struct str *body)
{
    const struct load_target *target = client->target;
    struct str prompt;
    str_clear(body);
    str_init(&prompt, MAX_BODY_BYTES);
    for (size_t i = 0; i < turn_count && !is_chat(target); i++)
        str_append(&prompt, turns[i].bytes, turns[i].length);
    const struct text all = {prompt.data, prompt.length};
    if (target->backend == LOAD_BATON) {
        char name[MAX_ID_BYTES];
        name_request(target, id, name);
        load_grpc_prepare(target, name, all, output_tokens, body);
        str_deinit(&prompt);
        return;
    }
    str_add(body, "{\"model\": ");
    json_quote(body, target->model, strlen(target->model));
    for (size_t i = 0; i < turn_count && is_chat(target); i++) {
        str_addf(body, "%s{\"role\": \"%s\"", i ? ", " : ", \"messages\": [",
                 i % 2 ? "assistant" : "user");
        add_member(body, "content", turns[i]);
        str_add(body, i + 1 < turn_count ? "}" : "}]");
    }
    if (!is_chat(target))
        add_member(body, "prompt", all);
    str_addf(body, ", \"%s\": %u, \"stream\": true, \"stream_options\": {\"include_usage\": true}",
             is_chat(target) ? "max_completion_tokens" : "max_tokens", output_tokens);
    str_addf(body, "%s%s}", target->ignore_eos ? ", \"ignore_eos\": true" : "", target->extra);
    str_deinit(&prompt);
}

/* Posts a copy of the body. A failure is kept for load_client_run. */
static void post(struct load_client *client, struct pending *pending, const char *path,
                 const struct str *body, uint64_t timeout_us)
{
    const struct load_target *target = client->target;
    struct http_header headers[LOAD_MAX_HEADERS];
    char name[MAX_ID_BYTES], whole[sizeof target->base + sizeof target->endpoint];
    snprintf(whole, sizeof whole, "%s%s", target->base, path);
    name_request(target, pending->id, name);
    memcpy(headers, target->headers, target->header_count * sizeof *headers);
    headers[target->header_count] = (struct http_header){"X-Request-Id", name};
    pending->client = client;
    pending->next = client->first;
    if (client->first)
        client->first->previous = pending;
    client->first = pending;
    str_init(&pending->body, MAX_BODY_BYTES);
    str_append(&pending->body, body->data, body->length);
    const struct http_stream_post asked = {.path = whole,
                                           .headers = headers,
                                           .header_count = target->header_count + 1,
                                           .body = &pending->body,
                                           .timeout_us = timeout_us,
                                           .context = pending};
    pending->stillborn = http_streams_post(client->streams, &asked, &pending->why) != STATUS_OK;
    client->stillborn += pending->stillborn;
}

void load_client_send(struct load_client *client, uint32_t id, const struct str *body,
                      struct load_answer *answer)
{
    answer->sent_ns = clock_now_ns();
    if (client->grpc) {
        load_grpc_send(client->grpc, id, body, answer);
        return;
    }
    struct pending *pending = calloc(1, sizeof *pending);
    ASSERT(pending);
    pending->id = id;
    load_reader_init(&pending->reader, answer, is_chat(client->target));
    post(client, pending, client->target->endpoint, body, client->target->timeout_us);
}

void load_client_fetch(struct load_client *client, uint32_t id, const char *path,
                       const struct str *body, struct load_reply *reply)
{
    struct pending *pending = calloc(1, sizeof *pending);
    ASSERT(pending && client->streams);
    pending->id = id;
    pending->reply = reply;
    post(client, pending, path, body, FETCH_TIMEOUT_US);
}

int load_client_fd(const struct load_client *client)
{
    return client->grpc ? load_grpc_fd(client->grpc) : http_streams_fd(client->streams);
}

void load_client_run(struct load_client *client)
{
    if (client->grpc) {
        load_grpc_run(client->grpc);
        return;
    }
    for (struct pending *pending = client->first, *next; client->stillborn; pending = next) {
        next = pending->next;
        if (!pending->stillborn)
            continue;
        struct error why = pending->why;
        client->stillborn--;
        on_ended(pending, 0, STATUS_INVALID, &why);
    }
    http_streams_run(client->streams);
}
