/* Times the HTTP server: small replies a second, a streamed piece's CPU time and latency, and
 * thousands of idle or slow clients, with their cost for the others. Client and server are threads
 * of this process; another process holds the idle and slow clients. For comparison, two epoll loops
 * move the same bytes to and fro without HTTP.
 *
 *     http_load [SERVER_THREADS [CLIENT_THREADS [IDLE [SLOW]]]] */
#include "common/base/clock.h"
#include "common/base/descriptors.h"
#include "common/net/http/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS = 32, /* per client thread */
    SECONDS = 3,
    STREAMS = 200,
    PIECES = 200,
    PIECE_EVERY_US = 20000,
    MAX_SAMPLES = 1 << 20,
};
#define REQUEST                                                                                    \
    "GET /small HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\nUser-Agent: http_load\r\n\r\n"

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t cpu_us(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile_ms(uint32_t *samples, size_t count, double of)
{
    qsort(samples, count, sizeof *samples, compare);
    return count ? samples[(size_t)(of * (double)(count - 1))] / 1000.0 : 0;
}

static int connected(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to))
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* --- the server --- */

static _Atomic(struct http_exchange *) streams[STREAMS];
static atomic_int stream_count;

static void on_small(void *context, struct http_exchange *exchange)
{
    (void)context;
    http_exchange_reply_text(exchange, 200, "{\"object\": \"list\", \"data\": []}\n");
}

static void on_stream(void *context, struct http_exchange *exchange)
{
    (void)context;
    http_exchange_keep(exchange);
    atomic_store(&streams[atomic_fetch_add(&stream_count, 1)], exchange);
}

static const struct http_route routes[] = {{"/small", HTTP_GET | HTTP_POST, on_small},
                                           {"/stream", HTTP_GET, on_stream}};

/* --- the same bytes without HTTP --- */

static int echo_listener;

static void *echo(void *context)
{
    (void)context;
    static char bytes[65536], reply[400];
    int loop = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = echo_listener}, events[64];
    epoll_ctl(loop, EPOLL_CTL_ADD, echo_listener, &event);
    memset(reply, 'x', sizeof reply);
    reply[200 - 1] = '\n';
    for (;;) {
        int count = epoll_wait(loop, events, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == echo_listener) {
                event.data.fd = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                epoll_ctl(loop, EPOLL_CTL_ADD, event.data.fd, &event);
            } else if (recv(fd, bytes, sizeof bytes, 0) <= 0) {
                close(fd);
            } else {
                (void)!send(fd, reply, 200, MSG_NOSIGNAL);
            }
        }
    }
    return NULL;
}

static const char *start_echo(void)
{
    static char address[32];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    pthread_t thread;
    echo_listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(echo_listener, (struct sockaddr *)&at, sizeof at) || listen(echo_listener, 4096) ||
        getsockname(echo_listener, (struct sockaddr *)&at, &length) ||
        pthread_create(&thread, NULL, echo, NULL))
        die("the echo server");
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
    return address;
}

/* --- small replies --- */

struct client {
    const char *address;
    uint64_t until_us, answers;
    size_t sample_count;
    uint32_t *samples; /* microseconds */
};

static void *ask_on(void *context)
{
    struct client *client = context;
    static _Thread_local uint64_t asked_us[65536];
    static _Thread_local char bytes[65536];
    int loop = epoll_create1(EPOLL_CLOEXEC), fds[CONNECTIONS];
    struct epoll_event event = {.events = EPOLLIN}, events[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
        event.data.fd = fds[i] = connected(client->address);
        epoll_ctl(loop, EPOLL_CTL_ADD, fds[i], &event);
        asked_us[fds[i]] = clock_now_us();
        (void)!send(fds[i], REQUEST, strlen(REQUEST), MSG_NOSIGNAL);
    }
    while (clock_now_us() < client->until_us) {
        int count = epoll_wait(loop, events, CONNECTIONS, 100);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            ssize_t got = recv(fd, bytes, sizeof bytes, 0);
            if (got <= 0 || bytes[got - 1] != '\n')
                die("an answer");
            uint64_t now_us = clock_now_us();
            if (client->sample_count < MAX_SAMPLES)
                client->samples[client->sample_count++] = (uint32_t)(now_us - asked_us[fd]);
            client->answers++;
            asked_us[fd] = now_us;
            (void)!send(fd, REQUEST, strlen(REQUEST), MSG_NOSIGNAL);
        }
    }
    for (int i = 0; i < CONNECTIONS; i++)
        close(fds[i]);
    close(loop);
    return NULL;
}

