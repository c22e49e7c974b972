#include "common/engine/model/weights.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/engine/model/random_weights.h"
#include "common/engine/model/rope.h"
#include "common/engine/model/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES           128
#define PROGRESS_INTERVAL_US 3000000
#define RANDOM_PIECE_BYTES   (16 << 20)
#define ROPE_HASH_POSITIONS  1024 /* fixed: workers of other context limits must agree on the hash */

struct loader {
    struct kernels *kernels;
    const struct model_shape *shape;
    const struct safetensors *files; /* NULL: random */
    uint16_t *random_piece;          /* RANDOM_PIECE_BYTES, where random */
    struct error *err;
};

/* A range of a tensor's rows goes to its place on the device. */
struct target {
    struct linear *linear; /* packed, from row `first_row` on; or NULL: */
    uint32_t first_row;
    struct buffer *raw; /* bf16 rows as they are */
};

static enum status put_rows(struct loader *loader, const struct target *target, uint32_t row,
                            uint32_t rows, uint32_t columns, const uint16_t *values)
{
    if (target->linear)
        return kernels_linear_load(loader->kernels, target->linear, target->first_row + row, rows,
                                   values);
    size_t row_bytes = columns * sizeof *values;
    return kernels_upload(loader->kernels, target->raw, row * row_bytes, values, rows * row_bytes);
}

static enum status put_random(struct loader *loader, const char *name, uint32_t rows,
                              uint32_t columns, const struct target *target)
{
    struct random_weights random = random_weights_of(name);
    uint32_t piece_rows = (uint32_t)(RANDOM_PIECE_BYTES / (columns * sizeof(uint16_t)));
    for (uint32_t row = 0; row < rows; row += piece_rows) {
        uint32_t count = rows - row < piece_rows ? rows - row : piece_rows;
        random_weights_take(&random, loader->random_piece, (size_t)count * columns);
        TRY(put_rows(loader, target, row, count, columns, loader->random_piece));
        TRY(kernels_sync(loader->kernels)); /* the piece is written again */
    }
    return STATUS_OK;
}

/* The tensor [rows, columns] goes to `target`. */
static enum status put_matrix(struct loader *loader, const char *name, uint32_t rows,
                              uint32_t columns, struct target target)
{
    const uint16_t *values;
    enum status status;
    if (loader->files) {
        TRY(safetensors_find(loader->files, name, rows, columns, &values, loader->err));
        status = put_rows(loader, &target, 0, rows, columns, values);
    } else {
        status = put_random(loader, name, rows, columns, &target);
    }
    if (status != STATUS_OK)
        return error_set(loader->err, status, "tensor %s: the device refused it (%s)", name,
                         status_name(status));
    return STATUS_OK;
}

static enum status make_buffer(struct loader *loader, size_t bytes, struct buffer *buffer)
{
    enum status status = kernels_alloc(loader->kernels, bytes, buffer);
    return status == STATUS_OK
               ? STATUS_OK
               : error_set(loader->err, status, "no device memory for %zu bytes of weights", bytes);
}

static enum status make_linear(struct loader *loader, uint32_t n, uint32_t k, struct linear *linear)
{
    enum status status = kernels_linear_create(loader->kernels, n, k, linear);
    return status == STATUS_OK
               ? STATUS_OK
               : error_set(loader->err, status,
                           "no device memory for a linear layer of %u x %u weights", n, k);
}

static enum status load_norm(struct loader *loader, const char *name, struct buffer *norm)
{
    uint32_t count = loader->shape->hidden;
    const uint16_t *values = NULL;
    TRY(make_buffer(loader, count * sizeof(float), norm));
    if (loader->files)
        TRY(safetensors_find(loader->files, name, 0, count, &values, loader->err));
    float *widened = malloc(count * sizeof *widened);
    if (!widened)
        return error_set(loader->err, STATUS_LIMIT, "out of memory for %s", name);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = values ? (uint32_t)values[i] << 16 : 0x3f800000; /* 1 */
        memcpy(&widened[i], &bits, sizeof bits);
    }
    enum status status = kernels_upload(loader->kernels, norm, 0, widened, count * sizeof *widened);
    if (status == STATUS_OK)
        status = kernels_sync(loader->kernels);
    free(widened);
    return status == STATUS_OK ? STATUS_OK
                               : error_set(loader->err, status, "tensor %s: upload failed", name);
}

