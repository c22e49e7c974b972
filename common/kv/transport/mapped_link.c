/* The reader's side of the lanes cuda and rdma: a peer's pool, the self-test of the path, and the
 * bursts that gather blocks. */
#include "common/base/assert.h"
#include "common/base/failpoint.h"
#include "common/kv/transport/kv_life.h"
#include "common/kv/transport/mapped_lane.h"
#include "common/kv/transport/ucx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_US      2000000 /* an owner's, or a card's; then the next lane is taken */
#define MAX_BURSTS     4       /* a pairing's, under way */
#define PROBE_ORDER(I) (((I)*5 + 3) % KV_PROBE_PIECES) /* the piece that is gathered to place I */

struct burst {
    struct kv_read *read;
    uint64_t copy;
};

struct mapped_link {
    struct tcp_source source;
    TAILQ_ENTRY(mapped_link) link;
    struct mapped_lane *lane;
    struct kv_peer *peer;
    enum mapped_state state;
    struct error reason;
    uint64_t pool_id, probe_offset;
    uint64_t late_us;          /* 0: set by the next tick */
    struct kv_stage *stage;    /* the test's; NULL: none is under way */
    uint64_t test_copy;        /* 0: none is under way */
    struct kv_mapping mapping; /* without address: none */
    struct ucx_remote *remote; /* rdma: instead of it */
    const struct kv_life_word *words;
    struct burst bursts[MAX_BURSTS]; /* a ring */
    uint32_t first, count;
};

static uint64_t number_at(const uint8_t *bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < 8; i++)
        number |= (uint64_t)bytes[i] << 8 * i;
    return number;
}

/* -- the means of the two lanes -- */

static enum status gather(struct mapped_link *link, const struct kv_move *moves, uint32_t count,
                          uint64_t *copy)
{
    const struct kv_copier *copier = link->lane->copier;
    return link->remote ? ucx_remote_read(link->remote, moves, count, copy)
                        : copier->gather(copier->state, &link->mapping, moves, count, copy);
}

static bool has_ended(struct mapped_link *link, uint64_t copy, enum status *status)
{
    const struct kv_copier *copier = link->lane->copier;
    *status = STATUS_OK;
    return link->remote ? ucx_remote_poll(link->remote, copy, status)
                        : copier->poll(copier->state, copy, status);
}

/* Leaves the room to the next pairing. Copies under way end before those of later tests. */
static void end_test(struct mapped_link *link)
{
    if (!link->stage)
        return;
    kv_stage_give(link->stage);
    link->stage = NULL;
    link->lane->tested = NULL;
}

static void link_fail(struct mapped_link *link, const char *format, const char *what)
{
    link->state = MAPPED_FAILED;
    end_test(link);
    error_set(&link->reason, STATUS_UNAVAILABLE, format, what);
    if (link->source.fd >= 0)
        tcp_close(link->lane->tcp, &link->source);
}

/* Takes a message and the descriptors in it. Returns its length. */
static ssize_t receive(int fd, uint8_t *bytes, size_t room, int fds[2])
{
    char control[CMSG_SPACE(2 * sizeof(int))];
    struct iovec part = {bytes, room};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0)
        return got;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
        if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && i < 2; i++)
            memcpy(&fds[i], CMSG_DATA(one) + i * sizeof(int), sizeof(int));
    }
    return got;
}

static void take_pool(struct mapped_link *link, const int fds[2])
{
    const struct kv_copier *copier = link->lane->copier;
    struct stat found;
    struct error err = {""};
    /* A page that its owner can take back would end this process. */
    if (fstat(fds[1], &found) != 0 || found.st_size < (off_t)KV_LIFE_BYTES ||
        !(fcntl(fds[1], F_GET_SEALS) & F_SEAL_SHRINK)) {
        link_fail(link, "the owner's signs of life can't be mapped: %s", "no such page");
        return;
    }
    void *words = mmap(NULL, KV_LIFE_BYTES, PROT_READ, MAP_SHARED, fds[1], 0);
    if (words == MAP_FAILED) {
        link_fail(link, "the owner's signs of life can't be mapped: %s", strerror(errno));
        return;
    }
    link->words = words;
    if (FAILPOINT_FAILS("transport.import"))
        error_set(&err, STATUS_UNAVAILABLE, "a failpoint");
    else if (copier->map(copier->state, fds[0], link->probe_offset + KV_PROBE_BYTES, &link->mapping,
                         &err) == STATUS_OK)
        link->state = MAPPED_MAPPED;
    if (link->state != MAPPED_MAPPED)
        link_fail(link, "the owner's memory can't be mapped: %s", err.text);
    else
        tcp_close(link->lane->tcp, &link->source);
}

