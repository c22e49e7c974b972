/* Any bytes sent to the HTTP listener, over a real connection that is broken off where no answer
 * comes soon: an answer starts as one, and the handler gets a path, and no more of a body than
 * there may be. The server lives as long as the process. */
#include "common/net/http/http_server.h"
#include "tests/fuzz/fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_REPLY_BYTES 65536
#define WAIT_MS         3 /* for an answer: the rest of a request never comes */

static void handle(void *context, struct http_exchange *exchange)
{
    (void)context;
    FUZZ_CHECK(*http_exchange_path(exchange) == '/');
    FUZZ_CHECK(http_exchange_body(exchange)->length <= HTTP_MAX_BODY_BYTES);
    http_exchange_reply_text(exchange, 200, http_exchange_path(exchange));
}

static const struct http_route routes[] = {
    {"/json/*", HTTP_POST | HTTP_TAKES_JSON, handle},
    {"/*", HTTP_GET | HTTP_POST, handle},
};

static struct sockaddr_in start_once(void)
{
    fuzz_quiet();
    struct http_server *server;
    struct http_server_config config = {.listen = "127.0.0.1:0",
                                        .routes = routes,
                                        .route_count = 2,
                                        .allowed_hosts = "a.example, *"}; /* each host is read */
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

/* libFuzzer's alarm for its time limit interrupts the call; a second call waits for the connection
 * that the first one began. */
static bool connect_through(int fd, const struct sockaddr_in *at)
{
    int result;
    do
        result = connect(fd, (const struct sockaddr *)at, sizeof *at);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

static size_t exchange(const struct sockaddr_in *at, struct fuzz_bytes bytes, char *reply)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(fd >= 0);
    struct linger reset = {
        1, 0}; /* no TIME_WAIT, nor a half-close, which leaves one: ports would run out */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    FUZZ_CHECK(connect_through(fd, at));
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
    FUZZ_CHECK(!memcmp(reply, "HTTP/1.1 ", used < 9 ? used : 9));
    return 0;
}