static void measure_small(const char *what, const char *address, int threads)
{
    struct client clients[16];
    pthread_t ids[16];
    uint64_t begin_us = clock_now_us(), cpu = cpu_us(), answers = 0;
    uint32_t *all = NULL;
    size_t count = 0;
    for (int i = 0; i < threads; i++) {
        clients[i] = (struct client){address, begin_us + SECONDS * 1000000u, 0, 0,
                                     malloc(MAX_SAMPLES * sizeof(uint32_t))};
        pthread_create(&ids[i], NULL, ask_on, &clients[i]);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        answers += clients[i].answers;
        all = realloc(all, (count + clients[i].sample_count) * sizeof *all);
        memcpy(all + count, clients[i].samples, clients[i].sample_count * sizeof *all);
        count += clients[i].sample_count;
        free(clients[i].samples);
    }
    double took = (double)(clock_now_us() - begin_us);
    printf(
        "%-28s %8.0f replies/s, %5.1f us CPU each (client and server), p50 %.3f ms, p99 %.3f ms\n",
        what, (double)answers * 1e6 / took, (double)(cpu_us() - cpu) / (double)answers,
        percentile_ms(all, count, 0.5), percentile_ms(all, count, 0.99));
    free(all);
}

/* --- streams --- */

static uint32_t *latencies;
static size_t latency_count;

/* Reads the times that pieces carry. */
static void *read_streams(void *context)
{
    int *fds = context;
    static char bytes[65536];
    int loop = epoll_create1(EPOLL_CLOEXEC), open = STREAMS;
    struct epoll_event event = {.events = EPOLLIN}, events[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        event.data.fd = fds[i];
        epoll_ctl(loop, EPOLL_CTL_ADD, fds[i], &event);
    }
    while (open > 0) {
        int count = epoll_wait(loop, events, STREAMS, -1);
        uint64_t now_us = clock_now_us();
        for (int i = 0; i < count; i++) {
            ssize_t got = recv(events[i].data.fd, bytes, sizeof bytes - 1, 0);
            if (got <= 0)
                die("a stream");
            bytes[got] = 0;
            for (char *at = bytes; (at = strstr(at, "data: ")); at += 6)
                latencies[latency_count++] = (uint32_t)(now_us - strtoull(at + 6, NULL, 10));
            if (got >= 5 && !memcmp(bytes + got - 5, "0\r\n\r\n", 5) && open--)
                epoll_ctl(loop, EPOLL_CTL_DEL, events[i].data.fd, NULL);
        }
    }
    return NULL;
}

static void write_pieces(void)
{
    for (int piece = 0; piece < PIECES; piece++) {
        uint64_t begin_us = clock_now_us();
        for (int i = 0; i < STREAMS; i++) {
            char text[256];
            int length = snprintf(text, sizeof text, "data: %llu %0160d\n\n",
                                  (unsigned long long)clock_now_us(), piece);
            if (http_exchange_write(streams[i], text, (size_t)length) != STATUS_OK)
                die("a piece");
        }
        uint64_t took_us = clock_now_us() - begin_us;
        if (took_us < PIECE_EVERY_US)
            poll(NULL, 0, (int)(PIECE_EVERY_US - took_us) / 1000);
    }
}

static void measure_streams(const char *address)
{
    static int fds[STREAMS];
    static const char ask[] = "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n";
    struct http_reply head;
    pthread_t reader;
    latencies = malloc(STREAMS * PIECES * sizeof *latencies);
    http_reply_init(&head, 0);
    head.status = 200;
    head.content_type = "text/event-stream";
    for (int i = 0; i < STREAMS; i++) {
        fds[i] = connected(address);
        (void)!send(fds[i], ask, strlen(ask), MSG_NOSIGNAL);
        while (!atomic_load(&streams[i]))
            ;
        if (http_exchange_start(streams[i], &head) != STATUS_OK)
            die("a stream");
    }
    pthread_create(&reader, NULL, read_streams, fds);
    uint64_t cpu = cpu_us();
    write_pieces();
    for (int i = 0; i < STREAMS; i++) {
        http_exchange_end(streams[i]);
        http_exchange_drop(streams[i]);
    }
    pthread_join(reader, NULL);
    printf("%d streams, a piece each %d ms: %.1f us CPU a piece (writer, server, client), p50 %.3f "
           "ms, p99 %.3f ms behind the write\n",
           STREAMS, PIECE_EVERY_US / 1000, (double)(cpu_us() - cpu) / (STREAMS * PIECES),
           percentile_ms(latencies, latency_count, 0.5),
           percentile_ms(latencies, latency_count, 0.99));
    for (int i = 0; i < STREAMS; i++)
        close(fds[i]);
    http_reply_deinit(&head);
    free(latencies);
}

