/* Internal to this folder: the lane cuda. Readers on the owner's machine map its pool, which is in
 * the memory of a device, for reading alone, and gather blocks from it by one kernel a burst
 * (base/domain/kv_copier.h).
 *
 * The owner listens at a unix socket. A reader says HELLO there (kv_frame), with the secret of its
 * admission, and gets WELCOME with two descriptors: the pool's, and that of a page with the words
 * of kv_life. Both sides must be processes of one user. Sockets are SEQPACKET: a frame is a
 * message. Strangers have no more than a few seconds and a few places. A reader that gets no answer
 * in time takes the next lane: the owner may be stopped.
 *
 * Before a pairing is ready it is tested. The owner has written a pattern behind its pool, which
 * depends on the pool's random id. The reader empties a room behind its own pattern. It gathers the
 * owner's there out of order, by the kernel and the mapping that blocks take, and compares sums
 * that its device computes. Hosts touch none of the bytes, so nothing else would tell a path that
 * gives other bytes. One pairing is tested at a time, and nothing waits for the device meanwhile.
 *
 * The forced close alone waits for it: for MAX_BURSTS bursts of KV_MOVES_AT_ONCE runs at most, a
 * millisecond or two. A device that never ends them computes nothing either: its worker is lost.
 *
 * To map a pool takes calls of the driver that wait for no queued work, once a pairing.
 *
 * A mapping outlives its owner: its death shows by kv_life and the pairing's link alone.
 *
 * The lane rdma, which is taken only by name and was **never run**, is the same with other means:
 * cards read the peer's memory (ucx.h), no socket gives anything, and only the link tells a
 * death. */
#ifndef BATON_KV_TRANSPORT_MAPPED_LANE_H
#define BATON_KV_TRANSPORT_MAPPED_LANE_H

#include "common/kv/transport/tcp.h"

#include <sys/un.h>

struct kv_life_word;
struct mapped_link;
struct ucx_card;

#define MAPPED_MAX_STRANGERS 16
#define MAPPED_PLACE_BYTES   16 /* in an address: the machine, and the probe's offset */
#define MAPPED_NAME_BYTES    ((int)sizeof(((struct sockaddr_un *)0)->sun_path) - 1)

struct mapped_stranger {
    struct tcp_source source; /* fd -1: a free place */
    uint64_t accepted_us;
};

/* The own pool on the lane, and all pairings. */
struct mapped_lane {
    struct tcp_source source; /* the listener; rdma: the card's */
    struct ucx_card *card;    /* NULL: the lane cuda */
    struct tcp_lane *tcp;
    const struct kv_copier *copier;
    uint64_t pool_id, machine;
    char name[MAPPED_NAME_BYTES + 1]; /* the socket's; a zero first: no file has it */
    int name_bytes;
    bool has_name; /* the socket's file is ours */
    uint8_t place[MAPPED_PLACE_BYTES];
    int words_fd; /* -1: none */
    struct kv_life_word *words;
    struct mapped_stranger strangers[MAPPED_MAX_STRANGERS];
    uint64_t retry_us;          /* the listener is left alone until then; 0: it isn't */
    struct mapped_link *tested; /* has the room in which a path is tested; NULL: none */
    TAILQ_HEAD(, mapped_link) links;
};

/* --- the owner's side: mapped_lane.c --- */

/* Checks the name of a socket, a path; empty: the name is made. STATUS_INVALID: too long. */
enum status mapped_lane_check(const char *path, struct error *err) WARN_UNUSED;
/* Opens the owner's side, for a pool with a copier. Adds the lane to `self`. STATUS_UNSUPPORTED,
 * with a sentence: this pool can't be shared. */
enum status mapped_lane_open(struct tcp_lane *tcp, const struct kv_transport_config *config,
                             struct kv_address *self, struct mapped_lane **lane,
                             struct error *err) WARN_UNUSED;
void mapped_lane_close(struct mapped_lane *lane);                       /* NULL is fine */
const char *mapped_lane_name(const struct mapped_lane *lane);           /* "cuda" or "rdma" */
struct kv_life_word *mapped_lane_signs(const struct mapped_lane *lane); /* NULL: there are none */
/* An event of one of its sources (TCP_MAPPED). */
void mapped_lane_ready(struct mapped_lane *lane, struct tcp_source *source);
/* Does what is due by the clock. Returns when to call it next. */
uint64_t mapped_lane_tick(struct mapped_lane *lane);

/* For either side. */
socklen_t mapped_socket_address(const char *name, size_t bytes, struct sockaddr_un *at);
bool mapped_is_same_user(int fd);
void mapped_put_number(uint8_t *bytes, uint64_t number);
void mapped_probe_piece(uint64_t pool_id, uint32_t piece, uint8_t bytes[KV_PROBE_PIECE_BYTES]);

/* --- the reader's side: mapped_link.c --- */

/* Asks for the peer's pool. STATUS_UNAVAILABLE, with a sentence: this lane doesn't lead there. */
enum status mapped_link_open(struct mapped_lane *lane, const struct kv_address *address,
                             struct kv_peer *peer, struct mapped_link **link,
                             struct error *err) WARN_UNUSED;
enum mapped_state {
    MAPPED_ASKED,  /* -> MAPPED, FAILED */
    MAPPED_MAPPED, /* from here on mapped_link_test leads to the next one, or to FAILED */
    MAPPED_CLEARS,
    MAPPED_GATHERS,
    MAPPED_SUMS,
    MAPPED_GOOD,
    MAPPED_FAILED
};
enum mapped_state mapped_link_state(const struct mapped_link *link);
const char *mapped_link_reason(const struct mapped_link *link); /* FAILED: a sentence */
const struct kv_life_word *mapped_link_signs(const struct mapped_link *link);
/* Goes on with the test of the path, if that is due. The peer has been welcomed. Returns true if it
 * waits for another pairing's test or a buffer. */
bool mapped_link_test(struct mapped_link *link);
/* Queues bursts for the reads of its peer, and ends those that are done. Returns whether one is
 * under way. */
bool mapped_link_start(struct mapped_link *link);
/* The forced close: ends bursts, and gives all their parts back. */
void mapped_link_close(struct mapped_link *link);
void mapped_link_free(struct mapped_link *link); /* NULL is fine */
/* An event of a pairing's source. Returns false if the source is no pairing's. */
bool mapped_links_ready(struct mapped_lane *lane, const struct tcp_source *source);
/* Ends what is late. Returns when to call it next. */
uint64_t mapped_links_tick(struct mapped_lane *lane, uint64_t now_us);

#endif
