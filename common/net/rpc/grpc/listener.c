#include "common/net/rpc/grpc/listener.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/descriptors.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/net/rpc/rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SOCKETS       8 /* addresses that one name means */
#define BACKLOG           512
#define PAUSE_MS          100      /* when not even a refusal is possible */
#define SWEEP_EVERY_US    10000    /* a full table is looked through no more often */
#define COMPLAIN_EVERY_US 10000000 /* one line for all refusals of that time */
#define STOPPED_US        1000000  /* a tick that comes so late is left out */
#define PEER_BYTES        64

/* A descriptor's inode identifies a connection: gRPC core closes it, and the descriptor's number
 * may belong to another file by then. */
struct connection {
    int fd;
    ino_t inode;
};

struct listener {
    struct listener_config config;
    int sockets[MAX_SOCKETS];
    size_t socket_count;
    uint16_t port;
    int stop_fd, spare_fd;
    pthread_t thread;
    bool started;
    /* Belong to the thread. */
    struct connection *connections; /* [max_connections] */
    size_t count;
    uint64_t swept_us, complained_us, refused;
};

/* --- "host:port" --- */

enum status address_parse(const char *text, struct address *address, struct error *err)
{
    static const char *const hint = "is not host:port (127.0.0.1:0 takes any free port)";
    const char *colon = strrchr(text, ':');
    uint64_t port;
    if (!colon || !str_to_u64(colon + 1, 0, 65535, &port))
        return error_set(err, STATUS_INVALID, "address \"%.100s\" %s", text, hint);
    size_t length = (size_t)(colon - text);
    struct address parsed = {.bracketed = text[0] == '['};
    if (parsed.bracketed) {
        if (length < 2 || text[length - 1] != ']')
            return error_set(err, STATUS_INVALID, "address \"%.100s\" %s", text, hint);
        text++;
        length -= 2;
    } else if (memchr(text, ':', length)) {
        return error_set(err, STATUS_INVALID,
                         "address \"%.100s\": an IPv6 address needs [brackets]", text);
    }
    if (length >= sizeof parsed.host)
        return error_set(err, STATUS_INVALID, "address \"%.100s...\" is too long", text);
    memcpy(parsed.host, text, length);
    snprintf(parsed.port, sizeof parsed.port, "%u", (unsigned)port);
    *address = parsed;
    return STATUS_OK;
}

enum status rpc_check_listen(const char *listen, struct error *err)
{
    struct address address;
    return address_parse(listen, &address, err);
}

enum status rpc_check_target(const char *target, struct error *err)
{
    struct address address;
    if (address_parse(target, &address, NULL) == STATUS_OK && *address.host &&
        strcmp(address.port, "0"))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "\"%.100s\" is not host:port of a server (an IPv6 address in [brackets])",
                     target);
}

bool address_is_loopback(const struct address *address)
{
    struct in_addr numeric; /* a name may begin with "127.", too */
    return (!strncmp(address->host, "127.", 4) && inet_pton(AF_INET, address->host, &numeric)) ||
           !strcmp(address->host, "localhost") || !strcmp(address->host, "::1");
}

bool rpc_listens_on_loopback(const char *listen)
{
    struct address address;
    return address_parse(listen, &address, NULL) == STATUS_OK && address_is_loopback(&address);
}

void address_from_core(const char *core, char *text, size_t size)
{
    size_t length = 0;
    if (!strncmp(core, "ipv4:", 5) || !strncmp(core, "ipv6:", 5))
        core += 5;
    for (; *core && length + 1 < size; core++) {
        bool open = !strncmp(core, "%5B", 3), close = !strncmp(core, "%5D", 3);
        text[length++] = open ? '[' : close ? ']' : *core;
        if (open || close)
            core += 2;
    }
    text[length] = 0;
}

/* --- opening --- */

