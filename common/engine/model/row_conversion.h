/* Rows of floats on their way from a file to a layer's type, a piece at a time, by all compute
 * threads: the same bytes whatever their number. Owner: one thread. */
#ifndef BATON_ENGINE_MODEL_ROW_CONVERSION_H
#define BATON_ENGINE_MODEL_ROW_CONVERSION_H

#include "common/engine/model/safetensors.h"
#include "kernels/kernels.h"

/* Of a piece; far longer than a row of any model that config.json may describe. */
#define ROW_PIECE_VALUES ((size_t)4 << 20)

/* What a piece becomes; ours. */
struct row_piece {
    void *floats; /* [ROW_PIECE_VALUES] of 4 bytes: of the layer's type, or f32 to be quantized */
    uint8_t *numbers; /* [ROW_PIECE_VALUES]: quantized rows, one after the other */
    float *scales;    /* [ROW_PIECE_VALUES]: one a number at most */
};

/* STATUS_LIMIT: no memory. */
enum status row_piece_init(struct row_piece *piece, struct error *err) WARN_UNUSED;
void row_piece_deinit(struct row_piece *piece);

/* How many of the rows that are left fit a piece. */
uint32_t row_piece_fit(uint32_t rows_left, uint32_t columns);

/* Rows [row_count, columns] at `source`, which may lie at any byte: quantized ones go to numbers
 * and scales, others to floats. STATUS_INVALID: a number of row `bad_row`, the first of such, isn't
 * finite or is beyond WEIGHT_MAX_QUANTIZED, so it can't be quantized. */
struct row_source {
    enum float_type type;
    const void *bytes;
    uint32_t row_count, columns; /* that fit a piece */
};
enum status row_piece_convert(struct row_piece *piece, struct kernels *kernels,
                              const struct row_source *source, enum weight_type type,
                              uint32_t *bad_row) WARN_UNUSED;

#endif
