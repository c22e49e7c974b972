/* frame_gate: honest clients pass whatever they do for long, and each flood ends at its limit, in
 * virtual time. */
#include "common/net/rpc/frame_gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
enum { ACK = 1, END_STREAM = 1, END_HEADERS = 4 };

#define BLOCK_BYTES   32768
#define STREAMS       300
#define HANDSHAKE_US  10000000u
#define FIRST_CALL_US 60000000u
#define IDLE_US       300000000u
#define BEGIN_US      5000000u

struct world {
    struct frame_gate gate;
    uint64_t now_us;
    enum frame_gate_end end;
    uint8_t *frame; /* the latest */
};

/* Sends a frame with a payload of zeros, and returns whether all of it passed. */
static bool from_client(struct world *w, uint8_t type, uint8_t flags, uint32_t stream,
                        size_t length)
{
    size_t size = 9 + length;
    w->frame = realloc(w->frame, size);
    memset(w->frame, 0, size);
    const uint8_t head[9] = {(uint8_t)(length >> 16),
                             (uint8_t)(length >> 8),
                             (uint8_t)length,
                             type,
                             flags,
                             (uint8_t)(stream >> 24),
                             (uint8_t)(stream >> 16),
                             (uint8_t)(stream >> 8),
                             (uint8_t)stream};
    memcpy(w->frame, head, sizeof head);
    size_t passed = frame_gate_from_client(&w->gate, w->frame, size, w->now_us, &w->end);
    assert_true(w->end ? passed < sizeof head : passed == size);
    return !w->end;
}

static void from_server(struct world *w, uint8_t type, uint8_t flags, uint32_t stream,
                        size_t length)
{
    uint8_t frame[9 + 64] = {0,
                             0,
                             (uint8_t)length,
                             type,
                             flags,
                             0,
                             (uint8_t)(stream >> 16),
                             (uint8_t)(stream >> 8),
                             (uint8_t)stream};
    assert_true(length <= 64);
    w->end = frame_gate_from_server(&w->gate, frame, 9 + length, w->now_us);
}

static void begin_unspoken(struct world *w)
{
    static const struct frame_gate_limits limits = {.header_block_bytes = BLOCK_BYTES,
                                                    .streams = STREAMS,
                                                    .handshake_us = HANDSHAKE_US,
                                                    .first_call_us = FIRST_CALL_US,
                                                    .idle_us = IDLE_US};
    *w = (struct world){.now_us = BEGIN_US};
    assert_int_equal(frame_gate_init(&w->gate, &limits, w->now_us), STATUS_OK);
}

/* With the preface, and the settings of both sides. */
static void begin(struct world *w)
{
    begin_unspoken(w);
    assert_int_equal(frame_gate_from_client(&w->gate, frame_gate_preface, FRAME_GATE_PREFACE_BYTES,
                                            w->now_us, &w->end),
                     FRAME_GATE_PREFACE_BYTES);
    assert_true(frame_gate_has_preface(&w->gate));
    assert_true(from_client(w, SETTINGS, 0, 0, 18));
    from_server(w, SETTINGS, 0, 0, 6);
    assert_true(from_client(w, SETTINGS, ACK, 0, 0));
}

static void end(struct world *w)
{
    frame_gate_deinit(&w->gate);
    free(w->frame);
}

/* Opens a call with its message. */
static bool call(struct world *w, uint32_t stream)
{
    return from_client(w, HEADERS, END_HEADERS, stream, 100) &&
           from_client(w, DATA, END_STREAM, stream, 50);
}

/* --- honest clients --- */

static void test_calls_without_end(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (uint32_t i = 0; i < 100000; i++, w.now_us += 100) {
        uint32_t stream = 2 * i + 1;
        assert_true(call(&w, stream));
        from_server(&w, HEADERS, END_HEADERS, stream, 40);
        from_server(&w, DATA, 0, stream, 30);
        assert_true(from_client(&w, WINDOW_UPDATE, 0, stream, 4));
        assert_true(from_client(&w, WINDOW_UPDATE, 0, 0, 4));
        assert_true(from_client(&w, PING, 0, 0, 8)); /* as grpc-go does for each DATA */
        from_server(&w, HEADERS, END_HEADERS | END_STREAM, stream, 20);
        assert_int_equal(w.end, FRAME_GATE_NONE);
    }
    end(&w);
}