/* Returns 0 or an errno. `alone`: IPv6 takes IPv4's connections, too. */
static int open_socket(struct listener *listener, const struct addrinfo *at, bool alone)
{
    int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    int yes = 1, only = !alone;
    if (fd < 0)
        return errno;
    struct sockaddr_storage address = {0};
    memcpy(&address, at->ai_addr, at->ai_addrlen);
    if (at->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    if (listener->port && at->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)&address)->sin6_port = htons(listener->port);
    else if (listener->port)
        ((struct sockaddr_in *)&address)->sin_port = htons(listener->port);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
        bind(fd, (struct sockaddr *)&address, at->ai_addrlen) || listen(fd, BACKLOG)) {
        int failure = errno;
        close(fd);
        return failure;
    }
    socklen_t length = sizeof address;
    bool known = getsockname(fd, (struct sockaddr *)&address, &length) == 0;
    ASSERT(known);
    listener->port =
        ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                            : ((struct sockaddr_in *)&address)->sin_port);
    listener->sockets[listener->socket_count++] = fd;
    return 0;
}

/* A name may mean addresses that this machine doesn't have. One that it has is enough. */
static enum status open_sockets(struct listener *listener, const struct address *address,
                                struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    int failure = getaddrinfo(*address->host ? address->host : NULL, address->port, &hints, &found);
    if (failure)
        return error_set(err, STATUS_IO, "%s", gai_strerror(failure));
    int why = EADDRNOTAVAIL;
    for (const struct addrinfo *at = found; at && listener->socket_count < MAX_SOCKETS;
         at = at->ai_next) {
        why = open_socket(listener, at, !found->ai_next);
        if (why && why != EADDRNOTAVAIL && why != EAFNOSUPPORT)
            break;
    }
    freeaddrinfo(found);
    if (listener->socket_count && (!why || why == EADDRNOTAVAIL || why == EAFNOSUPPORT))
        return STATUS_OK;
    return error_set(err, STATUS_IO, "%s%s", strerrordesc_np(why),
                     why == EADDRINUSE ? ": give another port, or 0 for any free one" : "");
}

enum status listener_open(const struct address *address, const struct listener_config *config,
                          struct listener **out, struct error *err)
{
    struct listener *listener = calloc(1, sizeof *listener);
    ASSERT(listener);
    listener->config = *config;
    listener->connections = calloc(config->max_connections, sizeof *listener->connections);
    listener->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    listener->spare_fd = descriptors_spare();
    enum status status = STATUS_OK;
    if (!listener->connections)
        status =
            error_set(err, STATUS_LIMIT, "no memory for %zu connections", config->max_connections);
    else if (listener->stop_fd < 0 || listener->spare_fd < 0)
        status = error_set(err, STATUS_IO, "%s", strerrordesc_np(errno));
    else
        status = open_sockets(listener, address, err);
    if (status != STATUS_OK) {
        listener_close(listener);
        return status;
    }
    *out = listener;
    return STATUS_OK;
}

uint16_t listener_port(const struct listener *listener)
{
    return listener->port;
}

/* --- accepting --- */

static void complain(struct listener *listener, int fd, const char *why)
{
    char peer[PEER_BYTES];
    uint64_t now_us = clock_now_us();
    listener->refused++;
    if (listener->complained_us && now_us - listener->complained_us < COMPLAIN_EVERY_US)
        return;
    listener_peer(fd, peer, sizeof peer);
    log_warn("listener",
             "port=%u open=%zu refused=%llu peer=%s msg=\"connections are refused: %s\"",
             listener->port, listener->count, (unsigned long long)listener->refused, peer, why);
    listener->complained_us = now_us;
    listener->refused = 0;
}

