#include "tests/bench/router_load/client.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/rng.h"
#include "tests/bench/router_load/reply_reader.h"
#include "tests/bench/router_load/stamps.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Buffers of a slow reader. The sender's kernel buffers in proportion to the size of segments. On
 * loopback that is 64 KiB, so it would buffer megabytes. */
enum { NARROW_BYTES = 4096, NARROW_SEGMENT = 88 };
enum { MAX_CONNECTIONS = 4096, MAX_EVENTS = 64, MAX_REQUEST_BYTES = 1 << 18, DRAIN_SECONDS = 5 };
#define NUMBER_DIGITS "0000000000"

struct connection {
    int fd; /* -1: none */
    bool busy;
    uint32_t request, token; /* tokens that came */
    uint64_t due_ns;
    struct reply_reader reader;
};

struct client {
    const struct client_run *run;
    struct client_result *result;
    struct connection *connections;
    uint32_t open, busy_count;
    uint32_t free_stack[MAX_CONNECTIONS], free_count;
    int loop;
    char *request; /* with its number in two places */
    size_t request_bytes;
    char *numbers[2];
};

static uint32_t request_numbers; /* over all runs: each request has its own */

static int open_to(const char *address, bool narrow)
{
    static const int room = NARROW_BYTES, segment = NARROW_SEGMENT;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (narrow) {
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
        setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
    }
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        return -1;
    }
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

int client_connect(const char *address)
{
    return open_to(address, false);
}

int client_connect_narrow(const char *address)
{
    return open_to(address, true);
}

static void add_time(struct client_times *times, uint64_t ns)
{
    if (times->count == times->capacity) {
        times->capacity = times->capacity ? 2 * times->capacity : 4096;
        times->us = realloc(times->us, times->capacity * sizeof *times->us);
        ASSERT(times->us);
    }
    times->us[times->count++] = (float)((double)ns / 1000);
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double client_percentile(struct client_times *times, double of)
{
    if (!times->count)
        return 0;
    qsort(times->us, times->count, sizeof *times->us, compare);
    return times->us[(size_t)(of * (double)(times->count - 1))];
}

void client_result_free(struct client_result *result)
{
    free(result->whole.us);
    free(result->first.us);
    free(result->behind.us);
    free(result->later.us);
    *result = (struct client_result){.answers = 0};
}

/* --- connections --- */

static void make_request(struct client *client)
{
    const struct client_run *run = client->run;
    char *body;
    int body_bytes = asprintf(&body,
                              "{\"model\":\"%s\",\"prompt\":%s,\"max_tokens\":%u,\"temperature\":0,"
                              "\"stream\":%s,\"user\":\"" STAMPS_NAME NUMBER_DIGITS "\"}",
                              run->model, run->prompt, run->tokens, run->stream ? "true" : "false");
    ASSERT(body_bytes > 0);
    int bytes = asprintf(
        &client->request,
        "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nX-Request-Id: " STAMPS_NAME NUMBER_DIGITS
        "\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
        run->address, body_bytes, body);
    ASSERT(bytes > 0 && bytes < MAX_REQUEST_BYTES);
    free(body);
    client->request_bytes = (size_t)bytes;
    client->numbers[0] = strstr(client->request, STAMPS_NAME NUMBER_DIGITS);
    client->numbers[1] = strstr(client->numbers[0] + 1, STAMPS_NAME NUMBER_DIGITS);
}

static void set_free(struct client *client, struct connection *connection)
{
    client->busy_count -= connection->busy;
    connection->busy = false;
    client->free_stack[client->free_count++] = (uint32_t)(connection - client->connections);
}

/* False: it can't be had. */
static bool open_one(struct client *client)
{
    struct connection *connection = &client->connections[client->open];
    connection->fd = client_connect(client->run->address);
    if (connection->fd < 0)
        return false;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = client->open++};
    epoll_ctl(client->loop, EPOLL_CTL_ADD, connection->fd, &event);
    set_free(client, connection);
    return true;
}

/* The server closed the connection: an open request is lost, and the connection is made again. */
static void reopen(struct client *client, struct connection *connection)
{
    client->result->failures += connection->busy;
    close(connection->fd);
    connection->fd = client_connect(client->run->address);
    if (connection->fd < 0)
        return;
    struct epoll_event event = {.events = EPOLLIN,
                                .data.u32 = (uint32_t)(connection - client->connections)};
    epoll_ctl(client->loop, EPOLL_CTL_ADD, connection->fd, &event);
    if (connection->busy)
        set_free(client, connection);
}

static void ask(struct client *client, uint64_t due_ns)
{
    struct connection *connection = &client->connections[client->free_stack[--client->free_count]];
    char digits[16];
    connection->busy = true;
    client->busy_count++;
    connection->request = ++request_numbers;
    connection->token = 0;
    connection->due_ns = due_ns;
    reply_reader_init(&connection->reader);
    snprintf(digits, sizeof digits, "%010u", connection->request);
    for (int i = 0; i < 2; i++)
        memcpy(client->numbers[i] + strlen(STAMPS_NAME), digits, strlen(NUMBER_DIGITS));
    if (send(connection->fd, client->request, client->request_bytes, MSG_NOSIGNAL) !=
        (ssize_t)client->request_bytes)
        reopen(client, connection);
}