/* A 4 MiB prompt, and its message's length in a frame of its own. */
static void test_a_large_upload(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    assert_true(from_client(&w, HEADERS, END_HEADERS, 1, 100));
    assert_true(from_client(&w, DATA, 0, 1, 5));
    for (int i = 0; i < 256; i++)
        assert_true(from_client(&w, DATA, 0, 1, 16384));
    assert_true(from_client(&w, DATA, END_STREAM, 1, 0));
    end(&w);
}

static void expect_uploads(const struct world *w, size_t bytes, size_t streams)
{
    size_t found;
    assert_int_equal(frame_gate_uploads(&w->gate, &found), bytes);
    assert_int_equal(found, streams);
}

/* Messages count until they are whole, answered, or given up by either side. */
static void test_uploads_are_counted(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (uint32_t stream = 1; stream <= 9; stream += 2) {
        assert_true(from_client(&w, HEADERS, END_HEADERS, stream, 100));
        for (int i = 0; i < 3; i++)
            assert_true(from_client(&w, DATA, 0, stream, 10000));
    }
    expect_uploads(&w, 150000, 5);
    assert_true(from_client(&w, DATA, END_STREAM, 1, 500)); /* whole */
    expect_uploads(&w, 120000, 4);
    assert_true(from_client(&w, DATA, 0, 1, 500)); /* behind the end */
    expect_uploads(&w, 120000, 4);
    assert_true(from_client(&w, RST_STREAM, 0, 3, 4));
    expect_uploads(&w, 90000, 3);
    from_server(&w, RST_STREAM, 0, 5, 4);
    expect_uploads(&w, 60000, 2);
    from_server(&w, HEADERS, END_HEADERS | END_STREAM, 7, 20);
    expect_uploads(&w, 30000, 1);
    from_server(&w, HEADERS, END_HEADERS, 9, 20); /* it goes on, and so does the client */
    expect_uploads(&w, 0, 0);
    assert_true(from_client(&w, DATA, 0, 9, 700));
    expect_uploads(&w, 700, 1);
    assert_true(call(&w, 11));
    assert_true(from_client(&w, HEADERS, END_HEADERS | END_STREAM, 13, 100));
    assert_true(from_client(&w, DATA, 0, 13, 300)); /* half closed already */
    expect_uploads(&w, 700, 1);
    end(&w);
}

static void test_many_open_streams_for_long(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (uint32_t i = 0; i < 256; i++)
        assert_true(call(&w, 2 * i + 1));
    w.now_us += 3600000000u;
    assert_int_equal(frame_gate_at(&w.gate, w.now_us), FRAME_GATE_NONE);
    assert_int_equal(frame_gate_due_us(&w.gate), UINT64_MAX);
    end(&w);
}

/* Half of the calls are taken back before anything was answered, at any speed. */
static void test_every_second_call_is_cancelled(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t cancelled = 4 * i + 1, answered = 4 * i + 3;
        assert_true(call(&w, cancelled));
        assert_true(from_client(&w, RST_STREAM, 0, cancelled, 4));
        assert_true(call(&w, answered));
        from_server(&w, HEADERS, END_HEADERS | END_STREAM, answered, 20);
    }
    end(&w);
}

/* A call that ran for a while, or was answered in part, may be cancelled as often as one likes. */
static void test_late_cancels_are_free(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    uint32_t stream = 1;
    for (int round = 0; round < 20; round++) {
        uint32_t first = stream;
        for (int i = 0; i < 200; i++, stream += 2)
            assert_true(call(&w, stream));
        if (round % 2)
            w.now_us += 1000000;
        for (uint32_t one = first; one < stream; one += 2) {
            if (round % 2 == 0)
                from_server(&w, HEADERS, END_HEADERS, one, 20);
            assert_true(from_client(&w, RST_STREAM, 0, one, 4));
        }
    }
    end(&w);
}

/* --- floods --- */

