#include "common/engine/model_engine.h"

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/base/u32.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORDED_MEMORY_PART 64 /* recordings may take at most this part of the device's memory */

/* --- opening --- */

/* If the weights alone are too much, only smaller ones help. */
static const char *smaller_choice(const struct model_engine *engine, uint64_t weights_bytes,
                                  uint64_t available)
{
    enum weight_type type = engine->weight_types.layers;
    bool cuda = engine->base.device == DEVICE_CUDA; /* it has no kernels for int4 */
    bool least = type == WEIGHT_INT4 || (type == WEIGHT_INT8 && cuda);
    if (weights_bytes > available && (least || engine->weight_types.stored))
        return "a smaller model";
    if (weights_bytes > available && cuda)
        return "weights int8";
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

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) / unit * unit;
}

/* Returns the number of the padding rows' block, behind a pool of so many bytes and its probe. */
static uint64_t padding_block(const struct model_engine *engine, uint64_t pool_bytes)
{
    const uint64_t block = kv_layout_block_bytes(&engine->base.layout);
    return round_up(sum(round_up(pool_bytes, KV_PROBE_PIECE_BYTES), KV_PROBE_ROOM), block) / block;
}

/* Returns the bytes of a pool with what lies behind it on a device: the probe, for processes that
 * map it, and the block of padding rows if steps are recorded. */
static uint64_t whole_pool(const struct model_engine *engine, uint64_t pool_bytes)
{
    const uint64_t unit = KV_PROBE_PIECE_BYTES;
    if (!engine->base.has_device_memory)
        return pool_bytes;
    if (!engine->buckets.count)
        return sum(round_up(pool_bytes, unit), KV_PROBE_ROOM);
    return round_up((padding_block(engine, pool_bytes) + 1) *
                        kv_layout_block_bytes(&engine->base.layout),
                    unit);
}

/* Sizes all that depends on the rows and sequences of a step. */
static void size_parts(struct model_engine *engine)
{
    const struct engine_config *config = &engine->base.config;
    const struct kv_layout *layout = &engine->base.layout;
    const size_t blocks = kv_layout_blocks_for(layout, engine->base.context);
    const size_t samples = engine_most_samples(config), vocab = engine->base.model.shape.vocab;
    size_t tables = config->max_sequences; /* each row of a bucket has one */
    if (engine->base.feeds && kernels_info(engine->kernels).records)
        step_buckets_make(&config->recorded, (uint32_t)samples, (uint32_t)blocks,
                          config->block_tokens, &engine->buckets);
    if (engine->buckets.count && samples > tables)
        tables = samples;
    struct engine_sizes *sizes = &engine->sizes;
    *sizes = (struct engine_sizes){
        .tables = samples * sizeof(struct kernels_draw) +
                  (4 * (size_t)config->max_rows + (tables + 1) + tables * blocks + samples) *
                      sizeof(uint32_t),
        .scored = config->max_sequences * sizeof(uint32_t),
        .pool = whole_pool(engine, engine->base.pool_bytes)};
    if (!kernels_info(engine->kernels).device_is_host)
        sizes->logits = samples * vocab * sizeof(float);
    if (engine->base.feeds) {
        sizes->drawn = samples * sizeof(struct kernels_drawn);
        sizes->sample_scratch = kernels_sample_bytes(engine->kernels, (uint32_t)vocab);
    }
    if (engine->base.has_device_memory)
        sizes->sums = KV_SUMS_AT_ONCE * sizeof(uint32_t) *
                      (kv_layout_block_bytes(layout) / kv_layout_head_run_bytes(layout));
}

/* Sizes the memory that the engine will take on the device, and beside it on the host. */
static void size_memory(struct model_engine *engine, uint64_t weights_bytes)
{
    const struct engine_config *config = &engine->base.config;
    const struct engine_sizes *sizes = &engine->sizes;
    size_parts(engine);
    struct engine_memory *memory = &engine->memory;
    memory->weights = weights_bytes;
    memory->pool = kernels_shared_bytes(engine->kernels, sizes->pool);
    memory->steps = sizes->tables + sizes->scored + sizes->drawn + sizes->sample_scratch +
                    sizes->sums +
                    llama_bytes(engine->kernels, &engine->base.model.shape, config->max_rows,
                                engine_most_samples(config));
    memory->recorded =
        engine->buckets.count ? kernels_whole_bytes(engine->kernels) / RECORDED_MEMORY_PART : 0;
    memory->steps += memory->recorded;
    memory->device = sum(sum(weights_bytes, memory->steps), memory->pool);
    /* A set for each step that may be in flight. */
    memory->host_steps = sizes->scored + (engine->base.runs_ahead ? ENGINE_TICKETS : 1) *
                                             (sizes->tables + sizes->logits + sizes->drawn);
    memory->host = sum(memory->host_steps, engine->base.slot_bytes);
    if (engine->base.has_device_memory)
        memory->host = sum(memory->host, ENGINE_COPIER_BYTES);
}

