#include "common/net/http/http_server.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/descriptors.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/net/crypto/tls_server.h"
#include "common/net/http/http_loop.h"

#include <errno.h>
#include <event2/listener.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOD            "http"
#define ADDRESS_BYTES  64
#define LISTEN_BACKLOG 4096
#define EACH_SURPLUS   4        /* the same, beyond the share of one address */
#define COMPLAIN_US    10000000 /* one line for all connections that were closed in that time */
#define PAUSE_US       100000   /* without accepting: no room, or no descriptor is left */
/* A client that is silent for the first, and doesn't answer probes, the second apart, has lost its
 * machine or its network. */
#define ALIVE_AFTER_S 30
#define ALIVE_EVERY_S 10
#define ALIVE_PROBES  3
/* The unsent bytes of an answer that the system holds. It asks for more once half of them have
 * left, and only that shows a slow reader's progress. By default it holds hundreds of KiB, and a
 * client that takes more than a minute for a third of them would seem to read nothing. */
#define NOTSENT_BYTES 8192

/* The listening socket: accepts connections while there is room and there are descriptors, and
 * gives them to the loops in turn. Belongs to the first loop's thread once that runs. */
struct http_door {
    struct http_service *service;
    struct http_loop **loops; /* the server's */
    unsigned next_loop;
    struct tls_server *tls; /* NULL: no TLS */
    struct evconnlistener *listener;
    struct event *open_event; /* ends a pause */
    int spare_fd;             /* given up to turn a client away; -1: none */
    bool complained;          /* since the last connection that left room */
    uint64_t closed, told_us; /* connections closed at once since the last line about them */
    char address[ADDRESS_BYTES];
};

struct http_server {
    struct http_service service;
    struct http_loop *loops[HTTP_MAX_THREADS];
    struct http_door door;
};

/* --- the listening socket --- */

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

/* Sets options of the listening socket. The sockets that it accepts inherit them. */
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

enum peer_place http_service_take_place(struct http_service *service, const struct http_peer *peer)
{
    pthread_mutex_lock(&service->lock);
    enum peer_place place = peer_places_take(service->places, &peer->address.any);
    pthread_mutex_unlock(&service->lock);
    return place;
}

void http_service_give_back_place(struct http_service *service, const struct http_peer *peer)
{
    pthread_mutex_lock(&service->lock);
    peer_places_give_back(service->places, &peer->address.any);
    pthread_mutex_unlock(&service->lock);
}

/* Closes a connection for which there isn't even a place to be refused at. */
static void turn_away(struct http_door *door, int fd, const struct http_peer *peer)
{
    char name[ADDRESS_BYTES];
    uint64_t now_us = clock_now_us();
    atomic_fetch_add(&door->service->closed, 1);
    close(fd);
    door->closed++;
    if (door->told_us && now_us - door->told_us < COMPLAIN_US)
        return;
    http_peer_name(peer, name, sizeof name);
    log_warn(MOD,
             "address=%s peer=%s closed=%llu msg=\"connections are closed at once: all places of "
             "the door, or those of the peer's address, are taken\"",
             door->address, name, (unsigned long long)door->closed);
    door->told_us = now_us;
    door->closed = 0;
}

static void let_in(struct http_door *door, int fd, const struct http_peer *peer,
                   enum http_surplus surplus)
{
    struct http_socket socket;
    if (!http_socket_begin(door->tls, fd, &socket)) {
        http_service_give_back_place(door->service, peer);
        close(fd);
        return;
    }
    atomic_fetch_add(&door->service->connections, 1);
    http_loop_give(door->loops[door->next_loop], &socket, peer, surplus);
    door->next_loop = (door->next_loop + 1) % door->service->config.threads;
    http_loop_settle(door->loops[0]);
}