/* Resets of calls that are young and unanswered: 100, and 100 more in 10 s. */
static void test_rapid_reset(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    uint32_t stream = 1;
    for (int round = 0; round < 3; round++, w.now_us += 10000000)
        for (int i = 0; i < 100; i++, stream += 2) {
            assert_true(from_client(&w, HEADERS, END_HEADERS | END_STREAM, stream, 100));
            w.now_us += 0;
            assert_true(from_client(&w, RST_STREAM, 0, stream, 4));
        }
    w.now_us -= 10000000;
    assert_true(call(&w, stream));
    assert_false(from_client(&w, RST_STREAM, 0, stream, 4));
    assert_int_equal(w.end, FRAME_GATE_RESETS);
    end(&w);
}

/* A stream that lives just under a second counts; answers save up for at most 1000 resets. */
static void test_edges_of_resets(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    uint32_t stream = 1;
    for (int i = 0; i < 5000; i++, stream += 2) {
        assert_true(call(&w, stream));
        from_server(&w, HEADERS, END_HEADERS | END_STREAM, stream, 20);
    }
    for (int i = 0; i < 1000; i += 100) {
        uint32_t first = stream;
        for (int k = 0; k < 100; k++, stream += 2)
            assert_true(call(&w, stream));
        for (uint32_t one = first; one < stream; one += 2)
            assert_true(from_client(&w, RST_STREAM, 0, one, 4));
    }
    assert_true(call(&w, stream));
    w.now_us += 999999; /* 9 more are allowed by then */
    for (int i = 0; i < 9; i++) {
        assert_true(call(&w, stream + 2));
        assert_true(from_client(&w, RST_STREAM, 0, stream + 2, 4));
        stream += 2;
    }
    assert_false(from_client(&w, RST_STREAM, 0, stream - 18, 4));
    assert_int_equal(w.end, FRAME_GATE_RESETS);
    end(&w);
}

/* Frames that make the server reset the stream count as resets of the client. */
static void test_resets_that_the_server_is_made_to_send(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (uint32_t i = 0; i < 101; i++) {
        assert_int_equal(w.end, FRAME_GATE_NONE);
        assert_true(call(&w, 2 * i + 1));
        from_server(&w, RST_STREAM, 0, 2 * i + 1, 4);
    }
    assert_int_equal(w.end, FRAME_GATE_RESETS);
    end(&w);
}

/* Each kind: so many at once, and so many again after 10 s; one more ends the connection. */
static void test_budgets(void **state)
{
    (void)state;
    static const struct {
        uint8_t type, flags;
        size_t length;
        int count;
        enum frame_gate_end end;
    } rows[] = {
        {SETTINGS, 0, 0, 100, FRAME_GATE_SETTINGS}, /* one of begin's is refilled by then */
        {SETTINGS, 0, 2560, 9, FRAME_GATE_SETTINGS},
        {SETTINGS, ACK, 0, 100, FRAME_GATE_SETTINGS},
        {PING, 0, 8, 100, FRAME_GATE_PINGS},
        {PING, ACK, 8, 100, FRAME_GATE_PINGS},
        {DATA, 0, 0, 100, FRAME_GATE_EMPTY_FRAMES},
        {DATA, END_STREAM, 0, 1004, FRAME_GATE_SMALL_FRAMES}, /* the stream has ended before */
        {DATA, 0, 255, 1004, FRAME_GATE_SMALL_FRAMES},
        {PRIORITY, 0, 5, 1004, FRAME_GATE_SMALL_FRAMES},
        {WINDOW_UPDATE, 0, 4, 1004, FRAME_GATE_SMALL_FRAMES},
        {HEADERS, END_HEADERS, 50, 1004, FRAME_GATE_SMALL_FRAMES}, /* the stream is open */
        {PUSH_PROMISE, 0, 4, 1004, FRAME_GATE_SMALL_FRAMES},
        {GOAWAY, 0, 8, 1004, FRAME_GATE_SMALL_FRAMES},
        {0x55, 0, 0, 1004, FRAME_GATE_SMALL_FRAMES},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        struct world w;
        begin(&w);
        assert_true(call(&w, 1));
        w.now_us += 100000;
        for (int round = 0; round < 2; round++, w.now_us += 10000000) {
            int count = round && rows[row].count > 1000 ? 1000 : rows[row].count;
            for (int i = 0; i < count; i++)
                if (!from_client(&w, rows[row].type, rows[row].flags, 1, rows[row].length))
                    fail_msg("row %zu, round %d, frame %d", row, round, i);
        }
        w.now_us -= 10000000;
        if (from_client(&w, rows[row].type, rows[row].flags, 1, rows[row].length))
            fail_msg("row %zu has no end", row);
        assert_int_equal(w.end, rows[row].end);
        end(&w);
    }
}

