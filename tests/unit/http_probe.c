/* A server for the clients of test_http_tls.py: `http_probe [CERTIFICATE KEY [CLIENT_CA]]` prints
 * its address, and ends with its standard input. */
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/net/crypto/certificates.h"
#include "common/net/http/http_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_now(void *context, struct http_exchange *exchange)
{
    (void)context;
    http_exchange_reply_text(exchange, 200, "now\n");
}

static void on_echo(void *context, struct http_exchange *exchange)
{
    (void)context;
    const struct str *body = http_exchange_body(exchange);
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    reply.status = 200;
    str_append(&reply.body, body->data, body->length);
    (void)http_exchange_reply(exchange, &reply);
    http_reply_deinit(&reply);
}

/* As many numbered lines as the query says, in pieces. */
static void on_stream(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct http_reply head;
    http_reply_init(&head, 0);
    head.status = 200;
    enum status status = http_exchange_start(exchange, &head);
    for (int i = 0; status == STATUS_OK && i < atoi(http_exchange_query(exchange)); i++) {
        char line[32];
        int length = snprintf(line, sizeof line, "data: %d\n\n", i);
        status = http_exchange_write(exchange, line, (size_t)length);
    }
    http_exchange_end(exchange);
    http_reply_deinit(&head);
}

static const struct http_route routes[] = {
    {"/now", HTTP_GET, on_now}, {"/echo", HTTP_POST, on_echo}, {"/stream", HTTP_GET, on_stream}};

int main(int argc, char **argv)
{
    struct http_server_config config = {
        .listen = "127.0.0.1:0",
        .routes = routes,
        .route_count = sizeof routes / sizeof *routes,
        .max_body_bytes = 16u << 20,
        .threads = 2,
    };
    struct certificates_config certificates = {
        .name = "tls",
        .paths = {argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL},
        .required = true,
        .watch_interval_us = 20000,
    };
    struct http_server *server;
    struct error err;
    log_init("http_probe", LOG_INFO);
    if (failpoint_init("http_probe", &err) != STATUS_OK ||
        (argc > 1 && certificates_open(&certificates, &config.certificates, &err) != STATUS_OK) ||
        http_server_start(&config, &server, &err) != STATUS_OK) {
        fprintf(stderr, "http_probe: %s\n", err.text);
        return 1;
    }
    printf("%s\n", http_server_address(server));
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    http_server_stop(server);
    certificates_close(config.certificates);
    return 0;
}
