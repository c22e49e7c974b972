/* The frames of the tcp lane: written frames are read back, in whatever pieces they come. Other
 * bytes are refused at the first wrong byte, and for good. */
#include "common/kv/transport/kv_frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/rng.h"

#define POOL ((uint64_t)1 << 20)

static const struct kv_frame samples[] = {
    {.kind = KV_FRAME_HELLO, .hello = {0x1122334455667788, "0123456789abcde"}},
    {.kind = KV_FRAME_WELCOME, .welcome = {KV_ADMITTED, UINT64_MAX, 1}},
    {.kind = KV_FRAME_WELCOME, .welcome = {KV_OTHER_VERSION, 0, 0}},
    {.kind = KV_FRAME_ASK, .ask = {7, POOL - 9, 9, UINT64_MAX - 1}},
    {.kind = KV_FRAME_ANSWER, .answer = {UINT64_MAX, 5, false}},
    {.kind = KV_FRAME_ANSWER, .answer = {6, 5, true}},
};
#define SAMPLES (sizeof samples / sizeof *samples)

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        uint8_t bytes[KV_FRAME_BYTES], again[KV_FRAME_BYTES];
        struct kv_frame frame;
        kv_frame_encode(&samples[i], bytes);
        assert_int_equal(kv_frame_decode(bytes, &frame), KV_FRAME_GOOD);
        assert_int_equal(frame.kind, samples[i].kind);
        kv_frame_encode(&frame, again);
        assert_memory_equal(bytes, again, sizeof bytes);
    }
}

static void test_other_bytes_are_no_frames(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
        enum kv_frame_fault fault;
    } changes[] = {
        {0, 'b', KV_FRAME_NOT_OURS},    {3, 'X', KV_FRAME_NOT_OURS}, {4, 1, KV_FRAME_OTHER_VERSION},
        {5, 1, KV_FRAME_OTHER_VERSION}, {6, 0, KV_FRAME_UNEXPECTED}, {6, 5, KV_FRAME_UNEXPECTED},
        {7, 1, KV_FRAME_UNEXPECTED},
    };
    uint8_t bytes[KV_FRAME_BYTES];
    struct kv_frame frame;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        kv_frame_encode(&samples[3], bytes);
        bytes[changes[i].at] = changes[i].value;
        assert_int_equal(kv_frame_decode(bytes, &frame), changes[i].fault);
    }
    kv_frame_encode(&(struct kv_frame){.kind = KV_FRAME_WELCOME, .welcome = {KV_VERDICTS, 0, 0}},
                    bytes);
    assert_int_equal(kv_frame_decode(bytes, &frame), KV_FRAME_UNEXPECTED);
    kv_frame_encode(&samples[4], bytes);
    bytes[KV_FRAME_BYTES - 16] = 2; /* neither granted nor refused */
    assert_int_equal(kv_frame_decode(bytes, &frame), KV_FRAME_UNEXPECTED);
    for (size_t i = 0; i < SAMPLES; i++) {
        kv_frame_encode(&samples[i], bytes);
        bytes[KV_FRAME_BYTES - 1] ^= 1; /* in the field that only an ask has */
        assert_int_equal(kv_frame_decode(bytes, &frame),
                         samples[i].kind == KV_FRAME_ASK ? KV_FRAME_GOOD : KV_FRAME_UNEXPECTED);
    }
}

/* A version may have frames of another size, so its number ends the wait for a whole frame. */
static void test_another_version_shows_at_once(void **state)
{
    (void)state;
    static const uint8_t old[] = {'B', 'K', 'V', 'L', 1, 0};
    struct kv_frames frames = {.pool_bytes = POOL};
    struct kv_frame frame;
    size_t taken;
    assert_false(kv_frames_take(&frames, old, sizeof old - 1, &taken, &frame));
    assert_int_equal(frames.bad, KV_FRAME_GOOD);
    assert_false(kv_frames_take(&frames, old + taken, 1, &taken, &frame));
    assert_int_equal(frames.bad, KV_FRAME_OTHER_VERSION);
}