static void test_resets_of_nothing(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    int count = 0;
    while (from_client(&w, RST_STREAM, 0, 1, 4))
        count++;
    assert_int_equal(count, 1000);
    assert_int_equal(w.end, FRAME_GATE_SMALL_FRAMES);
    end(&w);
}

static void test_header_blocks(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    assert_true(from_client(&w, HEADERS, END_HEADERS, 1, BLOCK_BYTES));
    assert_true(from_client(&w, HEADERS, 0, 3, BLOCK_BYTES - 300));
    assert_true(from_client(&w, CONTINUATION, END_HEADERS, 3, 300));
    assert_true(from_client(&w, HEADERS, 0, 5, BLOCK_BYTES));
    assert_false(from_client(&w, CONTINUATION, END_HEADERS, 5, 1));
    assert_int_equal(w.end, FRAME_GATE_HEADER_BLOCK);
    end(&w);
    begin(&w);
    assert_false(from_client(&w, HEADERS, END_HEADERS, 1, BLOCK_BYTES + 1));
    assert_int_equal(w.end, FRAME_GATE_HEADER_BLOCK);
    end(&w);
}

/* A block of many pieces: empty ones, small ones, large ones. */
static void test_continuations_without_end(void **state)
{
    (void)state;
    static const struct {
        size_t length;
        int count;
        enum frame_gate_end end;
    } rows[] = {{0, 100, FRAME_GATE_EMPTY_FRAMES},
                {1, 1003, FRAME_GATE_SMALL_FRAMES}, /* HEADERS is small, too */
                {256, 127, FRAME_GATE_HEADER_BLOCK},
                {16384, 1, FRAME_GATE_HEADER_BLOCK}};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        struct world w;
        begin(&w);
        assert_true(from_client(&w, HEADERS, 0, 1, 10));
        int count = 0;
        while (from_client(&w, CONTINUATION, 0, 1, rows[row].length))
            count++;
        assert_int_equal(count, rows[row].count);
        assert_int_equal(w.end, rows[row].end);
        end(&w);
    }
}

static void test_streams_are_limited(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    uint32_t stream = 1;
    for (int i = 0; i < STREAMS; i++, stream += 2)
        assert_true(call(&w, stream));
    assert_false(call(&w, stream));
    assert_int_equal(w.end, FRAME_GATE_STREAMS);
    end(&w);
}

static void test_another_protocol(void **state)
{
    (void)state;
    static const char *const rows[] = {"GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r",
                                       "\x16\x03\x01", "p"};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        struct world w;
        uint8_t goaway[FRAME_GATE_MAX_GOAWAY_BYTES];
        begin_unspoken(&w);
        size_t passed = frame_gate_from_client(&w.gate, (const uint8_t *)rows[row],
                                               strlen(rows[row]), w.now_us, &w.end);
        assert_int_equal(passed, row == 1 ? FRAME_GATE_PREFACE_BYTES - 1 : 0); /* its own bytes */
        assert_int_equal(w.end, FRAME_GATE_PREFACE);
        assert_int_equal(frame_gate_goaway(&w.gate, w.end, goaway), 0);
        end(&w);
    }
}

/* --- time --- */

static void expect_end_at(const struct frame_gate *gate, uint64_t at_us, enum frame_gate_end end_)
{
    assert_int_equal(frame_gate_due_us(gate), at_us);
    assert_int_equal(frame_gate_at(gate, at_us - 1), FRAME_GATE_NONE);
    assert_int_equal(frame_gate_at(gate, at_us), end_);
}

