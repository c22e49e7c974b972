#include "common/engine/engine_state.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/engine/mock/mock_engine.h"
#include "common/engine/model_engine.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ROWS      65536
#define MAX_SEQUENCES 4096
#define MAX_BLOCKS    (1u << 28)

const char *const engine_kind_names[] = {"model", "mock", NULL};

/* --- opening --- */

static enum status check_config(const struct engine_config *config, struct error *err)
{
    const uint32_t block = config->block_tokens;
    if (block < 8 || block > 256 || (block & (block - 1)) != 0)
        return error_set(err, STATUS_INVALID,
                         "block_tokens must be a power of two from 8 to 256, got %u", block);
    if (config->block_count < 1 || config->block_count > MAX_BLOCKS)
        return error_set(err, STATUS_INVALID, "block_count must be from 1 to %u, got %u",
                         MAX_BLOCKS, config->block_count);
    if (config->max_rows < 1 || config->max_rows > MAX_ROWS)
        return error_set(err, STATUS_INVALID, "max_rows must be from 1 to %u, got %u", MAX_ROWS,
                         config->max_rows);
    if (config->gpu_rows > MAX_ROWS)
        return error_set(err, STATUS_INVALID, "gpu_rows must be at most %u, got %u", MAX_ROWS,
                         config->gpu_rows);
    if (config->max_sequences < 1 || config->max_sequences > MAX_SEQUENCES)
        return error_set(err, STATUS_INVALID, "max_sequences must be from 1 to %u, got %u",
                         MAX_SEQUENCES, config->max_sequences);
    return STATUS_OK;
}

enum status engine_open(const struct engine_config *config, struct engine **out, struct error *err)
{
    TRY(check_config(config, err));
    return config->kind == ENGINE_MOCK ? mock_engine_open(config, out, err)
                                       : model_engine_open(config, out, err);
}

enum status engine_read_model(struct engine *engine, const char *model_dir, struct error *err)
{
    TRY(model_config_read(model_dir, &engine->model, err));
    uint32_t limit = engine->config.context_limit;
    engine->context = engine->model.shape.context;
    if (limit && limit < engine->context)
        engine->context = limit;
    return STATUS_OK;
}

enum status engine_set_layout(struct engine *engine, const struct kv_layout *layout,
                              struct error *err)
{
    const struct engine_config *config = &engine->config;
    engine->layout = *layout;
    if (__builtin_mul_overflow(kv_layout_block_bytes(layout), (size_t)config->block_count,
                               &engine->pool_bytes))
        return error_set(err, STATUS_LIMIT, "%u KV blocks need more than 2^64 bytes",
                         config->block_count);
    if (__builtin_mul_overflow(kv_layout_block_bytes(layout), (size_t)config->swap_blocks,
                               &engine->slot_bytes))
        return error_set(err, STATUS_LIMIT, "%u swapped KV blocks need more than 2^64 bytes",
                         config->swap_blocks);
    return STATUS_OK;
}

/* Adds the members of schemes that came after ROPE_LLAMA3; the hash of other models stays. */
static uint64_t hash_rope(const struct rope_scaling *scaling, uint64_t hash)
{
    if (scaling->type == ROPE_DEFAULT || scaling->type == ROPE_LLAMA3)
        return hash;
    const double numbers[] = {scaling->type, scaling->beta_fast, scaling->beta_slow,
                              scaling->truncate, scaling->attention};
    hash = hash_bytes(numbers, sizeof numbers, hash);
    hash = hash_bytes(scaling->short_factors, sizeof scaling->short_factors, hash);
    return hash_bytes(scaling->long_factors, sizeof scaling->long_factors, hash);
}

