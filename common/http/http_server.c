#include "common/http/http_server.h"

#include "common/base/assert.h"
#include "common/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MOD               "http"
#define MAX_HEADERS_BYTES 8192
#define MAX_BODY_BYTES    8192 /* of a request: read only to be refused by its method */
#define SILENCE_LIMIT_S   10
#define LISTEN_BACKLOG    128
#define PAUSE_US          100000 /* of the door, where it is full inside or no descriptor is left */
#define ALL_METHODS                                                                                \
    (EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |     \
     EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE | EVHTTP_REQ_CONNECT | EVHTTP_REQ_PATCH)

struct http_server {
    struct http_server_config config;
    char address[96];
    struct event_base *base;
    struct evhttp *http;
    struct evconnlistener *listener; /* evhttp's */
    struct event *stop_event, *open_event;
    int stop_fd;
    bool complained; /* since the last connection that came in and left room */
    pthread_t thread;
};

static const char *reason_of(int status)
{
    switch (status) {
    case 200: return "OK";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 503: return "Service Unavailable";
    default: return status < 500 ? "Error" : "Internal Server Error";
    }
}

static void send_reply(struct evhttp_request *request, const struct http_reply *reply)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Content-Type", reply->content_type);
    evhttp_add_header(headers, "Connection", "close");
    struct evbuffer *body = evbuffer_new();
    ASSERT(body);
    if (evhttp_request_get_command(request) == EVHTTP_REQ_HEAD) {
        char length[24];
        snprintf(length, sizeof length, "%zu", reply->body.length);
        evhttp_add_header(headers, "Content-Length", length);
    } else {
        evbuffer_add(body, reply->body.data, reply->body.length);
    }
    evhttp_send_reply(request, reply->status, reason_of(reply->status), body);
    evbuffer_free(body);
}

static void on_request(struct evhttp_request *request, void *context)
{
    struct http_server *server = context;
    struct http_reply reply = {.status = 404, .content_type = "text/plain; charset=utf-8"};
    str_init(&reply.body, HTTP_MAX_BODY_BYTES);
    enum evhttp_cmd_type method = evhttp_request_get_command(request);
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *raw_path = uri ? evhttp_uri_get_path(uri) : NULL;
    char *path = raw_path ? evhttp_uridecode(raw_path, 0, NULL) : NULL;
    if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD) {
        reply.status = 405;
        evhttp_add_header(evhttp_request_get_output_headers(request), "Allow", "GET, HEAD");
        str_add(&reply.body, "only GET and HEAD\n");
    } else if (path) {
        server->config.handle(server->config.context, *path ? path : "/", &reply);
    }
    if (reply.body.truncated) {
        log_error(MOD, "msg=\"reply is larger than %u bytes\"", HTTP_MAX_BODY_BYTES);
        reply.status = 500;
        str_clear(&reply.body);
    }
    if (reply.status == 404 && reply.body.length == 0)
        str_add(&reply.body, "not found\n");
    send_reply(request, &reply);
    free(path);
    str_deinit(&reply.body);
}

/* --- the door --- */

struct open_fds {
    evutil_socket_t fds[HTTP_MAX_CONNECTIONS + 8];
    size_t count;
};

static int note_fd(const struct event_base *base, const struct event *event, void *context)
{
    (void)base;
    struct open_fds *open = context;
    evutil_socket_t fd = event_get_fd(event);
    for (size_t i = 0; i < open->count; i++)
        if (open->fds[i] == fd)
            return 0;
    if (fd >= 0 && open->count < sizeof open->fds / sizeof *open->fds)
        open->fds[open->count++] = fd;
    return 0;
}

/* evhttp doesn't tell when a connection ends, but each one that lives has an event. */
static size_t count_connections(struct http_server *server)
{
    struct open_fds open = {{server->stop_fd, evconnlistener_get_fd(server->listener)}, 2};
    event_base_foreach_event(server->base, note_fd, &open);
    return open.count - 2;
}

static void close_door(struct http_server *server, const char *why)
{
    static const struct timeval pause = {0, PAUSE_US};
    if (!server->complained)
        log_warn(MOD, "msg=\"no connections are taken for the moment: %s\"", why);
    server->complained = true;
    evconnlistener_disable(server->listener);
    evtimer_add(server->open_event, &pause);
}

static void on_open_again(evutil_socket_t fd, short events, void *context)
{
    (void)fd;
    (void)events;
    struct http_server *server = context;
    if (count_connections(server) >= HTTP_MAX_CONNECTIONS) {
        close_door(server, "the limit of connections is reached");
        return;
    }
    evconnlistener_enable(server->listener);
}

/* Called for each connection that comes in. NULL: evhttp makes its usual bufferevent. */
static struct bufferevent *on_connection(struct event_base *base, void *context)
{
    (void)base;
    struct http_server *server = context;
    if (count_connections(server) + 1 >= HTTP_MAX_CONNECTIONS)
        close_door(server, "the limit of connections is reached");
    else
        server->complained = false;
    return NULL;
}

/* The server whose thread this is. */
static _Thread_local struct http_server *served_here;

/* Without a pause it would fail again at once, and again. The context is the listener's, which evhttp has made its own. */
static void on_accept_failed(struct evconnlistener *listener, void *evhttp)
{
    (void)listener;
    (void)evhttp;
    close_door(served_here, strerrordesc_np(EVUTIL_SOCKET_ERROR()));
}