#define GIB(BYTES) ((double)(BYTES) / (1 << 30))

/* Returns the bytes of the device that this engine may still take; *bound: that is its share,
 * without the memory that its kernels work in, and more are available. */
static uint64_t allowed_bytes(const struct model_engine *engine, bool *bound)
{
    double share = engine->base.config.memory_share;
    uint64_t available = kernels_available_bytes(engine->kernels);
    double own = share * (double)kernels_whole_bytes(engine->kernels) -
                 (double)kernels_own_bytes(engine->kernels);
    *bound = share > 0 && own < (double)available;
    return !*bound ? available : own > 0 ? (uint64_t)own : 0;
}

/* Returns the blocks of the largest pool that fits beside `rest` bytes, fewer than those wanted. */
static uint64_t fitting_blocks(const struct model_engine *engine, uint64_t rest, uint64_t available)
{
    const uint64_t block = kv_layout_block_bytes(&engine->base.layout);
    uint64_t fit = 0, too_many = engine->base.config.block_count;
    while (fit + 1 < too_many) {
        uint64_t blocks = fit + (too_many - fit) / 2;
        uint64_t bytes = kernels_shared_bytes(engine->kernels, whole_pool(engine, blocks * block));
        if (sum(rest, bytes) <= available)
            fit = blocks;
        else
            too_many = blocks;
    }
    return fit;
}

/* Says which memory doesn't fit. `shared`: the device's memory is the host's. */
static enum status refuse_memory(const struct model_engine *engine, bool shared, struct error *err)
{
    bool bound;
    const uint64_t available = allowed_bytes(engine, &bound);
    const struct engine_memory *memory = &engine->memory;
    const struct engine_config *config = &engine->base.config;
    double pool = GIB(memory->pool), slots = shared ? GIB(engine->base.slot_bytes) : 0;
    double steps = GIB(memory->steps) + (shared ? GIB(memory->host_steps) : 0);
    char swap[64] = "", fits[64] = "";
    uint64_t rest = sum(memory->weights, sum(memory->steps, shared ? memory->host : 0));
    uint64_t blocks = fitting_blocks(engine, rest, available);
    if (blocks > 0 && !config->smaller)
        snprintf(fits, sizeof fits, "; kv-tokens %" PRIu64 " would fit",
                 blocks * config->block_tokens);
    if (slots > 0)
        snprintf(swap, sizeof swap, ", swapped blocks %.1f", slots);
    return error_set(err, STATUS_LIMIT,
                     "%.1f GiB of %smemory are needed (weights %.1f, KV pool of %" PRIu64
                     " tokens %.1f, steps of %u rows %.1f%s), %.1f are %s: %s or %s%s",
                     GIB(memory->weights) + steps + pool + slots, shared ? "" : "the device's ",
                     GIB(memory->weights), (uint64_t)config->block_count * config->block_tokens,
                     pool, config->max_rows, steps, swap, GIB(available),
                     bound ? "its share (device-memory-share)" : "available here",
                     smaller_choice(engine, memory->weights, available),
                     bound ? "a larger share" : "another machine", fits);
}

/* Sizes the memory. While it doesn't fit, half of the rows beyond least_rows go. Returns whether it
 * fits. */
static bool fit_rows(struct model_engine *engine, uint64_t weights_bytes, bool shared)
{
    const struct engine_memory *memory = &engine->memory;
    uint32_t *rows = &engine->base.config.max_rows, least = engine->least_rows;
    for (;;) {
        bool bound;
        size_memory(engine, weights_bytes);
        if (sum(memory->device, shared ? memory->host : 0) <= allowed_bytes(engine, &bound))
            return true;
        if (*rows <= least)
            return false;
        *rows = least + (*rows - least) / 2;
    }
}

/* Checks all memory that the engine will take before it takes any: otherwise the OOM killer would
 * end the process. */
