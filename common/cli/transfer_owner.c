#include "common/cli/transfer_bench.h"

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/kv/transport/kv_checksum.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_READS 64
/* Bytes that may wait in the socket: they are still in the caches when they are copied on. */
#define STREAM_BUFFER (512 << 10)

enum request_kind { REQUEST_CHECKSUMS, REQUEST_STREAM };

struct request {
    enum request_kind kind;
    size_t run_bytes;
};

/* The owner's first message. */
struct hello {
    bool ok;
    struct error err;
    struct transfer_address addresses[TRANSFER_LANES];
};

struct serving {
    const struct transfer_plan *plan;
    struct kv_transport *lanes[TRANSFER_LANES];
    int control, stream;
    size_t max_runs;
    uint32_t *numbers; /* one a run: an order, or checksums */
};

void transfer_pin(int which)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &allowed))
            continue;
        CPU_ZERO(&one);
        CPU_SET(i, &one);
        if (which == 0)
            break;
    }
    (void)sched_setaffinity(0, sizeof one, &one);
}

static bool read_fully(int fd, void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t got = read(fd, (char *)bytes + done, count - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        done += (size_t)got;
    }
    return true;
}

static bool write_fully(int fd, const void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t left = count - done;
        ssize_t put = send(fd, (const char *)bytes + done,
                           left < TRANSFER_CALL ? left : TRANSFER_CALL, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        done += (size_t)put;
    }
    return true;
}

