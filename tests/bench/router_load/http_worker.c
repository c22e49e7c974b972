#include "tests/bench/router_load/worker.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "tests/bench/router_load/stamps.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FDS = 65536, MAX_REQUEST_BYTES = 1 << 20, MAX_EVENTS = 64, MAX_STREAMS = 4096 };
#define CHUNK                                                                                      \
    "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1,\"model\":\"load\","    \
    "\"choices\":[{\"index\":0,\"text\":\" word\",\"logprobs\":null,\"finish_reason\":%s}]}\n\n"
#define WHOLE                                                                                      \
    "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1,\"model\":\"load\","          \
    "\"choices\":[{\"index\":0,\"text\":\" "                                                       \
    "word\",\"logprobs\":null,\"finish_reason\":\"length\"}],"                                     \
    "\"usage\":{\"prompt_tokens\":512,\"completion_tokens\":1,\"total_tokens\":513}}"
#define ABOUT                                                                                      \
    "{\"status\":\"ok\",\"model_path\":\"load\",\"served_model_name\":\"load\",\"model_id\":"      \
    "\"load\","                                                                                    \
    "\"tp_size\":1,\"dp_size\":1,\"is_generation\":true,\"max_total_num_tokens\":1000000,"         \
    "\"object\":\"list\",\"data\":[{\"id\":\"load\",\"object\":\"model\"}]}"

static _Atomic uint64_t step_of_all_us;

void worker_set_step(uint64_t step_us)
{
    atomic_store(&step_of_all_us, step_us);
}

uint64_t worker_step_us(void)
{
    return atomic_load(&step_of_all_us);
}

uint64_t worker_next_step_ns(uint64_t now_ns)
{
    uint64_t step_ns = worker_step_us() * 1000;
    if (!step_ns)
        return now_ns; /* there are none any more */
    return (now_ns / step_ns + 1) * step_ns;
}

struct input {
    char *bytes;
    size_t length;
};

struct stream {
    int fd;
    uint32_t request, sent, tokens;
};

struct worker {
    int listener, loop;
    bool quiet;
    char address[32];
    struct input *inputs; /* [MAX_FDS] */
    struct stream streams[MAX_STREAMS];
    size_t stream_count;
};

static void say(int fd, const char *text, size_t length)
{
    (void)!send(fd, text, length, MSG_NOSIGNAL);
}

static void say_json(int fd, const char *json)
{
    char text[1024];
    int length = snprintf(text, sizeof text,
                          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                          "Content-Length: %zu\r\n\r\n%s",
                          strlen(json), json);
    say(fd, text, (size_t)length);
}

/* False: that was the last one. */
static bool say_token(struct worker *worker, struct stream *stream)
{
    char body[512], text[1024];
    bool last = ++stream->sent == stream->tokens;
    int bytes = snprintf(body, sizeof body, CHUNK, last ? "\"length\"" : "null");
    int length = snprintf(text, sizeof text, "%x\r\n%s\r\n%s", (unsigned)bytes, body,
                          last ? "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n" : "");
    if (!worker->quiet)
        stamps_set(stream->request, stream->sent);
    say(stream->fd, text, (size_t)length);
    return !last;
}

static void begin_stream(struct worker *worker, struct stream stream)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";
    say(stream.fd, head, sizeof head - 1);
    bool stepping = !worker->quiet && worker_step_us() && worker->stream_count < MAX_STREAMS;
    while (say_token(worker, &stream))
        if (stepping) {
            worker->streams[worker->stream_count++] = stream;
            return;
        }
}

static void answer(struct worker *worker, int fd, const char *text, size_t length)
{
    if (memcmp(text, "POST", 4)) {
        say_json(fd, ABOUT);
        return;
    }
    const char *tokens = memmem(text, length, "\"max_tokens\":", 13);
    uint32_t request = stamps_number(text, length);
    if (memmem(text, length, "\"stream\":true", 13)) {
        begin_stream(
            worker,
            (struct stream){fd, request, 0, tokens ? (uint32_t)strtoul(tokens + 13, NULL, 10) : 1});
        return;
    }
    if (!worker->quiet)
        stamps_set(request, 1);
    say_json(fd, WHOLE);
}

