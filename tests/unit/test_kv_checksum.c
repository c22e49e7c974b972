#include "common/kv/transport/kv_checksum.h"

#include "common/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h wants the three above first */
#include <cmocka.h>

/* One bit at a time, from the polynomial. */
static uint32_t slow_crc32c(const uint8_t *bytes, size_t count)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void test_known_values(void **state)
{
    (void)state;
    assert_int_equal(kv_checksum("123456789", 9), 0xe3069283u);
    assert_int_equal(kv_checksum("", 0), 0);
    static const uint8_t zeros[32];
    assert_int_equal(kv_checksum(zeros, sizeof zeros), 0x8a9136aau); /* RFC 3720, B.4 */
}

static void test_every_length_and_alignment_agrees_with_the_definition(void **state)
{
    (void)state;
    uint8_t bytes[700];
    struct rng rng = rng_seeded(1);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)rng_next(&rng);
    for (size_t start = 0; start < 9; start++)
        for (size_t count = 0; start + count <= sizeof bytes; count += 1 + count / 16)
            assert_int_equal(kv_checksum(bytes + start, count), slow_crc32c(bytes + start, count));
}

#define MOST_BYTES ((size_t)6 * 2 * 6 * 8 * (4 * 2 + 4))
#define MOST_RUNS  (6 * 2 * 6)

static struct kv_block_sum sum_of(const struct kv_layout *layout, const void *block)
{
    struct kv_summing summing;
    kv_summing_init(&summing, layout);
    return kv_block_sum(&summing, block);
}

/* Returns the sum of the rectangle's part of the whole block. */
static uint64_t part_sum(const struct kv_layout *whole, const struct kv_layout *part,
                         const uint8_t *block)
{
    uint8_t bytes[MOST_BYTES];
    struct kv_run runs[MOST_RUNS];
    size_t count;
    assert_int_equal(kv_layout_runs(whole, part, 0, whole->layers, runs, MOST_RUNS, &count),
                     STATUS_OK);
    for (size_t i = 0; i < count; i++)
        memcpy(bytes + runs[i].target_offset_bytes, block + runs[i].source_offset_bytes,
               runs[i].bytes);
    return sum_of(part, bytes).runs;
}

/* Cuts layers and heads at random places. */
static uint64_t sum_of_parts(struct rng *rng, const struct kv_layout *whole, const uint8_t *block)
{
    uint64_t sum = 0;
    for (uint32_t layer = 0, next_layer; layer < whole->layers; layer = next_layer) {
        next_layer = layer + 1 + (uint32_t)rng_below(rng, whole->layers - layer);
        for (uint32_t head = 0, next_head; head < whole->kv_heads; head = next_head) {
            next_head = head + 1 + (uint32_t)rng_below(rng, whole->kv_heads - head);
            struct kv_layout part = *whole;
            part.layer_begin = layer;
            part.layer_end = next_layer;
            part.head_begin = head;
            part.head_end = next_head;
            sum += part_sum(whole, &part, block);
        }
    }
    return sum;
}

static void test_sums_of_parts_add_up(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(7);
    for (int turn = 0; turn < 500; turn++) {
        const struct model_shape shape = {.layers = 1 + (uint32_t)rng_below(&rng, 6),
                                          .kv_heads = 1 + (uint32_t)rng_below(&rng, 6),
                                          .head_dim = 4};
        const struct kv_layout whole =
            kv_layout_whole(&shape, 8, rng_below(&rng, 2) ? KV_BF16 : KV_INT8);
        size_t bytes = kv_layout_block_bytes(&whole), run = kv_layout_head_run_bytes(&whole);
        uint8_t block[MOST_BYTES], spare[MOST_BYTES];
        for (size_t i = 0; i < bytes; i++)
            block[i] = (uint8_t)rng_next(&rng);
        uint64_t sum = sum_of(&whole, block).runs;
        assert_true(sum_of_parts(&rng, &whole, block) == sum);
        assert_int_equal(sum_of(&whole, block).crc32c, kv_checksum(block, bytes));
        size_t runs = bytes / run, one = rng_below(&rng, runs), other = rng_below(&rng, runs);
        if (one != other) { /* two runs change places */
            memcpy(spare, block, bytes);
            memcpy(spare + one * run, block + other * run, run);
            memcpy(spare + other * run, block + one * run, run);
            assert_true(sum_of(&whole, spare).runs != sum);
        }
        block[rng_below(&rng, bytes)] ^= (uint8_t)(1u << rng_below(&rng, 8));
        assert_true(sum_of(&whole, block).runs != sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_every_length_and_alignment_agrees_with_the_definition),
        cmocka_unit_test(test_sums_of_parts_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
