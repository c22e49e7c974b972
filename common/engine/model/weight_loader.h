/* Brings one tensor after the other from files to the device, in the type that the backend
 * wants. Matrices that must be converted or quantized go through a piece at a time, by all
 * compute threads. Matrices that were packed before (weight_cache.h) are adopted as they are.
 * Without files the tensors are random, for benchmarks.
 *
 * With `dry` it brings nothing and only looks: is every tensor there, with its shape and a
 * readable type, and how many bytes will all need? So a model that doesn't fit its
 * configuration, or the machine, is refused before memory is taken.
 *
 * Owner: the step thread, while it loads. Failures: one sentence in `err`. */
#ifndef BATON_ENGINE_MODEL_WEIGHT_LOADER_H
#define BATON_ENGINE_MODEL_WEIGHT_LOADER_H

#include "common/engine/model/safetensors.h"
#include "kernels/kernels.h"

struct load_progress;
struct packed_plan;

/* Values of a piece; far more than a row of any model that config.json may describe. */
#define ROW_PIECE_VALUES ((size_t)4 << 20)

/* Rows of floats as a layer's type. The memory is ours. */
struct row_piece {
    void *floats; /* [ROW_PIECE_VALUES] of 4 bytes: of the layer's type, or f32 to be quantized */
    uint8_t *numbers; /* [ROW_PIECE_VALUES] quantized rows, one after the other */
    float *scales;    /* [ROW_PIECE_VALUES] at most one a number */
};

/* STATUS_LIMIT: no memory. */
enum status row_piece_init(struct row_piece *piece, struct error *err) WARN_UNUSED;
void row_piece_deinit(struct row_piece *piece);
/* Returns how many of the rows that are left fit a piece. */
uint32_t row_piece_fit(uint32_t rows_left, uint32_t columns);

struct row_source {
    enum float_type type;
    const void *bytes;           /* [row_count, columns] at any byte */
    uint32_t row_count, columns; /* they fit a piece */
};
/* Converts rows by all compute threads, with the same bytes for any number of them. Quantized types
 * go to numbers and scales, others to floats. STATUS_INVALID: a number of row `bad_row` (the first
 * such row) isn't finite or is beyond WEIGHT_MAX_QUANTIZED: it can't be quantized. */
enum status row_piece_convert(struct row_piece *piece, struct kernels *kernels,
                              const struct row_source *source, enum weight_type type,
                              uint32_t *bad_row) WARN_UNUSED;

struct weight_loader {
    struct kernels *kernels;
    struct safetensors *files; /* NULL: random */
    bool dry;
    uint64_t planned_bytes;   /* device memory asked for */
    struct packed_plan *plan; /* all linear layers; dry: made, otherwise followed; NULL: none */
    uint32_t planned_layers;  /* layers of the plan that were followed */
    struct buffer memory;     /* not dry: holds the plan's layers */
    bool filled;              /* the layers are packed in `memory` already */
    struct load_progress *progress; /* NULL: dry */
    struct error *err;
    bool stored;            /* the files hold quantized matrices (weight_types.h) */
    uint16_t *drawn;        /* random: a piece */
    struct row_piece piece; /* not dry */
};

enum status weight_loader_init(struct weight_loader *loader, struct kernels *kernels,
                               struct safetensors *files, bool stored, bool dry,
                               struct error *err) WARN_UNUSED;
void weight_loader_deinit(struct weight_loader *loader);

/* Takes memory apart from the layers'. */
enum status weight_loader_buffer(struct weight_loader *loader, size_t bytes,
                                 struct buffer *buffer) WARN_UNUSED;
/* Makes the next linear layer of the plan; dry: without its memory. */
enum status weight_loader_linear(struct weight_loader *loader, enum weight_type type, uint32_t n,
                                 uint32_t k, struct linear *linear) WARN_UNUSED;

/* The rows of a linear layer from `first_row` on. */
struct weight_target {
    struct linear *linear;
    uint32_t first_row;
};
enum status weight_loader_matrix(struct weight_loader *loader, const char *name, uint32_t rows,
                                 uint32_t columns, struct weight_target target) WARN_UNUSED;
/* Loads f32 [count] into the buffer from element `first` on. Random weights: all `constant`. */
enum status weight_loader_vector(struct weight_loader *loader, const char *name, uint32_t count,
                                 float constant, uint32_t first, struct buffer *buffer) WARN_UNUSED;

#endif
