/* kv_layout: offsets, and the runs between rectangles of different shapes. */
#include "common/base/domain/kv_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct model_shape shape = {.layers = 4, .kv_heads = 4, .head_dim = 2};

static struct kv_layout part(uint32_t l0, uint32_t l1, uint32_t h0, uint32_t h1)
{
    struct kv_layout layout = kv_layout_whole(&shape, 8, KV_BF16);
    layout.layer_begin = l0;
    layout.layer_end = l1;
    layout.head_begin = h0;
    layout.head_end = h1;
    return layout;
}

static void test_sizes(void **state)
{
    (void)state;
    struct kv_layout whole = part(0, 4, 0, 4);
    assert_int_equal(kv_layout_head_run_bytes(&whole), 8 * 2 * 2);
    assert_int_equal(kv_layout_layer_bytes(&whole), 2 * 4 * 32);
    assert_int_equal(kv_layout_block_bytes(&whole), 4 * 256);
    assert_int_equal(kv_layout_offset_bytes(&whole, 1, true, 2), 256 + 128 + 64);
    assert_int_equal(kv_layout_blocks_for(&whole, 0), 0);
    assert_int_equal(kv_layout_blocks_for(&whole, 8), 1);
    assert_int_equal(kv_layout_blocks_for(&whole, 9), 2);
}

static void test_int8_has_scales_behind_each_run(void **state)
{
    (void)state;
    struct kv_layout bytes = kv_layout_whole(&shape, 8, KV_INT8);
    struct kv_layout floats = kv_layout_whole(&shape, 8, KV_BF16);
    assert_int_equal(kv_layout_head_run_bytes(&bytes), 8 * 2 + 8 * 4);
    assert_int_equal(kv_layout_offset_bytes(&bytes, 0, false, 1), 48);
    assert_int_equal(kv_layout_block_bytes(&bytes), 4 * 2 * 4 * 48);
    assert_true(kv_layout_hash(&bytes) != kv_layout_hash(&floats));
    struct kv_run run;
    size_t count;
    assert_int_equal(kv_layout_runs(&bytes, &bytes, 1, 2, &run, 1, &count), STATUS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(run.bytes, kv_layout_layer_bytes(&bytes));
    assert_int_equal(kv_layout_runs(&bytes, &floats, 0, 4, &run, 1, &count), STATUS_INVALID);
}

/* Fills a source block with the coordinates of each element, moves the runs, and reads the target
 * back. */
static void check_move(struct kv_layout source, struct kv_layout target, size_t want_runs)
{
    uint16_t from[512], to[512];
    struct kv_run runs[64];
    size_t count;
    memset(to, 0xff, sizeof to);
    for (uint32_t l = source.layer_begin; l < source.layer_end; l++)
        for (int v = 0; v < 2; v++)
            for (uint32_t h = source.head_begin; h < source.head_end; h++)
                for (uint32_t e = 0; e < 16; e++)
                    from[kv_layout_offset_bytes(&source, l, v, h) / 2 + e] =
                        (uint16_t)(((l * 2 + (uint32_t)v) * 4 + h) * 16 + e);
    assert_int_equal(kv_layout_runs(&source, &target, 0, 4, runs, 64, &count), STATUS_OK);
    assert_int_equal(count, want_runs);
    for (size_t i = 0; i < count; i++)
        memcpy((char *)to + runs[i].target_offset_bytes, (char *)from + runs[i].source_offset_bytes,
               runs[i].bytes);
    for (uint32_t l = target.layer_begin; l < target.layer_end; l++)
        for (int v = 0; v < 2; v++)
            for (uint32_t h = target.head_begin; h < target.head_end; h++) {
                bool shared = l >= source.layer_begin && l < source.layer_end &&
                              h >= source.head_begin && h < source.head_end;
                uint16_t want = shared ? (uint16_t)(((l * 2 + (uint32_t)v) * 4 + h) * 16) : 0xffff;
                assert_int_equal(to[kv_layout_offset_bytes(&target, l, v, h) / 2], want);
            }
}

static void test_rectangles(void **state)
{
    (void)state;
    check_move(part(0, 4, 0, 4), part(0, 4, 0, 4), 1); /* the same: one run a block */
    check_move(part(0, 4, 0, 2), part(0, 4, 0, 4),
               8); /* two heads of four: K and V of each layer */
    check_move(part(0, 4, 0, 4), part(0, 4, 2, 4), 8);
    check_move(part(0, 2, 0, 4), part(0, 4, 0, 4), 1); /* two layers of four */
    check_move(part(1, 3, 0, 4), part(2, 4, 0, 4), 1);
    check_move(part(0, 4, 1, 3), part(0, 4, 2, 4), 8); /* one head */
    check_move(part(0, 2, 0, 4), part(2, 4, 0, 4), 0); /* nothing in common */
}

static void test_limits_and_mismatch(void **state)
{
    (void)state;
    struct kv_layout half = part(0, 4, 0, 2), whole = part(0, 4, 0, 4), other = whole;
    struct kv_run runs[2];
    size_t count = 77;
    assert_int_equal(kv_layout_runs(&half, &whole, 0, 4, runs, 2, &count), STATUS_LIMIT);
    other.block_tokens = 16;
    assert_int_equal(kv_layout_runs(&whole, &other, 0, 4, runs, 2, &count), STATUS_INVALID);
    assert_int_equal(count, 77); /* outputs only on success */
    assert_int_equal(kv_layout_hash(&half), kv_layout_hash(&whole));
    assert_int_not_equal(kv_layout_hash(&whole), kv_layout_hash(&other));
    assert_int_equal(kv_layout_runs(&whole, &whole, 1, 2, runs, 2, &count), STATUS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(runs[0].bytes, kv_layout_layer_bytes(&whole));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_int8_has_scales_behind_each_run),
        cmocka_unit_test(test_rectangles),
        cmocka_unit_test(test_limits_and_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
