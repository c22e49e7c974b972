#include "kernels/cpu/inner/linear_amx.h"

#include "kernels/cpu/inner/bf16.h"
#include "kernels/cpu/inner/vector.h"

#include <string.h>

#define LINE_BYTES 64

static void round_step(const float *restrict in, uint16_t *restrict out)
{
    for (uint32_t i = 0; i < AMX_STEP; i++)
        out[i] = round_one(in[i]);
}

static void pack_row(const float *row, uint32_t k, size_t stride, uint8_t *tile)
{
    uint32_t whole = k / AMX_STEP, rest = k % AMX_STEP;
    for (uint32_t step = 0; step < whole; step++)
        round_step(row + (size_t)step * AMX_STEP, (uint16_t *)(tile + step * stride));
    if (!rest)
        return;
    float last[AMX_STEP] = {0};
    memcpy(last, row + (size_t)whole * AMX_STEP, rest * sizeof *last);
    round_step(last, (uint16_t *)(tile + whole * stride));
}

void amx_pack(const float *const *rows, uint32_t count, uint32_t k, uint32_t height, uint8_t *tile)
{
    size_t stride = (size_t)height * AMX_ROW_BYTES;
    uint32_t steps = k / AMX_STEP + (k % AMX_STEP != 0);
    for (uint32_t r = 0; r < count; r++)
        pack_row(rows[r], k, stride, tile + (size_t)r * AMX_ROW_BYTES);
    for (uint32_t r = count; r < height; r++)
        for (uint32_t step = 0; step < steps; step++)
            memset(tile + step * stride + (size_t)r * AMX_ROW_BYTES, 0, AMX_ROW_BYTES);
}

ALWAYS_INLINE void prefetch_lines(const char *next, uint32_t lines)
{
    for (uint32_t i = 0; i < lines; i++)
        __builtin_prefetch(next + (size_t)i * LINE_BYTES, 0, 2);
}

#define PANEL_BYTES (PANEL * sizeof(uint32_t))

/* Tiles 0 to 3: sums; 4 and 5: rows; 6 and 7: weights. */
ALWAYS_INLINE void add_step(const uint8_t *upper, const uint8_t *lower, const uint32_t *weights)
{
    TILE_LOAD(6, weights, PANEL_BYTES);
    TILE_LOAD_FAR(4, upper, AMX_ROW_BYTES);
    TILE_LOAD(7, weights + PANEL / 2, PANEL_BYTES);
    TILE_DOT_BF16(0, 4, 6);
    if (lower)
        TILE_LOAD_FAR(5, lower, AMX_ROW_BYTES);
    TILE_DOT_BF16(1, 4, 7);
    if (lower) {
        TILE_DOT_BF16(2, 5, 6);
        TILE_DOT_BF16(3, 5, 7);
    }
}

ALWAYS_INLINE void begin_sums(const struct amx_product *product, const bool two)
{
    const float *low = product->sums + (size_t)AMX_ROWS * PANEL;
    if (!product->resume) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        if (two) {
            TILE_ZERO(2);
            TILE_ZERO(3);
        }
        return;
    }
    TILE_LOAD(0, product->sums, PANEL_BYTES);
    TILE_LOAD(1, product->sums + PANEL / 2, PANEL_BYTES);
    if (two) {
        TILE_LOAD(2, low, PANEL_BYTES);
        TILE_LOAD(3, low + PANEL / 2, PANEL_BYTES);
    }
}

static inline void add_row(const struct amx_sums *sums, uint32_t row)
{
    const float *sum = sums->sums + (size_t)row * PANEL;
    const float *from = sums->from ? sums->from + row * sums->from_stride : NULL;
    float *to = sums->to + row * sums->to_stride;
    if (sums->outputs < PANEL) {
        for (uint32_t n = 0; n < sums->outputs; n++)
            to[n] = from ? from[n] + sum[n] : sum[n];
        return;
    }
    for (uint32_t n = 0; n < PANEL; n += VECTOR) {
        floats value = *(const floats *)(sum + n);
        if (from)
            value = *(const floats *)(from + n) + value;
        if (sums->past_caches)
            _mm512_stream_ps(to + n, (__m512)value);
        else
            *(floats *)(to + n) = value;
    }
}

static inline void add_rows(const struct amx_sums *sums, uint32_t first, uint32_t end)
{
    for (uint32_t row = first; row < end; row++)
        add_row(sums, row);
}

/* Does one step's part of the work with outputs. All at once would fill the buffers of loads and
 * stores. */
