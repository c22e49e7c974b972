/* Internal to this folder: a bounded number of buffers in host memory, for the bytes of a pool that
 * the host can't reach, on their way from or to a socket. One thread. Nothing here waits, except
 * kv_stage_wait. A buffer that is given back while its copies run is free once they have ended. */
#ifndef BATON_KV_TRANSPORT_KV_STAGING_H
#define BATON_KV_TRANSPORT_KV_STAGING_H

#include "common/base/domain/kv_copier.h"
#include "common/kv/transport/kv_checksum.h"

#define KV_STAGES      8 /* one of them is kept for kv_staging_sums and kv_staging_flip */
#define KV_STAGE_BYTES ((size_t)1 << 20)

struct kv_staging;

struct kv_stage {
    struct kv_staging *staging;
    uint8_t *memory;     /* [bytes] */
    size_t bytes;        /* KV_STAGE_BYTES, or fewer if the copier has less memory */
    bool taken, copying; /* copying: the last look found a copy under way */
    uint64_t copy;       /* the last one */
    enum status status;  /* its copies' since it was taken */
};

/* STATUS_INVALID: the copier has no memory for buffers of `least` bytes. */
enum status kv_staging_create(const struct kv_copier *copier, size_t least,
                              struct kv_staging **staging, struct error *err) WARN_UNUSED;
void kv_staging_destroy(struct kv_staging *staging); /* NULL is fine; waits for copies */

/* Returns a buffer, or NULL: all are taken, or still copying. */
struct kv_stage *kv_staging_take(struct kv_staging *staging);
void kv_stage_give(struct kv_stage *stage);
/* Counts up: buffers that were given back. */
uint64_t kv_staging_given(const struct kv_staging *staging);
/* Copies that have failed since one succeeded. */
uint32_t kv_staging_failures(const struct kv_staging *staging);
/* Counts how another copy of the copier has ended. */
void kv_staging_note(struct kv_staging *staging, enum status status);
/* Queue a copy between the pool from `offset` on and the buffer from `at` on. */
void kv_stage_in(struct kv_stage *stage, uint64_t offset, size_t at, size_t bytes);
void kv_stage_out(struct kv_stage *stage, uint64_t offset, size_t at, size_t bytes);
/* Queues sums of blocks, to the buffer from `at` on: u32 [count, runs]. */
void kv_stage_sum(struct kv_stage *stage, const struct kv_sum_job *job, size_t at);
/* Returns whether its copies have ended: stage->status says how. */
bool kv_stage_done(struct kv_stage *stage);
void kv_stage_wait(struct kv_stage *stage);

uint32_t kv_staging_sums_at_once(const struct kv_staging *staging, uint32_t runs); /* blocks */
/* Wait for the device. Sums blocks: *sums is valid until the next call, and has [count, runs]
 * CRC32Cs. Flips bits of one byte (a fault). */
enum status kv_staging_sums(struct kv_staging *staging, const struct kv_sum_job *job,
                            const uint32_t **sums) WARN_UNUSED;
enum status kv_staging_flip(struct kv_staging *staging, uint64_t offset, uint8_t bits) WARN_UNUSED;

#endif
