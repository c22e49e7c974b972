#include "common/kv/transport/mapped_lane.h"

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/kv/transport/kv_life.h"
#include "common/kv/transport/ucx.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MODULE       "transport"
#define HELLO_US     3000000 /* a stranger's time */
#define RETRY_US     50000   /* after descriptors or memory ran out */
#define FOLDER_TRIES 30      /* 10 ms each, for the folder of a socket */

/* -- names -- */

enum status mapped_lane_check(const char *path, struct error *err)
{
    if (path && strlen(path) > (size_t)MAPPED_NAME_BYTES)
        return error_set(err, STATUS_INVALID,
                         "a socket's path of %zu bytes: the system takes %d at most", strlen(path),
                         MAPPED_NAME_BYTES);
    return STATUS_OK;
}

/* Two processes with equal numbers run on one machine, under one kernel. */
static uint64_t machine_number(void)
{
    char text[64] = "";
    uint64_t number = 0;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file && fgets(text, sizeof text, file))
        for (const char *at = text; *at; at++)
            number = (number ^ (uint8_t)*at) * 0x100000001b3u;
    if (file)
        fclose(file);
    return number;
}

socklen_t mapped_socket_address(const char *name, size_t bytes, struct sockaddr_un *at)
{
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(at->sun_path, name, bytes);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes + (name[0] != '\0'));
}

bool mapped_is_same_user(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == geteuid();
}

void mapped_put_number(uint8_t *bytes, uint64_t number)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> 8 * i);
}

/* -- the probe -- */

void mapped_probe_piece(uint64_t pool_id, uint32_t piece, uint8_t bytes[KV_PROBE_PIECE_BYTES])
{
    for (size_t word = 0; word < KV_PROBE_PIECE_BYTES / 8; word++)
        mapped_put_number(bytes + 8 * word, rng_at(pool_id, piece, word));
}

static enum status write_probe(struct mapped_lane *lane, struct error *err)
{
    struct kv_staging *staging = lane->tcp->transport->staging;
    enum status status = STATUS_OK;
    for (uint32_t piece = 0; piece < KV_PROBE_PIECES && status == STATUS_OK; piece++) {
        struct kv_stage *stage = kv_staging_take(staging);
        ASSERT(stage && stage->bytes >= KV_PROBE_PIECE_BYTES);
        mapped_probe_piece(lane->pool_id, piece, stage->memory);
        kv_stage_in(stage, lane->copier->probe_offset + piece * KV_PROBE_PIECE_BYTES, 0,
                    KV_PROBE_PIECE_BYTES);
        kv_stage_wait(stage);
        status = stage->status;
        kv_stage_give(stage);
    }
    return status == STATUS_OK ? status : error_set(err, status, "the device copies nothing");
}

/* -- the owner's side -- */

static void stranger_end(struct mapped_lane *lane, struct mapped_stranger *stranger)
{
    tcp_close(lane->tcp, &stranger->source);
}

/* Counts and logs a refusal. `stranger`: NULL: it waits in the backlog. */
static void turn_away(struct mapped_lane *lane, struct mapped_stranger *stranger,
                      enum kv_refusal refusal)
{
    lane->tcp->transport->counters.refused[refusal]++;
    log_warn_limited(MODULE,
                     "msg=\"a connection to the socket of the lane cuda was refused\" reason=%s",
                     kv_refusal_name(refusal));
    if (stranger)
        stranger_end(lane, stranger);
}

static void give_pool(struct mapped_lane *lane, struct mapped_stranger *stranger)
{
    struct kv_frame welcome = {
        .kind = KV_FRAME_WELCOME,
        .welcome = {KV_ADMITTED, lane->pool_id, lane->tcp->transport->pool_bytes}};
    uint8_t bytes[KV_FRAME_BYTES];
    char room[CMSG_SPACE(2 * sizeof(int))] = {0};
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    struct error err;
    int fds[2] = {-1, lane->words_fd};
    kv_frame_encode(&welcome, bytes);
    if (lane->copier->share(lane->copier->state, &fds[0], &err) != STATUS_OK) {
        char quoted[600];
        log_warn_limited(MODULE, "msg=\"the device doesn't share the KV pool\" why=%s",
                         log_quote(err.text, quoted, sizeof quoted));
        turn_away(lane, stranger, KV_REFUSED_RESOURCES);
        return;
    }
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(control), fds, sizeof fds);
    /* Nothing was sent before, so there is room. If the reader is gone, it needs nothing. */
    (void)!sendmsg(stranger->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fds[0]);
    stranger_end(lane, stranger);
}

