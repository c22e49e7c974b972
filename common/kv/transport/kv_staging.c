#include "common/kv/transport/kv_staging.h"

#include "common/base/assert.h"
#include <stdlib.h>

struct kv_staging {
    const struct kv_copier *copier;
    uint64_t given;
    uint32_t failures;
    struct kv_stage stages[KV_STAGES]; /* the first one is this module's own */
};

enum status kv_staging_create(const struct kv_copier *copier, size_t least, struct kv_staging **out,
                              struct error *err)
{
    size_t bytes = copier->host_bytes / KV_STAGES;
    if (bytes > KV_STAGE_BYTES)
        bytes = KV_STAGE_BYTES;
    if (bytes == 0 || bytes < least)
        return error_set(err, STATUS_INVALID, "%zu bytes for %d staging buffers: give %zu",
                         copier->host_bytes, KV_STAGES, KV_STAGES * KV_STAGE_BYTES);
    struct kv_staging *staging = calloc(1, sizeof *staging);
    if (!staging)
        return error_set(err, STATUS_LIMIT, "no memory for staging buffers");
    staging->copier = copier;
    for (size_t i = 0; i < KV_STAGES; i++)
        staging->stages[i] = (struct kv_stage){.staging = staging,
                                               .memory = copier->host + i * bytes,
                                               .bytes = bytes,
                                               .taken = i == 0};
    *out = staging;
    return STATUS_OK;
}

void kv_staging_destroy(struct kv_staging *staging)
{
    if (!staging)
        return;
    for (size_t i = 0; i < KV_STAGES; i++)
        kv_stage_wait(&staging->stages[i]);
    free(staging);
}

struct kv_stage *kv_staging_take(struct kv_staging *staging)
{
    for (size_t i = 0; i < KV_STAGES; i++) {
        struct kv_stage *stage = &staging->stages[i];
        if (stage->taken || !kv_stage_done(stage))
            continue;
        stage->taken = true;
        stage->status = STATUS_OK;
        return stage;
    }
    return NULL;
}

void kv_stage_give(struct kv_stage *stage)
{
    ASSERT(stage->taken);
    stage->taken = false;
    stage->staging->given++;
}

uint64_t kv_staging_given(const struct kv_staging *staging)
{
    return staging->given;
}

uint32_t kv_staging_failures(const struct kv_staging *staging)
{
    return staging->failures;
}

void kv_staging_note(struct kv_staging *staging, enum status status)
{
    staging->failures = status == STATUS_OK ? 0 : staging->failures + 1;
}

static void count(struct kv_stage *stage, enum status status)
{
    kv_staging_note(stage->staging, status);
    if (stage->status == STATUS_OK)
        stage->status = status;
}

/* A copy that couldn't be queued leaves those before it to run. */
static void note(struct kv_stage *stage, enum status status)
{
    if (status == STATUS_OK)
        stage->copying = true;
    else
        count(stage, status);
}

void kv_stage_in(struct kv_stage *stage, uint64_t offset, size_t at, size_t bytes)
{
    const struct kv_copier *copier = stage->staging->copier;
    ASSERT(at <= stage->bytes && bytes <= stage->bytes - at);
    note(stage, copier->copy_in(copier->state, offset, stage->memory + at, bytes, &stage->copy));
}

void kv_stage_out(struct kv_stage *stage, uint64_t offset, size_t at, size_t bytes)
{
    const struct kv_copier *copier = stage->staging->copier;
    ASSERT(at <= stage->bytes && bytes <= stage->bytes - at);
    note(stage, copier->copy_out(copier->state, offset, stage->memory + at, bytes, &stage->copy));
}

void kv_stage_sum(struct kv_stage *stage, const struct kv_sum_job *job, size_t at)
{
    const struct kv_copier *copier = stage->staging->copier;
    uint32_t *host = (uint32_t *)(void *)(stage->memory + at);
    ASSERT(at + job->count * (job->block_bytes / job->run_bytes) * sizeof *host <= stage->bytes);
    note(stage, copier->sum(copier->state, job, host, &stage->copy));
}

bool kv_stage_done(struct kv_stage *stage)
{
    const struct kv_copier *copier = stage->staging->copier;
    enum status status = STATUS_OK;
    if (stage->copying && !copier->poll(copier->state, stage->copy, &status))
        return false;
    if (stage->copying)
        count(stage, status);
    stage->copying = false;
    return true;
}

void kv_stage_wait(struct kv_stage *stage)
{
    const struct kv_copier *copier = stage->staging->copier;
    if (stage->copying)
        count(stage, copier->wait(copier->state, stage->copy));
    stage->copying = false;
}

/* -- at once -- */

uint32_t kv_staging_sums_at_once(const struct kv_staging *staging, uint32_t runs)
{
    size_t most = staging->stages[0].bytes / (runs * sizeof(uint32_t));
    return most < KV_SUMS_AT_ONCE ? (uint32_t)most : KV_SUMS_AT_ONCE;
}

enum status kv_staging_sums(struct kv_staging *staging, const struct kv_sum_job *job,
                            const uint32_t **sums)
{
    struct kv_stage *stage = &staging->stages[0];
    stage->status = STATUS_OK;
    kv_stage_sum(stage, job, 0);
    kv_stage_wait(stage);
    *sums = (const uint32_t *)(const void *)stage->memory;
    return stage->status;
}

enum status kv_staging_flip(struct kv_staging *staging, uint64_t offset, uint8_t bits)
{
    struct kv_stage *stage = &staging->stages[0];
    stage->status = STATUS_OK;
    kv_stage_out(stage, offset, 0, 1);
    kv_stage_wait(stage);
    if (stage->status != STATUS_OK)
        return stage->status;
    stage->memory[0] ^= bits;
    kv_stage_in(stage, offset, 0, 1);
    kv_stage_wait(stage);
    return stage->status;
}
