#include "common/net/rpc/grpc/address.h"

#include "common/base/str.h"
#include "common/net/rpc/rpc.h"

#include <stdio.h>
#include <string.h>

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
    return !strncmp(address->host, "127.", 4) || !strcmp(address->host, "localhost") ||
           !strcmp(address->host, "::1");
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
