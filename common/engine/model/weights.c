#include "common/engine/model/weights.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/fixed_math.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/engine/model/load_progress.h"
#include "common/engine/model/weight_cache.h"
#include "common/engine/model/weight_convert.h"
#include "common/engine/model/weight_loader.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES          128
#define ROPE_GRAIN          256  /* positions that a thread computes at a time */
#define ROPE_HASH_POSITIONS 1024 /* fixed: the hash must not depend on the context limit */

/* The model that is loaded, by `tensors`. */
struct loading {
    struct kernels *kernels;
    struct safetensors *files; /* NULL: random weights */
    const struct model_shape *shape;
    struct weight_types types;
    uint32_t positions;
    struct weight_loader *tensors;
    uint64_t read_bytes; /* matrices' bytes of the files, when all are loaded */
    bool staged;         /* through pinned memory */
};

static const char *layer_name(char name[NAME_BYTES], uint32_t layer, const char *part)
{
    snprintf(name, NAME_BYTES, "model.layers.%u.%s.weight", layer, part);
    return name;
}

/* Returns the name of the matrix that decides a fused layer's type: the first in floats, or the
 * last. parts: NULL ends them. */
static const char *deciding_name(struct loading *loading, char name[NAME_BYTES], uint32_t l,
                                 const char *const *parts)
{
    while (parts[1] && weight_loader_is_fp8(loading->tensors, layer_name(name, l, *parts)))
        parts++;
    return layer_name(name, l, *parts);
}

static enum status load_norm(struct loading *loading, const char *name, uint32_t count,
                             struct buffer *norm)
{
    TRY(weight_loader_buffer(loading->tensors, count * sizeof(float), norm));
    return weight_loader_vector(loading->tensors, name, count, 1, 0, norm);
}

/* Queries, keys and values are one layer. Loads `part` ("q_proj") into its rows from first_row
 * on. */
static enum status load_qkv_part(struct loading *loading, uint32_t l, const char *part,
                                 uint32_t first_row, uint32_t rows, struct layer_weights *layer)
{
    char name[NAME_BYTES];
    struct weight_target target = {.linear = &layer->qkv, .first_row = first_row};
    snprintf(name, sizeof name, "model.layers.%u.self_attn.%s.weight", l, part);
    TRY(weight_loader_matrix(loading->tensors, name, rows, loading->shape->hidden, target));
    if (!loading->shape->qkv_bias)
        return STATUS_OK;
    snprintf(name, sizeof name, "model.layers.%u.self_attn.%s.bias", l, part);
    return weight_loader_vector(loading->tensors, name, rows, 0, first_row, &layer->qkv_bias);
}

static enum status load_attention(struct loading *loading, uint32_t l, struct layer_weights *layer)
{
    const struct model_shape *s = loading->shape;
    struct weight_loader *tensors = loading->tensors;
    uint32_t query_rows = s->heads * s->head_dim, key_rows = s->kv_heads * s->head_dim;
    uint32_t qkv_rows = query_rows + 2 * key_rows;
    static const char *const parts[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                        NULL};
    char name[NAME_BYTES];
    TRY(load_norm(loading, layer_name(name, l, "input_layernorm"), s->hidden,
                  &layer->attention_norm));
    TRY(weight_loader_linear(tensors, deciding_name(loading, name, l, parts), loading->types.layers,
                             qkv_rows, s->hidden, &layer->qkv));
    layer->qkv.pair = s->head_dim / 2;
    if (s->qkv_bias)
        TRY(weight_loader_buffer(tensors, qkv_rows * sizeof(float), &layer->qkv_bias));
    TRY(load_qkv_part(loading, l, "q_proj", 0, query_rows, layer));
    TRY(load_qkv_part(loading, l, "k_proj", query_rows, key_rows, layer));
    TRY(load_qkv_part(loading, l, "v_proj", query_rows + key_rows, key_rows, layer));
    if (s->qk_norm) {
        TRY(load_norm(loading, layer_name(name, l, "self_attn.q_norm"), s->head_dim,
                      &layer->q_norm));
        TRY(load_norm(loading, layer_name(name, l, "self_attn.k_norm"), s->head_dim,
                      &layer->k_norm));
    }
    TRY(weight_loader_linear(tensors, layer_name(name, l, "self_attn.o_proj"),
                             loading->types.layers, s->hidden, query_rows, &layer->attention_out));
    return weight_loader_matrix(tensors, name, s->hidden, query_rows,
                                (struct weight_target){.linear = &layer->attention_out});
}