static const char *layer_name(char name[NAME_BYTES], uint32_t layer, const char *part)
{
    snprintf(name, NAME_BYTES, "model.layers.%u.%s.weight", layer, part);
    return name;
}

static enum status load_attention(struct loader *loader, uint32_t l, struct layer_weights *layer)
{
    const struct model_shape *s = loader->shape;
    uint32_t query_rows = s->heads * s->head_dim, key_rows = s->kv_heads * s->head_dim;
    char name[NAME_BYTES];
    TRY(load_norm(loader, layer_name(name, l, "input_layernorm"), &layer->attention_norm));
    TRY(make_linear(loader, query_rows + 2 * key_rows, s->hidden, &layer->qkv));
    TRY(put_matrix(loader, layer_name(name, l, "self_attn.q_proj"), query_rows, s->hidden,
                   (struct target){.linear = &layer->qkv}));
    TRY(put_matrix(loader, layer_name(name, l, "self_attn.k_proj"), key_rows, s->hidden,
                   (struct target){.linear = &layer->qkv, .first_row = query_rows}));
    TRY(put_matrix(loader, layer_name(name, l, "self_attn.v_proj"), key_rows, s->hidden,
                   (struct target){.linear = &layer->qkv, .first_row = query_rows + key_rows}));
    TRY(make_linear(loader, s->hidden, query_rows, &layer->attention_out));
    return put_matrix(loader, layer_name(name, l, "self_attn.o_proj"), s->hidden, query_rows,
                      (struct target){.linear = &layer->attention_out});
}

static enum status load_ffn(struct loader *loader, uint32_t l, struct layer_weights *layer)
{
    const struct model_shape *s = loader->shape;
    char name[NAME_BYTES];
    TRY(load_norm(loader, layer_name(name, l, "post_attention_layernorm"), &layer->ffn_norm));
    TRY(make_linear(loader, 2 * s->ffn, s->hidden, &layer->gate_up));
    TRY(put_matrix(loader, layer_name(name, l, "mlp.gate_proj"), s->ffn, s->hidden,
                   (struct target){.linear = &layer->gate_up}));
    TRY(put_matrix(loader, layer_name(name, l, "mlp.up_proj"), s->ffn, s->hidden,
                   (struct target){.linear = &layer->gate_up, .first_row = s->ffn}));
    TRY(make_linear(loader, s->hidden, s->ffn, &layer->down));
    return put_matrix(loader, layer_name(name, l, "mlp.down_proj"), s->hidden, s->ffn,
                      (struct target){.linear = &layer->down});
}

static enum status load_rope(struct loader *loader, uint32_t positions, struct weights *weights)
{
    size_t row_bytes = loader->shape->head_dim * sizeof(float), bytes = positions * row_bytes;
    TRY(make_buffer(loader, bytes, &weights->rope));
    uint32_t made = positions > ROPE_HASH_POSITIONS ? positions : ROPE_HASH_POSITIONS;
    float *table = malloc(made * row_bytes);
    if (!table)
        return error_set(loader->err, STATUS_LIMIT, "out of memory for %zu bytes of rope", bytes);
    rope_table(loader->shape, made, table);
    weights->rope_hash = hash_bytes(table, ROPE_HASH_POSITIONS * row_bytes, HASH_SEED);
    enum status status = kernels_upload(loader->kernels, &weights->rope, 0, table, bytes);
    if (status == STATUS_OK)
        status = kernels_sync(loader->kernels);
    free(table);
    return status == STATUS_OK ? STATUS_OK
                               : error_set(loader->err, status, "rope table: upload failed");
}

static enum status load_ends(struct loader *loader, struct weights *weights)
{
    const struct model_shape *s = loader->shape;
    const char *embedding = "model.embed_tokens.weight";
    TRY(make_buffer(loader, (size_t)s->vocab * s->hidden * sizeof(uint16_t), &weights->embedding));
    TRY(put_matrix(loader, embedding, s->vocab, s->hidden,
                   (struct target){.raw = &weights->embedding}));
    TRY(load_norm(loader, "model.norm.weight", &weights->final_norm));
    TRY(make_linear(loader, s->vocab, s->hidden, &weights->lm_head));
    return put_matrix(loader, s->tied_embeddings ? embedding : "lm_head.weight", s->vocab,
                      s->hidden, (struct target){.linear = &weights->lm_head});
}