static void test_limits_of_time(void **state)
{
    (void)state;
    struct world w;
    begin_unspoken(&w);
    expect_end_at(&w.gate, BEGIN_US + HANDSHAKE_US, FRAME_GATE_HANDSHAKE_TIMEOUT);
    (void)frame_gate_from_client(&w.gate, frame_gate_preface, FRAME_GATE_PREFACE_BYTES, w.now_us,
                                 &w.end);
    expect_end_at(&w.gate, BEGIN_US + HANDSHAKE_US, FRAME_GATE_HANDSHAKE_TIMEOUT);
    assert_true(from_client(&w, SETTINGS, 0, 0, 18));
    expect_end_at(&w.gate, BEGIN_US + FIRST_CALL_US, FRAME_GATE_NO_CALL);

    w.now_us += 1000;
    assert_true(from_client(&w, HEADERS, 0, 1, 100));
    expect_end_at(&w.gate, w.now_us + HANDSHAKE_US, FRAME_GATE_HEADER_TIMEOUT);
    assert_true(from_client(&w, CONTINUATION, END_HEADERS, 1, 100));
    assert_int_equal(frame_gate_due_us(&w.gate), UINT64_MAX);

    w.now_us += 1000000;
    assert_true(call(&w, 3));
    from_server(&w, HEADERS, END_HEADERS | END_STREAM, 1, 20);
    assert_int_equal(frame_gate_due_us(&w.gate), UINT64_MAX);
    assert_true(from_client(&w, RST_STREAM, 0, 3, 4));
    expect_end_at(&w.gate, w.now_us + IDLE_US, FRAME_GATE_IDLE);
    assert_true(call(&w, 5));
    assert_int_equal(frame_gate_due_us(&w.gate), UINT64_MAX);
    end(&w);
}

/* The head of a frame says that the block ends; its payload comes byte by byte. */
static void test_a_trickled_block_has_a_limit(void **state)
{
    (void)state;
    static const uint8_t zero = 0;
    static const struct {
        uint8_t type;
        size_t length;
    } rows[] = {{HEADERS, 16384}, {HEADERS, 1}, {CONTINUATION, 300}};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        struct world w;
        begin(&w);
        w.now_us += 1000;
        uint64_t begun_us = w.now_us;
        if (rows[row].type == CONTINUATION)
            assert_true(from_client(&w, HEADERS, 0, 1, 300));
        size_t left = rows[row].length;
        const uint8_t head[9] = {
            0, (uint8_t)(left >> 8), (uint8_t)left, rows[row].type, END_HEADERS, 0, 0, 0, 1};
        assert_int_equal(frame_gate_from_client(&w.gate, head, sizeof head, w.now_us, &w.end),
                         sizeof head);
        for (; left; left--) {
            w.now_us += 10;
            expect_end_at(&w.gate, begun_us + HANDSHAKE_US, FRAME_GATE_HEADER_TIMEOUT);
            assert_int_equal(frame_gate_from_client(&w.gate, &zero, 1, w.now_us, &w.end), 1);
        }
        assert_int_equal(frame_gate_due_us(&w.gate), UINT64_MAX);
        end(&w);
    }

    /* An empty last frame ends the block at once. */
    struct world w;
    begin(&w);
    assert_true(from_client(&w, HEADERS, 0, 1, 300));
    assert_true(from_client(&w, CONTINUATION, END_HEADERS, 1, 0));
    assert_int_equal(frame_gate_due_us(&w.gate), UINT64_MAX);
    end(&w);
}

/* --- GOAWAY --- */