static enum status check_memory(struct model_engine *engine, uint64_t weights_bytes,
                                struct error *err)
{
    const struct engine_memory *memory = &engine->memory;
    bool shared = kernels_info(engine->kernels).device_is_host;
    if (!fit_rows(engine, weights_bytes, shared))
        return refuse_memory(engine, shared, err);
    uint64_t available = kernels_host_available_bytes(engine->kernels), device = 0;
    if (kernels_info(engine->kernels).takes_host_memory) /* both come out of the same */
        device = memory->device;
    if (shared || sum(memory->host, device) <= available)
        return STATUS_OK;
    return error_set(
        err, STATUS_LIMIT,
        "%.1f GiB of host memory are needed (steps in flight %.1f, swapped blocks "
        "%.1f, staging %.1f, the device's %.1f), %.1f are available here: a smaller "
        "swap-share or another machine",
        GIB(sum(memory->host, device)), GIB(memory->host_steps), GIB(engine->base.slot_bytes),
        GIB(engine->base.has_device_memory ? ENGINE_COPIER_BYTES : 0), GIB(device), GIB(available));
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
    const struct engine_sizes *sizes = &engine->sizes;
    const size_t samples = engine_most_samples(&engine->base.config);
    struct kernels *kernels = engine->kernels;
    TRY(kernels_alloc(kernels, sizes->tables, &engine->tables));
    TRY(kernels_alloc(kernels, sizes->scored, &engine->score_table));
    TRY(kernels_host_alloc(kernels, sizes->scored, (void **)&engine->score_rows));
    for (int i = 0; i < (engine->base.runs_ahead ? ENGINE_TICKETS : 1); i++) {
        struct queued_step *flight = &engine->flights[i];
        TRY(kernels_host_alloc(kernels, sizes->tables, (void **)&flight->tables));
        if (sizes->logits)
            TRY(kernels_host_alloc(kernels, sizes->logits, (void **)&flight->logits));
        flight->places = calloc(samples, sizeof *flight->places);
        if (!flight->places)
            return STATUS_LIMIT;
        if (sizes->drawn)
            TRY(kernels_host_alloc(kernels, sizes->drawn, (void **)&flight->drawn));
    }
    if (!sizes->drawn)
        return STATUS_OK;
    TRY(kernels_alloc(kernels, sizes->drawn, &engine->drawn));
    return kernels_alloc(kernels, sizes->sample_scratch, &engine->sample_scratch);
}

/* Takes the memory of steps. */
static enum status take_steps(struct model_engine *engine, struct error *err)
{
    const struct engine_config *config = &engine->base.config;
    TRY(llama_init(&engine->llama, engine->kernels, &engine->base.model.shape, &engine->weights,
                   config->max_rows, engine_most_samples(config), err));
    if (make_flights(engine) != STATUS_OK)
        return error_set(err, STATUS_LIMIT, "no memory for tables and logits of %u sequences",
                         config->max_sequences);
    return STATUS_OK;
}

static void give_steps(struct model_engine *engine)
{
    for (int i = 0; i < ENGINE_TICKETS; i++) {
        struct queued_step *flight = &engine->flights[i];
        kernels_host_free(engine->kernels, flight->tables);
        kernels_host_free(engine->kernels, flight->logits);
        kernels_host_free(engine->kernels, flight->drawn);
        free(flight->places);
        *flight = (struct queued_step){0};
    }
    kernels_host_free(engine->kernels, engine->score_rows);
    engine->score_rows = NULL;
    kernels_free(engine->kernels, &engine->tables);
    kernels_free(engine->kernels, &engine->score_table);
    kernels_free(engine->kernels, &engine->drawn);
    kernels_free(engine->kernels, &engine->sample_scratch);
    llama_deinit(&engine->llama);
}