/* --- many clients --- */

static size_t resident_bytes(void)
{
    size_t pages, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%zu %zu", &pages, &resident) != 2)
        die("/proc/self/statm");
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void wait_connections(struct http_server *server, uint64_t count)
{
    struct http_figures figures;
    do
        http_server_figures(server, &figures);
    while (figures.connections < count);
}

/* An order to another process, which has its own limit of open files. */
struct order {
    char address[64], text[128];
    int count;
};
static int orders, done;

static void hold_connections(int from, int to)
{
    struct order order;
    descriptors_raise(0);
    while (read(from, &order, sizeof order) == sizeof order) {
        for (int i = 0; i < order.count; i++)
            (void)!send(connected(order.address), order.text, strlen(order.text), MSG_NOSIGNAL);
        (void)!write(to, "", 1);
    }
    exit(0);
}

static void start_holder(void)
{
    int down[2], up[2];
    if (pipe(down) || pipe(up))
        die("pipe");
    if (fork() == 0) {
        close(down[1]);
        close(up[0]);
        hold_connections(down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    orders = down[1];
    done = up[0];
}

/* Opens `count` connections that send `text`, and measures the memory of each in this process. */
static void open_many(struct http_server *server, const char *what, int count, const char *text)
{
    struct http_figures figures;
    struct order order = {.count = count};
    char byte;
    http_server_figures(server, &figures);
    size_t allocated = mallinfo2().uordblks, resident = resident_bytes();
    snprintf(order.address, sizeof order.address, "%s", http_server_address(server));
    snprintf(order.text, sizeof order.text, "%s", text);
    if (write(orders, &order, sizeof order) != sizeof order || read(done, &byte, 1) != 1)
        die("the process with many connections");
    wait_connections(server, figures.connections + (uint64_t)count);
    printf("%d %s: %zu bytes allocated, %zu bytes resident each\n", count, what,
           (mallinfo2().uordblks - allocated) / (size_t)count,
           (resident_bytes() - resident) / (size_t)count);
}

int main(int argc, char **argv)
{
    int server_threads = argc > 1 ? atoi(argv[1]) : 1,
        client_threads = argc > 2 ? atoi(argv[2]) : 1, idle = argc > 3 ? atoi(argv[3]) : 10000,
        slow = argc > 4 ? atoi(argv[4]) : 1000;
    struct http_server_config config = {.listen = "127.0.0.1:0",
                                        .routes = routes,
                                        .route_count = 2,
                                        .threads = (unsigned)server_threads,
                                        .max_connections = 60000,
                                        .head_us = 600000000,
                                        .idle_us = 600000000,
                                        .body_us = 600000000};
    struct http_server *server;
    struct error err;
    start_holder();
    if (client_threads > 16 || descriptors_raise(0) < (unsigned)(idle + slow) + 2000u) {
        fprintf(stderr, "http_load: too many threads, or too few open files (ulimit -Hn)\n");
        return 1;
    }
    if (http_server_start(&config, &server, &err) != STATUS_OK) {
        fprintf(stderr, "http_load: %s\n", err.text);
        return 1;
    }
    const char *address = http_server_address(server);
    printf("%d threads of the server, %d of clients with %d connections each\n", server_threads,
           client_threads, CONNECTIONS);
    measure_small("the bytes without HTTP:", start_echo(), client_threads);
    measure_small("HTTP:", address, client_threads);
    measure_streams(address);
    measure_small("HTTP, before:", address, client_threads);
    open_many(server, "idle connections", idle, "");
    measure_small("HTTP, beside those:", address, client_threads);
    open_many(server, "slow clients", slow,
              "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx");
    measure_small("HTTP, beside all:", address, client_threads);
    http_server_stop(server);
    return 0;
}
