#include "common/rpc/grpc/address.h"

#include "common/base/str.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

bool address_is_loopback(const struct address *address)
{
    return !strncmp(address->host, "127.", 4) || !strcmp(address->host, "localhost") ||
           !strcmp(address->host, "::1");
}

const char *address_bind_failure(const struct address *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    int failure = getaddrinfo(*address->host ? address->host : NULL, address->port, &hints, &found);
    if (failure)
        return gai_strerror(failure);
    const char *why = "gRPC core refused it";
    for (struct addrinfo *at = found; at; at = at->ai_next) {
        int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        int yes = 1;
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
            bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, 1))
            why = strerrordesc_np(errno);
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(found);
    return why;
}
