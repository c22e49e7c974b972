/* One exchange by libcurl, as http_client.c (which has the functions) and http_streams.c prepare
 * and judge it. Internal to this folder. */
#ifndef BATON_NET_HTTP_HTTP_TRANSFER_H
#define BATON_NET_HTTP_HTTP_TRANSFER_H

#include "common/net/http/http_client.h"

#include <curl/curl.h>
#include <stdbool.h>

struct certificate_set;

struct http_transfer {
    const struct http_remote *remote;
    struct http_url url;
    const struct certificate_set *set; /* NULL: no certificates are given */
    const char *setting;               /* prefix of the TLS settings' names: "tls" */
    const char *path;
    const char *content_type;
    const struct http_header *headers; /* further ones */
    size_t header_count;
    const struct str *body; /* NULL: a GET */
    struct str *payload;    /* gets the answer's body, without `take` */
    /* Takes the body of an answer with any status, as it comes; the connection may be kept. Returns
     * `count`, or another number to end the exchange. NULL: `payload`, and only 200 (a POST: 2xx)
     * is fine. */
    size_t (*take)(struct http_transfer *transfer, const char *bytes, size_t count);
    struct error *err;
    CURL *curl;
    struct curl_slist *lines, *connect_to;
    size_t head_bytes; /* all heads of the answer, also of interim ones */
    bool has_head;     /* status, reason and chunked are those of the final answer */
    bool chunked;      /* the current head says so */
    bool has_goodbye;  /* TLS: the server has announced the end of its bytes (close_notify) */
    unsigned alert;    /* TLS: the server's last alert (RFC 8446, 6), otherwise; 0: none */
    long status;
    char reason[64];    /* as shown to people: "404 Not Found" */
    enum status failed; /* decided in a callback, with its sentence in `err` */
    char words[CURL_ERROR_SIZE];
};

/* Prepares transfer->curl. The caller has set remote, path, content_type, body, err and what takes
 * the answer; all of it, and `transfer` itself, stay where they are until the close. Fails as
 * http_get does without a connection. */
enum status http_transfer_open(struct http_transfer *transfer, uint64_t timeout_us,
                               struct error *err) WARN_UNUSED;
/* Returns the outcome, as http_get has it, of a transfer that ended with `result`. */
enum status http_transfer_judge(struct http_transfer *transfer, CURLcode result,
                                struct error *err) WARN_UNUSED;
void http_transfer_close(struct http_transfer *transfer);

#endif
