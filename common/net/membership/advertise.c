#include "common/net/membership/advertise.h"

#include "common/base/str.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Splits "host:port". The port's text may be empty. False: too long, or brackets that don't
 * match. */
static bool split(const char *text, char *host, size_t size, const char **port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    bool bracketed = text[0] == '[', one_colon = colon == strchr(text, ':');
    if (bracketed) {
        const char *end = strchr(text, ']');
        if (!end || (end[1] && end[1] != ':'))
            return false;
        length = (size_t)(end - text) - 1;
        colon = end[1] ? end + 1 : NULL;
        text++;
    } else if (!one_colon) { /* a bare IPv6 address */
        length = strlen(text);
        colon = NULL;
    }
    if (length >= size)
        return false;
    memcpy(host, text, length);
    host[length] = 0;
    *port = colon ? colon + 1 : "";
    return true;
}

static bool is_every_interface(const char *host)
{
    return !*host || !strcmp(host, "0.0.0.0") || !strcmp(host, "*") ||
           !host[strspn(host, ":0")]; /* every way to write :: */
}

bool advertise_needed(const char *bound)
{
    char host[sizeof((struct advertise *)NULL)->host];
    const char *port;
    return split(bound, host, sizeof host, &port) && is_every_interface(host);
}

enum status advertise_parse(const char *setting, struct advertise *advertise, struct error *err)
{
    struct advertise parsed = {.port = 0};
    const char *port_text;
    uint64_t port = 0;
    bool shaped = split(setting, parsed.host, sizeof parsed.host, &port_text);
    for (const char *c = parsed.host; *c; c++)
        shaped = shaped && *c > ' ' && *c <= '~' && !strchr("\"\\/[],", *c);
    if (!shaped || (*port_text && !str_to_u64(port_text, 1, UINT16_MAX, &port)))
        return error_set(err, STATUS_INVALID,
                         "'%.100s' is not an address to advertise: give HOST or HOST:PORT, an IPv6 "
                         "address in [brackets]",
                         setting);
    if (is_every_interface(parsed.host))
        return error_set(
            err, STATUS_INVALID,
            "'%.100s' is not an address to advertise: every interface can't be dialled", setting);
    parsed.port = (uint16_t)port;
    *advertise = parsed;
    return STATUS_OK;
}

/* Finds the own end of the route to `at`. Connecting a datagram socket chooses it and sends
 * nothing. */
static bool find_own_end(const struct addrinfo *at, char *host, size_t size)
{
    int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    bool found = fd >= 0 && !connect(fd, at->ai_addr, at->ai_addrlen) &&
                 !getsockname(fd, (struct sockaddr *)&own, &length) &&
                 !getnameinfo((struct sockaddr *)&own, length, host, (socklen_t)size, NULL, 0,
                              NI_NUMERICHOST);
    int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return found;
}

static enum status find_route(const char *router, char *host, size_t size, struct error *err)
{
    char router_host[256];
    const char *port, *why = "it is not host:port";
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *all = NULL;
    bool found = false;
    if (split(router, router_host, sizeof router_host, &port) && *port) {
        int failure = getaddrinfo(router_host, port, &hints, &all);
        why = failure ? gai_strerror(failure) : "there is no route";
        for (const struct addrinfo *at = failure ? NULL : all; at && !found; at = at->ai_next) {
            found = find_own_end(at, host, size);
            if (!found)
                why = strerrordesc_np(errno);
        }
        if (!failure)
            freeaddrinfo(all);
    }
    if (found)
        return STATUS_OK;
    return error_set(err, STATUS_NOT_FOUND,
                     "cannot tell the own address on the way to the router %.100s (%s), and "
                     "listening on every interface names none: give one with --advertise HOST",
                     router, why);
}

enum status advertise_find(const char *setting, const char *listen, const char *router,
                           struct advertise *advertise, struct error *err)
{
    if (*setting)
        return advertise_parse(setting, advertise, err);
    struct advertise found = {.port = 0};
    const char *port;
    if (!split(listen, found.host, sizeof found.host, &port))
        return error_set(err, STATUS_INVALID, "cannot listen on '%.100s': it is not host:port",
                         listen);
    if (is_every_interface(found.host))
        TRY(find_route(router, found.host, sizeof found.host, err));
    *advertise = found;
    return STATUS_OK;
}

bool advertise_address(const struct advertise *advertise, const char *bound, char *address,
                       size_t size)
{
    char host[sizeof advertise->host], own_port[8];
    const char *port = "";
    if (!split(bound, host, sizeof host, &port))
        return false;
    if (advertise->port) {
        snprintf(own_port, sizeof own_port, "%u", advertise->port);
        port = own_port;
    }
    bool brackets = strchr(advertise->host, ':') != NULL;
    int length = snprintf(address, size, "%s%s%s:%s", brackets ? "[" : "", advertise->host,
                          brackets ? "]" : "", port);
    return length > 0 && (size_t)length < size;
}
