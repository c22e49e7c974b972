#include "common/kv/transport/kv_checksum.h"

#include "common/base/rng.h"

#include <isa-l/crc.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* Castagnoli's, reflected */

uint32_t kv_checksum(const void *bytes, size_t count)
{
    const size_t max_call = 1u << 30;                      /* crc32_iscsi takes an int */
    unsigned char *at = (unsigned char *)(uintptr_t)bytes; /* it takes no const, but only reads */
    uint32_t crc = ~0u;
    while (count > 0) {
        size_t part = count < max_call ? count : max_call;
        crc = crc32_iscsi(at, (int)part, crc);
        at += part;
        count -= part;
    }
    return ~crc;
}

/* -- matrices over GF(2): column i is the image of bit i -- */

static uint32_t image(const uint32_t matrix[32], uint32_t bits)
{
    uint32_t sum = 0;
    for (int i = 0; i < 32; i++)
        sum ^= matrix[i] & (0u - (bits >> i & 1));
    return sum;
}

static void multiply(const uint32_t left[32], uint32_t right[32])
{
    for (int i = 0; i < 32; i++)
        right[i] = image(left, right[i]);
}

void kv_summing_init(struct kv_summing *summing, const struct kv_layout *layout)
{
    uint32_t power[32] = {POLYNOMIAL}, square[32]; /* power: one bit of zeros, then 2, 4, ... */
    for (int i = 0; i < 32; i++) {
        summing->shift[i] = 1u << i;
        if (i > 0)
            power[i] = 1u << (i - 1);
    }
    summing->layout = *layout;
    summing->run_bytes = kv_layout_head_run_bytes(layout);
    summing->run_count = (uint32_t)(kv_layout_block_bytes(layout) / summing->run_bytes);
    for (size_t bits = 8 * summing->run_bytes; bits > 0; bits >>= 1) {
        if (bits & 1)
            multiply(power, summing->shift);
        memcpy(square, power, sizeof square);
        multiply(power, square);
        memcpy(power, square, sizeof power);
    }
}

void kv_sum_run(const struct kv_summing *summing, uint32_t run, uint32_t crc32c,
                struct kv_block_sum *sum)
{
    const struct kv_layout *layout = &summing->layout;
    uint32_t heads = layout->head_end - layout->head_begin;
    uint64_t layer = layout->layer_begin + run / (2 * heads),
             head = layout->head_begin + run % heads;
    uint64_t place = (layer * 2 + run / heads % 2) * layout->kv_heads + head;
    struct rng mix = rng_seeded(place << 32 | crc32c);
    sum->runs += rng_next(&mix);
    sum->crc32c = image(summing->shift, sum->crc32c) ^ crc32c;
}

struct kv_block_sum kv_block_sum(const struct kv_summing *summing, const void *block)
{
    struct kv_block_sum sum = {0};
    for (uint32_t run = 0; run < summing->run_count; run++)
        kv_sum_run(summing, run,
                   kv_checksum((const char *)block + run * summing->run_bytes, summing->run_bytes),
                   &sum);
    return sum;
}