/* --- replies --- */

static void note_tokens(struct client *client, struct connection *connection, uint64_t now_ns)
{
    uint32_t events = connection->reader.events;
    if (events > client->run->tokens)
        events = client->run->tokens; /* one that only says that it ended */
    for (; connection->token < events; connection->token++) {
        uint64_t sent_ns = stamps_get_ns(connection->request, connection->token + 1);
        if (!connection->token) {
            add_time(&client->result->first, now_ns - connection->due_ns);
            add_time(&client->result->behind, now_ns - sent_ns);
        } else {
            add_time(&client->result->later, now_ns - sent_ns);
        }
        client->result->tokens++;
    }
}

static void note_end(struct client *client, struct connection *connection, uint64_t now_ns)
{
    if (connection->reader.status != 200) {
        client->result->failures++;
    } else {
        client->result->answers++;
        add_time(&client->result->whole, now_ns - connection->due_ns);
    }
    set_free(client, connection);
}

static void take_bytes(struct client *client, struct connection *connection)
{
    static char bytes[1 << 16];
    ssize_t got = recv(connection->fd, bytes, sizeof bytes, 0);
    if (got <= 0 || !connection->busy) {
        reopen(client, connection);
        return;
    }
    uint64_t now_ns = clock_now_ns();
    client->result->bytes += (uint64_t)got;
    reply_reader_take(&connection->reader, bytes, (size_t)got);
    if (client->run->stream && connection->reader.status == 200)
        note_tokens(client, connection, now_ns);
    if (connection->reader.state == REPLY_OVER)
        note_end(client, connection, now_ns);
}

/* --- the run --- */

static double cpu_us_of(pid_t pid)
{
    struct timespec time;
    clockid_t clock;
    if (!pid || clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &time))
        return 0;
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1000;
}

static uint64_t pause_ns(struct rng *rng, double rate)
{
    return (uint64_t)(-log(1 - rng_unit(rng)) / rate * 1e9);
}

static void wait_for_replies(struct client *client, uint64_t until_ns)
{
    struct epoll_event events[MAX_EVENTS];
    uint64_t now_ns = clock_now_ns(), left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec left = {(time_t)(left_ns / 1000000000u), (long)(left_ns % 1000000000u)};
    int count = epoll_pwait2(client->loop, events, MAX_EVENTS, &left, NULL);
    for (int i = 0; i < count; i++)
        take_bytes(client, &client->connections[events[i].data.u32]);
}

static void drive(struct client *client, uint64_t begin_ns)
{
    const struct client_run *run = client->run;
    uint64_t end_ns = begin_ns + (uint64_t)(run->seconds * 1e9), due_ns = begin_ns;
    struct rng rng = rng_seeded(run->seed);
    while (clock_now_ns() < end_ns) {
        uint64_t now_ns = clock_now_ns();
        while (run->rate == 0 && client->free_count)
            ask(client, clock_now_ns());
        while (run->rate > 0 && due_ns <= now_ns && due_ns < end_ns && client->free_count) {
            ask(client, due_ns);
            due_ns += pause_ns(&rng, run->rate);
        }
        bool later = run->rate > 0 && client->free_count && due_ns < end_ns;
        wait_for_replies(client, later ? due_ns : end_ns);
    }
    uint64_t last_ns = clock_now_ns() + DRAIN_SECONDS * 1000000000ull;
    while (client->busy_count && clock_now_ns() < last_ns)
        wait_for_replies(client, last_ns);
    client->result->failures += client->busy_count;
}

static void end(struct client *client)
{
    for (uint32_t i = 0; i < client->open; i++)
        if (client->connections[i].fd >= 0)
            close(client->connections[i].fd);
    close(client->loop);
    free(client->connections);
    free(client->request);
    free(client);
}

bool client_run(const struct client_run *run, struct client_result *result)
{
    struct client *client = calloc(1, sizeof *client);
    ASSERT(client && run->connections <= MAX_CONNECTIONS);
    *result = (struct client_result){.answers = 0};
    client->run = run;
    client->result = result;
    client->connections = calloc(run->connections, sizeof *client->connections);
    client->loop = epoll_create1(EPOLL_CLOEXEC);
    ASSERT(client->connections && client->loop >= 0);
    make_request(client);
    while (client->open < run->connections)
        if (!open_one(client)) {
            end(client);
            return false;
        }
    double cpu_us = cpu_us_of(run->router);
    uint64_t begin_ns = clock_now_ns();
    drive(client, begin_ns);
    result->seconds = (double)(clock_now_ns() - begin_ns) / 1e9;
    result->router_cpu_us = cpu_us_of(run->router) - cpu_us;
    end(client);
    return true;
}