static void on_connection(struct evconnlistener *listener, evutil_socket_t fd,
                          struct sockaddr *from, int length, void *context)
{
    (void)listener;
    struct http_door *door = context;
    struct http_peer peer = {0};
    if ((size_t)length <= sizeof peer.address)
        memcpy(&peer.address, from, (size_t)length);
    enum http_surplus surplus = has_no_room(door, 0) ? HTTP_SURPLUS_ALL : HTTP_SURPLUS_NONE;
    enum peer_place place = PEER_PLACE_NONE;
    if (!FAILPOINT_FAILS("http.accept") && !has_no_room(door, door->service->config.max_surplus))
        place = http_service_take_place(door->service, &peer);
    if (place == PEER_PLACE_NONE) {
        turn_away(door, fd, &peer);
        return;
    }
    let_in(door, fd, &peer, place == PEER_PLACE_BEYOND ? HTTP_SURPLUS_ADDRESS : surplus);
    if (!has_no_room(door, 0))
        door->complained = false;
    else if (!door->service->config.turns_away)
        shut_for_a_moment(door, "the limit of connections is reached");
}

/* Out of descriptors, a door that turns away closes the next client's connection. Other doors and
 * failures pause: otherwise it would fail again at once, and again. */
static void on_accept_failed(struct evconnlistener *listener, void *context)
{
    struct http_door *door = context;
    int failure = EVUTIL_SOCKET_ERROR();
    bool none_left = failure == EMFILE || failure == ENFILE;
    if (none_left && door->service->config.turns_away) {
        int turned = descriptors_turn_away(&door->spare_fd, evconnlistener_get_fd(listener));
        if (!turned) {
            atomic_fetch_add(&door->service->turned_away, 1);
            log_warn_limited(MOD, "msg=\"connections are closed: no file descriptor is left "
                                  "(ulimit -n)\"");
        }
        if (!turned || turned == EAGAIN)
            return;
    }
    shut_for_a_moment(door, strerrordesc_np(failure));
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
    bool loopback = at.address.any.sa_family == AF_INET
                        ? ntohl(at.address.v4.sin_addr.s_addr) >> 24 == 127
                        : IN6_IS_ADDR_LOOPBACK(&at.address.v6.sin6_addr);
    door->service->guarded = loopback && door->service->config.allowed_hosts;
    if (!door->tls && !loopback)
        log_warn(MOD, "msg=\"listening beyond loopback without TLS%s\" address=%s",
                 door->service->config.keyless
                     ? " and without API keys: any machine that reaches it may ask"
                     : "",
                 door->address);
    if (door->service->config.keyless && http_cors_allows_all(door->service->config.cors_origins))
        log_warn(MOD,
                 "msg=\"whatever page a browser shows may ask, without an API key: list the pages' "
                 "origins, or set keys\" address=%s",
                 door->address);
    return STATUS_OK;
}

