#include "common/net/rpc/frame_gate.h"

#include "common/base/assert.h"
#include "common/base/map.h"

#include <string.h>

#define HEAD_BYTES          9
#define SMALL_BYTES         256     /* a frame with less payload costs more than its bytes */
#define EARLY_US            1000000 /* a stream that is taken back sooner was never meant */
#define MAX_UNANSWERED      1000u   /* SETTINGS and PINGs of the server */
#define SETTINGS_UNIT_BYTES 256     /* each of them in a SETTINGS frame counts as a frame more */
#define MAX_FRAMES          100u    /* a kind that only costs: at once, and in 10 s */
#define MAX_EARNED          1000u
#define MAX_SMALL_FRAMES    1000u    /* at once, and in 10 s */
#define MAX_SMALL_EARNED    1000000u /* frames that may acknowledge what the server has sent */

/* HTTP/2 (RFC 9113, sections 4 and 6). */
enum {
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH_PROMISE,
    PING,
    GOAWAY,
    WINDOW_UPDATE,
    CONTINUATION
};
enum { FLAG_ACK = 1, FLAG_END_STREAM = 1, FLAG_END_HEADERS = 4 };
enum { ERROR_NONE = 0, ERROR_ENHANCE_YOUR_CALM = 11 };

const uint8_t frame_gate_preface[FRAME_GATE_PREFACE_BYTES] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

struct frame {
    size_t length;
    uint8_t type, flags;
    uint32_t stream;
};

/* Frames of a kind that a client may send: `burst` at first, `per_10s` more in each 10 s, up to
 * `burst` again, and those that it earns, up to `most` saved up. */
static const struct {
    uint64_t burst, per_10s, most;
    enum frame_gate_end end;
} budget_rules[BUDGET_KINDS] = {
    [BUDGET_RESETS] = {MAX_FRAMES, MAX_FRAMES, MAX_EARNED, FRAME_GATE_RESETS},
    [BUDGET_SETTINGS] = {MAX_FRAMES, MAX_FRAMES, MAX_EARNED, FRAME_GATE_SETTINGS},
    [BUDGET_PINGS] = {MAX_FRAMES, MAX_FRAMES, MAX_EARNED, FRAME_GATE_PINGS},
    [BUDGET_EMPTY] = {MAX_FRAMES, MAX_FRAMES, MAX_FRAMES, FRAME_GATE_EMPTY_FRAMES},
    [BUDGET_SMALL] = {MAX_SMALL_FRAMES, MAX_SMALL_FRAMES, MAX_SMALL_EARNED,
                      FRAME_GATE_SMALL_FRAMES},
};
#define ANSWER_EARNS_RESETS 1
#define FRAME_EARNS_PINGS   1 /* grpc-go measures the bandwidth by a PING for each DATA */
#define FRAME_EARNS_SMALL   4 /* WINDOW_UPDATEs of the stream and of the connection */
#define STREAM_EARNS_SMALL  4 /* PRIORITY, the message's length apart, trailers, a late reset */

static const struct {
    const char *name, *sentence;
    bool flood;
} ends[FRAME_GATE_ENDS] = {
    [FRAME_GATE_PREFACE] = {"preface", "it doesn't begin as HTTP/2 does", false},
    [FRAME_GATE_HANDSHAKE_TIMEOUT] = {"handshake_timeout", "it didn't begin in time", false},
    [FRAME_GATE_NO_CALL] = {"no_call", "no call came", false},
    [FRAME_GATE_IDLE] = {"idle", "no call came for a while", false},
    [FRAME_GATE_HEADER_BLOCK] = {"header_block", "a header block is too large", true},
    [FRAME_GATE_HEADER_TIMEOUT] = {"header_timeout", "a header block took too long", true},
    [FRAME_GATE_RESETS] = {"resets", "too many calls were taken back at once", true},
    [FRAME_GATE_SETTINGS] = {"settings", "too many SETTINGS frames", true},
    [FRAME_GATE_PINGS] = {"pings", "too many PING frames", true},
    [FRAME_GATE_EMPTY_FRAMES] = {"empty_frames", "too many empty frames", true},
    [FRAME_GATE_SMALL_FRAMES] = {"small_frames", "too many frames that carry little", true},
    [FRAME_GATE_STREAMS] = {"streams", "too many calls at once", true},
    [FRAME_GATE_ADDRESS_SHARE] = {"address_share", "its address has all connections of its share",
                                  false},
    [FRAME_GATE_NO_DESCRIPTOR] = {"no_descriptor", "no file descriptor is left (ulimit -n)", false},
    [FRAME_GATE_STALLED] = {"stalled", "it took nothing of what was sent for a while", false},
    [FRAME_GATE_UPLOADS] = {"uploads", "its address has too much of messages under way", false},
    [FRAME_GATE_TLS_MESSAGES] = {"tls_messages", "too many TLS messages beside its bytes", true},
};