static void name_numerics(struct model_engine *engine)
{
    const struct kernels_info info = kernels_info(engine->kernels);
    const struct model_shape *shape = &engine->base.model.shape;
    enum rope_type type = shape->rope_scaling.type;
    /* ROPE_LLAMA3 came before names had the scheme; the table's hash has its numbers. */
    bool scaled = type != ROPE_DEFAULT && type != ROPE_LLAMA3;
    const struct weight_types types = engine->weight_types;
    bool quantized = weight_type_is_quantized(types.layers) && weight_type_is_quantized(types.ends);
    bool fp8 = weight_type_is_fp8(types.layers);
    snprintf(engine->base.numerics_name, sizeof engine->base.numerics_name,
             "%s/w-%s%s/kv-%s/k%d/seg%d/sampler%d/tp1%s%s%s",
             quantized ? info.quantized_name : info.name, weight_type_names[types.layers],
             fp8             ? WEIGHT_FP8_NUMERICS
             : types.widened ? "-of-fp8"
                             : "",
             kv_type_name(engine->base.layout.type), KERNELS_VERSION, ATTENTION_SEGMENT_TOKENS,
             SAMPLER_VERSION, scaled ? "/rope-" : "", scaled ? rope_type_name(type) : "",
             type != ROPE_LONGROPE                       ? ""
             : rope_is_long(shape, engine->base.context) ? "-long"
                                                         : "-short");
    engine->base.numerics_id = hash_bytes(
        engine->base.numerics_name, strlen(engine->base.numerics_name), engine->weights.rope_hash);
}

/* Opens the backend and settles the types of the weights. Device auto takes the CPU for a model
 * that the GPU has no kernels for. */
static enum status open_kernels(struct model_engine *engine, const struct engine_config *config,
                                struct kernels_config kernels, struct error *err)
{
    TRY(kernels_open(&kernels, &engine->kernels, err));
    TRY(weight_types_choose(config->weights, engine->base.model.quantization,
                            kernels_info(engine->kernels).weight_type, &engine->weight_types, err));
    const struct kernels_info info = kernels_info(engine->kernels);
    const uint32_t head_dim = engine->base.model.shape.head_dim;
    if (weight_type_is_fp8(engine->weight_types.layers) && info.device != DEVICE_CUDA &&
        kernels_check_model(engine->kernels, engine->weight_types.layers, head_dim, err) !=
            STATUS_OK) {
        weight_types_widen(&engine->weight_types, info.weight_type);
        log_info("engine", "msg=\"fp8 weights are widened to bf16\" why=\"%s\"", err->text);
    }
    const enum weight_type types[] = {engine->weight_types.layers, engine->weight_types.ends};
    enum status status = STATUS_OK;
    for (int i = 0; i < 2 && status == STATUS_OK; i++)
        status = kernels_check_model(engine->kernels, types[i], head_dim, err);
    if (status != STATUS_UNSUPPORTED || kernels.device != DEVICE_AUTO)
        return status;
    log_info("engine", "msg=\"device auto takes the CPU\" why=\"%s\"", err->text);
    kernels_close(engine->kernels);
    engine->kernels = NULL;
    kernels.device = DEVICE_CPU;
    return open_kernels(engine, config, kernels, err);
}

static enum status open_parts(struct model_engine *engine, const struct engine_config *config,
                              struct error *err)
{
    const struct model_shape *shape = &engine->base.model.shape;
    TRY(engine_read_model(&engine->base, config->model_dir, err));
    TRY(open_kernels(engine, config, config->kernels, err));
    engine->base.device = kernels_info(engine->kernels).device;
    engine->base.runs_ahead = kernels_info(engine->kernels).runs_ahead;
    engine->base.feeds = engine->base.runs_ahead;
    engine->base.has_device_memory = !kernels_info(engine->kernels).device_is_host;
    enum kv_type kv_type;
    TRY(kv_choice_type(config->kv, kernels_info(engine->kernels).kv_type, &kv_type, err));
    const struct kv_layout layout = kv_layout_whole(shape, config->block_tokens, kv_type);
    TRY(engine_set_layout(&engine->base, &layout, err));
    uint32_t *rows = &engine->base.config.max_rows;
    engine->least_rows = *rows;
    if (engine->base.device == DEVICE_CUDA && config->gpu_rows > *rows)
        *rows = config->gpu_rows;
    TRY(load_model(engine, config, err));
    TRY(take_steps(engine, err));
    if (sampler_init(&engine->sampler, shape->vocab) != STATUS_OK)
        return error_set(err, STATUS_LIMIT, "no memory for draws of %u tokens", shape->vocab);
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
             "pool_bytes=%zu slot_bytes=%zu staging_bytes=%zu block_bytes=%zu blocks=%u threads=%u",
             engine->base.numerics_name, kernels_info(engine->kernels).isa,
             device_names[kernels_info(engine->kernels).device], engine->memory.device,
             engine->memory.host, weights_bytes(&engine->weights),
             llama_bytes(engine->kernels, shape, *rows, engine_most_samples(&engine->base.config)),
             engine->base.pool_bytes, (size_t)engine->base.slot_bytes,
             engine->base.has_device_memory ? ENGINE_COPIER_BYTES : 0,
             kv_layout_block_bytes(&engine->base.layout), config->block_count,
             kernels_info(engine->kernels).threads);
    return STATUS_OK;
}