static void stranger_ready(struct mapped_lane *lane, struct mapped_stranger *stranger)
{
    uint8_t bytes[KV_FRAME_BYTES + 1];
    struct kv_frame frame;
    ssize_t got = recv(stranger->source.fd, bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (got <= 0)
        stranger_end(lane, stranger); /* it has left */
    else if (got != KV_FRAME_BYTES || kv_frame_decode(bytes, &frame) != KV_FRAME_GOOD ||
             frame.kind != KV_FRAME_HELLO)
        turn_away(lane, stranger, KV_REFUSED_NOISE);
    else if (!tcp_owner_knows(lane->tcp, frame.hello.admission, frame.hello.secret))
        turn_away(lane, stranger, KV_REFUSED_SECRET);
    else
        give_pool(lane, stranger);
}

static void accept_strangers(struct mapped_lane *lane)
{
    for (int i = 0; i < MAPPED_MAX_STRANGERS; i++) {
        struct mapped_stranger *place = lane->strangers;
        while (place < lane->strangers + MAPPED_MAX_STRANGERS && place->source.fd >= 0)
            place++;
        if (place == lane->strangers + MAPPED_MAX_STRANGERS) { /* the others wait in the backlog */
            (void)tcp_wait_for(lane->tcp, &lane->source, 0);
            return;
        }
        int fd = accept4(lane->source.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            /* They wait in the backlog. The listener stays readable, so epoll must not wait for
             * it. */
            turn_away(lane, NULL, KV_REFUSED_RESOURCES);
            lane->retry_us = lane->tcp->transport->polled_us + RETRY_US;
            (void)tcp_wait_for(lane->tcp, &lane->source, 0);
        }
        if (fd < 0)
            return;
        *place = (struct mapped_stranger){{TCP_MAPPED, fd, TCP_UNKNOWN},
                                          lane->tcp->transport->polled_us};
        if (!mapped_is_same_user(fd)) /* a name of no file lets all users in */
            turn_away(lane, place, KV_REFUSED_SECRET);
        else if (!tcp_wait_for(lane->tcp, &place->source, EPOLLIN))
            stranger_end(lane, place);
    }
}

/* Removes the socket of an owner that has ended. Returns whether the name is free now. */
static bool free_name(const struct mapped_lane *lane)
{
    struct sockaddr_un at;
    struct stat found;
    socklen_t bytes = mapped_socket_address(lane->name, (size_t)lane->name_bytes, &at);
    if (lstat(lane->name, &found) != 0)
        return true;
    if (!S_ISSOCK(found.st_mode) || found.st_uid != geteuid())
        return false;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool dead =
        fd >= 0 && connect(fd, (const struct sockaddr *)&at, bytes) != 0 && errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return dead && unlink(lane->name) == 0;
}

/* Takes the folder of the socket: no other process frees or takes a name there until the descriptor
 * is closed. Otherwise two that find a dead socket could each remove the other's new one. */
static int take_folder(const struct mapped_lane *lane)
{
    char folder[sizeof lane->name];
    memcpy(folder, lane->name, sizeof folder);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++)
        if (errno != EWOULDBLOCK || i == FOLDER_TRIES || poll(NULL, 0, 10) < 0) {
            close(fd);
            fd = -1;
        }
    return fd;
}