static void link_ready(struct mapped_link *link)
{
    uint8_t bytes[KV_FRAME_BYTES + 1];
    struct kv_frame frame;
    int fds[2] = {-1, -1};
    ssize_t got = receive(link->source.fd, bytes, sizeof bytes, fds);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (got <= 0)
        link_fail(link, "the owner gives no memory: %s", got ? strerror(errno) : "it closed");
    else if (got != KV_FRAME_BYTES || kv_frame_decode(bytes, &frame) != KV_FRAME_GOOD ||
             frame.kind != KV_FRAME_WELCOME || frame.welcome.verdict != KV_ADMITTED ||
             frame.welcome.pool_id != link->pool_id ||
             frame.welcome.pool_bytes != link->peer->pool_bytes || fds[0] < 0 || fds[1] < 0)
        link_fail(link, "%s", "another process than the owner answers at its socket");
    else
        take_pool(link, fds);
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static enum status remote_link_open(struct mapped_lane *lane, const struct kv_address *address,
                                    struct kv_peer *peer, struct mapped_link **out,
                                    struct error *err)
{
    if (!(address->lanes & KV_ADDRESS_RDMA) || !address->worker_bytes || !address->rkey_bytes)
        return error_set(err, STATUS_UNAVAILABLE, "the peer does not offer the lane rdma");
    struct mapped_link *link = calloc(1, sizeof *link);
    if (!link)
        return error_set(err, STATUS_LIMIT, "no memory for a peer");
    const uint64_t unit = KV_PROBE_PIECE_BYTES;
    *link = (struct mapped_link){.source = {TCP_MAPPED, -1, TCP_UNKNOWN},
                                 .lane = lane,
                                 .peer = peer,
                                 .state = MAPPED_MAPPED,
                                 .pool_id = address->id,
                                 .probe_offset = (address->pool_bytes + unit - 1) / unit * unit};
    enum status status = ucx_remote_open(lane->card, address, &link->remote, err);
    if (status != STATUS_OK) {
        free(link);
        return status;
    }
    TAILQ_INSERT_TAIL(&lane->links, link, link);
    *out = link;
    return STATUS_OK;
}

enum status mapped_link_open(struct mapped_lane *lane, const struct kv_address *address,
                             struct kv_peer *peer, struct mapped_link **out, struct error *err)
{
    if (lane->card)
        return remote_link_open(lane, address, peer, out, err);
    struct sockaddr_un at;
    if (!(address->lanes & KV_ADDRESS_CUDA) || address->rkey_bytes != MAPPED_PLACE_BYTES ||
        !address->worker_bytes || address->worker_bytes > MAPPED_NAME_BYTES)
        return error_set(err, STATUS_UNAVAILABLE, "the peer does not offer the lane cuda");
    uint64_t probe = number_at(address->rkey + 8);
    if (probe < address->pool_bytes || probe - address->pool_bytes >= KV_PROBE_PIECE_BYTES)
        return error_set(err, STATUS_INVALID, "the peer's address has an impossible probe");
    if (!lane->machine || number_at(address->rkey) != lane->machine)
        return error_set(err, STATUS_UNAVAILABLE, "the peer is on another machine");
    socklen_t bytes =
        mapped_socket_address((const char *)address->worker, address->worker_bytes, &at);
    struct mapped_link *link = calloc(1, sizeof *link);
    if (!link)
        return error_set(err, STATUS_LIMIT, "no memory for a peer");
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *link = (struct mapped_link){.source = {TCP_MAPPED, fd, TCP_UNKNOWN},
                                 .lane = lane,
                                 .peer = peer,
                                 .pool_id = address->id,
                                 .probe_offset = probe};
    struct kv_frame hello = {.kind = KV_FRAME_HELLO, .hello.admission = address->admission};
    uint8_t message[KV_FRAME_BYTES];
    memcpy(hello.hello.secret, address->secret, KV_SECRET_BYTES);
    kv_frame_encode(&hello, message);
    const char *why = NULL;
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, bytes) != 0)
        why = strerror(errno);
    else if (!mapped_is_same_user(fd))
        why = "it is another user's";
    else if (send(fd, message, sizeof message, MSG_NOSIGNAL) != (ssize_t)sizeof message ||
             !tcp_wait_for(lane->tcp, &link->source, EPOLLIN))
        why = strerror(errno);
    if (why) {
        if (fd >= 0)
            close(fd);
        free(link);
        return error_set(err, STATUS_UNAVAILABLE, "the owner's socket can't be reached: %s", why);
    }
    peer->multiple = KV_MOVE_UNIT; /* also of reads that come before the lane is settled */
    TAILQ_INSERT_TAIL(&lane->links, link, link);
    *out = link;
    return STATUS_OK;
}