/* --- its operations --- */

/* Allocates the pool: where the device shares memory, for other processes to map. */
static enum status alloc_pool(struct model_engine *engine)
{
    const size_t bytes = engine->sizes.pool;
    engine->padding_block = (uint32_t)padding_block(engine, engine->base.pool_bytes);
    if (!engine->base.has_device_memory ||
        kernels_alloc_shared(engine->kernels, bytes, &engine->pool, &engine->shares_nothing) !=
            STATUS_OK)
        return kernels_alloc(engine->kernels, bytes, &engine->pool);
    *engine->shares_nothing.text = '\0';
    return STATUS_OK;
}

static enum status attach_pool(struct engine *base, void *pool)
{
    struct model_engine *engine = (struct model_engine *)base;
    TRY(pool ? kernels_adopt(engine->kernels, pool, base->pool_bytes, &engine->pool)
             : alloc_pool(engine));
    engine->pool_is_ours = !pool;
    if (!base->has_device_memory)
        base->pool_address = engine->pool.address;
    if (pool) /* it has no block for padding */
        engine->buckets.count = 0;
    TRY(model_engine_record(engine));
    return base->has_device_memory && !pool ? model_engine_open_copier(engine) : STATUS_OK;
}

static void close_engine(struct engine *base)
{
    struct model_engine *engine = (struct model_engine *)base;
    if (engine->kernels) {
        int copier_fd;
        (void)!kernels_sync(engine->kernels); /* it may still write what is freed below */
        give_steps(engine);
        kernels_host_free(engine->kernels, base->slots);
        kernels_host_free(engine->kernels, base->copier.host);
        copier_fd = base->copier.ended_fd;
        kernels_free(engine->kernels, &engine->sums);
        if (engine->pool_is_ours)
            kernels_free(engine->kernels, &engine->pool);
        weights_unload(engine->kernels, &engine->weights);
        kernels_close(engine->kernels);
        if (copier_fd > 0) /* no stream writes to it any more */
            close(copier_fd);
    }
    sampler_deinit(&engine->sampler);
    free(engine);
}

static enum status keep_rows(struct engine *base, struct error *err)
{
    struct model_engine *engine = (struct model_engine *)base;
    const uint64_t before = engine->memory.device;
    give_steps(engine);
    size_memory(engine, engine->memory.weights);
    log_info("engine",
             "msg=\"memory of rows that no step will have is given back\" rows=%u bytes=%" PRIu64
             " device_bytes=%" PRIu64,
             base->config.max_rows, before - engine->memory.device, engine->memory.device);
    return take_steps(engine, err);
}

static struct engine_limits measure_limits(struct engine *base)
{
    struct model_engine *engine = (struct model_engine *)base;
    struct engine_limits limits = {.isa = base->isa,
                                   .weight_bytes = weights_step_bytes(&engine->weights)};
    if (base->has_device_memory)
        limits.device_bytes = engine->memory.device + kernels_own_bytes(engine->kernels);
    limits.peak_gflops =
        kernels_measure_peak(engine->kernels, engine->weight_types.layers, &limits.instruction);
    uint64_t read_ns = weights_measure_read(engine->kernels, &engine->weights);
    limits.read_gbs = read_ns ? (double)limits.weight_bytes / (double)read_ns : 0;
    return limits;
}

static enum status watch_device(struct engine *base, uint32_t timeout_ms,
                                struct device_health *health)
{
    return kernels_watch_device(((struct model_engine *)base)->kernels, timeout_ms, health);
}

static void profile_to(struct engine *base, struct kernels_profile *profile)
{
    kernels_profile_to(((struct model_engine *)base)->kernels, profile);
}

static const struct engine_ops model_engine_ops = {
    .close = close_engine,
    .keep_rows = keep_rows,
    .attach_pool = attach_pool,
    .submit = model_engine_submit,
    .wait = model_engine_wait,
    .move_block = model_engine_move_block,
    .moves_done = model_engine_moves_done,
    .measure_limits = measure_limits,
    .watch_device = watch_device,
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