const char *frame_gate_end_name(enum frame_gate_end end)
{
    ASSERT(end > FRAME_GATE_NONE && end < FRAME_GATE_ENDS);
    return ends[end].name;
}

const char *frame_gate_end_sentence(enum frame_gate_end end)
{
    ASSERT(end > FRAME_GATE_NONE && end < FRAME_GATE_ENDS);
    return ends[end].sentence;
}

bool frame_gate_end_is_flood(enum frame_gate_end end)
{
    return ends[end].flood;
}

enum status frame_gate_init(struct frame_gate *gate, const struct frame_gate_limits *limits,
                            uint64_t now_us)
{
    *gate = (struct frame_gate){.limits = *limits, .begun_us = now_us, .idle_since_us = now_us};
    for (int kind = 0; kind < BUDGET_KINDS; kind++)
        gate->budgets[kind] = (struct frame_budget){budget_rules[kind].burst, now_us};
    TRY(map_create(limits->streams, &gate->streams));
    return map_create(limits->streams, &gate->uploads);
}

void frame_gate_deinit(struct frame_gate *gate)
{
    map_destroy(gate->streams);
    map_destroy(gate->uploads);
    gate->streams = gate->uploads = NULL;
}

/* --- budgets --- */

static void earn(struct frame_gate *gate, enum frame_budget_kind kind, uint64_t count)
{
    uint64_t most = budget_rules[kind].most;
    uint64_t *left = &gate->budgets[kind].left;
    *left = *left + count < most ? *left + count : most;
}

static enum frame_gate_end spend(struct frame_gate *gate, enum frame_budget_kind kind,
                                 uint64_t count, uint64_t now_us)
{
    struct frame_budget *budget = &gate->budgets[kind];
    uint64_t each_us = 10000000 / budget_rules[kind].per_10s, burst = budget_rules[kind].burst;
    uint64_t more = (now_us - budget->refilled_us) / each_us;
    budget->refilled_us += more * each_us;
    if (budget->left < burst)
        budget->left = more < burst - budget->left ? budget->left + more : burst;
    if (budget->left < count)
        return budget_rules[kind].end;
    budget->left -= count;
    return FRAME_GATE_NONE;
}

/* --- streams --- */

/* A stream's value in the map: when it was opened, and what has happened. Never NULL. */
enum { STREAM_OPEN = 1, STREAM_ANSWERED = 2, STREAM_HALF_CLOSED = 4, STREAM_BITS = 3 };

static uintptr_t stream_of(const struct frame_gate *gate, uint32_t id)
{
    return (uintptr_t)map_get(gate->streams, id);
}

/* The stream is in the map: its place is there already. */
static void stream_note(struct frame_gate *gate, uint32_t id, uintptr_t what)
{
    enum status status = map_put(gate->streams, id, (void *)(stream_of(gate, id) | what));
    ASSERT(status == STATUS_OK);
}

static enum frame_gate_end stream_open(struct frame_gate *gate, uint32_t id, uint64_t now_us)
{
    uintptr_t value = (uintptr_t)(now_us - gate->begun_us) << STREAM_BITS | STREAM_OPEN;
    gate->last_stream = id;
    earn(gate, BUDGET_SMALL, STREAM_EARNS_SMALL);
    return map_put(gate->streams, id, (void *)value) == STATUS_OK ? FRAME_GATE_NONE
                                                                  : FRAME_GATE_STREAMS;
}

/* The server has the stream's message, or will never have it. */
static void forget_upload(struct frame_gate *gate, uint32_t id)
{
    if (gate->upload_bytes)
        gate->upload_bytes -= (uintptr_t)map_take(gate->uploads, id);
}

/* A message waits in the server's memory until its last byte has come. */
static void note_upload(struct frame_gate *gate, const struct frame *frame)
{
    uintptr_t bytes = (uintptr_t)map_get(gate->uploads, frame->stream) + frame->length;
    if (frame->flags & FLAG_END_STREAM) {
        forget_upload(gate, frame->stream);
    } else if (frame->length) {
        enum status status = map_put(gate->uploads, frame->stream, (void *)bytes);
        ASSERT(status == STATUS_OK); /* one for each open stream */
        gate->upload_bytes += frame->length;
    }
}

