#include "common/engine/model_engine.h"

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- opening --- */

/* If the weights alone are too much, only smaller ones help. */
static const char *smaller_choice(const struct model_engine *engine, uint64_t weights_bytes,
                                  uint64_t available)
{
    enum weight_type type = engine->weight_types.layers;
    if (weights_bytes > available && (type == WEIGHT_INT4 || engine->weight_types.stored))
        return "a smaller model";
    if (weights_bytes > available)
        return type == WEIGHT_INT8 ? "weights int4" : "weights int8 or int4";
    return engine->base.config.smaller
               ? engine->base.config.smaller
               : "a smaller pool (kv-tokens), shorter chunks (chunk-tokens)";
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Sizes the memory that the engine will take on the device, and beside it on the host. */
static void size_memory(struct model_engine *engine, uint64_t weights_bytes)
{
    const struct engine_config *config = &engine->base.config;
    uint64_t tables =
        (uint64_t)config->max_sequences *
        (kv_layout_blocks_for(&engine->base.layout, engine->base.context) * sizeof(uint32_t) +
         engine->base.model.shape.vocab * sizeof(float));
    struct engine_memory *memory = &engine->memory;
    memory->weights = weights_bytes;
    memory->steps = tables + llama_bytes(engine->kernels, &engine->base.model.shape,
                                         config->max_rows, config->max_sequences);
    if (engine->base.feeds)
        memory->steps += kernels_sample_bytes(engine->kernels, engine->base.model.shape.vocab);
    memory->device = sum(sum(weights_bytes, memory->steps), engine->base.pool_bytes);
    /* A set for each step that may be in flight. */
    memory->host_steps = (engine->base.runs_ahead ? ENGINE_TICKETS : 1) * tables;
    memory->host = sum(memory->host_steps, engine->base.slot_bytes);
}

#define GIB(BYTES) ((double)(BYTES) / (1 << 30))

/* Says which memory doesn't fit. `shared`: the device's memory is the host's. */
static enum status refuse_memory(const struct model_engine *engine, bool shared, uint64_t available,
                                 struct error *err)
{
    const struct engine_memory *memory = &engine->memory;
    const struct engine_config *config = &engine->base.config;
    double pool = GIB(engine->base.pool_bytes), slots = shared ? GIB(engine->base.slot_bytes) : 0;
    double steps = GIB(memory->steps) + (shared ? GIB(memory->host_steps) : 0);
    char swap[64] = "";
    if (slots > 0)
        snprintf(swap, sizeof swap, ", swapped blocks %.1f", slots);
    return error_set(
        err, STATUS_LIMIT,
        "%.1f GiB of %smemory are needed (weights %.1f, KV pool of %" PRIu64
        " tokens %.1f, steps of %u rows %.1f%s), %.1f are available here: %s or another machine",
        GIB(memory->weights) + steps + pool + slots, shared ? "" : "the device's ",
        GIB(memory->weights), (uint64_t)config->block_count * config->block_tokens, pool,
        config->max_rows, steps, swap, GIB(available),
        smaller_choice(engine, memory->weights, available));
}

/* Checks all memory that the engine will take before it takes any: otherwise the OOM killer would
 * end the process. */
static enum status check_memory(struct model_engine *engine, uint64_t weights_bytes,
                                struct error *err)
{
    const struct engine_memory *memory = &engine->memory;
    bool shared = kernels_info(engine->kernels).device_is_host;
    uint64_t available = kernels_available_bytes(engine->kernels);
    size_memory(engine, weights_bytes);
    if (sum(memory->device, shared ? memory->host : 0) > available)
        return refuse_memory(engine, shared, available, err);
    available = kernels_host_available_bytes(engine->kernels);
    if (shared || memory->host <= available)
        return STATUS_OK;
    return error_set(err, STATUS_LIMIT,
                     "%.1f GiB of host memory are needed (steps in flight %.1f, swapped blocks "
                     "%.1f), %.1f are available here: a smaller swap-share or another machine",
                     GIB(memory->host_steps) + GIB(engine->base.slot_bytes),
                     GIB(memory->host_steps), GIB(engine->base.slot_bytes), GIB(available));
}

static enum status load_weights(struct model_engine *engine, const struct engine_config *config,
                                struct safetensors *files, struct error *err)
{
    const struct model_shape *shape = &engine->base.model.shape;
    char cache_path[WEIGHT_CACHE_PATH_BYTES];
    uint64_t bytes;
    TRY(weight_cache_path(config->weight_cache, config->model_dir,
                          kernels_info(engine->kernels).packing, engine->weight_types, cache_path,
                          err));
    TRY(weights_check(engine->kernels, shape, engine->weight_types, engine->base.context, files,
                      &bytes, err));
    TRY(check_memory(engine, bytes, err));
    return weights_load(engine->kernels, shape, engine->weight_types, engine->base.context, files,
                        cache_path, &engine->weights, err);
}

static enum status load_model(struct model_engine *engine, const struct engine_config *config,
                              struct error *err)
{
    struct safetensors *files = NULL;
    engine->weight_types.stored &= !config->random_weights;
    if (!config->random_weights)
        TRY(safetensors_open(config->model_dir, &files, err));
    const struct model_shape *shape = &engine->base.model.shape;
    enum status status = load_weights(engine, config, files, err);
    if (status == STATUS_OK) {
        uint64_t hash = files ? safetensors_hash(files) : HASH_SEED;
        engine->base.model_hash = engine_hash_shape(shape, hash);
    }
    safetensors_close(files);
    return status;
}

/* Allocates the tables of the steps, and the logits that are read back. */
static enum status make_flights(struct model_engine *engine)
{
    const size_t rows = engine->base.config.max_rows, sequences = engine->base.config.max_sequences;
    const size_t blocks = kv_layout_blocks_for(&engine->base.layout, engine->base.context);
    const size_t draws = sequences * sizeof(struct kernels_drawn);
    const size_t logits = sequences * engine->base.model.shape.vocab * sizeof(float);
    struct kernels *kernels = engine->kernels;
    engine->table_words = 4 * rows + (sequences + 1) + sequences * blocks + sequences +
                          sequences * sizeof(struct kernels_draw) / sizeof(uint32_t);
    TRY(kernels_alloc(kernels, engine->table_words * sizeof(uint32_t), &engine->tables));
    TRY(kernels_alloc(kernels, sequences * sizeof(uint32_t), &engine->score_table));
    TRY(kernels_host_alloc(kernels, sequences * sizeof(uint32_t), (void **)&engine->score_rows));
    for (int i = 0; i < (engine->base.runs_ahead ? ENGINE_TICKETS : 1); i++) {
        struct queued_step *flight = &engine->flights[i];
        size_t bytes = engine->table_words * sizeof *flight->tables;
        TRY(kernels_host_alloc(kernels, bytes, (void **)&flight->tables));
        if (!kernels_info(kernels).device_is_host)
            TRY(kernels_host_alloc(kernels, logits, (void **)&flight->logits));
        flight->places = calloc(sequences, sizeof *flight->places);
        if (!flight->places)
            return STATUS_LIMIT;
        if (engine->base.feeds)
            TRY(kernels_host_alloc(kernels, draws, (void **)&flight->drawn));
    }
    if (!engine->base.feeds)
        return STATUS_OK;
    TRY(kernels_alloc(kernels, draws, &engine->drawn));
    return kernels_alloc(kernels, kernels_sample_bytes(kernels, engine->base.model.shape.vocab),
                         &engine->sample_scratch);
}

static void name_numerics(struct model_engine *engine)
{
    const struct kernels_info info = kernels_info(engine->kernels);
    const struct model_shape *shape = &engine->base.model.shape;
    enum rope_type type = shape->rope_scaling.type;
    /* ROPE_LLAMA3 came before names had the scheme; the table's hash has its numbers. */
    bool scaled = type != ROPE_DEFAULT && type != ROPE_LLAMA3;
    bool quantized = weight_type_is_quantized(engine->weight_types.layers) &&
                     weight_type_is_quantized(engine->weight_types.ends);
    snprintf(engine->base.numerics_name, sizeof engine->base.numerics_name,
             "%s/w-%s/kv-%s/k%d/seg%d/sampler%d/tp1%s%s%s",
             quantized ? info.quantized_name : info.name,
             weight_type_names[engine->weight_types.layers], kv_type_name(engine->base.layout.type),
             KERNELS_VERSION, ATTENTION_SEGMENT_TOKENS, SAMPLER_VERSION, scaled ? "/rope-" : "",
             scaled ? rope_type_name(type) : "",
             type != ROPE_LONGROPE                       ? ""
             : rope_is_long(shape, engine->base.context) ? "-long"
                                                         : "-short");
    engine->base.numerics_id = hash_bytes(
        engine->base.numerics_name, strlen(engine->base.numerics_name), engine->weights.rope_hash);
}

static enum status open_parts(struct model_engine *engine, const struct engine_config *config,
                              struct error *err)
{
    const struct model_shape *shape = &engine->base.model.shape;
    TRY(engine_read_model(&engine->base, config->model_dir, err));
    TRY(kernels_open(&config->kernels, &engine->kernels, err));
    engine->base.runs_ahead = kernels_info(engine->kernels).runs_ahead;
    engine->base.feeds = engine->base.runs_ahead;
    TRY(weight_types_choose(config->weights, engine->base.model.quantization,
                            kernels_info(engine->kernels).weight_type, &engine->weight_types, err));
    enum kv_type kv_type;
    TRY(kv_choice_type(config->kv, kernels_info(engine->kernels).kv_type, &kv_type, err));
    const struct kv_layout layout = kv_layout_whole(shape, config->block_tokens, kv_type);
    TRY(engine_set_layout(&engine->base, &layout, err));
    TRY(load_model(engine, config, err));
    TRY(llama_init(&engine->llama, engine->kernels, shape, &engine->weights, config->max_rows,
                   config->max_sequences, err));
    if (make_flights(engine) != STATUS_OK ||
        sampler_init(&engine->sampler, shape->vocab) != STATUS_OK)
        return error_set(err, STATUS_LIMIT, "no memory for tables and logits of %u sequences",
                         config->max_sequences);
    if (engine->base.slot_bytes && kernels_host_alloc(engine->kernels, engine->base.slot_bytes,
                                                      (void **)&engine->base.slots) != STATUS_OK)
        return error_set(err, STATUS_LIMIT, "no memory for %u swapped KV blocks",
                         config->swap_blocks);
    name_numerics(engine);
    engine->base.weight_bytes = weights_bytes(&engine->weights);
    engine->base.isa = kernels_info(engine->kernels).isa;
    log_info("engine",
             "msg=\"opened\" numerics=%s isa=%s device=%s device_bytes=%" PRIu64
             " host_bytes=%" PRIu64 " weights_bytes=%zu activation_bytes=%zu "
             "pool_bytes=%zu slot_bytes=%zu block_bytes=%zu blocks=%u threads=%u",
             engine->base.numerics_name, kernels_info(engine->kernels).isa,
             device_names[kernels_info(engine->kernels).device], engine->memory.device,
             engine->memory.host, weights_bytes(&engine->weights),
             llama_bytes(engine->kernels, shape, config->max_rows, config->max_sequences),
             engine->base.pool_bytes, (size_t)engine->base.slot_bytes,
             kv_layout_block_bytes(&engine->base.layout), config->block_count,
             kernels_info(engine->kernels).threads);
    return STATUS_OK;
}

/* --- its operations --- */

static enum status attach_pool(struct engine *base, void *pool)
{
    struct model_engine *engine = (struct model_engine *)base;
    TRY(pool ? kernels_adopt(engine->kernels, pool, base->pool_bytes, &engine->pool)
             : kernels_alloc(engine->kernels, base->pool_bytes, &engine->pool));
    engine->pool_is_ours = !pool;
    if (kernels_info(engine->kernels).device_is_host)
        base->pool_address = engine->pool.address;
    return STATUS_OK;
}

static void close_engine(struct engine *base)
{
    struct model_engine *engine = (struct model_engine *)base;
    if (engine->kernels) {
        (void)!kernels_sync(engine->kernels); /* it may still write what is freed below */
        for (int i = 0; i < ENGINE_TICKETS; i++) {
            kernels_host_free(engine->kernels, engine->flights[i].tables);
            kernels_host_free(engine->kernels, engine->flights[i].logits);
            kernels_host_free(engine->kernels, engine->flights[i].drawn);
            free(engine->flights[i].places);
        }
        kernels_host_free(engine->kernels, engine->score_rows);
        kernels_host_free(engine->kernels, base->slots);
        kernels_free(engine->kernels, &engine->tables);
        kernels_free(engine->kernels, &engine->score_table);
        kernels_free(engine->kernels, &engine->drawn);
        kernels_free(engine->kernels, &engine->sample_scratch);
        if (engine->pool_is_ours)
            kernels_free(engine->kernels, &engine->pool);
        llama_deinit(&engine->llama);
        weights_unload(engine->kernels, &engine->weights);
        kernels_close(engine->kernels);
    }
    sampler_deinit(&engine->sampler);
    free(engine);
}

static struct engine_limits measure_limits(struct engine *base)
{
    struct model_engine *engine = (struct model_engine *)base;
    struct engine_limits limits = {.isa = base->isa,
                                   .weight_bytes = weights_step_bytes(&engine->weights)};
    limits.peak_gflops =
        kernels_measure_peak(engine->kernels, engine->weight_types.layers, &limits.instruction);
    limits.read_gbs = (double)limits.weight_bytes /
                      (double)weights_measure_read(engine->kernels, &engine->weights);
    return limits;
}

static void profile_to(struct engine *base, struct kernels_profile *profile)
{
    kernels_profile_to(((struct model_engine *)base)->kernels, profile);
}

static const struct engine_ops model_engine_ops = {
    .close = close_engine,
    .attach_pool = attach_pool,
    .submit = model_engine_submit,
    .wait = model_engine_wait,
    .move_block = model_engine_move_block,
    .moves_done = model_engine_moves_done,
    .measure_limits = measure_limits,
    .profile_to = profile_to,
};

enum status model_engine_open(const struct engine_config *config, struct engine **out,
                              struct error *err)
{
    struct model_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return error_set(err, STATUS_LIMIT, "out of memory");
    engine->base.ops = &model_engine_ops;
    engine->base.config = *config;
    engine->base.config.model_dir = NULL;
    engine->base.config.weight_cache = NULL;
    engine->base.config.kernels.cpus = NULL;
    enum status status = open_parts(engine, config, err);
    if (status != STATUS_OK) {
        engine_close(&engine->base);
        return status;
    }
    *out = &engine->base;
    return STATUS_OK;
}