static enum status load_ffn(struct loading *loading, uint32_t l, struct layer_weights *layer)
{
    const struct model_shape *s = loading->shape;
    struct weight_loader *tensors = loading->tensors;
    static const char *const parts[] = {"mlp.gate_proj", "mlp.up_proj", NULL};
    char name[NAME_BYTES];
    TRY(load_norm(loading, layer_name(name, l, "post_attention_layernorm"), s->hidden,
                  &layer->ffn_norm));
    TRY(weight_loader_linear(tensors, deciding_name(loading, name, l, parts), loading->types.layers,
                             2 * s->ffn, s->hidden, &layer->gate_up));
    layer->gate_up.pair = s->ffn;
    TRY(weight_loader_matrix(tensors, layer_name(name, l, *parts), s->ffn, s->hidden,
                             (struct weight_target){.linear = &layer->gate_up}));
    TRY(weight_loader_matrix(
        tensors, layer_name(name, l, "mlp.up_proj"), s->ffn, s->hidden,
        (struct weight_target){.linear = &layer->gate_up, .first_row = s->ffn}));
    TRY(weight_loader_linear(tensors, layer_name(name, l, "mlp.down_proj"), loading->types.layers,
                             s->hidden, s->ffn, &layer->down));
    return weight_loader_matrix(tensors, name, s->hidden, s->ffn,
                                (struct weight_target){.linear = &layer->down});
}