static enum status listen_here(struct mapped_lane *lane, struct error *err)
{
    struct sockaddr_un at;
    socklen_t bytes = mapped_socket_address(lane->name, (size_t)lane->name_bytes, &at);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    lane->source.fd = fd;
    /* Other users can't connect: the file has the rights that the socket has. */
    bool bound =
        fd >= 0 && fchmod(fd, 0600) == 0 && bind(fd, (const struct sockaddr *)&at, bytes) == 0;
    lane->has_name = bound && lane->name[0];
    if (!bound || listen(fd, MAPPED_MAX_STRANGERS) != 0 ||
        !tcp_wait_for(lane->tcp, &lane->source, EPOLLIN))
        return error_set(err, STATUS_IO, "the socket %s of the lane cuda can't be opened: %s",
                         lane->name[0] ? lane->name : "(without a name)", strerror(errno));
    return STATUS_OK;
}

static enum status listen_at(struct mapped_lane *lane, struct error *err)
{
    if (!lane->name[0]) /* no file has it */
        return listen_here(lane, err);
    int folder = take_folder(lane);
    if (folder < 0)
        return error_set(err, STATUS_IO, "the folder of the socket %s can't be taken: %s",
                         lane->name, strerror(errno));
    enum status status =
        free_name(lane) ? listen_here(lane, err)
                        : error_set(err, STATUS_IO,
                                    "the socket %s of the lane cuda is another process's, or no "
                                    "socket: give each worker a kv-socket of its own",
                                    lane->name);
    close(folder);
    return status;
}

