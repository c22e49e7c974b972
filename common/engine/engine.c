#include "common/engine/engine_state.h"

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS      65536
#define MAX_SEQUENCES 4096
#define MAX_BLOCKS    (1u << 28)

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
    if (config->max_sequences < 1 || config->max_sequences > MAX_SEQUENCES)
        return error_set(err, STATUS_INVALID, "max_sequences must be from 1 to %u, got %u",
                         MAX_SEQUENCES, config->max_sequences);
    return STATUS_OK;
}

/* If the weights alone are too much, only smaller ones help. */
static const char *smaller_choice(const struct engine *engine, uint64_t weights_bytes,
                                  uint64_t available)
{
    enum weight_type type = engine->weight_types.layers;
    if (weights_bytes > available && (type == WEIGHT_INT4 || engine->weight_types.stored))
        return "a smaller model";
    if (weights_bytes > available)
        return type == WEIGHT_INT8 ? "weights int4" : "weights int8 or int4";
    return engine->config.smaller ? engine->config.smaller
                                  : "a smaller pool (kv-tokens), shorter chunks (chunk-tokens)";
}

/* Adds up all memory that the engine will take before it takes any: otherwise the OOM killer would
 * end the process. */
static enum status check_memory(const struct engine *engine, uint64_t weights_bytes,
                                struct error *err)
{
    const struct engine_config *config = &engine->config;
    const double gib = 1 << 30;
    uint64_t available = kernels_available_bytes(engine->kernels);
    uint64_t tables = (uint64_t)config->max_sequences *
                      (kv_layout_blocks_for(&engine->layout, engine->context) * sizeof(uint32_t) +
                       engine->model.shape.vocab * sizeof(float));
    uint64_t steps = 2 * tables + llama_bytes(engine->kernels, &engine->model.shape,
                                              config->max_rows, config->max_sequences);
    uint64_t needed;
    if (!__builtin_add_overflow(weights_bytes + steps, engine->pool_bytes, &needed) &&
        !__builtin_add_overflow(needed, engine->slot_bytes, &needed) && needed <= available)
        return STATUS_OK;
    char swap[64] = "";
    if (engine->slot_bytes)
        snprintf(swap, sizeof swap, ", swapped blocks %.1f", (double)engine->slot_bytes / gib);
    return error_set(
        err, STATUS_LIMIT,
        "%.1f GiB of memory are needed (weights %.1f, KV pool of %" PRIu64
        " tokens %.1f, steps of %u rows %.1f%s), %.1f are available here: %s or another "
        "machine",
        ((double)weights_bytes + (double)steps + (double)engine->pool_bytes +
         (double)engine->slot_bytes) /
            gib,
        (double)weights_bytes / gib, (uint64_t)config->block_count * config->block_tokens,
        (double)engine->pool_bytes / gib, config->max_rows, (double)steps / gib, swap,
        (double)available / gib, smaller_choice(engine, weights_bytes, available));
}

