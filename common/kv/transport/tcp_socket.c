/* Sockets of the tcp lane: their addresses, and their options. */
#include "common/base/str.h"
#include "common/kv/transport/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 256
/* After about this time the connection of a vanished host is given up, with bytes in flight or
 * without. Reads have deadlines of their own; this frees the place. */
#define KEEPALIVE_IDLE_S     5
#define KEEPALIVE_INTERVAL_S 3
#define KEEPALIVE_PROBES     3
#define UNACKED_LIMIT_MS     20000
/* Bytes that wait between two processes of one host. They are enough to keep both busy, and few
 * enough to be still in the caches when the reader copies them. The kernel would let megabytes
 * wait; measured, that is slower by half. */
#define SAME_HOST_QUEUE_BYTES (512 << 10)

/* -- addresses -- */

static void set_port(struct tcp_at *at, uint16_t port)
{
    if (at->address.ss_family == AF_INET)
        ((struct sockaddr_in *)&at->address)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)&at->address)->sin6_port = htons(port);
}

static bool parse_ip(const char *text, struct tcp_at *at)
{
    struct sockaddr_in *in4 = (struct sockaddr_in *)&at->address;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&at->address;
    *at = (struct tcp_at){0};
    if (inet_pton(AF_INET, text, &in4->sin_addr) == 1) {
        in4->sin_family = AF_INET;
        at->bytes = sizeof *in4;
    } else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        at->bytes = sizeof *in6;
    }
    return at->bytes > 0;
}

/* Finds the device's first IPv4 address, otherwise its first IPv6 address that isn't link-local. */
static bool device_address(const char *device, struct tcp_at *at)
{
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0)
        return false;
    int best = 0;
    for (const struct ifaddrs *one = list; one; one = one->ifa_next) {
        if (!one->ifa_addr || strcmp(one->ifa_name, device) != 0)
            continue;
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)one->ifa_addr;
        int rank = one->ifa_addr->sa_family == AF_INET ? 2
                   : one->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr)
                       ? 1
                       : 0;
        if (rank <= best)
            continue;
        best = rank;
        *at = (struct tcp_at){.bytes = rank == 2 ? sizeof(struct sockaddr_in) : sizeof *in6};
        memcpy(&at->address, one->ifa_addr, at->bytes);
    }
    freeifaddrs(list);
    return best > 0;
}

/* Cuts HOST[:PORT] or [HOST][:PORT] in two. A HOST with several colons and no brackets is an IPv6
 * address. */
static bool split(char *text, const char **host, uint64_t *port)
{
    char *colon = strrchr(text, ':'), *end = NULL;
    *host = text;
    *port = 0;
    if (*text == '[') {
        end = strchr(text, ']');
        if (!end || (end[1] && end[1] != ':'))
            return false;
        *host = text + 1;
        colon = end[1] ? end + 1 : NULL;
        *end = 0;
    } else if (colon && strchr(text, ':') != colon) {
        colon = NULL;
    }
    if (!colon)
        return true;
    *colon = 0;
    return str_to_u64(colon + 1, 0, UINT16_MAX, port);
}

enum status tcp_at_parse(const char *listen, struct tcp_at *at, struct error *err)
{
    char copy[128];
    const char *host;
    uint64_t port;
    if (!str_copy(copy, sizeof copy, listen) || !split(copy, &host, &port))
        return error_set(err, STATUS_INVALID,
                         "the tcp lane can't listen at '%s': give a network device or a "
                         "numeric address, with :PORT if the port must be fixed",
                         listen);
    if (!parse_ip(host, at) && !device_address(host, at))
        return error_set(err, STATUS_INVALID,
                         "the network interface %s has no address (and it is no numeric address)",
                         host);
    set_port(at, (uint16_t)port);
    return STATUS_OK;
}

void tcp_at_name(const struct tcp_at *at, char name[TCP_NAME_BYTES])
{
    const struct sockaddr_in *in4 = (const struct sockaddr_in *)&at->address;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&at->address;
    char ip[INET6_ADDRSTRLEN] = "?";
    if (at->address.ss_family == AF_INET) {
        inet_ntop(AF_INET, &in4->sin_addr, ip, sizeof ip);
        snprintf(name, TCP_NAME_BYTES, "%s:%u", ip, ntohs(in4->sin_port));
    } else {
        inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof ip);
        snprintf(name, TCP_NAME_BYTES, "[%s]:%u", ip, ntohs(in6->sin6_port));
    }
}

