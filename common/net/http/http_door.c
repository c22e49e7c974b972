#include "common/net/http/http_door.h"

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/net/http/http_cors.h"

#include <errno.h>
#include <event2/listener.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOD            "http"
#define LISTEN_BACKLOG 4096
#define PAUSE_US       100000 /* of the door, where it is full inside or no descriptor is left */
/* Who is silent for the first, and doesn't answer probes, the second apart, has lost his machine or
 * his network. */
#define ALIVE_AFTER_S 30
#define ALIVE_EVERY_S 10
#define ALIVE_PROBES  3
/* What the system holds of an answer beyond what is on its way. It asks for more once half of that
 * has left, and only that is seen of a slow reader's progress: of its own choice it holds hundreds
 * of KiB, and whoever takes more than a minute for a third of them would look as if he read
 * nothing. */
#define NOTSENT_BYTES 8192

static bool has_no_room(const struct http_door *door, size_t surplus)
{
    return atomic_load(&door->service->connections) >=
           door->service->config.max_connections + surplus;
}

static void shut_for_a_moment(struct http_door *door, const char *why)
{
    static const struct timeval pause = {0, PAUSE_US};
    if (!door->complained)
        log_warn(MOD, "msg=\"no connections are taken for the moment: %s\"", why);
    door->complained = true;
    evconnlistener_disable(door->listener);
    evtimer_add(door->open_event, &pause);
}

static void on_open_again(evutil_socket_t fd, short events, void *context)
{
    (void)fd;
    (void)events;
    struct http_door *door = context;
    if (atomic_load(&door->service->draining))
        return;
    if (!door->service->config.turns_away && has_no_room(door, 0))
        shut_for_a_moment(door, "the limit of connections is reached");
    else
        evconnlistener_enable(door->listener);
}

/* Of the socket that listens: those that come of it have them, too. */
static void set_options(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                   {IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_BYTES},
                   {SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, ALIVE_AFTER_S},
                   {IPPROTO_TCP, TCP_KEEPINTVL, ALIVE_EVERY_S},
                   {IPPROTO_TCP, TCP_KEEPCNT, ALIVE_PROBES}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                   sizeof options[i].value);
}

static void let_in(struct http_door *door, int fd, const struct sockaddr *from, int length,
                   bool surplus)
{
    struct http_socket socket = {.fd = fd};
    struct http_peer peer = {0};
    if ((size_t)length <= sizeof peer.address)
        memcpy(&peer.address, from, (size_t)length);
    if (door->tls) {
        socket.tls = http_tls_begin(door->tls, fd);
        if (!socket.tls) {
            close(fd);
            return;
        }
    }
    atomic_fetch_add(&door->service->connections, 1);
    http_loop_give(door->loops[door->next_loop], &socket, &peer, surplus);
    door->next_loop = (door->next_loop + 1) % door->loop_count;
    http_loop_settle(door->loops[0]);
}

static void on_connection(struct evconnlistener *listener, evutil_socket_t fd,
                          struct sockaddr *from, int length, void *context)
{
    (void)listener;
    struct http_door *door = context;
    bool surplus = has_no_room(door, 0);
    if (FAILPOINT_FAILS("http.accept") || (surplus && has_no_room(door, HTTP_MAX_SURPLUS))) {
        close(fd);
        return;
    }
    let_in(door, fd, from, length, surplus);
    if (!has_no_room(door, 0))
        door->complained = false;
    else if (!door->service->config.turns_away)
        shut_for_a_moment(door, "the limit of connections is reached");
}

/* Without a pause it would fail again at once, and again. */
static void on_accept_failed(struct evconnlistener *listener, void *context)
{
    (void)listener;
    shut_for_a_moment(context, strerrordesc_np(EVUTIL_SOCKET_ERROR()));
}

static enum status listen_on(struct http_door *door, struct error *err)
{
    struct http_peer at;
    socklen_t length;
    const char *listen = door->service->config.listen;
    TRY(http_peer_parse(listen, &at, &length, err));
    door->listener =
        evconnlistener_new_bind(door->loops[0]->base, on_connection, door,
                                LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE,
                                LISTEN_BACKLOG, &at.address.any, (int)length);
    if (!door->listener)
        return error_set(err, STATUS_IO, "cannot listen on %s for HTTP: %s%s", listen,
                         strerror(errno),
                         errno == EADDRINUSE ? ": give another port, or 0 for any free one" : "");
    evconnlistener_set_error_cb(door->listener, on_accept_failed);
    set_options(evconnlistener_get_fd(door->listener));
    if (getsockname(evconnlistener_get_fd(door->listener), &at.address.any, &length))
        return error_set(err, STATUS_IO, "cannot serve HTTP on %s: %s", listen, strerror(errno));
    http_peer_name(&at, door->address, sizeof door->address);
    if (!door->tls && !http_peer_is_loopback(&at))
        log_warn(MOD, "msg=\"listening beyond loopback without TLS%s\" address=%s",
                 door->service->config.keyless ? " and without API keys: who reaches it may ask"
                                               : "",
                 door->address);
    if (door->service->config.keyless && http_cors_allows_all(door->service->config.cors_origins))
        log_warn(MOD,
                 "msg=\"whatever page a browser shows may ask, without an API key: list the pages' "
                 "origins, or set keys\" address=%s",
                 door->address);
    return STATUS_OK;
}

enum status http_door_open(struct http_door *door, struct http_service *service,
                           struct http_loop **loops, struct error *err)
{
    *door = (struct http_door){
        .service = service, .loops = loops, .loop_count = service->config.threads};
    if (service->config.certificates)
        TRY(http_tls_open(service->config.certificates, &door->tls, err));
    TRY(listen_on(door, err));
    door->open_event = evtimer_new(loops[0]->base, on_open_again, door);
    if (!door->open_event)
        return error_set(err, STATUS_IO, "cannot set up the HTTP server's events");
    return STATUS_OK;
}

void http_door_stop(struct http_door *door)
{
    if (door->listener)
        evconnlistener_free(door->listener);
    door->listener = NULL;
}

void http_door_close(struct http_door *door)
{
    http_door_stop(door);
    if (door->open_event)
        event_free(door->open_event);
    http_tls_close(door->tls);
    *door = (struct http_door){0};
}