/* Forgets the connections that were closed since the last time. */
static void sweep(struct listener *listener)
{
    uint64_t now_us = clock_now_us();
    if (now_us - listener->swept_us < SWEEP_EVERY_US)
        return;
    listener->swept_us = now_us;
    size_t kept = 0;
    for (size_t i = 0; i < listener->count; i++) {
        struct connection one = listener->connections[i];
        struct stat status;
        if (fstat(one.fd, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_ino == one.inode)
            listener->connections[kept++] = one;
    }
    listener->count = kept;
}

static void take(struct listener *listener, int fd)
{
    struct stat status;
    int yes = 1;
    if (listener->count == listener->config.max_connections)
        sweep(listener);
    if (listener->count == listener->config.max_connections || fstat(fd, &status)) {
        complain(listener, fd, "the limit of connections is reached");
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    listener->connections[listener->count++] = (struct connection){fd, status.st_ino};
    listener->config.accepted(listener->config.context, fd);
}

enum turned { NONE_WAITS, ONE_TURNED_AWAY, NO_DESCRIPTOR };

/* Out of descriptors: closes the next client's connection. */
static enum turned turn_away(struct listener *listener, int door)
{
    int failure = descriptors_turn_away(&listener->spare_fd, door);
    if (failure)
        return failure == EAGAIN ? NONE_WAITS : NO_DESCRIPTOR;
    complain(listener, -1, "no file descriptor is left (ulimit -n)");
    return ONE_TURNED_AWAY;
}

/* Accepts all clients that wait at one socket. False: time must pass first. */
static bool accept_all(struct listener *listener, int door)
{
    for (int i = 0; i < BACKLOG; i++) {
        int fd = accept4(door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            take(listener, fd);
            continue;
        }
        enum turned turned = ONE_TURNED_AWAY;
        switch (errno) {
        case EAGAIN: return true;
        case EMFILE: /* whether or not a client waits */
        case ENFILE:
        case ENOBUFS:
        case ENOMEM: turned = turn_away(listener, door); break;
        default: break; /* the client left, or its network failed */
        }
        if (turned != ONE_TURNED_AWAY)
            return turned == NONE_WAITS;
    }
    return true;
}

static void *listen_main(void *argument)
{
    struct listener *listener = argument;
    struct pollfd fds[MAX_SOCKETS + 1] = {{.fd = listener->stop_fd, .events = POLLIN}};
    for (size_t i = 0; i < listener->socket_count; i++)
        fds[i + 1] = (struct pollfd){.fd = listener->sockets[i], .events = POLLIN};
    uint64_t next_tick_us = clock_now_us() + listener->config.tick_us;
    for (;;) {
        uint64_t now_us = clock_now_us();
        int wait_ms = !listener->config.tick_us ? -1
                      : now_us < next_tick_us   ? (int)((next_tick_us - now_us + 999) / 1000)
                                                : 0;
        poll(fds, 1 + listener->socket_count, wait_ms);
        if (fds[0].revents)
            return NULL;
        now_us = clock_now_us();
        if (listener->config.tick_us && now_us >= next_tick_us) {
            /* The process was stopped, and its threads haven't read yet what came meanwhile. */
            if (now_us - next_tick_us < STOPPED_US)
                listener->config.tick(listener->config.context);
            next_tick_us = clock_now_us() + listener->config.tick_us;
        }
        bool pause = false;
        for (size_t i = 0; i < listener->socket_count; i++)
            pause |= fds[i + 1].revents && !accept_all(listener, listener->sockets[i]);
        if (pause)
            poll(fds, 1, PAUSE_MS);
    }
}

enum status listener_start(struct listener *listener, struct error *err)
{
    int failure = pthread_create(&listener->thread, NULL, listen_main, listener);
    if (failure)
        return error_set(err, STATUS_IO, "the listener's thread can't start: %s",
                         strerrordesc_np(failure));
    pthread_setname_np(listener->thread, "listener");
    listener->started = true;
    return STATUS_OK;
}

void listener_close(struct listener *listener)
{
    if (!listener)
        return;
    if (listener->started) {
        eventfd_write(listener->stop_fd, 1);
        pthread_join(listener->thread, NULL);
    }
    for (size_t i = 0; i < listener->socket_count; i++)
        close(listener->sockets[i]);
    if (listener->stop_fd >= 0)
        close(listener->stop_fd);
    if (listener->spare_fd >= 0)
        close(listener->spare_fd);
    free(listener->connections);
    free(listener);
}

void listener_peer(int fd, char *text, size_t size)
{
    struct sockaddr_storage peer = {0};
    socklen_t length = sizeof peer;
    char host[INET6_ADDRSTRLEN];
    *text = 0;
    if (getpeername(fd, (struct sockaddr *)&peer, &length))
        return;
    if (peer.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&peer;
        if (inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host))
            snprintf(text, size, "%s:%u", host, ntohs(v4->sin_port));
    } else if (peer.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&peer;
        if (inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host))
            snprintf(text, size, "[%s]:%u", host, ntohs(v6->sin6_port));
    }
}