/* Returns the stream's value; 0: it isn't open. */
static uintptr_t stream_close(struct frame_gate *gate, uint32_t id, uint64_t now_us)
{
    forget_upload(gate, id);
    uintptr_t value = (uintptr_t)map_take(gate->streams, id);
    if (value && !map_count(gate->streams))
        gate->idle_since_us = now_us;
    return value;
}

/* --- frames of the client --- */

/* The client may end each stream once; what it sends after that is for nothing. */
static enum frame_gate_end judge_data(struct frame_gate *gate, const struct frame *frame,
                                      uint64_t now_us)
{
    uintptr_t value = stream_of(gate, frame->stream);
    bool sends = value && !(value & STREAM_HALF_CLOSED);
    if (sends)
        note_upload(gate, frame);
    if (sends && (frame->flags & FLAG_END_STREAM)) {
        stream_note(gate, frame->stream, STREAM_HALF_CLOSED);
        return FRAME_GATE_NONE;
    }
    if (!frame->length && !(frame->flags & FLAG_END_STREAM))
        return spend(gate, BUDGET_EMPTY, 1, now_us);
    return frame->length < SMALL_BYTES ? spend(gate, BUDGET_SMALL, 1, now_us) : FRAME_GATE_NONE;
}

/* A frame of a header block: HEADERS, which begins it, or CONTINUATION. */
static enum frame_gate_end judge_block(struct frame_gate *gate, const struct frame *frame,
                                       uint64_t now_us)
{
    enum frame_gate_end end = FRAME_GATE_NONE;
    bool last = frame->flags & FLAG_END_HEADERS;
    gate->block_bytes += frame->length;
    if (gate->block_bytes > gate->limits.header_block_bytes)
        return FRAME_GATE_HEADER_BLOCK;
    if (!last && !frame->length)
        end = spend(gate, BUDGET_EMPTY, 1, now_us);
    else if (!last && frame->length < SMALL_BYTES)
        end = spend(gate, BUDGET_SMALL, 1, now_us);
    gate->block_ends = last;
    return end;
}

/* The payload of the block's last frame is whole. */
static void end_block(struct frame_gate *gate)
{
    gate->block_ends = false;
    gate->block_us = 0;
    gate->called = true;
}

static enum frame_gate_end judge_headers(struct frame_gate *gate, const struct frame *frame,
                                         uint64_t now_us)
{
    enum frame_gate_end end;
    if (frame->stream % 2 && frame->stream > gate->last_stream)
        end = stream_open(gate, frame->stream, now_us);
    else /* trailers, which gRPC's clients don't send, or a stream that was closed */
        end = spend(gate, BUDGET_SMALL, 1, now_us);
    if (end)
        return end;
    if ((frame->flags & FLAG_END_STREAM) && stream_of(gate, frame->stream))
        stream_note(gate, frame->stream, STREAM_HALF_CLOSED);
    gate->block_bytes = 0;
    gate->block_us = now_us;
    return judge_block(gate, frame, now_us);
}

/* A call that is taken back at once, before anything was answered, costs the server more than the
 * client. Later it costs both the same. */
static enum frame_gate_end judge_reset(struct frame_gate *gate, const struct frame *frame,
                                       uint64_t now_us)
{
    uintptr_t value = stream_close(gate, frame->stream, now_us);
    if (!value)
        return spend(gate, BUDGET_SMALL, 1, now_us);
    uint64_t age_us = now_us - gate->begun_us - (value >> STREAM_BITS);
    if ((value & STREAM_ANSWERED) || age_us >= EARLY_US)
        return FRAME_GATE_NONE;
    return spend(gate, BUDGET_RESETS, 1, now_us);
}

/* An acknowledgement of something that the server has sent is free. */
static bool answers(const struct frame *frame, uint32_t *unanswered)
{
    if (!(frame->flags & FLAG_ACK) || !*unanswered)
        return false;
    --*unanswered;
    return true;
}

static enum frame_gate_end judge_frame(struct frame_gate *gate, const struct frame *frame,
                                       uint64_t now_us)
{
    switch (frame->type) {
    case DATA: return judge_data(gate, frame, now_us);
    case HEADERS: return judge_headers(gate, frame, now_us);
    case CONTINUATION: return judge_block(gate, frame, now_us);
    case RST_STREAM: return judge_reset(gate, frame, now_us);
    case SETTINGS:
        gate->greeted = true;
        if (answers(frame, &gate->settings_unanswered))
            return FRAME_GATE_NONE;
        return spend(gate, BUDGET_SETTINGS, 1 + frame->length / SETTINGS_UNIT_BYTES, now_us);
    case PING:
        return answers(frame, &gate->pings_unanswered) ? FRAME_GATE_NONE
                                                       : spend(gate, BUDGET_PINGS, 1, now_us);
    default: return spend(gate, BUDGET_SMALL, 1, now_us);
    }
}

