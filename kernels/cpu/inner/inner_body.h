/* The source of every struct inner; see inner.h. Included by baseline.c, avx2.c, avx512.c and
 * avx512bf16.c, each compiled for its instruction set, after one of product_*.h. */
#include "kernels/cpu/exp_fixed.h"
#include "kernels/cpu/inner/bf16.h"
#include "kernels/cpu/inner/inner.h"
#include "kernels/cpu/inner/quantize_row.h"
#include "kernels/cpu/inner/vector.h"

#include <math.h>
#include <string.h>

#define LANES SOFTMAX_LANES /* partial sums: lane i holds elements i, i + 16, ... */

static void round_bf16(const float *restrict in, uint32_t count, uint16_t *restrict bf16)
{
    for (uint32_t i = 0; i < count; i++)
        bf16[i] = round_one(in[i]);
}

static float quantize_numbers(const float *in, uint32_t count, int8_t *numbers)
{
    struct row_scale scale = row_scale_of(in, count);
    quantize(in, count, scale.inverse, numbers);
    return scale.scale;
}

enum {
    PACK_K = 256,
    PACK_WORDS = PACK_K / 2 * WORDS_PER_PAIR
}; /* packed at a time, on the stack */

/* Like row_words, for a k that may be odd: the missing last number is zero. */
static void row_words_padded(const float *row, uint32_t k, uint32_t *out)
{
    row_words(row, k / 2 * 2, out);
    float last[2] = {k % 2 ? row[k - 1] : 0.0f, 0.0f};
    if (k % 2)
        row_words(last, 2, out + k / 2 * WORDS_PER_PAIR);
}

/* out[word][row] = in[row][word] */
static void transpose_words(uint32_t in[][PACK_WORDS], uint32_t rows, uint32_t words_count,
                            uint32_t *out)
{
    uint32_t quad_rows = rows / 4 * 4, quad_words = words_count / 4 * 4;
    for (uint32_t r = 0; r < quad_rows; r += 4)
        for (uint32_t w = 0; w < quad_words; w += 4)
            transpose_quads(&in[r][w], PACK_WORDS, out + (size_t)w * rows + r, rows);
    for (uint32_t w = 0; w < words_count; w++)
        for (uint32_t r = w < quad_words ? quad_rows : 0; r < rows; r++)
            out[(size_t)w * rows + r] = in[r][w];
}

static void pack_tile(const float *const *rows, uint32_t count, uint32_t k, void *tile)
{
    uint32_t packed[TILE_ROWS][PACK_WORDS];
    uint32_t *out = tile;
    if (count == 1) {
        row_words_padded(rows[0], k, out);
        return;
    }
    for (uint32_t begin = 0; begin < k; begin += PACK_K, out += PACK_WORDS * count) {
        uint32_t width = k - begin < PACK_K ? k - begin : PACK_K;
        for (uint32_t r = 0; r < count; r++)
            row_words_padded(rows[r] + begin, width, packed[r]);
        transpose_words(packed, count, (width + 1) / 2 * WORDS_PER_PAIR, out);
    }
}

/* The same tree for every sum over lanes. */
static inline float add_lanes(const float lane[LANES])
{
    float half[LANES / 2], quarter[LANES / 4];
    for (uint32_t i = 0; i < LANES / 2; i++)
        half[i] = lane[i] + lane[i + LANES / 2];
    for (uint32_t i = 0; i < LANES / 4; i++)
        quarter[i] = half[i] + half[i + LANES / 4];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

static void blend(float *restrict out, float a, const float *restrict partial, float b,
                  uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = out[i] * a + partial[i] * b;
}

#include "kernels/cpu/inner/attention_body.h"

static void rmsnorm(const float *restrict x, const float *restrict weight, double eps,
                    uint32_t hidden, float *restrict out)
{
    float lane[LANES] = {0};
    uint32_t whole = hidden / LANES * LANES;
    for (uint32_t i = 0; i < whole; i += LANES)
        for (uint32_t l = 0; l < LANES; l++)
            lane[l] += x[i + l] * x[i + l];
    for (uint32_t i = whole; i < hidden; i++)
        lane[i - whole] += x[i] * x[i];
    float factor = (float)(1.0 / sqrt((double)add_lanes(lane) / hidden + eps));
    for (uint32_t i = 0; i < hidden; i++)
        out[i] = x[i] * factor * weight[i];
}

static void rope(const float *restrict cos_sin, uint32_t head_dim, float *restrict head)
{
    uint32_t half = head_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = a * cos_sin[i] - b * cos_sin[half + i];
        head[i + half] = b * cos_sin[i] + a * cos_sin[half + i];
    }
}

static void swiglu(const float *restrict gate, const float *restrict up, uint32_t count,
                   float *restrict out)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = gate[i] / (1.0f + exp_fixed(-gate[i])) * up[i];
}

#define INNER_TABLE(NAME)                                                                          \
    {                                                                                              \
        .name = NAME, .tile_bytes_per_pair = WORDS_PER_PAIR * 4, .whole_rows = WHOLE_ROWS,         \
        .near_rows = NEAR_ROWS, .pack_tile = pack_tile, .widen = WIDEN, .multiply = multiply,      \
        .blend = blend, .round = round_bf16, .quantize = quantize_numbers, .rmsnorm = rmsnorm,     \
        .rope = rope, .swiglu = swiglu, .attention = ATTENTION_TABLE,                              \
    }