/* Bytes of the first request in `input`; 0: it isn't whole. */
static size_t request_bytes(const struct input *input)
{
    const char *end = memmem(input->bytes, input->length, "\r\n\r\n", 4);
    if (!end)
        return 0;
    size_t head = (size_t)(end - input->bytes) + 4, body = 0;
    for (const char *line = input->bytes; line && line < end;) {
        if (!strncasecmp(line, "content-length:", 15))
            body = strtoul(line + 15, NULL, 10);
        line = memchr(line, '\n', (size_t)(end - line));
        line = line ? line + 1 : NULL;
    }
    return head + body <= input->length ? head + body : 0;
}

static void drop(struct worker *worker, int fd)
{
    for (size_t i = 0; i < worker->stream_count; i++)
        if (worker->streams[i].fd == fd)
            worker->streams[i--] = worker->streams[--worker->stream_count];
    worker->inputs[fd].length = 0;
    close(fd);
}

static void take_bytes(struct worker *worker, int fd)
{
    struct input *input = &worker->inputs[fd];
    if (!input->bytes)
        input->bytes = calloc(1, MAX_REQUEST_BYTES + 1);
    ASSERT(input->bytes);
    ssize_t got = recv(fd, input->bytes + input->length, MAX_REQUEST_BYTES - input->length, 0);
    if (got <= 0) {
        drop(worker, fd);
        return;
    }
    input->length += (size_t)got;
    for (size_t bytes; (bytes = request_bytes(input));) {
        answer(worker, fd, input->bytes, bytes);
        input->length -= bytes;
        memmove(input->bytes, input->bytes + bytes, input->length);
    }
}

static void accept_one(struct worker *worker)
{
    int one = 1, fd = accept4(worker->listener, NULL, NULL, SOCK_CLOEXEC);
    ASSERT(fd >= 0 && fd < MAX_FDS);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(worker->loop, EPOLL_CTL_ADD, fd, &event);
}

static void step(struct worker *worker)
{
    for (size_t i = 0; i < worker->stream_count; i++)
        if (!say_token(worker, &worker->streams[i]))
            worker->streams[i--] = worker->streams[--worker->stream_count];
}

static int wait_for(struct worker *worker, struct epoll_event *events, uint64_t step_ns)
{
    uint64_t now_ns = clock_now_ns(), left_ns = step_ns > now_ns ? step_ns - now_ns : 0;
    struct timespec left = {(time_t)(left_ns / 1000000000u), (long)(left_ns % 1000000000u)};
    return epoll_pwait2(worker->loop, events, MAX_EVENTS, worker->stream_count ? &left : NULL,
                        NULL);
}

static void *serve(void *context)
{
    struct worker *worker = context;
    struct epoll_event events[MAX_EVENTS];
    for (uint64_t step_ns = 0;;) {
        int count = wait_for(worker, events, step_ns);
        for (int i = 0; i < count; i++)
            if (events[i].data.fd == worker->listener)
                accept_one(worker);
            else
                take_bytes(worker, events[i].data.fd);
        uint64_t now_ns = clock_now_ns();
        if (now_ns < step_ns || !worker_step_us())
            continue;
        if (step_ns)
            step(worker);
        step_ns = worker_next_step_ns(now_ns);
    }
    return NULL;
}

const char *http_worker_start(bool quiet)
{
    struct worker *worker = calloc(1, sizeof *worker);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    pthread_t thread;
    ASSERT(worker);
    worker->quiet = quiet;
    worker->inputs = calloc(MAX_FDS, sizeof *worker->inputs);
    worker->loop = epoll_create1(EPOLL_CLOEXEC);
    worker->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(worker->inputs && worker->loop >= 0 && worker->listener >= 0);
    ASSERT(!bind(worker->listener, (struct sockaddr *)&at, sizeof at) &&
           !listen(worker->listener, 4096) &&
           !getsockname(worker->listener, (struct sockaddr *)&at, &length));
    struct epoll_event event = {.events = EPOLLIN, .data.fd = worker->listener};
    epoll_ctl(worker->loop, EPOLL_CTL_ADD, worker->listener, &event);
    snprintf(worker->address, sizeof worker->address, "127.0.0.1:%d", ntohs(at.sin_port));
    ASSERT(!pthread_create(&thread, NULL, serve, worker));
    return worker->address;
}