static enum status load_weights(struct engine *engine, const struct engine_config *config,
                                struct safetensors *files, struct error *err)
{
    const struct model_shape *shape = &engine->model.shape;
    char cache_path[WEIGHT_CACHE_PATH_BYTES];
    uint64_t bytes;
    TRY(weight_cache_path(config->weight_cache, config->model_dir,
                          kernels_info(engine->kernels).packing, engine->weight_types, cache_path,
                          err));
    TRY(weights_check(engine->kernels, shape, engine->weight_types, engine->context, files, &bytes,
                      err));
    TRY(check_memory(engine, bytes, err));
    return weights_load(engine->kernels, shape, engine->weight_types, engine->context, files,
                        cache_path, &engine->weights, err);
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

static enum status load_model(struct engine *engine, const struct engine_config *config,
                              struct error *err)
{
    struct safetensors *files = NULL;
    engine->weight_types.stored &= !config->random_weights;
    if (!config->random_weights)
        TRY(safetensors_open(config->model_dir, &files, err));
    const struct model_shape *shape = &engine->model.shape;
    enum status status = load_weights(engine, config, files, err);
    if (status == STATUS_OK) {
        uint64_t hash = files ? safetensors_hash(files) : HASH_SEED;
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
        engine->model_hash = hash_bytes(counts, sizeof counts, hash);
    }
    safetensors_close(files);
    return status;
}

static enum status make_table(struct engine *engine, size_t count, struct table *table,
                              struct error *err)
{
    enum status status =
        kernels_alloc(engine->kernels, count * sizeof *table->host, &table->device);
    table->host = calloc(count, sizeof *table->host);
    if (status == STATUS_OK && table->host)
        return STATUS_OK;
    return error_set(err, STATUS_LIMIT, "no memory for a step table of %zu numbers", count);
}

static enum status make_step_memory(struct engine *engine, struct error *err)
{
    const size_t rows = engine->config.max_rows, sequences = engine->config.max_sequences;
    const uint32_t vocab = engine->model.shape.vocab;
    TRY(make_table(engine, rows, &engine->tokens, err));
    TRY(make_table(engine, rows, &engine->positions, err));
    TRY(make_table(engine, rows, &engine->row_sequence, err));
    TRY(make_table(engine, sequences + 1, &engine->sequence_rows, err));
    TRY(make_table(engine, sequences * kv_layout_blocks_for(&engine->layout, engine->context),
                   &engine->block_tables, err));
    TRY(make_table(engine, sequences, &engine->sample_rows, err));
    TRY(make_table(engine, sequences, &engine->score_rows, err));
    TRY(llama_init(&engine->llama, engine->kernels, &engine->model.shape, &engine->weights,
                   engine->config.max_rows, engine->config.max_sequences, err));
    bool in_place = kernels_info(engine->kernels).device_is_host;
    engine->logits = in_place ? NULL : calloc(sequences * vocab, sizeof *engine->logits);
    if ((!in_place && !engine->logits) || sampler_init(&engine->sampler, vocab) != STATUS_OK)
        return error_set(err, STATUS_LIMIT, "no memory for %zu rows of logits", sequences);
    return STATUS_OK;
}

/* Touches every page now: later there may be no memory. */
static enum status make_slots(struct engine *engine, struct error *err)
{
    if (!engine->slot_bytes)
        return STATUS_OK;
    engine->slots = malloc(engine->slot_bytes);
    if (!engine->slots)
        return error_set(err, STATUS_LIMIT, "no memory for %u swapped KV blocks",
                         engine->config.swap_blocks);
    memset(engine->slots, 0, engine->slot_bytes);
    return STATUS_OK;
}

static void name_numerics(struct engine *engine)
{
    const struct kernels_info info = kernels_info(engine->kernels);
    const struct model_shape *shape = &engine->model.shape;
    enum rope_type type = shape->rope_scaling.type;
    /* ROPE_LLAMA3 came before names had the scheme; the table's hash has its numbers. */
    bool scaled = type != ROPE_DEFAULT && type != ROPE_LLAMA3;
    bool quantized = weight_type_is_quantized(engine->weight_types.layers) &&
                     weight_type_is_quantized(engine->weight_types.ends);
    snprintf(engine->numerics_name, sizeof engine->numerics_name,
             "%s/w-%s/kv-%s/k%d/seg%d/sampler%d/tp1%s%s%s",
             quantized ? info.quantized_name : info.name,
             weight_type_names[engine->weight_types.layers], kv_type_name(engine->layout.type),
             KERNELS_VERSION, ATTENTION_SEGMENT_TOKENS, SAMPLER_VERSION, scaled ? "/rope-" : "",
             scaled ? rope_type_name(type) : "",
             type != ROPE_LONGROPE                  ? ""
             : rope_is_long(shape, engine->context) ? "-long"
                                                    : "-short");
    engine->numerics_id =
        hash_bytes(engine->numerics_name, strlen(engine->numerics_name), engine->weights.rope_hash);
}

static enum status open_parts(struct engine *engine, const struct engine_config *config,
                              struct error *err)
{
    const struct model_shape *shape = &engine->model.shape;
    TRY(check_config(config, err));
    TRY(model_config_read(config->model_dir, &engine->model, err));
    TRY(kernels_open(&config->kernels, &engine->kernels, err));
    TRY(weight_types_choose(config->weights, engine->model.quantization,
                            kernels_info(engine->kernels).weight_type, &engine->weight_types, err));
    enum kv_type kv_type;
    TRY(kv_choice_type(config->kv, kernels_info(engine->kernels).kv_type, &kv_type, err));
    engine->layout = kv_layout_whole(shape, config->block_tokens, kv_type);
    engine->context = shape->context;
    if (config->context_limit && config->context_limit < shape->context)
        engine->context = config->context_limit;
    if (__builtin_mul_overflow(kv_layout_block_bytes(&engine->layout), (size_t)config->block_count,
                               &engine->pool_bytes))
        return error_set(err, STATUS_LIMIT, "%u KV blocks need more than 2^64 bytes",
                         config->block_count);
    if (__builtin_mul_overflow(kv_layout_block_bytes(&engine->layout), (size_t)config->swap_blocks,
                               &engine->slot_bytes))
        return error_set(err, STATUS_LIMIT, "%u swapped KV blocks need more than 2^64 bytes",
                         config->swap_blocks);
    TRY(load_model(engine, config, err));
    TRY(make_step_memory(engine, err));
    TRY(make_slots(engine, err));
    name_numerics(engine);
    log_info(
        "engine",
        "msg=\"opened\" numerics=%s isa=%s weights_bytes=%zu activation_bytes=%zu logits_bytes=%zu "
        "pool_bytes=%zu block_bytes=%zu blocks=%u threads=%u",
        engine->numerics_name, kernels_info(engine->kernels).isa, weights_bytes(&engine->weights),
        llama_bytes(engine->kernels, shape, config->max_rows, config->max_sequences),
        engine->logits ? (size_t)config->max_sequences * shape->vocab * sizeof(float) : 0,
        engine->pool_bytes, kv_layout_block_bytes(&engine->layout), config->block_count,
        kernels_info(engine->kernels).threads);
    return STATUS_OK;
}

enum status engine_open(const struct engine_config *config, struct engine **out, struct error *err)
{
    struct engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return error_set(err, STATUS_LIMIT, "out of memory");
    engine->config = *config;
    engine->config.model_dir = NULL;
    engine->config.weight_cache = NULL;
    engine->config.kernels.cpus = NULL;
    enum status status = open_parts(engine, config, err);
    if (status != STATUS_OK) {
        engine_close(engine);
        return status;
    }
    *out = engine;
    return STATUS_OK;
}

size_t engine_pool_bytes(const struct engine *engine)
{
    return engine->pool_bytes;
}

size_t engine_weight_bytes(const struct engine *engine)
{
    return weights_bytes(&engine->weights);
}

enum status engine_attach_pool(struct engine *engine, void *pool, struct error *err)
{
    ASSERT(!engine->pool.address);
    enum status status =
        pool ? kernels_adopt(engine->kernels, pool, engine->pool_bytes, &engine->pool)
             : kernels_alloc(engine->kernels, engine->pool_bytes, &engine->pool);
    if (status != STATUS_OK)
        return error_set(err, status, "no KV pool of %zu bytes on this device", engine->pool_bytes);
    engine->pool_is_ours = !pool;
    return STATUS_OK;
}

static void free_table(struct engine *engine, struct table *table)
{
    kernels_free(engine->kernels, &table->device);
    free(table->host);
}

void engine_close(struct engine *engine)
{
    if (!engine)
        return;
    if (engine->kernels) {
        free_table(engine, &engine->tokens);
        free_table(engine, &engine->positions);
        free_table(engine, &engine->row_sequence);
        free_table(engine, &engine->sequence_rows);
        free_table(engine, &engine->block_tables);
        free_table(engine, &engine->sample_rows);
        free_table(engine, &engine->score_rows);
        if (engine->pool_is_ours)
            kernels_free(engine->kernels, &engine->pool);
        llama_deinit(&engine->llama);
        weights_unload(engine->kernels, &engine->weights);
        kernels_close(engine->kernels);
    }
    sampler_deinit(&engine->sampler);
    free(engine->slots);
    free(engine->logits);
    free(engine);
}

/* --- facts --- */

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

uint64_t engine_model_hash(const struct engine *engine)
{
    return engine->model_hash;
}

uint64_t engine_numerics_id(const struct engine *engine)
{
    return engine->numerics_id;
}

const char *engine_isa(const struct engine *engine)
{
    return kernels_info(engine->kernels).isa;
}

const char *engine_numerics_name(const struct engine *engine)
{
    return engine->numerics_name;
}

void *engine_pool_address(const struct engine *engine)
{
    return kernels_info(engine->kernels).device_is_host ? engine->pool.address : NULL;
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
    struct engine_limits limits = {.isa = kernels_info(engine->kernels).isa,
                                   .weight_bytes = weights_step_bytes(&engine->weights)};
    limits.peak_gflops =
        kernels_measure_peak(engine->kernels, engine->weight_types.layers, &limits.instruction);
    limits.read_gbs = (double)limits.weight_bytes /
                      (double)weights_measure_read(engine->kernels, &engine->weights);
    return limits;
}

void engine_profile_to(struct engine *engine, struct kernels_profile *profile)
{
    kernels_profile_to(engine->kernels, profile);
}