bool tcp_at_is_loopback(const struct tcp_at *at)
{
    const struct sockaddr_in *in4 = (const struct sockaddr_in *)&at->address;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&at->address;
    return at->address.ss_family == AF_INET ? ntohl(in4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
                                            : IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

bool tcp_at_is_any(const struct tcp_at *at)
{
    const struct sockaddr_in *in4 = (const struct sockaddr_in *)&at->address;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&at->address;
    return at->address.ss_family == AF_INET ? in4->sin_addr.s_addr == htonl(INADDR_ANY)
                                            : IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

enum status tcp_at_resolve(const char *host, const struct tcp_at *listening, struct tcp_at *at,
                           struct error *err)
{
    /* A socket on [::] takes IPv4, too. */
    int family = listening->address.ss_family == AF_INET ? AF_INET : AF_UNSPEC;
    struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM}, *list;
    int got = getaddrinfo(host, NULL, &hints, &list);
    if (got != 0)
        return error_set(
            err, STATUS_INVALID,
            "the host '%s', which readers of the KV lane should get, can't be resolved: %s", host,
            gai_strerror(got));
    *at = (struct tcp_at){.bytes = list->ai_addrlen};
    memcpy(&at->address, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    return STATUS_OK;
}

void tcp_at_to_address(const struct tcp_at *at, struct kv_address *address)
{
    const struct sockaddr_in *in4 = (const struct sockaddr_in *)&at->address;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&at->address;
    bool is4 = at->address.ss_family == AF_INET;
    memset(address->ip, 0, sizeof address->ip);
    memcpy(address->ip, is4 ? (const void *)&in4->sin_addr : (const void *)&in6->sin6_addr,
           is4 ? sizeof in4->sin_addr : sizeof in6->sin6_addr);
    address->ip_version = is4 ? 4 : 6;
    address->port = ntohs(is4 ? in4->sin_port : in6->sin6_port);
}

bool tcp_at_from_address(const struct kv_address *address, struct tcp_at *at)
{
    struct sockaddr_in *in4 = (struct sockaddr_in *)&at->address;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&at->address;
    *at = (struct tcp_at){0};
    if (address->ip_version == 4) {
        in4->sin_family = AF_INET;
        memcpy(&in4->sin_addr, address->ip, sizeof in4->sin_addr);
        at->bytes = sizeof *in4;
    } else if (address->ip_version == 6) {
        in6->sin6_family = AF_INET6;
        memcpy(&in6->sin6_addr, address->ip, sizeof in6->sin6_addr);
        at->bytes = sizeof *in6;
    }
    if (at->bytes)
        set_port(at, address->port);
    return at->bytes > 0 && address->port != 0;
}

/* -- sockets -- */

void tcp_set_options(int fd)
{
    /* The bytes are right without any of these, so a refused option is no error. The kernel sizes
     * the buffers by the network's speed, up to net.ipv4.tcp_rmem and tcp_wmem, which is more than
     * SO_RCVBUF may ask for. */
    const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKED_LIMIT_MS},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof options[i].value);
}

void tcp_limit_queue(int fd, const struct tcp_at *from)
{
    struct tcp_at own = {.bytes = sizeof own.address};
    int bytes = SAME_HOST_QUEUE_BYTES;
    if (getsockname(fd, (struct sockaddr *)&own.address, &own.bytes) != 0)
        return;
    struct kv_address here, there;
    tcp_at_to_address(&own, &here);
    tcp_at_to_address(from, &there);
    if (here.ip_version == there.ip_version && memcmp(here.ip, there.ip, sizeof here.ip) == 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

enum status tcp_listen(struct tcp_at *at, int *out, struct error *err)
{
    char name[TCP_NAME_BYTES];
    tcp_at_name(at, name);
    int one = 1;
    int fd = socket(at->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, STATUS_IO, "no socket for the tcp lane: %s", strerror(errno));
    /* A worker that is started again gets its port while connections of its predecessor fade. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&at->address, at->bytes) != 0 ||
        listen(fd, BACKLOG) != 0) {
        enum status status =
            error_set(err, STATUS_IO, "the tcp lane can't listen on %s: %s", name, strerror(errno));
        close(fd);
        return status;
    }
    at->bytes = sizeof at->address;
    getsockname(fd, (struct sockaddr *)&at->address, &at->bytes);
    *out = fd;
    return STATUS_OK;
}

bool tcp_wait_for(const struct tcp_lane *lane, struct tcp_source *source, uint32_t events)
{
    if (source->events == events)
        return true;
    struct epoll_event event = {.events = events, .data.ptr = source};
    int how = source->events == TCP_UNKNOWN ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (epoll_ctl(lane->epoll_fd, how, source->fd, &event) != 0)
        return false;
    source->events = events;
    return true;
}

void tcp_close(const struct tcp_lane *lane, struct tcp_source *source)
{
    if (source->events != TCP_UNKNOWN)
        (void)epoll_ctl(lane->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
    (void)shutdown(source->fd, SHUT_RDWR);
    close(source->fd);
    source->fd = -1;
}