static void test_goaway(void **state)
{
    (void)state;
    struct world w;
    uint8_t bytes[FRAME_GATE_MAX_GOAWAY_BYTES];
    begin(&w);
    assert_true(call(&w, 0x010203));
    const char *said = frame_gate_end_sentence(FRAME_GATE_PINGS);
    size_t size = frame_gate_goaway(&w.gate, FRAME_GATE_PINGS, bytes);
    const uint8_t head[17] = {
        0, 0, (uint8_t)(8 + strlen(said)), GOAWAY, 0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 11};
    assert_int_equal(size, sizeof head + strlen(said));
    assert_memory_equal(bytes, head, sizeof head);
    assert_memory_equal(bytes + sizeof head, said, strlen(said));
    assert_true(frame_gate_goaway(&w.gate, FRAME_GATE_IDLE, bytes) > 17);
    assert_int_equal(bytes[16], 0);

    /* Not within a frame of the server. */
    const uint8_t part[12] = {0, 0, 4, DATA, 0, 0, 0, 0, 1};
    for (size_t i = 0; i < 13; i++) {
        bool between = i == 0 || i == 13;
        assert_int_equal(frame_gate_goaway(&w.gate, FRAME_GATE_PINGS, bytes) > 0, between);
        (void)frame_gate_from_server(&w.gate, i < 12 ? &part[i] : &part[11], 1, w.now_us);
    }
    assert_true(frame_gate_goaway(&w.gate, FRAME_GATE_PINGS, bytes) > 0);
    end(&w);

    /* A server's first frame is SETTINGS. */
    begin_unspoken(&w);
    (void)frame_gate_from_client(&w.gate, frame_gate_preface, FRAME_GATE_PREFACE_BYTES, w.now_us,
                                 &w.end);
    const uint8_t settings[9] = {0, 0, 0, SETTINGS};
    assert_true(frame_gate_goaway(&w.gate, FRAME_GATE_PINGS, bytes) > 26);
    assert_memory_equal(bytes, settings, sizeof settings);
    assert_int_equal(bytes[12], GOAWAY);
    end(&w);
}

static void test_all_ends_have_names(void **state)
{
    (void)state;
    struct world w;
    uint8_t bytes[FRAME_GATE_MAX_GOAWAY_BYTES];
    begin(&w);
    for (int one = FRAME_GATE_NONE + 1; one < FRAME_GATE_ENDS; one++) {
        assert_true(strlen(frame_gate_end_name((enum frame_gate_end)one)) > 3);
        assert_true(frame_gate_goaway(&w.gate, (enum frame_gate_end)one, bytes) > 17);
    }
    end(&w);
}

/* The cuts between the bytes of a client change nothing. */
static void test_cuts_change_nothing(void **state)
{
    (void)state;
    static uint8_t bytes[60000];
    size_t size = FRAME_GATE_PREFACE_BYTES;
    memcpy(bytes, frame_gate_preface, size);
    uint32_t random = 7;
    for (uint32_t i = 0; size + 400 < sizeof bytes; i++) {
        random = random * 1103515245 + 12345;
        size_t length = random >> 16 & 0xff;
        uint8_t type = (uint8_t)(random >> 8 & 1 ? HEADERS : i % 11);
        uint8_t head[9] = {0,
                           0,
                           (uint8_t)length,
                           type,
                           (uint8_t)(random >> 24 & 5),
                           0,
                           0,
                           (uint8_t)(i >> 7),
                           (uint8_t)(2 * i + 1)};
        memcpy(bytes + size, head, sizeof head);
        size += sizeof head + length;
    }
    struct world whole, cut;
    begin_unspoken(&whole);
    size_t passed = frame_gate_from_client(&whole.gate, bytes, size, whole.now_us, &whole.end);
    for (size_t step = 1; step < 40; step++) {
        begin_unspoken(&cut);
        size_t sum = 0;
        for (size_t at = 0; at < size && !cut.end; at += step)
            sum += frame_gate_from_client(
                &cut.gate, bytes + at, size - at < step ? size - at : step, cut.now_us, &cut.end);
        assert_int_equal(cut.end, whole.end);
        assert_int_equal(sum, passed);
        end(&cut);
    }
    end(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_without_end),
        cmocka_unit_test(test_a_large_upload),
        cmocka_unit_test(test_uploads_are_counted),
        cmocka_unit_test(test_many_open_streams_for_long),
        cmocka_unit_test(test_every_second_call_is_cancelled),
        cmocka_unit_test(test_late_cancels_are_free),
        cmocka_unit_test(test_rapid_reset),
        cmocka_unit_test(test_edges_of_resets),
        cmocka_unit_test(test_resets_that_the_server_is_made_to_send),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_resets_of_nothing),
        cmocka_unit_test(test_header_blocks),
        cmocka_unit_test(test_continuations_without_end),
        cmocka_unit_test(test_streams_are_limited),
        cmocka_unit_test(test_another_protocol),
        cmocka_unit_test(test_limits_of_time),
        cmocka_unit_test(test_a_trickled_block_has_a_limit),
        cmocka_unit_test(test_goaway),
        cmocka_unit_test(test_all_ends_have_names),
        cmocka_unit_test(test_cuts_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