/* Makes the page with the words of kv_life. Readers can map it for reading alone. */
static enum status make_words(struct mapped_lane *lane, struct error *err)
{
    lane->words_fd = memfd_create("baton-kv-life", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *words = MAP_FAILED;
    if (lane->words_fd >= 0 && ftruncate(lane->words_fd, KV_LIFE_BYTES) == 0)
        words = mmap(NULL, KV_LIFE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, lane->words_fd, 0);
    if (words == MAP_FAILED)
        return error_set(err, STATUS_LIMIT, "no page for signs of life: %s", strerror(errno));
    lane->words = words;
    if (fcntl(lane->words_fd, F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
        return error_set(err, STATUS_UNSUPPORTED, "a page can't be sealed: %s", strerror(errno));
    return STATUS_OK;
}

/* Opens the lane rdma. A card's key opens the pool: its readers ask for nothing. */
static enum status card_open(struct mapped_lane *lane, struct kv_address *self, struct error *err)
{
    const struct kv_copier *copier = lane->copier;
    TRY(ucx_card_open(copier->memory, copier->probe_offset + KV_PROBE_BYTES, &lane->card, err));
    TRY(write_probe(lane, err));
    lane->source.fd = ucx_card_fd(lane->card);
    if (!tcp_wait_for(lane->tcp, &lane->source, EPOLLIN))
        return error_set(err, STATUS_IO, "epoll can't watch a card: %s", strerror(errno));
    self->lanes |= KV_ADDRESS_RDMA;
    ucx_card_describe(lane->card, self);
    return STATUS_OK;
}

static enum status lane_open(struct mapped_lane *lane, const struct kv_transport_config *config,
                             struct kv_address *self, struct error *err)
{
    const char *path = config->socket && *config->socket ? config->socket : NULL;
    TRY(mapped_lane_check(path, err));
    if (path)
        lane->name_bytes = snprintf(lane->name, sizeof lane->name, "%s", path);
    else /* no file: nothing is left of it if the process is killed */
        lane->name_bytes = 1 + snprintf(lane->name + 1, sizeof lane->name - 1, "baton-kv-%016llx",
                                        (unsigned long long)lane->pool_id);
    TRY(make_words(lane, err));
    TRY(write_probe(lane, err));
    TRY(listen_at(lane, err));
    mapped_put_number(lane->place, lane->machine);
    mapped_put_number(lane->place + 8, lane->copier->probe_offset);
    self->lanes |= KV_ADDRESS_CUDA;
    self->worker = (const uint8_t *)lane->name;
    self->worker_bytes = (uint16_t)lane->name_bytes;
    self->rkey = lane->place;
    self->rkey_bytes = sizeof lane->place;
    return STATUS_OK;
}

enum status mapped_lane_open(struct tcp_lane *tcp, const struct kv_transport_config *config,
                             struct kv_address *self, struct mapped_lane **out, struct error *err)
{
    const struct kv_copier *copier = config->copier;
    if (copier->shares_nothing)
        return error_set(err, STATUS_UNSUPPORTED, "%s", copier->shares_nothing);
    if (config->layout && kv_layout_block_bytes(config->layout) % KV_MOVE_UNIT)
        return error_set(err, STATUS_UNSUPPORTED,
                         "blocks of %zu bytes, and the kernel moves multiples of %d",
                         kv_layout_block_bytes(config->layout), KV_MOVE_UNIT);
    struct mapped_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return error_set(err, STATUS_LIMIT, "no memory for a lane");
    lane->source = (struct tcp_source){TCP_MAPPED, -1, TCP_UNKNOWN};
    lane->tcp = tcp;
    lane->copier = copier;
    lane->pool_id = self->id;
    lane->machine = machine_number();
    lane->words_fd = -1;
    for (int i = 0; i < MAPPED_MAX_STRANGERS; i++)
        lane->strangers[i].source.fd = -1;
    TAILQ_INIT(&lane->links);
    enum status status = config->lane == KV_LANE_RDMA ? card_open(lane, self, err)
                                                      : lane_open(lane, config, self, err);
    if (status != STATUS_OK) {
        mapped_lane_close(lane);
        return status;
    }
    *out = lane;
    return STATUS_OK;
}

void mapped_lane_close(struct mapped_lane *lane)
{
    if (!lane)
        return;
    bool listens = lane->source.fd >= 0 && !lane->card;
    if (lane->card && lane->source.fd >= 0) /* the descriptor is the card's */
        (void)tcp_wait_for(lane->tcp, &lane->source, 0);
    ucx_card_close(lane->card);
    for (int i = 0; i < MAPPED_MAX_STRANGERS; i++)
        if (lane->strangers[i].source.fd >= 0)
            stranger_end(lane, &lane->strangers[i]);
    if (lane->has_name) /* before it is dead, and another one may take it */
        unlink(lane->name);
    if (listens)
        tcp_close(lane->tcp, &lane->source);
    if (lane->words)
        munmap(lane->words, KV_LIFE_BYTES);
    if (lane->words_fd >= 0)
        close(lane->words_fd);
    free(lane);
}

const char *mapped_lane_name(const struct mapped_lane *lane)
{
    return lane->card ? ucx_card_name(lane->card) : "cuda";
}

struct kv_life_word *mapped_lane_signs(const struct mapped_lane *lane)
{
    return lane->words;
}

/* -- events -- */

void mapped_lane_ready(struct mapped_lane *lane, struct tcp_source *source)
{
    if (source->fd < 0)
        return; /* an earlier event closed it */
    if (source == &lane->source && lane->card)
        return; /* the tick makes its progress */
    if (source == &lane->source) {
        accept_strangers(lane);
        return;
    }
    if (!mapped_links_ready(lane, source))
        stranger_ready(lane, (struct mapped_stranger *)source);
}

uint64_t mapped_lane_tick(struct mapped_lane *lane)
{
    uint64_t now_us = lane->tcp->transport->polled_us, next_us = UINT64_MAX;
    uint32_t free_places = 0;
    for (int i = 0; i < MAPPED_MAX_STRANGERS; i++) {
        struct mapped_stranger *stranger = &lane->strangers[i];
        if (stranger->source.fd >= 0 && now_us >= stranger->accepted_us + HELLO_US)
            turn_away(lane, stranger, KV_REFUSED_LATE);
        if (stranger->source.fd < 0)
            free_places++;
        else if (stranger->accepted_us + HELLO_US < next_us)
            next_us = stranger->accepted_us + HELLO_US;
    }
    if (now_us >= lane->retry_us)
        lane->retry_us = 0;
    else if (lane->retry_us < next_us)
        next_us = lane->retry_us;
    if (lane->card)
        next_us = ucx_card_progress(lane->card) ? now_us : next_us;
    else if (free_places && !lane->retry_us)
        (void)tcp_wait_for(lane->tcp, &lane->source, EPOLLIN);
    uint64_t links_us = mapped_links_tick(lane, now_us);
    return links_us < next_us ? links_us : next_us;
}