uint64_t engine_hash_shape(const struct model_shape *shape, uint64_t hash)
{
    /* Hashes fields, not the struct: padding bytes have no value. */
    const double numbers[] = {shape->rms_eps,
                              shape->rope_theta,
                              shape->rope_scaling.factor,
                              shape->rope_scaling.low_freq_factor,
                              shape->rope_scaling.high_freq_factor,
                              shape->rope_scaling.original_context};
    const uint32_t counts[] = {shape->layers, shape->hidden,   shape->ffn,
                               shape->heads,  shape->kv_heads, shape->head_dim,
                               shape->vocab,  shape->context,  shape->tied_embeddings,
                               shape->window, shape->qkv_bias, shape->qk_norm};
    hash = hash_bytes(numbers, sizeof numbers, hash);
    hash = hash_rope(&shape->rope_scaling, hash);
    return hash_bytes(counts, sizeof counts, hash);
}

enum status engine_keep_rows(struct engine *engine, uint32_t rows, struct error *err)
{
    ASSERT(rows && !engine->has_pool);
    if (rows >= engine->config.max_rows)
        return STATUS_OK;
    engine->config.max_rows = rows;
    return engine->ops->keep_rows ? engine->ops->keep_rows(engine, err) : STATUS_OK;
}

enum status engine_attach_pool(struct engine *engine, void *pool, struct error *err)
{
    ASSERT(!engine->has_pool);
    enum status status = engine->ops->attach_pool(engine, pool);
    if (status != STATUS_OK)
        return error_set(err, status, "no KV pool of %zu bytes on this device", engine->pool_bytes);
    engine->has_pool = true;
    return STATUS_OK;
}

void engine_close(struct engine *engine)
{
    if (!engine)
        return;
    engine->ops->close(engine);
}

void engine_interrupt(struct engine *engine)
{
    if (engine->ops->interrupt)
        engine->ops->interrupt(engine);
}

/* --- facts --- */

size_t engine_pool_bytes(const struct engine *engine)
{
    return engine->pool_bytes;
}

size_t engine_weight_bytes(const struct engine *engine)
{
    return engine->weight_bytes;
}

const struct model_shape *engine_shape(const struct engine *engine)
{
    return &engine->model.shape;
}

const struct kv_layout *engine_layout(const struct engine *engine)
{
    return &engine->layout;
}

uint32_t engine_context(const struct engine *engine)
{
    return engine->context;
}

uint32_t engine_max_rows(const struct engine *engine)
{
    return engine->config.max_rows;
}

uint64_t engine_model_hash(const struct engine *engine)
{
    return engine->model_hash;
}

uint64_t engine_numerics_id(const struct engine *engine)
{
    return engine->numerics_id;
}

enum device engine_device(const struct engine *engine)
{
    return engine->device == DEVICE_AUTO ? DEVICE_CPU : engine->device;
}

const char *engine_isa(const struct engine *engine)
{
    return engine->isa;
}

const char *engine_numerics_name(const struct engine *engine)
{
    return engine->numerics_name;
}

void *engine_pool_address(const struct engine *engine)
{
    return engine->pool_address;
}

bool engine_has_device_memory(const struct engine *engine)
{
    return engine->has_device_memory;
}

const struct kv_copier *engine_pool_copier(const struct engine *engine)
{
    return engine->copier.host ? &engine->copier : NULL;
}

const uint32_t *engine_end_ids(const struct engine *engine, uint32_t *count)
{
    *count = engine->model.end_ids.count;
    return engine->model.end_ids.ids;
}

struct engine_counters engine_counters(const struct engine *engine)
{
    return engine->counters;
}

struct engine_limits engine_measure_limits(struct engine *engine)
{
    return engine->ops->measure_limits(engine);
}

enum status engine_watch_device(struct engine *engine, uint32_t timeout_ms,
                                struct device_health *health)
{
    return engine->ops->watch_device ? engine->ops->watch_device(engine, timeout_ms, health)
                                     : STATUS_UNSUPPORTED;
}

void engine_profile_to(struct engine *engine, struct kernels_profile *profile)
{
    if (engine->ops->profile_to)
        engine->ops->profile_to(engine, profile);
}