/* Llama 3.1: stretches long wavelengths by `factor`, keeps short ones, blends those between. */
static float llama3_frequency(const struct rope_scaling *scaling, float frequency)
{
    if (scaling->factor == 1.0)
        return frequency;
    float context = (float)scaling->original_context, factor = (float)scaling->factor;
    float low = (float)scaling->low_freq_factor, high = (float)scaling->high_freq_factor;
    float wavelength = (float)(2 * M_PI) / frequency;
    if (wavelength > context / low)
        return frequency / factor;
    if (wavelength < context / high)
        return frequency;
    float smooth = (context / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

/* Returns the dimension that turns `rotations` times within the trained context. */
static double yarn_dimension(const struct model_shape *shape, double rotations)
{
    double turns = shape->rope_scaling.original_context / (rotations * 2 * M_PI);
    return shape->head_dim * log(turns) / (2 * log(shape->rope_theta));
}

/* YaRN (arXiv 2309.00071, as transformers computes it): keeps the frequencies of dimensions below
 * `low`, divides those above `high` by the factor, blends between. `power`: theta^(2i / E). */
static float yarn_frequency(const struct model_shape *shape, uint32_t i, float power)
{
    const struct rope_scaling *scaling = &shape->rope_scaling;
    double low = yarn_dimension(shape, scaling->beta_fast);
    double high = yarn_dimension(shape, scaling->beta_slow);
    if (scaling->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, shape->head_dim - 1.0);
    if (low == high)
        high += 0.001;
    float kept = 1.0f - fminf(fmaxf(((float)i - (float)low) / (float)(high - low), 0.0f), 1.0f);
    return 1.0f / ((float)scaling->factor * power) * (1.0f - kept) + 1.0f / power * kept;
}

bool rope_is_long(const struct model_shape *shape, uint32_t context)
{
    return context > shape->rope_scaling.original_context;
}

static float rope_frequency(const struct model_shape *shape, uint32_t context, uint32_t i)
{
    const struct rope_scaling *scaling = &shape->rope_scaling;
    float exponent = (float)(2 * i) / (float)shape->head_dim;
    float power = (float)pow(shape->rope_theta, (double)exponent), frequency = 1.0f / power;
    switch (scaling->type) {
    case ROPE_DEFAULT:
    case ROPE_DYNAMIC: return frequency;
    case ROPE_LINEAR: return frequency / (float)scaling->factor;
    case ROPE_LLAMA3: return llama3_frequency(scaling, frequency);
    case ROPE_YARN: return yarn_frequency(shape, i, power);
    case ROPE_LONGROPE: break;
    }
    return 1.0f /
           ((rope_is_long(shape, context) ? scaling->long_factors : scaling->short_factors)[i] *
            power);
}

void rope_rows(const struct model_shape *shape, uint32_t context, uint32_t first, uint32_t last,
               float *table)
{
    float frequencies[ROPE_MAX_FREQUENCIES];
    uint32_t half = shape->head_dim / 2;
    float attention =
        shape->rope_scaling.attention == 0 ? 1.0f : (float)shape->rope_scaling.attention;
    ASSERT(half <= ROPE_MAX_FREQUENCIES);
    for (uint32_t i = 0; i < half; i++)
        frequencies[i] = rope_frequency(shape, context, i);
    for (uint32_t position = first; position < last; position++) {
        float *row = table + (uint64_t)position * shape->head_dim;
        for (uint32_t i = 0; i < half; i++) {
            float angle = (float)position * frequencies[i];
            double sine, cosine;
            sine_cosine((double)angle, &sine, &cosine);
            row[i] = (float)cosine * attention;
            row[half + i] = (float)sine * attention;
        }
    }
}

struct rope {
    const struct model_shape *shape;
    uint32_t context;
    float *table;
};

static void fill_rope(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct rope *rope = context;
    (void)thread;
    rope_rows(rope->shape, rope->context, first, last, rope->table);
}

static enum status load_rope(struct loading *loading, struct weights *weights)
{
    struct weight_loader *tensors = loading->tensors;
    size_t row_bytes = loading->shape->head_dim * sizeof(float);
    size_t bytes = loading->positions * row_bytes;
    TRY(weight_loader_buffer(tensors, bytes, &weights->rope));
    if (tensors->dry) {
        if (kernels_info(tensors->kernels).device_is_host)
            tensors->planned_bytes += bytes; /* a second copy, while the table is made */
        return STATUS_OK;
    }
    uint32_t made =
        loading->positions > ROPE_HASH_POSITIONS ? loading->positions : ROPE_HASH_POSITIONS;
    float *table = malloc(made * row_bytes);
    if (!table)
        return error_set(tensors->err, STATUS_LIMIT, "out of memory for %zu bytes of rope",
                         made * row_bytes);
    struct rope rope = {loading->shape, loading->positions, table};
    kernels_host_work(tensors->kernels, made, ROPE_GRAIN, fill_rope, &rope);
    weights->rope_hash = hash_bytes(table, ROPE_HASH_POSITIONS * row_bytes, HASH_SEED);
    enum status status =
        kernels_upload(tensors->kernels, KERNELS_STEPS, &weights->rope, 0, table, bytes);
    if (status == STATUS_OK)
        status = kernels_sync(tensors->kernels);
    free(table);
    return status == STATUS_OK ? STATUS_OK
                               : error_set(tensors->err, status, "rope table: upload failed");
}

/* A file may hold lm_head although the model ties it to the embedding. Then the two must be equal:
 * libraries differ in which of them they would take. */
static enum status check_tied_head(struct loading *loading, const char *embedding, const char *head)
{
    const struct model_shape *s = loading->shape;
    struct weight_loader *tensors = loading->tensors;
    struct tensor_view a, b;
    if (!tensors->files || (tensors->types.stored && !tensors->types.fp8) ||
        !safetensors_has(tensors->files, head))
        return STATUS_OK;
    TRY(safetensors_find(tensors->files, embedding, s->vocab, s->hidden, &a, tensors->err));
    TRY(safetensors_find(tensors->files, head, s->vocab, s->hidden, &b, tensors->err));
    size_t bytes = (size_t)s->vocab * s->hidden * float_type_bytes(a.type);
    if (a.type == b.type && memcmp(a.bytes, b.bytes, bytes) == 0)
        return STATUS_OK;
    return error_set(tensors->err, STATUS_INVALID,
                     "%s: tensor %s: config.json ties it to %s (tie_word_embeddings), but the two "
                     "differ",
                     b.path, head, embedding);
}

static enum status load_ends(struct loading *loading, struct weights *weights)
{
    const struct model_shape *s = loading->shape;
    struct weight_loader *tensors = loading->tensors;
    const char *embedding = "model.embed_tokens.weight", *head = "lm_head.weight";
    TRY(weight_loader_linear(tensors, embedding, loading->types.ends, s->vocab, s->hidden,
                             &weights->embedding));
    if (weight_type_is_fp8(weights->embedding.type))
        return error_set(tensors->err, STATUS_UNSUPPORTED,
                         "tensor %s: an embedding is looked up in floats, and this one is fp8: "
                         "take weights bf16, which widens it (fp8_embedding)",
                         embedding);
    TRY(weight_loader_matrix(tensors, embedding, s->vocab, s->hidden,
                             (struct weight_target){.linear = &weights->embedding}));
    TRY(load_norm(loading, "model.norm.weight", s->hidden, &weights->final_norm));
    if (s->tied_embeddings)
        return tensors->dry ? check_tied_head(loading, embedding, head) : STATUS_OK;
    TRY(weight_loader_linear(tensors, head, loading->types.ends, s->vocab, s->hidden,
                             &weights->lm_head));
    return weight_loader_matrix(tensors, head, s->vocab, s->hidden,
                                (struct weight_target){.linear = &weights->lm_head});
}

static enum status load_all(struct loading *loading, struct weights *weights)
{
    TRY(load_ends(loading, weights));
    TRY(load_rope(loading, weights));
    for (uint32_t l = 0; l < loading->shape->layers; l++) {
        struct layer_weights unused = {0}, *layer = weights->layers ? &weights->layers[l] : &unused;
        TRY(load_attention(loading, l, layer));
        TRY(load_ffn(loading, l, layer));
    }
    return STATUS_OK;
}

/* Asks for every tensor, without taking memory. `plan`, unless NULL, gets the linear layers in the
 * order in which they are loaded. `bytes`: the device memory that they need. */
static enum status look_at_all(struct loading *loading, struct packed_plan *plan, uint64_t *bytes,
                               struct error *err)
{
    struct weight_loader tensors;
    struct weights none = {0};
    TRY(weight_loader_init(&tensors, loading->kernels, loading->files, loading->types, true, err));
    tensors.plan = plan;
    loading->tensors = &tensors;
    enum status status = load_all(loading, &none);
    if (status == STATUS_OK && loading->files)
        status = safetensors_expect_all_found(loading->files, err);
    if (status == STATUS_OK)
        *bytes = tensors.planned_bytes;
    weight_loader_deinit(&tensors);
    return status;
}

enum status weights_check(struct kernels *kernels, const struct model_shape *shape,
                          struct weight_types types, uint32_t positions, struct safetensors *files,
                          uint64_t *bytes, struct error *err)
{
    struct loading loading = {kernels, files, shape, types, positions, .tensors = NULL};
    return look_at_all(&loading, NULL, bytes, err);
}

/* Takes the memory of the plan's layers: the mapped file, or our own. The system clears our own
 * page by page, which takes seconds. */
static enum status take_memory(struct loading *loading, const struct packed_plan *plan,
                               struct weights *weights, struct error *err)
{
    char *data = weights->packed.data;
    uint64_t bytes = plan->data_bytes;
    struct load_progress progress = load_progress_begin(
        "taking memory for weights", data ? 0 : bytes, progress_line_terminal(), clock_now_us());
    load_progress_announce(&progress);
    enum status status = data ? kernels_adopt(loading->kernels, data, bytes, &weights->layer_memory)
                              : kernels_alloc(loading->kernels, bytes, &weights->layer_memory);
    load_progress_end(&progress);
    return status == STATUS_OK
               ? STATUS_OK
               : error_set(err, status, "no device memory for %" PRIu64 " bytes of weights", bytes);
}

static enum status load_planned(struct loading *loading, struct packed_plan *plan,
                                struct weights *weights, struct error *err)
{
    struct weight_loader tensors;
    bool filled = weights->packed.data;
    TRY(take_memory(loading, plan, weights, err));
    TRY(weight_loader_init(&tensors, loading->kernels, loading->files, loading->types, false, err));
    struct load_progress progress = load_progress_begin(
        "loading weights", filled ? 0 : plan->data_bytes, progress_line_terminal(), clock_now_us());
    tensors.plan = plan;
    tensors.memory = weights->layer_memory;
    tensors.filled = filled;
    tensors.progress = &progress;
    loading->tensors = &tensors;
    enum status status = load_all(loading, weights);
    if (status == STATUS_OK)
        status = kernels_sync(loading->kernels);
    load_progress_end(&progress);
    loading->read_bytes = tensors.read_bytes;
    loading->staged = tensors.staging.halves[0];
    weight_loader_deinit(&tensors);
    return status;
}

/* Loads from the cache, or from files and then fills the cache. */
static enum status load_cached(struct loading *loading, const char *cache_path,
                               struct packed_plan *plan, struct weights *weights, struct error *err)
{
    struct packed_identity identity = weight_cache_identity(loading->kernels, loading->files);
    struct packed_header header = packed_plan_header(plan, &identity);
    struct load_progress progress = load_progress_begin("reading weights", plan->data_bytes,
                                                        progress_line_terminal(), clock_now_us());
    bool hit = weight_cache_map(cache_path, &header, loading->kernels, &progress, &weights->packed);
    load_progress_end(&progress);
    TRY(load_planned(loading, plan, weights, err));
    if (hit)
        return STATUS_OK;
    progress = load_progress_begin("keeping packed weights", plan->data_bytes,
                                   progress_line_terminal(), clock_now_us());
    weight_cache_keep(cache_path, &header, weights->layer_memory.address, &progress);
    return STATUS_OK;
}

/* Returns the values of all tensors. */
static uint64_t count_values(const struct model_shape *s)
{
    uint64_t d = s->hidden, query_rows = (uint64_t)s->heads * s->head_dim;
    uint64_t key_rows = (uint64_t)s->kv_heads * s->head_dim;
    uint64_t layer = 2 * d + (query_rows + 2 * key_rows) * d + d * query_rows + 3 * d * s->ffn;
    layer += (s->qkv_bias ? query_rows + 2 * key_rows : 0) + (s->qk_norm ? 2 * s->head_dim : 0);
    return s->layers * layer + (s->tied_embeddings ? 1 : 2) * s->vocab * d + d;
}

enum status weights_load(struct kernels *kernels, const struct model_shape *shape,
                         struct weight_types types, uint32_t positions, struct safetensors *files,
                         const char *cache_path, struct weights *out, struct error *err)
{
    struct loading loading = {kernels, files, shape, types, positions, .tensors = NULL};
    struct packed_plan plan = {0};
    struct weights weights = {.layers = calloc(shape->layers, sizeof *weights.layers),
                              .layer_count = shape->layers};
    if (!weights.layers)
        return error_set(err, STATUS_LIMIT, "out of memory for %u layers", shape->layers);
    bool cached = files && *cache_path && kernels_info(kernels).device_is_host;
    uint64_t started_us = clock_now_us(), bytes;
    enum status status = look_at_all(&loading, &plan, &bytes, err);
    if (status == STATUS_OK)
        status = cached ? load_cached(&loading, cache_path, &plan, &weights, err)
                        : load_planned(&loading, &plan, &weights, err);
    packed_plan_deinit(&plan);
    if (status != STATUS_OK) {
        weights_unload(kernels, &weights);
        return status;
    }
    log_info("weights",
             "msg=\"loaded\" values=%" PRIu64 " source=%s read_bytes=%" PRIu64
             " staging_bytes=%zu took_ms=%" PRIu64,
             count_values(shape),
             weights.packed.data ? "kept"
             : files             ? "files"
                                 : "random",
             loading.read_bytes, loading.staged ? 2 * LOAD_HALF_BYTES : 0,
             (clock_now_us() - started_us) / 1000);
    *out = weights;
    return STATUS_OK;
}

void weights_unload(struct kernels *kernels, struct weights *weights)
{
    for (uint32_t l = 0; weights->layers && l < weights->layer_count; l++) {
        struct layer_weights *layer = &weights->layers[l];
        kernels_free(kernels, &layer->attention_norm);
        kernels_free(kernels, &layer->ffn_norm);
        kernels_free(kernels, &layer->qkv_bias);
        kernels_free(kernels, &layer->q_norm);
        kernels_free(kernels, &layer->k_norm);
    }
    kernels_free(kernels, &weights->final_norm);
    kernels_free(kernels, &weights->rope);
    free(weights->layers);
    if (!weights->packed.data)
        kernels_free(kernels, &weights->layer_memory);
    packed_file_unmap(&weights->packed);
    *weights = (struct weights){0};
}

const struct linear *weights_head(const struct weights *weights)
{
    return weights->lm_head.packed.address ? &weights->lm_head : &weights->embedding;
}

size_t weights_bytes(const struct weights *w)
{
    size_t bytes =
        w->embedding.packed.bytes + w->final_norm.bytes + w->lm_head.packed.bytes + w->rope.bytes;
    for (uint32_t l = 0; l < w->layer_count; l++) {
        const struct layer_weights *layer = &w->layers[l];
        bytes += layer->attention_norm.bytes + layer->qkv.packed.bytes + layer->qkv_bias.bytes +
                 layer->q_norm.bytes + layer->k_norm.bytes + layer->attention_out.packed.bytes +
                 layer->ffn_norm.bytes + layer->gate_up.packed.bytes + layer->down.packed.bytes;
    }
    return bytes;
}

size_t weights_step_bytes(const struct weights *w)
{
    size_t bytes = weights_head(w)->packed.bytes;
    for (uint32_t l = 0; l < w->layer_count; l++) {
        const struct layer_weights *layer = &w->layers[l];
        bytes += layer->qkv.packed.bytes + layer->attention_out.packed.bytes +
                 layer->gate_up.packed.bytes + layer->down.packed.bytes;
    }
    return bytes;
}

uint64_t weights_measure_read(struct kernels *kernels, const struct weights *w)
{
    if (!kernels_info(kernels).device_is_host) { /* short passes would wait for their launches */
        double all_ns = (double)kernels_measure_read(kernels, &w->layer_memory);
        return (uint64_t)(all_ns * (double)weights_step_bytes(w) / (double)w->layer_memory.bytes);
    }
    uint64_t ns = kernels_measure_read(kernels, &weights_head(w)->packed);
    for (uint32_t l = 0; l < w->layer_count; l++) {
        const struct layer_weights *layer = &w->layers[l];
        ns += kernels_measure_read(kernels, &layer->qkv.packed) +
              kernels_measure_read(kernels, &layer->attention_out.packed) +
              kernels_measure_read(kernels, &layer->gate_up.packed) +
              kernels_measure_read(kernels, &layer->down.packed);
    }
    return ns;
}
