#include "tests/bench/router_load/crowd.h"

#include "common/base/clock.h"
#include "tests/bench/router_load/client.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_EVENTS = 256, MAX_REQUEST_BYTES = 4096, TICK_MS = 10, READ_BYTES = 256 };
#define TICKS_A_SECOND (1000 / TICK_MS)
/* As long as the router waits for a head or a body, and for a further request: so that as many are
 * put out in each second, and come again. */
#define SLOW_ARRIVAL_SECONDS 10
#define IDLE_ARRIVAL_SECONDS 60

enum kind { IDLE, SLOW_HEAD, SLOW_BODY, SLOW_READER, KINDS };

struct member {
    int fd; /* -1: to come */
    enum kind kind;
    uint32_t sent;
};

struct crowd {
    struct crowd_config config;
    char texts[KINDS][MAX_REQUEST_BYTES];
    struct member *members;
    uint32_t count;
    int loop;
    pthread_t thread;
    atomic_bool stopping;
    atomic_uint connected;
    _Atomic uint64_t put_out, refused, sent_bytes, read_bytes, late_us;
};

static void write_texts(struct crowd *crowd)
{
    char body[1024];
    int bytes = snprintf(
        body, sizeof body,
        "{\"model\":\"%s\",\"prompt\":[[1],[1],[1],[1]],\"max_tokens\":%u,\"stream\":true}",
        crowd->config.model, crowd->config.tokens);
    static const char head[] =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    snprintf(crowd->texts[IDLE], MAX_REQUEST_BYTES,
             "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for (int kind = SLOW_HEAD; kind < KINDS; kind++)
        snprintf(crowd->texts[kind], MAX_REQUEST_BYTES, "%sContent-Length: %d\r\n\r\n%s", head,
                 bytes, body);
}

/* How much goes out at once; the rest a byte a second. */
static size_t first_bytes(const struct crowd *crowd, enum kind kind)
{
    const char *text = crowd->texts[kind];
    if (kind == SLOW_HEAD)
        return 1;
    return kind == SLOW_BODY ? (size_t)(strstr(text, "\r\n\r\n") - text) + 4 : strlen(text);
}

static void leave(struct crowd *crowd, struct member *member)
{
    close(member->fd);
    member->fd = -1;
    atomic_fetch_sub(&crowd->connected, 1);
}

static void enter(struct crowd *crowd, struct member *member)
{
    member->fd = member->kind == SLOW_READER ? client_connect_narrow(crowd->config.address)
                                             : client_connect(crowd->config.address);
    if (member->fd < 0) {
        atomic_fetch_add(&crowd->refused, 1);
        return;
    }
    /* A slow reader reads at its turn, so it needs no event for arriving bytes. */
    struct epoll_event event = {.events = member->kind == SLOW_READER ? EPOLLHUP : EPOLLIN,
                                .data.u32 = (uint32_t)(member - crowd->members)};
    epoll_ctl(crowd->loop, EPOLL_CTL_ADD, member->fd, &event);
    atomic_fetch_add(&crowd->connected, 1);
    member->sent = (uint32_t)first_bytes(crowd, member->kind);
    (void)!send(member->fd, crowd->texts[member->kind], member->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void put_out(struct crowd *crowd, struct member *member)
{
    atomic_fetch_add(&crowd->put_out, 1);
    leave(crowd, member);
}

static void do_a_little(struct crowd *crowd, struct member *member)
{
    const char *text = crowd->texts[member->kind];
    char bytes[READ_BYTES];
    if (member->kind == SLOW_READER) {
        ssize_t got = recv(member->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got == 0)
            put_out(crowd, member);
        else if (got > 0)
            atomic_fetch_add(&crowd->read_bytes, (uint64_t)got);
    } else if (member->kind != IDLE && member->sent + 1 < strlen(text)) {
        if (send(member->fd, text + member->sent++, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
            atomic_fetch_add(&crowd->sent_bytes, 1);
    }
}

/* Members come one after the other. If all came at once, the server would disconnect all at once,
 * too, unlike a real crowd. */
static bool has_come(const struct crowd *crowd, uint32_t i, uint32_t turn)
{
    bool idle = crowd->members[i].kind == IDLE;
    return turn / TICKS_A_SECOND >=
           i / TICKS_A_SECOND % (idle ? IDLE_ARRIVAL_SECONDS : SLOW_ARRIVAL_SECONDS);
}

/* Each member has its turn once a second. */
static void tick(struct crowd *crowd, uint32_t turn)
{
    for (uint32_t i = turn % TICKS_A_SECOND; i < crowd->count; i += TICKS_A_SECOND)
        if (!has_come(crowd, i, turn))
            continue;
        else if (crowd->members[i].fd < 0)
            enter(crowd, &crowd->members[i]);
        else
            do_a_little(crowd, &crowd->members[i]);
}

static void look(struct crowd *crowd, struct member *member, uint32_t events)
{
    static char bytes[4096];
    if ((events & (EPOLLHUP | EPOLLERR)) || recv(member->fd, bytes, sizeof bytes, 0) <= 0)
        put_out(crowd, member);
}

static void *run(void *context)
{
    struct crowd *crowd = context;
    struct epoll_event events[MAX_EVENTS];
    uint64_t next_us = clock_now_us();
    for (uint32_t turn = 0; !atomic_load(&crowd->stopping);) {
        uint64_t now_us = clock_now_us();
        if (now_us >= next_us) {
            if (now_us - next_us > atomic_load(&crowd->late_us))
                atomic_store(&crowd->late_us, now_us - next_us);
            tick(crowd, turn++);
            next_us += TICK_MS * 1000;
            continue;
        }
        int count = epoll_wait(crowd->loop, events, MAX_EVENTS, (int)(next_us - now_us) / 1000 + 1);
        for (int i = 0; i < count; i++)
            look(crowd, &crowd->members[events[i].data.u32], events[i].events);
    }
    return NULL;
}

struct crowd *crowd_start(const struct crowd_config *config)
{
    struct crowd *crowd = calloc(1, sizeof *crowd);
    if (!crowd)
        return NULL;
    crowd->config = *config;
    crowd->count = config->idle + config->slow;
    crowd->members = calloc(crowd->count, sizeof *crowd->members);
    crowd->loop = epoll_create1(EPOLL_CLOEXEC);
    write_texts(crowd);
    for (uint32_t i = 0; crowd->members && i < crowd->count; i++)
        crowd->members[i] = (struct member){
            .fd = -1, .kind = i < config->idle ? IDLE : SLOW_HEAD + (i - config->idle) % 3};
    if (crowd->members && crowd->loop >= 0 && !pthread_create(&crowd->thread, NULL, run, crowd))
        return crowd;
    free(crowd->members);
    free(crowd);
    return NULL;
}

void crowd_figures(struct crowd *crowd, struct crowd_figures *figures)
{
    *figures = (struct crowd_figures){
        atomic_load(&crowd->connected),  atomic_load(&crowd->put_out),
        atomic_load(&crowd->refused),    atomic_load(&crowd->sent_bytes),
        atomic_load(&crowd->read_bytes), atomic_exchange(&crowd->late_us, 0)};
}

void crowd_stop(struct crowd *crowd)
{
    atomic_store(&crowd->stopping, true);
    pthread_join(crowd->thread, NULL);
    for (uint32_t i = 0; i < crowd->count; i++)
        if (crowd->members[i].fd >= 0)
            close(crowd->members[i].fd);
    close(crowd->loop);
    free(crowd->members);
    free(crowd);
}
