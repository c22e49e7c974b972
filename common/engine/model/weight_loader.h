/* Brings one tensor after the other from files to the device: the type that the backend wants, in
 * pieces where it must be converted or quantized, by all compute threads. Matrices that were packed
 * before (packed_file.h) are adopted as they are. Without files the tensors are random
 * (random_weights.h), for benchmarks. Or it brings nothing and only looks (`dry`): is every tensor
 * there, in its shape and a type that can be read, and how many bytes will all take? So a model
 * that doesn't fit its configuration, or the machine, is refused before memory is taken.
 *
 * Owner: the step thread, while it loads. Failures: one sentence in `err`. */
#ifndef BATON_ENGINE_MODEL_WEIGHT_LOADER_H
#define BATON_ENGINE_MODEL_WEIGHT_LOADER_H

#include "common/engine/model/row_conversion.h"
#include "kernels/kernels.h"

struct load_progress;
struct packed_plan;
struct safetensors;

struct weight_loader {
    struct kernels *kernels;
    struct safetensors *files; /* NULL: random */
    bool dry;
    uint64_t planned_bytes;         /* dry: of the device memory asked for */
    struct packed_plan *plan;       /* of all linear layers; dry: made, else followed; NULL: none */
    uint32_t planned_layers;        /* of the plan, that were followed */
    struct buffer memory;           /* not dry: of the plan's data, where the layers lie */
    bool filled;                    /* they lie there packed already */
    struct load_progress *progress; /* NULL: dry */
    struct error *err;
    bool stored;            /* quantized matrices are in the files as such (weight_types.h) */
    uint16_t *drawn;        /* random: a piece */
    struct row_piece piece; /* not dry */
};

enum status weight_loader_init(struct weight_loader *loader, struct kernels *kernels,
                               struct safetensors *files, bool stored, bool dry,
                               struct error *err) WARN_UNUSED;
void weight_loader_deinit(struct weight_loader *loader);

/* Memory of its own, beside the layers'. */
enum status weight_loader_buffer(struct weight_loader *loader, size_t bytes,
                                 struct buffer *buffer) WARN_UNUSED;
/* dry: the layer without its memory. */
enum status weight_loader_linear(struct weight_loader *loader, enum weight_type type, uint32_t n,
                                 uint32_t k, struct linear *linear) WARN_UNUSED;

/* Where a matrix goes: rows `first_row` on of a linear layer. */
struct weight_target {
    struct linear *linear;
    uint32_t first_row;
};

enum status weight_loader_matrix(struct weight_loader *loader, const char *name, uint32_t rows,
                                 uint32_t columns, struct weight_target target) WARN_UNUSED;
/* f32 [count], to element `first` of the buffer on; all `constant` where weights are random. */
enum status weight_loader_vector(struct weight_loader *loader, const char *name, uint32_t count,
                                 float constant, uint32_t first, struct buffer *buffer) WARN_UNUSED;

#endif