enum mapped_state mapped_link_state(const struct mapped_link *link)
{
    return link->state;
}

const char *mapped_link_reason(const struct mapped_link *link)
{
    return link->reason.text;
}

const struct kv_life_word *mapped_link_signs(const struct mapped_link *link)
{
    return link->words;
}

/* -- the self-test -- */

static uint64_t room_offset(const struct mapped_link *link)
{
    return link->lane->copier->probe_offset + KV_PROBE_BYTES;
}

/* Queues zeros for the room, so that no earlier bytes pass for the peer's. Returns false if another
 * pairing has it, or no buffer is free. */
static bool clear_room(struct mapped_link *link)
{
    struct mapped_lane *lane = link->lane;
    struct kv_stage *stage = lane->tested ? NULL : kv_staging_take(lane->tcp->transport->staging);
    if (!stage)
        return false;
    ASSERT(stage->bytes >= KV_PROBE_PIECE_BYTES + KV_PROBE_PIECES * sizeof(uint32_t));
    lane->tested = link;
    link->stage = stage;
    link->state = MAPPED_CLEARS;
    memset(stage->memory, 0, KV_PROBE_PIECE_BYTES);
    for (uint32_t i = 0; i < KV_PROBE_PIECES; i++)
        kv_stage_in(stage, room_offset(link) + i * KV_PROBE_PIECE_BYTES, 0, KV_PROBE_PIECE_BYTES);
    return true;
}

static void gather_probe(struct mapped_link *link)
{
    struct kv_move moves[KV_PROBE_PIECES];
    for (uint32_t i = 0; i < KV_PROBE_PIECES; i++)
        moves[i] =
            (struct kv_move){link->probe_offset + PROBE_ORDER(i) * KV_PROBE_PIECE_BYTES,
                             room_offset(link) + i * KV_PROBE_PIECE_BYTES, KV_PROBE_PIECE_BYTES};
    if (link->stage->status != STATUS_OK)
        link_fail(link, "%s", "the own device fails");
    else if (gather(link, moves, KV_PROBE_PIECES, &link->test_copy) != STATUS_OK)
        link_fail(link, "%s", "the own device refuses to gather");
    else
        link->state = MAPPED_GATHERS;
    link->late_us = 0;
}

static void sum_room(struct mapped_link *link, enum status gathered)
{
    uint32_t pieces[KV_PROBE_PIECES];
    struct kv_sum_job job = {room_offset(link), KV_PROBE_PIECE_BYTES, KV_PROBE_PIECE_BYTES, pieces,
                             KV_PROBE_PIECES};
    for (uint32_t i = 0; i < KV_PROBE_PIECES; i++)
        pieces[i] = i;
    link->test_copy = 0;
    if (gathered != STATUS_OK)
        link_fail(link, "%s", "the own device fails");
    else if (FAILPOINT_FAILS("transport.probe") &&
             kv_staging_flip(link->lane->tcp->transport->staging,
                             room_offset(link) + KV_PROBE_BYTES - 1, 1) != STATUS_OK)
        link_fail(link, "%s", "the own device copies nothing");
    else {
        link->state = MAPPED_SUMS;
        kv_stage_sum(link->stage, &job, KV_PROBE_PIECE_BYTES);
    }
}

static void compare_sums(struct mapped_link *link)
{
    uint8_t piece[KV_PROBE_PIECE_BYTES];
    const uint32_t *sums =
        (const uint32_t *)(const void *)(link->stage->memory + KV_PROBE_PIECE_BYTES);
    bool good = true;
    for (uint32_t i = 0; i < KV_PROBE_PIECES; i++) {
        mapped_probe_piece(link->pool_id, PROBE_ORDER(i), piece);
        good &= sums[i] == kv_checksum(piece, sizeof piece);
    }
    if (link->stage->status != STATUS_OK)
        link_fail(link, "%s", "the own device fails");
    else if (!good)
        link_fail(link, "%s",
                  "the self-test failed: the mapping gives other bytes than the owner's");
    else {
        link->state = MAPPED_GOOD;
        end_test(link);
    }
}

bool mapped_link_test(struct mapped_link *link)
{
    enum status status;
    if (link->state == MAPPED_MAPPED && !clear_room(link))
        return true;
    if (link->state == MAPPED_CLEARS && kv_stage_done(link->stage))
        gather_probe(link);
    if (link->state == MAPPED_GATHERS && has_ended(link, link->test_copy, &status))
        sum_room(link, status);
    if (link->state == MAPPED_SUMS && kv_stage_done(link->stage))
        compare_sums(link);
    return false;
}