/* --- frames of the server --- */

static void note_answer(struct frame_gate *gate, const struct frame *frame, uint64_t now_us)
{
    uintptr_t value = stream_of(gate, frame->stream);
    earn(gate, BUDGET_PINGS, FRAME_EARNS_PINGS);
    earn(gate, BUDGET_SETTINGS, FRAME_EARNS_PINGS);
    earn(gate, BUDGET_SMALL, FRAME_EARNS_SMALL);
    forget_upload(gate, frame->stream);
    if (value && !(value & STREAM_ANSWERED)) {
        earn(gate, BUDGET_RESETS, ANSWER_EARNS_RESETS);
        stream_note(gate, frame->stream, STREAM_ANSWERED);
    }
    if (frame->flags & FLAG_END_STREAM)
        (void)stream_close(gate, frame->stream, now_us);
}

static enum frame_gate_end note_frame(struct frame_gate *gate, const struct frame *frame,
                                      uint64_t now_us)
{
    bool asks = !(frame->flags & FLAG_ACK);
    gate->server_begun = true;
    switch (frame->type) {
    case DATA:
    case HEADERS: note_answer(gate, frame, now_us); return FRAME_GATE_NONE;
    case SETTINGS:
        gate->settings_unanswered += asks && gate->settings_unanswered < MAX_UNANSWERED;
        return FRAME_GATE_NONE;
    case PING:
        gate->pings_unanswered += asks && gate->pings_unanswered < MAX_UNANSWERED;
        return FRAME_GATE_NONE;
    case RST_STREAM: {
        /* Frames that make the server reset a stream are another way to take it back. */
        uintptr_t value = stream_close(gate, frame->stream, now_us);
        return value && !(value & STREAM_ANSWERED) ? spend(gate, BUDGET_RESETS, 1, now_us)
                                                   : FRAME_GATE_NONE;
    }
    default: return FRAME_GATE_NONE;
    }
}

/* --- bytes --- */

/* Takes bytes up to the end of the next frame's head, or all. Returns how many; *whole: `frame` is
 * the head that they end. */
static size_t next_head(struct frame_cursor *cursor, const uint8_t *bytes, size_t size,
                        struct frame *frame, bool *whole)
{
    size_t used = cursor->payload_left < size ? cursor->payload_left : size;
    cursor->payload_left -= used;
    size_t more = HEAD_BYTES - cursor->head_bytes;
    more = more < size - used ? more : size - used;
    if (more)
        memcpy(cursor->head + cursor->head_bytes, bytes + used, more);
    cursor->head_bytes += more;
    *whole = cursor->head_bytes == HEAD_BYTES;
    if (!*whole)
        return used + more;
    const uint8_t *head = cursor->head;
    *frame = (struct frame){
        .length = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2],
        .type = head[3],
        .flags = head[4],
        .stream =
            ((uint32_t)head[5] << 24 | (uint32_t)head[6] << 16 | (uint32_t)head[7] << 8 | head[8]) &
            0x7fffffff,
    };
    cursor->head_bytes = 0;
    cursor->payload_left = frame->length;
    return used + more;
}

/* Returns how many of the bytes belong to the preface; *wrong: another protocol's bytes. */
static size_t take_preface(struct frame_gate *gate, const uint8_t *bytes, size_t size, bool *wrong)
{
    size_t count = 0;
    *wrong = false;
    for (; count < size && gate->preface_bytes < FRAME_GATE_PREFACE_BYTES && !*wrong; count++) {
        *wrong = bytes[count] != (uint8_t)frame_gate_preface[gate->preface_bytes];
        gate->preface_bytes += !*wrong;
    }
    return count - *wrong;
}