/* Feeds `count` bytes in pieces of at most `piece`; returns the number of frames taken. */
static size_t feed(struct kv_frames *frames, const uint8_t *bytes, size_t count, size_t piece)
{
    size_t found = 0;
    for (size_t at = 0, taken; at < count && !frames->bad; at += taken) {
        /* Its own block, so that ASan sees a byte too far. */
        size_t size = count - at < piece ? count - at : piece;
        uint8_t *exact = malloc(size);
        struct kv_frame frame;
        memcpy(exact, bytes + at, size);
        bool whole = kv_frames_take(frames, exact, size, &taken, &frame);
        assert_true(taken <= size && (taken > 0 || frames->bad));
        if (whole && frame.kind == KV_FRAME_ASK)
            assert_true(frame.ask.bytes > 0 && frame.ask.bytes <= POOL &&
                        frame.ask.offset <= POOL - frame.ask.bytes);
        found += whole;
        free(exact);
    }
    return found;
}

static void test_a_stream_in_any_pieces(void **state)
{
    (void)state;
    uint8_t bytes[4 * KV_FRAME_BYTES];
    kv_frame_encode(&samples[0], bytes);
    for (size_t i = 1; i < 4; i++)
        kv_frame_encode(&samples[3], bytes + i * KV_FRAME_BYTES);
    for (size_t piece = 1; piece <= sizeof bytes; piece++) {
        struct kv_frames frames = {.pool_bytes = POOL};
        assert_int_equal(feed(&frames, bytes, sizeof bytes, piece), 4);
        assert_int_equal(frames.bad, KV_FRAME_GOOD);
        assert_int_equal(frames.part_bytes, 0);
    }
}

static void test_order_matters(void **state)
{
    (void)state;
    static const size_t bad[][2] = {{3, 3}, {0, 0}, {0, 1}, {0, 4}, {1, 3}, {4, 3}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t bytes[2 * KV_FRAME_BYTES];
        kv_frame_encode(&samples[bad[i][0]], bytes);
        kv_frame_encode(&samples[bad[i][1]], bytes + KV_FRAME_BYTES);
        struct kv_frames frames = {.pool_bytes = POOL};
        assert_true(feed(&frames, bytes, sizeof bytes, 7) < 2);
        assert_int_equal(frames.bad, KV_FRAME_UNEXPECTED);
        assert_int_equal(feed(&frames, bytes, sizeof bytes, 7), 0); /* for good */
    }
}

/* Random damage: nothing crashes, and every ask that gets through lies inside the pool (feed says
 * so). */
static void test_damaged_streams(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(77);
    size_t through = 0, refused = 0;
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[6 * KV_FRAME_BYTES];
        kv_frame_encode(&samples[0], bytes);
        for (size_t i = 1; i < 6; i++) {
            struct kv_frame ask = {
                .kind = KV_FRAME_ASK,
                .ask = {i, rng_below(&rng, 2 * POOL), rng_below(&rng, POOL), rng_next(&rng)}};
            kv_frame_encode(&ask, bytes + i * KV_FRAME_BYTES);
        }
        for (uint64_t flips = rng_below(&rng, 4); flips > 0; flips--)
            bytes[rng_below(&rng, sizeof bytes)] ^= (uint8_t)(1u << rng_below(&rng, 8));
        struct kv_frames frames = {.pool_bytes = POOL};
        through += feed(&frames, bytes, sizeof bytes, 1 + rng_below(&rng, 70));
        refused += frames.bad != KV_FRAME_GOOD;
    }
    assert_true(through > 10000 && refused > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_other_bytes_are_no_frames),
        cmocka_unit_test(test_another_version_shows_at_once),
        cmocka_unit_test(test_a_stream_in_any_pieces),
        cmocka_unit_test(test_order_matters),
        cmocka_unit_test(test_damaged_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
