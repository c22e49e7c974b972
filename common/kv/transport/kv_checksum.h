/* CRC32C (Castagnoli; RFC 3720, B.4) of KV bytes. Both ends of a handoff sum each block,
 * which finds bytes that changed on the way. It is no defence against an attacker. The only file
 * that knows ISA-L. Any thread. */
#ifndef BATON_KV_TRANSPORT_KV_CHECKSUM_H
#define BATON_KV_TRANSPORT_KV_CHECKSUM_H

#include "common/base/domain/kv_layout.h"

/* With the usual inversion before and after: "123456789" gives 0xe3069283, no bytes give 0. */
uint32_t kv_checksum(const void *bytes, size_t count);

/* The sums of a block. `runs` adds up, mod 2^64, one number for each head's run of the layout's
 * rectangle: a hash (splitmix64) of the run's place in the whole model and of its CRC32C. So it
 * doesn't depend on how layers and heads are split: the sums of the parts of a split add up to that
 * of the whole. It finds runs that have changed places, too. `crc32c` covers the whole block of
 * this rectangle. */
struct kv_block_sum {
    uint64_t runs;
    uint32_t crc32c;
};

/* The way in which blocks of one layout are summed. */
struct kv_summing {
    struct kv_layout layout;
    size_t run_bytes;
    uint32_t run_count;
    uint32_t shift[32]; /* a matrix over GF(2): the CRC32C of some bytes and a run of zeros */
};

void kv_summing_init(struct kv_summing *summing, const struct kv_layout *layout);
struct kv_block_sum kv_block_sum(const struct kv_summing *summing, const void *block);
/* Adds the CRC32C of the block's run number `run`. Each run once, in order, to a zeroed sum. */
void kv_sum_run(const struct kv_summing *summing, uint32_t run, uint32_t crc32c,
                struct kv_block_sum *sum);

#endif