size_t frame_gate_from_client(struct frame_gate *gate, const uint8_t *bytes, size_t size,
                              uint64_t now_us, enum frame_gate_end *end)
{
    bool wrong;
    size_t used = take_preface(gate, bytes, size, &wrong);
    *end = wrong ? FRAME_GATE_PREFACE : FRAME_GATE_NONE;
    if (wrong)
        return used;
    while (used < size) {
        struct frame frame;
        bool whole;
        size_t count = next_head(&gate->client, bytes + used, size - used, &frame, &whole);
        bool more = gate->client.payload_left > 0;
        if (gate->block_ends && (whole || !more)) /* the head is of the frame behind the block */
            end_block(gate);
        if (whole)
            *end = judge_frame(gate, &frame, now_us);
        if (*end) /* the frame stays out: at least the last byte of its head */
            return used + count - 1;
        if (gate->block_ends && !more)
            end_block(gate);
        used += count;
    }
    return size;
}

enum frame_gate_end frame_gate_from_server(struct frame_gate *gate, const uint8_t *bytes,
                                           size_t size, uint64_t now_us)
{
    enum frame_gate_end end = FRAME_GATE_NONE;
    for (size_t used = 0; used < size;) {
        struct frame frame;
        bool whole;
        used += next_head(&gate->server, bytes + used, size - used, &frame, &whole);
        enum frame_gate_end now = whole ? note_frame(gate, &frame, now_us) : FRAME_GATE_NONE;
        end = end ? end : now;
    }
    return end;
}

size_t frame_gate_streams(const struct frame_gate *gate)
{
    return map_count(gate->streams);
}

size_t frame_gate_uploads(const struct frame_gate *gate, size_t *streams)
{
    *streams = map_count(gate->uploads);
    return gate->upload_bytes;
}

/* --- time --- */

/* Returns when the next limit of time is reached, and which it is. */
static uint64_t next_limit(const struct frame_gate *gate, enum frame_gate_end *end)
{
    const struct frame_gate_limits *limits = &gate->limits;
    uint64_t due_us = UINT64_MAX;
    *end = FRAME_GATE_NONE;
    if (!gate->greeted) {
        *end = FRAME_GATE_HANDSHAKE_TIMEOUT;
        return gate->begun_us + limits->handshake_us;
    }
    if (gate->block_us) {
        *end = FRAME_GATE_HEADER_TIMEOUT;
        due_us = gate->block_us + limits->handshake_us;
    }
    if (!gate->called && gate->begun_us + limits->first_call_us < due_us) {
        *end = FRAME_GATE_NO_CALL;
        due_us = gate->begun_us + limits->first_call_us;
    }
    if (gate->called && limits->idle_us && !map_count(gate->streams) && !gate->block_us) {
        *end = FRAME_GATE_IDLE;
        due_us = gate->idle_since_us + limits->idle_us;
    }
    return due_us;
}

enum frame_gate_end frame_gate_at(const struct frame_gate *gate, uint64_t now_us)
{
    enum frame_gate_end end;
    return now_us >= next_limit(gate, &end) ? end : FRAME_GATE_NONE;
}

uint64_t frame_gate_due_us(const struct frame_gate *gate)
{
    enum frame_gate_end end;
    return next_limit(gate, &end);
}

bool frame_gate_has_preface(const struct frame_gate *gate)
{
    return gate->preface_bytes == FRAME_GATE_PREFACE_BYTES;
}

size_t frame_gate_goaway(const struct frame_gate *gate, enum frame_gate_end end,
                         uint8_t bytes[FRAME_GATE_MAX_GOAWAY_BYTES])
{
    static const uint8_t settings[HEAD_BYTES] = {[3] =
                                                     SETTINGS}; /* must be a server's first frame */
    if (!frame_gate_has_preface(gate) || gate->server.payload_left || gate->server.head_bytes)
        return 0;
    const char *sentence = frame_gate_end_sentence(end);
    uint32_t last = gate->last_stream;
    size_t said = strlen(sentence), at = 0;
    const uint8_t goaway[HEAD_BYTES + 8] = {
        [2] = (uint8_t)(8 + said),
        [3] = GOAWAY,
        [9] = (uint8_t)(last >> 24),
        [10] = (uint8_t)(last >> 16),
        [11] = (uint8_t)(last >> 8),
        [12] = (uint8_t)last,
        [16] = frame_gate_end_is_flood(end) ? ERROR_ENHANCE_YOUR_CALM : ERROR_NONE};
    ASSERT(sizeof settings + sizeof goaway + said <= FRAME_GATE_MAX_GOAWAY_BYTES);
    if (!gate->server_begun) {
        memcpy(bytes, settings, sizeof settings);
        at = sizeof settings;
    }
    memcpy(bytes + at, goaway, sizeof goaway);
    memcpy(bytes + at + sizeof goaway, sentence, said);
    return at + sizeof goaway + said;
}
