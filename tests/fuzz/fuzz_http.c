/* Any bytes sent to the HTTP listener, over a real connection that is broken off where no answer comes soon: an answer starts as one, and the
 * handler gets a path. The server lives as long as the process. */
#include "common/http/http_server.h"
#include "tests/fuzz/fuzz.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_REPLY_BYTES 65536
#define WAIT_MS         3 /* for an answer: the rest of a request never comes */

static void handle(void *context, const char *path, struct http_reply *reply)
{
    (void)context;
    FUZZ_CHECK(*path);
    reply->status = 200;
    str_add(&reply->body, path);
}

static struct sockaddr_in start_once(void)
{
    fuzz_quiet();
    struct http_server *server;
    struct http_server_config config = {.listen = "127.0.0.1:0", .handle = handle};
    struct error err;
    FUZZ_CHECK(http_server_start(&config, &server, &err) == STATUS_OK);
    static struct http_server *kept; /* for the leak check */
    kept = server;
    const char *address = http_server_address(kept);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return at;
}

static size_t exchange(const struct sockaddr_in *at, struct fuzz_bytes bytes, char *reply)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(fd >= 0);
    struct linger reset = {
        1, 0}; /* no TIME_WAIT, nor a half-close, which leaves one: ports would run out */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    FUZZ_CHECK(connect(fd, (const struct sockaddr *)at, sizeof *at) == 0);
    (void)!send(fd, bytes.data, bytes.size, MSG_NOSIGNAL); /* it may close before it has read all */
    size_t used = 0;
    ssize_t got = 1;
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    while (got > 0 && poll(&readable, 1, WAIT_MS) > 0) {
        got = recv(fd, reply + used, MAX_REPLY_BYTES - used, 0);
        used += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sockaddr_in at;
    static char reply[MAX_REPLY_BYTES];
    if (!at.sin_port)
        at = start_once();
    size_t used = exchange(&at, (struct fuzz_bytes){data, size}, reply);
    /* The version is the request's, whatever that was. */
    FUZZ_CHECK(!memcmp(reply, "HTTP/", used < 5 ? used : 5));
    return 0;
}