static void pass_outputs(const struct amx_product *product, uint32_t step)
{
    const struct amx_sums *behind = product->behind;
    if (behind)
        add_rows(behind, behind->rows * step / product->steps,
                 behind->rows * (step + 1) / product->steps);
    uint32_t first = product->out_rows * step / product->steps;
    uint32_t end = product->out_rows * (step + 1) / product->steps;
    prefetch_rows(product->out, product->out_stride, first, end);
}

ALWAYS_INLINE void multiply_tiles(const struct amx_product *product, const bool two)
{
    size_t stride = (size_t)product->height * AMX_ROW_BYTES;
    const uint8_t *upper = product->tiles[0], *lower = two ? product->tiles[1] : NULL;
    const uint32_t *weights = product->weights;
    const char *next = product->next;
    uint32_t whole = product->steps - (product->last != NULL);
    begin_sums(product, two);
    for (uint32_t step = 0; step < whole; step++) {
        prefetch_lines(next, product->next_lines);
        next += (size_t)product->next_lines * LINE_BYTES;
        if (product->out_rows || product->behind)
            pass_outputs(product, step);
        if (product->near)
            bring_near(weights, AMX_STEP_WORDS * sizeof *weights);
        add_step(upper, lower, weights);
        weights += AMX_STEP_WORDS;
        upper += stride;
        if (two)
            lower += stride;
    }
    if (product->last) {
        if (product->out_rows || product->behind)
            pass_outputs(product, whole);
        add_step(upper, lower, product->last);
    }
    float *low = product->sums + (size_t)AMX_ROWS * PANEL;
    TILE_STORE(0, product->sums, PANEL_BYTES);
    TILE_STORE(1, product->sums + PANEL / 2, PANEL_BYTES);
    if (two) {
        TILE_STORE(2, low, PANEL_BYTES);
        TILE_STORE(3, low + PANEL / 2, PANEL_BYTES);
    }
}

void amx_multiply(const struct amx_product *product)
{
    if (product->tiles[1])
        multiply_tiles(product, true);
    else
        multiply_tiles(product, false);
}

void amx_round_row(const float *row, uint32_t k, float *rounded)
{
    for (uint32_t i = 0; i < k; i++)
        rounded[i] = (union float_bits){.bits = (uint32_t)round_one(row[i]) << 16}.value;
}

/* Adds a step of each panel: sums [panel][half]. */
ALWAYS_INLINE void add_step_of_streams(const float *row, const uint32_t *weights, size_t apart,
                                       floats sums[AMX_STREAMS][2])
{
    const words high = (words)_mm512_set1_epi32((int)0xffff0000);
    floats even[AMX_STREAMS][2], odd[AMX_STREAMS][2];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 2 * AMX_STREAMS; i++)
        even[i / 2][i % 2] = odd[i / 2][i % 2] = (floats){0};
    for (uint32_t k = 0; k < AMX_STEP; k += 2, weights += PANEL) {
        __m512 row0 = _mm512_set1_ps(row[k]), row1 = _mm512_set1_ps(row[k + 1]);
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 2 * AMX_STREAMS; i++) {
            words line = stream_line(weights + i / 2 * apart + i % 2 * VECTOR);
            floats *sum0 = &even[i / 2][i % 2], *sum1 = &odd[i / 2][i % 2];
            *sum0 = (floats)_mm512_fmadd_ps((__m512)(line << 16), row0, (__m512)*sum0);
            *sum1 = (floats)_mm512_fmadd_ps((__m512)(line & high), row1, (__m512)*sum1);
        }
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 2 * AMX_STREAMS; i++)
        sums[i / 2][i % 2] += even[i / 2][i % 2] + odd[i / 2][i % 2];
}

/* Rounds to nearest, traps nothing, takes subnormal operands and results as zero. */
#define MXCSR_OF_TILES 0x9fc0u

void amx_multiply_streams(const struct amx_streams *streams)
{
    const unsigned int before = _mm_getcsr();
    const uint32_t *weights = streams->weights;
    floats sums[AMX_STREAMS][2] = {0};
    /* stream_line is volatile: no computation on it moves before this */
    _mm_setcsr(MXCSR_OF_TILES);
    for (uint32_t step = 0; step < streams->steps; step++, weights += AMX_STEP_WORDS)
        add_step_of_streams(streams->row + (size_t)step * AMX_STEP, weights, streams->apart, sums);
    memcpy(streams->sums, sums, sizeof sums);
    __asm__ volatile("" ::: "memory"); /* all of it before this point */
    _mm_setcsr(before);
}

void amx_add_sums(const struct amx_sums *sums)
{
    add_rows(sums, 0, sums->rows);
}

void amx_written(void)
{
    _mm_sfence();
}
