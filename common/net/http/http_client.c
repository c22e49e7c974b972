#include "common/net/http/http_client.h"

#include "common/base/clock.h"
#include "common/net/http/http_client_link.h"
#include "common/net/http/http_response.h"

#include <string.h>

#define MAX_POST_ANSWER_BYTES 65536
#define MAX_CALL_BYTES        2048 /* without its body */

struct exchange {
    const struct http_remote *remote;
    struct http_url url;
    bool only_status; /* the answer's body is of no use */
    struct http_client_link link;
    struct http_response response;
};

static bool given(const char *text)
{
    return text && *text;
}

static enum status check_key(const char *key, struct error *err)
{
    for (const char *c = key; c && *c; c++)
        if (*c <= 0x20 || *c >= 0x7f)
            return error_set(err, STATUS_INVALID,
                             "the API key holds what no header can: blanks, or something else "
                             "than printable ASCII");
    return STATUS_OK;
}

/* The URL; with its scheme: TLS, or not. */
static enum status read_remote(const struct http_remote *remote, struct http_url *url,
                               struct error *err)
{
    TRY(http_url_parse(remote->url, url, err));
    TRY(check_key(remote->api_key, err));
    if (!url->told)
        url->tls = remote->certificates != NULL;
    return http_url_check_tls(url, remote->url, remote->certificates != NULL, err);
}

enum status http_remote_check(const struct http_remote *remote, struct error *err)
{
    struct http_url url;
    return read_remote(remote, &url, err);
}

/* `body` NULL: a GET. */
static enum status send_request(struct exchange *exchange, const char *path,
                                const char *content_type, const struct str *body, struct error *err)
{
    struct str head;
    str_init(&head, MAX_CALL_BYTES);
    str_addf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", body ? "POST" : "GET",
             path, exchange->url.authority);
    if (given(exchange->remote->api_key))
        str_addf(&head, "Authorization: Bearer %s\r\n", exchange->remote->api_key);
    if (body)
        str_addf(&head, "Content-Type: %s\r\nContent-Length: %zu\r\n", content_type, body->length);
    str_add(&head, "\r\n");
    enum status status =
        head.truncated ? error_set(err, STATUS_LIMIT, "path '%.64s...' and key are too long", path)
                       : http_client_link_send(&exchange->link, head.data, head.length, err);
    explicit_bzero(head.data, head.length); /* the key */
    str_deinit(&head);
    if (status == STATUS_OK && body)
        status = http_client_link_send(&exchange->link, body->data, body->length, err);
    return status;
}

/* A server of TLS that is called in the clear mostly says nothing, or a record of its own. */
static enum status explain_silence(const struct exchange *exchange, const char *bytes,
                                   struct error *err)
{
    bool record = bytes[0] == 0x15 && bytes[1] == 3;
    return error_set(err, record ? STATUS_INVALID : STATUS_UNAVAILABLE, "%s %s%s",
                     exchange->url.authority,
                     record ? "answers in TLS" : "closed the connection without an answer",
                     exchange->url.tls ? "" : ": if TLS is what it speaks, call it with https://");
}

static enum status receive_answer(struct exchange *exchange, struct error *err)
{
    struct http_response *response = &exchange->response;
    char first[2] = "";
    for (bool some = false; !response->whole; some = true) {
        char bytes[16384];
        size_t count;
        TRY(http_client_link_receive(&exchange->link, bytes, sizeof bytes, &count, err));
        if (!some)
            memcpy(first, bytes, count < 2 ? count : 2);
        if (!some && (!count || first[0] == 0x15))
            return explain_silence(exchange, first, err);
        if (!count && exchange->only_status && response->has_head)
            return STATUS_OK;
        enum status status = count ? http_response_take(response, bytes, count, err)
                                   : http_response_end(response, exchange->link.over, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "%s", exchange->url.authority); /* a clause */
        if (!count)
            return STATUS_OK;
    }
    return STATUS_OK;
}

static enum status explain_status(const struct exchange *exchange, struct error *err)
{
    const struct http_response *response = &exchange->response;
    const char *why = "";
    if (response->status == 401)
        why = given(exchange->remote->api_key) ? ": it doesn't know this API key"
                                               : ": it asks for an API key";
    return error_set(err, response->status == 404 ? STATUS_NOT_FOUND : STATUS_INVALID,
                     "%s answered %s%s", exchange->url.authority, response->reason, why);
}

/* `body` NULL: a GET. The answer's body goes to `payload`. */
static enum status call(struct exchange *exchange, const char *path, const char *content_type,
                        const struct str *body, struct error *err)
{
    TRY(read_remote(exchange->remote, &exchange->url, err));
    exchange->link.url = &exchange->url;
    TRY(http_client_link_open(
        &exchange->link,
        &(struct http_client_tls_plan){.url = &exchange->url,
                                       .certificates = exchange->remote->certificates,
                                       .peer_name = exchange->remote->peer_name},
        err));
    TRY(send_request(exchange, path, content_type, body, err));
    TRY(receive_answer(exchange, err));
    bool fine = body ? exchange->response.status / 100 == 2 : exchange->response.status == 200;
    return fine ? STATUS_OK : explain_status(exchange, err);
}

static enum status exchange_with(const struct http_remote *remote, const char *path,
                                 const char *content_type, const struct str *body,
                                 uint64_t timeout_us, struct str *payload, struct error *err)
{
    struct exchange exchange = {
        .remote = remote,
        .only_status = body != NULL,
        .link = {.fd = -1, .deadline_us = clock_now_us() + timeout_us},
    };
    size_t before = payload->length;
    http_response_init(&exchange.response, payload);
    enum status status = call(&exchange, path, content_type, body, err);
    if (status != STATUS_OK) { /* the body of a refusal */
        payload->length = before;
        payload->data[before] = 0;
    }
    http_client_link_close(&exchange.link);
    http_response_deinit(&exchange.response);
    return status;
}

enum status http_get(const struct http_remote *remote, const char *path, uint64_t timeout_us,
                     struct str *body, struct error *err)
{
    return exchange_with(remote, path, "", NULL, timeout_us, body, err);
}

enum status http_post(const struct http_remote *remote, const char *path, const char *content_type,
                      const struct str *body, uint64_t timeout_us, struct error *err)
{
    struct str payload;
    str_init(&payload, MAX_POST_ANSWER_BYTES);
    enum status status = exchange_with(remote, path, content_type, body, timeout_us, &payload, err);
    str_deinit(&payload);
    return status;
}