static enum status open_door(struct http_door *door, struct http_service *service,
                             struct http_loop **loops, struct error *err)
{
    *door = (struct http_door){.service = service, .loops = loops, .spare_fd = descriptors_spare()};
    const struct tls_server_config tls = {
        .certificates = service->config.certificates, .protocol = "\x08http/1.1", .module = "http"};
    if (tls.certificates)
        TRY(tls_server_open(&tls, &door->tls, err));
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

static void close_door(struct http_door *door)
{
    http_door_stop(door);
    if (door->open_event)
        event_free(door->open_event);
    if (door->spare_fd > 0) /* 0: it was never opened */
        close(door->spare_fd);
    tls_server_close(door->tls);
    *door = (struct http_door){0};
}

/* --- the server --- */

enum status http_check_listen(const char *listen, struct error *err)
{
    struct http_peer peer;
    socklen_t length;
    return http_peer_parse(listen, &peer, &length, err);
}

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

static void set_defaults(struct http_server_config *config)
{
    config->threads = (unsigned)or_default(config->threads, 1);
    config->max_connections = or_default(config->max_connections, HTTP_MAX_CONNECTIONS);
    config->max_surplus = or_default(config->max_surplus, HTTP_MAX_SURPLUS);
    config->max_per_address =
        or_default(config->max_per_address, peer_places_default_share(config->max_connections));
    if (!config->uncounted)
        config->uncounted = PEER_LOOPBACK;
    config->max_body_bytes = or_default(config->max_body_bytes, HTTP_MAX_BODY_BYTES);
    config->max_bodies_bytes = or_default(config->max_bodies_bytes, HTTP_MAX_BODIES_BYTES);
    config->max_unsent_bytes = or_default(config->max_unsent_bytes, HTTP_MAX_UNSENT_BYTES);
    config->max_all_unsent_bytes =
        or_default(config->max_all_unsent_bytes, HTTP_MAX_ALL_UNSENT_BYTES);
    config->head_us = or_default(config->head_us, 10000000);
    config->body_us = or_default(config->body_us, 10000000);
    config->body_bytes_per_second = or_default(config->body_bytes_per_second, 1024);
    config->idle_us = or_default(config->idle_us, 60000000);
    config->stall_us = or_default(config->stall_us, 30000000);
    ASSERT(config->threads <= HTTP_MAX_THREADS);
}

static void init_service(struct http_service *service, const struct http_server_config *config)
{
    pthread_condattr_t monotonic;
    service->config = *config;
    set_defaults(&service->config);
    pthread_mutex_init(&service->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&service->empty, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static enum status open_places(struct http_service *service, struct error *err)
{
    const struct http_server_config *config = &service->config;
    struct peer_ranges uncounted;
    TRY(peer_ranges_parse(config->uncounted, &uncounted, err));
    size_t connections = config->max_connections + config->max_surplus;
    enum status status = peer_places_create(connections, config->max_per_address, EACH_SURPLUS,
                                            &uncounted, &service->places);
    if (status == STATUS_OK)
        status = map_create(connections, &service->owners);
    return status == STATUS_OK ? STATUS_OK
                               : error_set(err, status, "no memory for the HTTP server");
}

static enum status start(struct http_server *server, struct error *err)
{
    unsigned threads = server->service.config.threads;
    TRY(open_places(&server->service, err));
    for (unsigned i = 0; i < threads; i++)
        TRY(http_loop_create(&server->service, &server->loops[i], err));
    TRY(open_door(&server->door, &server->service, server->loops, err));
    server->loops[0]->door = &server->door;
    for (unsigned i = 0; i < threads; i++)
        TRY(http_loop_start(server->loops[i], err));
    return STATUS_OK;
}

enum status http_server_start(const struct http_server_config *config, struct http_server **out,
                              struct error *err)
{
    struct http_server *server = calloc(1, sizeof *server);
    ASSERT(server);
    init_service(&server->service, config);
    enum status status = start(server, err);
    if (status == STATUS_OK)
        *out = server;
    else
        http_server_stop(server);
    return status;
}

const char *http_server_address(const struct http_server *server)
{
    return server->door.address;
}

void http_server_figures(const struct http_server *server, struct http_figures *figures)
{
    const struct http_service *service = &server->service;
    *figures = (struct http_figures){.connections = atomic_load(&service->connections),
                                     .accepted = atomic_load(&service->accepted),
                                     .turned_away = atomic_load(&service->turned_away),
                                     .closed = atomic_load(&service->closed),
                                     .made_room = atomic_load(&service->made_room),
                                     .requests = atomic_load(&service->requests),
                                     .refused = atomic_load(&service->refused),
                                     .slow = atomic_load(&service->slow),
                                     .gone = atomic_load(&service->gone),
                                     .body_bytes = atomic_load(&service->body_bytes),
                                     .unsent_bytes = atomic_load(&service->unsent_bytes)};
}

bool http_server_drain(struct http_server *server, uint64_t grace_us)
{
    struct http_service *service = &server->service;
    uint64_t end_us = clock_now_us() + grace_us;
    struct timespec end = {(time_t)(end_us / 1000000u), (long)(end_us % 1000000u) * 1000};
    atomic_store(&service->draining, true);
    for (unsigned i = 0; i < service->config.threads; i++)
        http_loop_wake(server->loops[i]);
    int late = 0;
    pthread_mutex_lock(&service->lock);
    while (atomic_load(&service->connections) && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&service->empty, &service->lock, &end);
    pthread_mutex_unlock(&service->lock);
    return atomic_load(&service->connections) == 0;
}

void http_server_stop(struct http_server *server)
{
    if (!server)
        return;
    /* The first loop's thread uses the door, and gives connections to the others. */
    for (unsigned i = 0; i < server->service.config.threads; i++)
        http_loop_stop(server->loops[i]);
    close_door(&server->door);
    for (unsigned i = 0; i < server->service.config.threads; i++)
        http_loop_destroy(server->loops[i]);
    peer_places_destroy(server->service.places);
    map_destroy(server->service.owners);
    pthread_mutex_destroy(&server->service.lock);
    pthread_cond_destroy(&server->service.empty);
    free(server);
}