void transfer_order(uint32_t which, size_t count, uint32_t *order)
{
    struct rng rng = rng_seeded(which + 1);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = (uint32_t)rng_below(&rng, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

enum status transfer_lane_open(const struct transfer_plan *plan, enum transfer_lane lane,
                               struct kv_transport **transport, struct error *err)
{
    struct kv_transport_config config = {
        .kind = KV_TRANSPORT_REMOTE,
        .lane = lane == TRANSFER_SHM ? KV_LANE_SHM : KV_LANE_TCP,
        .pool_bytes = plan->pool_bytes,
        .max_reads = MAX_READS,
    };
    TRY(kv_transport_open(&config, transport, err));
    uint64_t *words = kv_transport_pool(*transport);
    for (size_t i = 0; i < plan->pool_bytes / sizeof *words; i++)
        words[i] = (i + 1) * 0x9e3779b97f4a7c15u;
    return STATUS_OK;
}

/* --- the owner's process --- */

/* Its bytes are made up. */
static bool may_read(void *owner, const struct kv_claim *claim)
{
    (void)owner, (void)claim;
    return true;
}

static bool answer_request(struct serving *serving)
{
    struct request request;
    if (!read_fully(serving->control, &request, sizeof request))
        return false;
    size_t count = request.run_bytes ? serving->plan->pool_bytes / request.run_bytes : 0;
    if (count == 0 || count > serving->max_runs)
        return false;
    const uint8_t *pool = NULL; /* the lanes' pools have the same bytes */
    for (int i = 0; i < TRANSFER_LANES && !pool; i++)
        if (serving->lanes[i])
            pool = kv_transport_pool(serving->lanes[i]);
    if (request.kind == REQUEST_CHECKSUMS) {
        for (size_t i = 0; i < count; i++)
            serving->numbers[i] = kv_checksum(pool + i * request.run_bytes, request.run_bytes);
        return write_fully(serving->control, serving->numbers, count * sizeof *serving->numbers);
    }
    transfer_order(0, count, serving->numbers);
    for (size_t i = 0; i < count; i++)
        if (!write_fully(serving->stream, pool + serving->numbers[i] * request.run_bytes,
                         request.run_bytes))
            return false;
    return true;
}

/* Polls the transports and sleeps, like a worker's transfer thread. */
static void serve(struct serving *serving)
{
    for (;;) {
        struct pollfd fds[1 + TRANSFER_LANES] = {{serving->control, POLLIN, 0}};
        bool armed = true;
        for (int i = 0; i < TRANSFER_LANES; i++) {
            struct kv_event event;
            fds[1 + i] = (struct pollfd){-1, POLLIN, 0};
            if (!serving->lanes[i])
                continue;
            (void)kv_transport_poll(serving->lanes[i], clock_now_us(), &event, 1);
            fds[1 + i].fd = kv_transport_fd(serving->lanes[i]);
            armed = kv_transport_arm(serving->lanes[i]) && armed;
        }
        if (poll(fds, 1 + TRANSFER_LANES, armed ? -1 : 0) > 0 && fds[0].revents &&
            !answer_request(serving))
            return;
    }
}

static void hello_prepare(struct serving *serving, struct hello *hello)
{
    const struct transfer_plan *plan = serving->plan;
    serving->max_runs = plan->pool_bytes / 4096;
    serving->numbers = calloc(serving->max_runs, sizeof *serving->numbers);
    hello->ok = serving->numbers;
    for (int i = 0; i < TRANSFER_LANES && hello->ok; i++) {
        if (!plan->lanes[i])
            continue;
        hello->ok = transfer_lane_open(plan, i, &serving->lanes[i], &hello->err) == STATUS_OK;
        if (!hello->ok)
            continue;
        kv_transport_serve(serving->lanes[i], may_read, NULL);
        struct transfer_address *address = &hello->addresses[i];
        struct kv_admission admission;
        hello->ok = kv_transport_admit(serving->lanes[i], &admission, &hello->err) == STATUS_OK;
        if (!hello->ok)
            continue;
        address->bytes = admission.bytes;
        memcpy(address->data, admission.address, admission.bytes);
    }
}

static int owner_main(const struct transfer_plan *plan, int control, int stream)
{
    struct serving serving = {.plan = plan, .control = control, .stream = stream};
    struct hello hello = {0};
    if (plan->pin)
        transfer_pin(1);
    hello_prepare(&serving, &hello);
    if (write_fully(control, &hello, sizeof hello) && hello.ok)
        serve(&serving);
    for (int i = 0; i < TRANSFER_LANES; i++)
        kv_transport_close(serving.lanes[i]);
    free(serving.numbers);
    return hello.ok ? 0 : 1;
}

/* --- its parent --- */

/* Makes both ends of a TCP connection over loopback. */
static bool stream_pair(int ends[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int one = 1, buffer = STREAM_BUFFER, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ends[1] = -1;
    if (listener >= 0 && ends[0] >= 0 && bind(listener, (struct sockaddr *)&at, length) == 0 &&
        listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&at, &length) == 0 &&
        connect(ends[0], (struct sockaddr *)&at, length) == 0)
        ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (listener >= 0)
        close(listener);
    if (ends[1] >= 0) {
        setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(ends[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
        return true;
    }
    if (ends[0] >= 0)
        close(ends[0]);
    return false;
}

enum status transfer_owner_start(const struct transfer_plan *plan, struct transfer_owner *owner,
                                 struct error *err)
{
    int control[2], stream[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) != 0)
        return error_set(err, STATUS_IO, "no socket pair: %s", strerror(errno));
    if (!stream_pair(stream)) {
        close(control[0]);
        close(control[1]);
        return error_set(err, STATUS_IO, "no TCP connection over loopback: %s", strerror(errno));
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(control[0]);
        close(stream[0]);
        _exit(owner_main(plan, control[1], stream[1]));
    }
    close(control[1]);
    close(stream[1]);
    *owner = (struct transfer_owner){.pid = pid, .control = control[0], .stream = stream[0]};
    struct hello hello = {0};
    if (pid > 0 && read_fully(owner->control, &hello, sizeof hello) && hello.ok &&
        clock_getcpuclockid(pid, &owner->cpu) == 0) {
        memcpy(owner->addresses, hello.addresses, sizeof owner->addresses);
        return STATUS_OK;
    }
    transfer_owner_stop(owner);
    return error_set(err, STATUS_UNAVAILABLE, "the second process did not start: %s",
                     *hello.err.text ? hello.err.text : "it ended");
}

void transfer_owner_stop(struct transfer_owner *owner)
{
    close(owner->control); /* the owner ends by it */
    close(owner->stream);
    if (owner->pid > 0)
        waitpid(owner->pid, NULL, 0);
}

static enum status owner_ask(const struct transfer_owner *owner, struct request request,
                             struct error *err)
{
    if (write_fully(owner->control, &request, sizeof request))
        return STATUS_OK;
    return error_set(err, STATUS_UNAVAILABLE, "the second process is gone");
}

enum status transfer_owner_checksums(const struct transfer_owner *owner, size_t run_bytes,
                                     size_t count, uint32_t *checksums, struct error *err)
{
    TRY(owner_ask(owner, (struct request){REQUEST_CHECKSUMS, run_bytes}, err));
    if (read_fully(owner->control, checksums, count * sizeof *checksums))
        return STATUS_OK;
    return error_set(err, STATUS_UNAVAILABLE, "the second process is gone");
}

enum status transfer_owner_stream(const struct transfer_owner *owner, size_t run_bytes,
                                  struct error *err)
{
    return owner_ask(owner, (struct request){REQUEST_STREAM, run_bytes}, err);
}
