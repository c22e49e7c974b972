/* A server to test, and clients of raw bytes. Each test starts its own: set_up_with(config). */
#ifndef BATON_TESTS_UNIT_HTTP_FIXTURE_H
#define BATON_TESTS_UNIT_HTTP_FIXTURE_H

#include "common/base/clock.h"
#include "common/base/str.h"
#include "common/net/http/http_client.h"
#include "common/net/http/http_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND_US 1000000u
#define WAIT_MS   20000 /* for data that must come */

static inline struct sockaddr_in socket_address(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return to;
}

static inline int connected(const char *address)
{
    struct sockaddr_in to = socket_address(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static inline void say_bytes(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        assert_true(sent > 0);
        bytes += sent;
        count -= (size_t)sent;
    }
}

static inline void say(int fd, const char *text)
{
    say_bytes(fd, text, strlen(text));
}

/* Appends received bytes until `text` has come or the connection ends. True: it came. */
static inline bool hear(int fd, struct str *heard, const char *text)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    while (!text || !strstr(heard->data, text)) {
        char bytes[4096];
        assert_int_equal(poll(&readable, 1, WAIT_MS), 1);
        ssize_t got = recv(fd, bytes, sizeof bytes, 0);
        if (got <= 0)
            return false;
        str_append(heard, bytes, (size_t)got);
    }
    return true;
}

/* Sends, and returns all bytes until the server closes (static memory). */
static inline const char *exchange_bytes(const char *address, const char *bytes, size_t count)
{
    static struct str heard;
    if (heard.data)
        str_deinit(&heard);
    str_init(&heard, 8u << 20);
    int fd = connected(address);
    say_bytes(fd, bytes, count);
    (void)hear(fd, &heard, NULL);
    close(fd);
    return heard.data;
}

static inline const char *exchange_raw(const char *address, const char *request)
{
    return exchange_bytes(address, request, strlen(request));
}

static inline int count_of(const char *text, const char *what)
{
    int count = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        count++;
    return count;
}

#endif