static void on_stop(evutil_socket_t fd, short events, void *context)
{
    (void)fd;
    (void)events;
    struct http_server *server = context;
    event_base_loopbreak(server->base);
}

static void *serve(void *context)
{
    struct http_server *server = context;
    pthread_setname_np(pthread_self(), "http");
    served_here = server;
    event_base_dispatch(server->base);
    return NULL;
}

/* The numeric "host:port" of `listen` as a socket address. */
static enum status parse_listen(const char *listen, struct sockaddr_storage *address, int *length,
                                struct error *err)
{
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(listen, ':');
    uint64_t port;
    bool shaped = colon && (size_t)(colon - listen) < sizeof host &&
                  str_to_u64(colon + 1, 0, UINT16_MAX, &port);
    if (shaped) {
        memcpy(host, listen, (size_t)(colon - listen));
        host[colon - listen] = 0;
        *length = sizeof *address;
        shaped = evutil_parse_sockaddr_port(host, (struct sockaddr *)address, length) == 0;
    }
    if (!shaped)
        return error_set(err, STATUS_INVALID,
                         "cannot listen on '%s' for HTTP: give a numeric host and a port, like "
                         "127.0.0.1:9090",
                         listen);
    /* sin_port and sin6_port lie at the same place. */
    ((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
    return STATUS_OK;
}

enum status http_check_listen(const char *listen, struct error *err)
{
    struct sockaddr_storage address;
    int length;
    return parse_listen(listen, &address, &length, err);
}

static bool is_loopback(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static void name_bound_address(evutil_socket_t fd, char *text, size_t size)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char host[INET6_ADDRSTRLEN] = "?";
    bool known = getsockname(fd, (struct sockaddr *)&address, &length) == 0;
    ASSERT(known);
    if (address.ss_family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)&address;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%d", host, ntohs(v4->sin_port));
    } else {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%d", host, ntohs(v6->sin6_port));
    }
}

static void destroy(struct http_server *server)
{
    if (server->http)
        evhttp_free(server->http);
    if (server->stop_event)
        event_free(server->stop_event);
    if (server->open_event)
        event_free(server->open_event);
    if (server->base)
        event_base_free(server->base);
    if (server->stop_fd >= 0)
        close(server->stop_fd);
    free(server);
}

static enum status listen_on(struct http_server *server, struct error *err)
{
    struct sockaddr_storage address;
    int length;
    TRY(parse_listen(server->config.listen, &address, &length, err));
    struct evconnlistener *listener = evconnlistener_new_bind(
        server->base, NULL, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE,
        LISTEN_BACKLOG, (struct sockaddr *)&address, length);
    if (!listener)
        return error_set(err, STATUS_IO, "cannot listen on %s for HTTP: %s", server->config.listen,
                         strerror(errno));
    if (!evhttp_bind_listener(server->http, listener)) {
        evconnlistener_free(listener);
        return error_set(err, STATUS_IO, "cannot serve HTTP on %s", server->config.listen);
    }
    server->listener = listener;
    evconnlistener_set_error_cb(listener, on_accept_failed);
    name_bound_address(evconnlistener_get_fd(listener), server->address, sizeof server->address);
    if (!is_loopback(&address))
        log_warn(MOD, "msg=\"listening beyond loopback without TLS or authentication\" address=%s",
                 server->address);
    return STATUS_OK;
}

enum status http_server_start(const struct http_server_config *config, struct http_server **out,
                              struct error *err)
{
    struct http_server *server = calloc(1, sizeof *server);
    ASSERT(server);
    server->config = *config;
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->base = event_base_new();
    server->http = server->base ? evhttp_new(server->base) : NULL;
    enum status status = STATUS_OK;
    if (server->stop_fd < 0 || !server->http)
        status = error_set(err, STATUS_IO, "cannot set up the HTTP server: %s", strerror(errno));
    if (status == STATUS_OK)
        status = listen_on(server, err);
    if (status != STATUS_OK)
        goto fail;
    evhttp_set_max_headers_size(server->http, MAX_HEADERS_BYTES);
    evhttp_set_max_body_size(server->http, MAX_BODY_BYTES);
    evhttp_set_timeout(server->http, config->silence_s ? config->silence_s : SILENCE_LIMIT_S);
    evhttp_set_allowed_methods(server->http, ALL_METHODS); /* so that on_request can refuse them */
    evhttp_set_gencb(server->http, on_request, server);
    evhttp_set_bevcb(server->http, on_connection, server);
    server->open_event = evtimer_new(server->base, on_open_again, server);
    server->stop_event = event_new(server->base, server->stop_fd, EV_READ, on_stop, server);
    if (!server->stop_event || !server->open_event || event_add(server->stop_event, NULL)) {
        status = error_set(err, STATUS_IO, "cannot set up the HTTP server's events");
        goto fail;
    }
    int failed = pthread_create(&server->thread, NULL, serve, server);
    if (failed) {
        status = error_set(err, STATUS_LIMIT, "cannot start the HTTP thread: %s", strerror(failed));
        goto fail;
    }
    *out = server;
    return STATUS_OK;
fail:
    destroy(server);
    return status;
}

const char *http_server_address(const struct http_server *server)
{
    return server->address;
}

void http_server_stop(struct http_server *server)
{
    if (!server)
        return;
    eventfd_write(server->stop_fd, 1);
    pthread_join(server->thread, NULL);
    destroy(server);
}
