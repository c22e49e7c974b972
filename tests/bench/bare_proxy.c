/* A proxy that does nothing: it takes connections, opens one to the worker for each, and passes
 * bytes on both ways without looking at them. Its delay is the cost of two more hops on a machine,
 * whatever a router does in between. Its address goes to standard output; it trusts both ends, and
 * ends by a signal.
 *
 *     bare_proxy WORKER_PORT [THREADS [POLL_US]]
 *
 * With two threads one reads from the clients and the other from the worker, as in the router.
 * POLL_US: it polls for so long after each message before it sleeps. */
#include "common/base/assert.h"
#include "common/base/clock.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_EVENTS = 64, BUFFER_BYTES = 1 << 16 };

struct proxy {
    int listener, client_loop, worker_loop; /* one and the same with one thread */
    struct sockaddr_in worker;
    uint64_t poll_ns;
};

struct side {
    struct proxy *proxy;
    int loop;
};

/* A client's connection and the worker's. Each is heard by one thread, and both are closed when
 * both have ended: as long as one has not, neither number is another connection's. */
struct pair {
    struct end {
        int fd, other, loop;
        struct pair *pair;
    } ends[2];
    atomic_int open;
};

/* `end` NULL: it is the listener. */
static void hear(int loop, int fd, struct end *end)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = end};
    ASSERT(!epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event));
}

static void accept_one(struct proxy *proxy)
{
    int one = 1, client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
    int worker = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct pair *pair = malloc(sizeof *pair);
    ASSERT(client >= 0 && worker >= 0 && pair);
    ASSERT(!connect(worker, (struct sockaddr *)&proxy->worker, sizeof proxy->worker));
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(worker, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pair->ends[0] = (struct end){client, worker, proxy->client_loop, pair};
    pair->ends[1] = (struct end){worker, client, proxy->worker_loop, pair};
    atomic_init(&pair->open, 2);
    for (int i = 0; i < 2; i++)
        hear(pair->ends[i].loop, pair->ends[i].fd, &pair->ends[i]);
}

/* Passes an end on, and stops reading from that side. */
static void finish(struct end *end)
{
    struct pair *pair = end->pair;
    ASSERT(!epoll_ctl(end->loop, EPOLL_CTL_DEL, end->fd, NULL));
    shutdown(end->other, SHUT_WR);
    if (atomic_fetch_sub(&pair->open, 1) > 1)
        return;
    close(pair->ends[0].fd);
    close(pair->ends[1].fd);
    free(pair);
}

static void hand_on(struct end *end)
{
    static _Thread_local char bytes[BUFFER_BYTES];
    ssize_t got = recv(end->fd, bytes, sizeof bytes, 0);
    if (got > 0)
        (void)!send(end->other, bytes, (size_t)got, MSG_NOSIGNAL);
    else
        finish(end);
}

static int wait_for(const struct side *side, struct epoll_event *events, uint64_t poll_until_ns)
{
    while (clock_now_ns() < poll_until_ns) {
        int count = epoll_wait(side->loop, events, MAX_EVENTS, 0);
        if (count)
            return count;
    }
    return epoll_wait(side->loop, events, MAX_EVENTS, -1);
}

static void *serve(void *context)
{
    const struct side *side = context;
    struct proxy *proxy = side->proxy;
    struct epoll_event events[MAX_EVENTS];
    for (uint64_t poll_until_ns = 0;;) {
        int count = wait_for(side, events, poll_until_ns);
        for (int i = 0; i < count; i++)
            if (events[i].data.ptr)
                hand_on(events[i].data.ptr);
            else
                accept_one(proxy);
        poll_until_ns = proxy->poll_ns ? clock_now_ns() + proxy->poll_ns : 0;
    }
    return NULL;
}

static void set_up(struct proxy *proxy, uint16_t worker_port, bool two)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    proxy->worker = at;
    proxy->worker.sin_port = htons(worker_port);
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(!bind(proxy->listener, (struct sockaddr *)&at, sizeof at) &&
           !listen(proxy->listener, 4096) &&
           !getsockname(proxy->listener, (struct sockaddr *)&at, &length));
    proxy->client_loop = proxy->worker_loop = epoll_create1(EPOLL_CLOEXEC);
    if (two)
        proxy->worker_loop = epoll_create1(EPOLL_CLOEXEC);
    ASSERT(proxy->client_loop >= 0 && proxy->worker_loop >= 0);
    hear(proxy->client_loop, proxy->listener, NULL);
    printf("127.0.0.1:%d\n", ntohs(at.sin_port));
    fflush(stdout);
}

int main(int count, char **arguments)
{
    static struct proxy proxy;
    pthread_t thread;
    bool two = count > 2 && atoi(arguments[2]) == 2;
    if (count < 2) {
        fprintf(stderr, "bare_proxy WORKER_PORT [THREADS [POLL_US]]\n");
        return 2;
    }
    proxy.poll_ns = count > 3 ? strtoull(arguments[3], NULL, 10) * 1000 : 0;
    set_up(&proxy, (uint16_t)atoi(arguments[1]), two);
    struct side clients = {&proxy, proxy.client_loop}, worker = {&proxy, proxy.worker_loop};
    if (two)
        ASSERT(!pthread_create(&thread, NULL, serve, &worker));
    serve(&clients);
    return 0;
}
