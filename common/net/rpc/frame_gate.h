/* Judges one HTTP/2 connection of a client by the headers of its frames, in both directions, and
 * never by their contents. gRPC core 1.51 has no such limits: it keeps a header block of any length
 * until its end, and lets streams be opened and reset without end.
 *
 * The judge counts header-block bytes before END_HEADERS, streams that the client takes back before
 * they are answered, SETTINGS, PING, and frames that carry nothing or little. It also bounds the
 * time to the first SETTINGS, to the first call, and of a header block. Each kind of frame has a
 * budget, which time refills. Frames that the server sends earn more: an honest client acknowledges
 * what it gets, and a busy one cancels more than an idle one. It counts the bytes of messages that
 * aren't whole, for its owner: they wait in the server's memory.
 *
 * It refuses to check anything else: core reads the same bytes, and ends malformed connections.
 *
 * PURE: time is handed in, in microseconds, and never goes back. Belongs to one thread. */
#ifndef BATON_NET_RPC_FRAME_GATE_H
#define BATON_NET_RPC_FRAME_GATE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map;

/* Why a connection ends. */
enum frame_gate_end {
    FRAME_GATE_NONE, /* it goes on */
    FRAME_GATE_PREFACE,
    FRAME_GATE_HANDSHAKE_TIMEOUT,
    FRAME_GATE_NO_CALL,
    FRAME_GATE_IDLE,
    FRAME_GATE_HEADER_BLOCK,
    FRAME_GATE_HEADER_TIMEOUT,
    FRAME_GATE_RESETS,
    FRAME_GATE_SETTINGS,
    FRAME_GATE_PINGS,
    FRAME_GATE_EMPTY_FRAMES,
    FRAME_GATE_SMALL_FRAMES,
    FRAME_GATE_STREAMS,
    /* Not by the judge: */
    FRAME_GATE_ADDRESS_SHARE,
    FRAME_GATE_NO_DESCRIPTOR,
    FRAME_GATE_STALLED,
    FRAME_GATE_TLS_MESSAGES,
    FRAME_GATE_UPLOADS,
    FRAME_GATE_ENDS,
};
/* "header_block", ...: a metric's label. Not for FRAME_GATE_NONE. */
const char *frame_gate_end_name(enum frame_gate_end end);
/* A sentence for logs, and for the client's GOAWAY. */
const char *frame_gate_end_sentence(enum frame_gate_end end);
/* Returns whether the client did what no honest client does. */
bool frame_gate_end_is_flood(enum frame_gate_end end);

struct frame_gate_limits {
    size_t header_block_bytes; /* one block, as sent: compressed, with padding */
    uint32_t streams;          /* open at once */
    uint64_t handshake_us;     /* to the first SETTINGS; also a header block, begin to end */
    uint64_t first_call_us;    /* to the end of the first call's headers */
    uint64_t idle_us;          /* without an open stream; 0: no limit */
};

enum frame_budget_kind {
    BUDGET_RESETS,
    BUDGET_SETTINGS,
    BUDGET_PINGS,
    BUDGET_EMPTY,
    BUDGET_SMALL,
    BUDGET_KINDS,
};

struct frame_budget {
    uint64_t left;
    uint64_t refilled_us;
};

/* One direction's place between two frames, or in one. */
struct frame_cursor {
    uint8_t head[9];
    size_t head_bytes;   /* so many of `head` have come */
    size_t payload_left; /* behind a whole head */
};

struct frame_gate {
    struct frame_gate_limits limits;
    struct frame_cursor client, server;
    struct frame_budget budgets[BUDGET_KINDS];
    struct map *streams; /* open ones: id -> when it was opened, and what has happened since */
    struct map *uploads; /* open streams -> bytes of DATA, until the last of it or an answer */
    size_t upload_bytes; /* all together */
    size_t preface_bytes;
    bool greeted, called; /* the first SETTINGS came; the first call's headers are whole */
    bool server_begun;    /* a frame of the server has come */
    size_t block_bytes;   /* the open header block's */
    uint64_t block_us;    /* when it began; 0: none is open */
    bool block_ends;      /* its last frame's head has come; the payload not wholly */
    uint64_t begun_us, idle_since_us;
    uint32_t last_stream;                           /* the highest that the client has opened */
    uint32_t settings_unanswered, pings_unanswered; /* sent by the server */
};

/* STATUS_LIMIT: no memory. */
enum status frame_gate_init(struct frame_gate *gate, const struct frame_gate_limits *limits,
                            uint64_t now_us) WARN_UNUSED;
void frame_gate_deinit(struct frame_gate *gate);

/* Judges bytes that the client has sent. Returns how many of them may be passed on: all, unless
 * *end is set. Then no further byte of the client may be passed on. */
size_t frame_gate_from_client(struct frame_gate *gate, const uint8_t *bytes, size_t size,
                              uint64_t now_us, enum frame_gate_end *end);
/* Takes note of bytes that the server has sent; all of them may be passed on. Returns another end
 * than FRAME_GATE_NONE if the client made the server reset too many streams. */
enum frame_gate_end frame_gate_from_server(struct frame_gate *gate, const uint8_t *bytes,
                                           size_t size, uint64_t now_us);
/* Returns how many streams are open. */
size_t frame_gate_streams(const struct frame_gate *gate);
/* Returns the bytes of messages under way that aren't whole; *streams: of so many streams. */
size_t frame_gate_uploads(const struct frame_gate *gate, size_t *streams);
/* Returns the end of a connection that took too long. Judge after reading what has come. */
enum frame_gate_end frame_gate_at(const struct frame_gate *gate, uint64_t now_us);
/* Returns when frame_gate_at may answer otherwise; UINT64_MAX: not before another frame. */
uint64_t frame_gate_due_us(const struct frame_gate *gate);

#define FRAME_GATE_PREFACE_BYTES 24
extern const uint8_t frame_gate_preface[FRAME_GATE_PREFACE_BYTES];
/* Returns whether the client's preface is whole: core needn't know the connection before. */
bool frame_gate_has_preface(const struct frame_gate *gate);

#define FRAME_GATE_MAX_GOAWAY_BYTES 160
/* Writes the GOAWAY of an end, and returns its size; 0: none, as the client speaks no HTTP/2, or
 * the server's last frame isn't whole. */
size_t frame_gate_goaway(const struct frame_gate *gate, enum frame_gate_end end,
                         uint8_t bytes[FRAME_GATE_MAX_GOAWAY_BYTES]);

#endif