static enum status load_all(struct loader *loader, uint32_t positions, struct weights *weights)
{
    uint64_t started_us = clock_now_us(), told_us = started_us;
    TRY(load_ends(loader, weights));
    TRY(load_rope(loader, positions, weights));
    for (uint32_t l = 0; l < weights->layer_count; l++) {
        TRY(load_attention(loader, l, &weights->layers[l]));
        TRY(load_ffn(loader, l, &weights->layers[l]));
        if (clock_now_us() - told_us >= PROGRESS_INTERVAL_US) {
            told_us = clock_now_us();
            log_info("weights", "msg=\"loading\" layers_done=%u layers=%u", l + 1,
                     weights->layer_count);
        }
    }
    TRY(kernels_sync(loader->kernels));
    log_info("weights", "msg=\"loaded\" values=%" PRIu64 " source=%s took_ms=%" PRIu64,
             weights_count(loader->shape), loader->files ? "files" : "random",
             (clock_now_us() - started_us) / 1000);
    return STATUS_OK;
}

enum status weights_load(struct kernels *kernels, const struct model_shape *shape,
                         uint32_t positions, const struct safetensors *files, struct weights *out,
                         struct error *err)
{
    struct loader loader = {.kernels = kernels, .shape = shape, .files = files, .err = err};
    struct weights weights = {.layers = calloc(shape->layers, sizeof *weights.layers),
                              .layer_count = shape->layers};
    enum status status = STATUS_LIMIT;
    loader.random_piece = files ? NULL : malloc(RANDOM_PIECE_BYTES);
    if (!weights.layers || (!files && !loader.random_piece))
        error_set(err, status, "out of memory for %u layers", shape->layers);
    else
        status = load_all(&loader, positions, &weights);
    free(loader.random_piece);
    if (status != STATUS_OK) {
        weights_unload(kernels, &weights);
        return status;
    }
    *out = weights;
    return STATUS_OK;
}

void weights_unload(struct kernels *kernels, struct weights *weights)
{
    for (uint32_t l = 0; weights->layers && l < weights->layer_count; l++) {
        struct layer_weights *layer = &weights->layers[l];
        kernels_free(kernels, &layer->attention_norm);
        kernels_free(kernels, &layer->ffn_norm);
        kernels_linear_destroy(kernels, &layer->qkv);
        kernels_linear_destroy(kernels, &layer->attention_out);
        kernels_linear_destroy(kernels, &layer->gate_up);
        kernels_linear_destroy(kernels, &layer->down);
    }
    kernels_free(kernels, &weights->embedding);
    kernels_free(kernels, &weights->final_norm);
    kernels_free(kernels, &weights->rope);
    kernels_linear_destroy(kernels, &weights->lm_head);
    free(weights->layers);
    *weights = (struct weights){0};
}

size_t weights_bytes(const struct weights *w)
{
    size_t bytes =
        w->embedding.bytes + w->final_norm.bytes + w->lm_head.packed.bytes + w->rope.bytes;
    for (uint32_t l = 0; l < w->layer_count; l++) {
        const struct layer_weights *layer = &w->layers[l];
        bytes += layer->attention_norm.bytes + layer->qkv.packed.bytes +
                 layer->attention_out.packed.bytes + layer->ffn_norm.bytes +
                 layer->gate_up.packed.bytes + layer->down.packed.bytes;
    }
    return bytes;
}

uint64_t weights_count(const struct model_shape *s)
{
    uint64_t d = s->hidden, query_rows = (uint64_t)s->heads * s->head_dim;
    uint64_t key_rows = (uint64_t)s->kv_heads * s->head_dim;
    uint64_t layer = 2 * d + (query_rows + 2 * key_rows) * d + d * query_rows + 3 * d * s->ffn;
    return s->layers * layer + (s->tied_embeddings ? 1 : 2) * s->vocab * d + d;
}
