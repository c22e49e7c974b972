/* Brings one tensor after the other from files to the device, in the type that the backend
 * wants. Matrices that must be converted or quantized go through a piece at a time, by all
 * compute threads. Matrices that were packed before (weight_cache.h) are adopted as they are.
 * Without files the tensors are random, for benchmarks.
 *
 * The disk is asked for what comes next (LOAD_AHEAD_BYTES). A device that is the host packs rows
 * from the mapped files. For another one all compute threads read a piece into one half of pinned
 * memory, while the device takes and packs the other half.
 *
 * With `dry` it brings nothing and only looks: is every tensor there, with its shape and a
 * readable type, and how many bytes will all need? So a model that doesn't fit its
 * configuration, or the machine, is refused before memory is taken.
 *
 * Owner: the step thread, while it loads. Failures: one sentence in `err`. */
#ifndef BATON_ENGINE_MODEL_WEIGHT_LOADER_H
#define BATON_ENGINE_MODEL_WEIGHT_LOADER_H

#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_types.h"
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

/* Bytes behind a piece that the disk reads meanwhile: enough for its queue. */
#define LOAD_AHEAD_BYTES ((uint64_t)64 << 20)

/* Pinned host memory of a load to a device with memory of its own. */
struct load_staging {
    void *halves[2];         /* [LOAD_HALF_BYTES] each; NULL: none */
    kernels_event behind[2]; /* KERNELS_STEPS: the half may be filled again then */
    uint32_t turn;           /* the half that is filled next */
};
#define LOAD_HALF_BYTES (ROW_PIECE_VALUES * sizeof(float))

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
    struct weight_types types;
    uint16_t *drawn;        /* random: a piece */
    struct row_piece piece; /* not dry */
    struct load_staging staging;
    uint64_t read_bytes; /* matrices' bytes of the files */
};

enum status weight_loader_init(struct weight_loader *loader, struct kernels *kernels,
                               struct safetensors *files, struct weight_types types, bool dry,
                               struct error *err) WARN_UNUSED;
void weight_loader_deinit(struct weight_loader *loader);

/* Takes memory apart from the layers'. */
enum status weight_loader_buffer(struct weight_loader *loader, size_t bytes,
                                 struct buffer *buffer) WARN_UNUSED;
/* Returns whether a folder of fp8 has this matrix as an 8-bit float. */
bool weight_loader_is_fp8(const struct weight_loader *loader, const char *name);
/* Makes the next linear layer of the plan; dry: without its memory. `name`: the matrix that decides
 * in a folder of fp8: one of floats is computed as floats, else `type` is taken. Matrices of e4m3
 * in a layer of floats are widened. */
enum status weight_loader_linear(struct weight_loader *loader, const char *name,
                                 enum weight_type type, uint32_t n, uint32_t k,
                                 struct linear *linear) WARN_UNUSED;

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