/* -- bursts -- */

static struct burst *burst_at(struct mapped_link *link, uint32_t index)
{
    return &link->bursts[(link->first + index) % MAX_BURSTS];
}

/* Queues the next runs of the read, as many as one kernel takes. */
static bool start_burst(struct mapped_link *link, struct kv_read *read)
{
    struct burst *burst = burst_at(link, link->count);
    struct kv_move moves[KV_MOVES_AT_ONCE];
    uint32_t count = 0;
    for (; count < KV_MOVES_AT_ONCE && read->next_run + count < read->run_count; count++) {
        const struct kv_read_run *run = &read->runs[read->next_run + count];
        moves[count] = (struct kv_move){run->remote_offset, run->local_offset, run->bytes};
    }
    burst->read = read;
    if (gather(link, moves, count, &burst->copy) != STATUS_OK)
        return false;
    read->next_run += count;
    read->parts++;
    link->count++;
    return true;
}

static void end_bursts(struct mapped_link *link)
{
    while (link->count > 0) {
        const struct burst burst = *burst_at(link, 0);
        enum status status;
        if (!has_ended(link, burst.copy, &status))
            return;
        link->first = (link->first + 1) % MAX_BURSTS;
        link->count--;
        kv_staging_note(link->lane->tcp->transport->staging, status);
        kv_read_part_done(burst.read,
                          status == STATUS_OK ? KV_FAILURE_NONE : KV_FAILURE_UNREACHABLE,
                          status == STATUS_OK ? NULL : "the own device failed to gather blocks");
    }
}

bool mapped_link_start(struct mapped_link *link)
{
    struct kv_read *read;
    end_bursts(link);
    if (!link->peer->welcomed)
        return false;
    TAILQ_FOREACH(read, &link->peer->reads, link)
    while (read->next_run < read->run_count && link->count < MAX_BURSTS)
        if (!start_burst(link, read)) {
            kv_peer_fail(link->peer, KV_FAILURE_UNREACHABLE,
                         "the own device refuses to gather blocks");
            return link->count > 0;
        }
    end_bursts(link); /* asks for the last one, which lets a late device begin */
    return link->count > 0;
}

void mapped_link_close(struct mapped_link *link)
{
    const struct kv_copier *copier = link->lane->copier;
    uint64_t last = link->count ? burst_at(link, link->count - 1)->copy : link->test_copy;
    if (link->remote)
        ucx_remote_stop(link->remote); /* no byte lands after it */
    else if (last)
        (void)!copier->wait(copier->state, last); /* no byte lands after it */
    end_test(link);
    link->test_copy = 0;
    for (; link->count > 0; link->count--) {
        struct kv_read *read = burst_at(link, 0)->read;
        link->first = (link->first + 1) % MAX_BURSTS;
        kv_read_part_done(read, KV_FAILURE_CLOSED, NULL);
    }
    if (link->source.fd >= 0)
        tcp_close(link->lane->tcp, &link->source);
}

void mapped_link_free(struct mapped_link *link)
{
    if (!link)
        return;
    mapped_link_close(link);
    TAILQ_REMOVE(&link->lane->links, link, link);
    ucx_remote_close(link->remote);
    if (link->mapping.address)
        link->lane->copier->unmap(link->lane->copier->state, &link->mapping);
    if (link->words)
        munmap((void *)(uintptr_t)link->words, KV_LIFE_BYTES);
    free(link);
}

/* -- events -- */

bool mapped_links_ready(struct mapped_lane *lane, const struct tcp_source *source)
{
    struct mapped_link *link;
    TAILQ_FOREACH(link, &lane->links, link)
    if (source == &link->source) {
        link_ready(link);
        return true;
    }
    return false;
}

uint64_t mapped_links_tick(struct mapped_lane *lane, uint64_t now_us)
{
    uint64_t next_us = UINT64_MAX;
    struct mapped_link *link;
    TAILQ_FOREACH(link, &lane->links, link)
    {
        if (!link->late_us)
            link->late_us = now_us + ANSWER_US;
        /* The own device has no limit: the next lane goes through it, too. */
        bool reads = link->state == MAPPED_GATHERS && link->remote;
        if (link->state == MAPPED_ASKED && now_us >= link->late_us)
            link_fail(link, "%s", "the owner doesn't answer at its socket: it may be stopped");
        else if (reads && now_us >= link->late_us) {
            ucx_remote_stop(link->remote);
            link_fail(link, "%s", "no card reads the owner's memory in time");
        } else if ((link->state == MAPPED_ASKED || reads) && link->late_us < next_us)
            next_us = link->late_us;
    }
    return next_us;
}
