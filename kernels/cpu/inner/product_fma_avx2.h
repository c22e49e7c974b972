/* Tile product by fp32 multiply-add, on 8 lanes and sixteen registers. The tile is that of
 * product_fma_sums.h. A product is cut into strips: 4 to 6 rows x two vectors of outputs, or 1 to 3
 * rows x all four of a panel. Each has eight sums at least, to cover the latency of the instruction
 * (one row has four, but waits for memory), and twelve at most, which leave four registers for
 * weights and rows. Weights stay bf16 until they are in one: the cache holds twice as many then,
 * and nothing is stored. */
#include "kernels/cpu/inner/product_fma_sums.h"

#define WIDEN      NULL
#define WHOLE_ROWS FLAT_ROWS
#define NEAR_ROWS  0

#define FLAT_ROWS 3 /* most of a strip of four vectors */

struct strip {
    const struct tile_product *product;
    uint32_t row, n;
    const char *next; /* to bring in meanwhile */
    size_t next_step;
};

/* sum += w * x, where the product is exact. Left to choose, the compiler (gcc 12) moves sums about
 * and runs out of registers. */
#define ADD(SUM, W, X) __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(SUM) : "x"(W), "x"(X))

ALWAYS_INLINE floats broadcast_here(const float *x)
{
    floats all;
    __asm__ volatile("vbroadcastss %1, %0" : "=x"(all) : "m"(*x));
    return all;
}

#define EVEN(BYTE) ((uint32_t)(BYTE) << 16 | ((uint32_t)(BYTE) + 1) << 24 | 0x8080)
_Alignas(32) static const words even_bytes = {EVEN(0), EVEN(4), EVEN(8), EVEN(12),
                                              EVEN(0), EVEN(4), EVEN(8), EVEN(12)};

/* A vector of weights of odd k: their halves of the words, blended with zeros, for which no
 * register is kept. */
#define ODD_K(PANEL_K, W)                                                                          \
    "vpxor " W ", " W ", " W "\n\tvpblendw $0xaa, " PANEL_K ", " W ", " W "\n\t"

ALWAYS_INLINE floats odd_k(const uint32_t *panel)
{
    floats w;
    __asm__ volatile(ODD_K("%1", "%0") : "=x"(w) : "m"(*(const words *)panel));
    return w;
}

/* Of even k: by a shuffle, since some cores shift where they multiply. Its control has a register,
 * but beside six rows. */
#define EVEN_K(PANEL_K, W, CONTROL)                                                                \
    "vmovdqu " PANEL_K ", " W "\n\tvpshufb " CONTROL ", " W ", " W "\n\t"

ALWAYS_INLINE floats even_k(const uint32_t *panel, const uint32_t rows)
{
    floats w;
    if (rows < SUM_ROWS)
        __asm__ volatile(EVEN_K("%1", "%0", "%2")
                         : "=&x"(w)
                         : "m"(*(const words *)panel), "x"(even_bytes));
    else
        __asm__ volatile(EVEN_K("%1", "%0", "%2")
                         : "=x"(w)
                         : "m"(*(const words *)panel), "m"(even_bytes));
    return w;
}

ALWAYS_INLINE void add_k(const float *tile, floats w0, floats w1, const uint32_t rows,
                         floats sum[][2])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        floats x = broadcast_here(tile + r);
        ADD(sum[r][0], w0, x);
        ADD(sum[r][1], w1, x);
    }
}

/* `rows` is a constant at every call, so that the sums live in registers; of 4 to 6. */
ALWAYS_INLINE void multiply_strip(const struct strip *strip, const uint32_t rows)
{
    const struct tile_product *product = strip->product;
    const size_t stride = product->rows;
    const float *tile = (const float *)product->tile + strip->row;
    const uint32_t *panel = product->panel + strip->n;
    float *out = product->out + strip->row * product->out_stride + strip->n;
    const char *next = strip->next;
    const uint32_t shares = product->pause ? 1 : ROW_SHARES(rows);
    floats sum[SUM_ROWS][2];
    begin_block(product, strip->row, strip->n, rows, sum);
    for (uint32_t share = 0, p = 0; share < shares; share++) {
        if (!product->pause)
            prefetch_rows(out, product->out_stride, rows * share / shares,
                          rows * (share + 1) / shares);
        for (uint32_t end = product->pairs * (share + 1) / shares; p < end; p++) {
            __builtin_prefetch(next, 0, 2); /* into the second level */
            add_k(tile, odd_k(panel), odd_k(panel + VECTOR), rows, sum);
            add_k(tile + stride, even_k(panel, rows), even_k(panel + VECTOR, rows), rows, sum);
            panel += PANEL;
            tile += 2 * stride;
            next += strip->next_step;
        }
    }
    end_block(product, strip->row, strip->n, rows, sum);
}

/* One k of 1 to 3 rows, one vector of outputs. */
ALWAYS_INLINE void add_vector(const floats x[], floats w, const uint32_t rows, const uint32_t v,
                              floats sum[][2])
{
#pragma GCC unroll 3
    for (uint32_t r = 0; r < rows; r++)
        ADD(sum[r][v], w, x[r]);
}

#define VECTOR_OF_THREE(WEIGHTS, SUM0, SUM1, SUM2)                                                 \
    WEIGHTS                                                                                        \
    "vfmadd231ps %%ymm13, %%ymm12, %" #SUM0 "\n\t"                                                 \
    "vfmadd231ps %%ymm14, %%ymm12, %" #SUM1 "\n\t"                                                 \
    "vfmadd231ps %%ymm15, %%ymm12, %" #SUM2 "\n\t"

#define ODD_OF_THREE(V)  ODD_K("32*" #V "(%[panel])", "%%ymm12")
#define EVEN_OF_THREE(V) EVEN_K("32*" #V "(%[panel])", "%%ymm12", "%[control]")

#define THREE_ROWS(WEIGHTS)                                                                        \
    VECTOR_OF_THREE(WEIGHTS(0), 0, 4, 8)                                                           \
    VECTOR_OF_THREE(WEIGHTS(1), 1, 5, 9)                                                           \
    VECTOR_OF_THREE(WEIGHTS(2), 2, 6, 10)                                                          \
    VECTOR_OF_THREE(WEIGHTS(3), 3, 7, 11)

/* One k of three rows: all sixteen registers, which the compiler can't do without the stack. */
#define ADD_THREE(TILE, PANEL_K, WEIGHTS)                                                          \
    __asm__ volatile("vbroadcastss (%[tile]), %%ymm13\n\t"                                         \
                     "vbroadcastss 4(%[tile]), %%ymm14\n\t"                                        \
                     "vbroadcastss 8(%[tile]), %%ymm15\n\t" THREE_ROWS(WEIGHTS)                    \
                     : "+x"(low[0][0]), "+x"(low[0][1]), "+x"(high[0][0]), "+x"(high[0][1]),       \
                       "+x"(low[1][0]), "+x"(low[1][1]), "+x"(high[1][0]), "+x"(high[1][1]),       \
                       "+x"(low[2][0]), "+x"(low[2][1]), "+x"(high[2][0]), "+x"(high[2][1])        \
                     : [tile] "r"(TILE), [panel] "r"(PANEL_K), [control] "m"(even_bytes),          \
                       "m"(*(const float(*)[3])(TILE)), "m"(*(const uint32_t(*)[PANEL])(PANEL_K))  \
                     : "xmm12", "xmm13", "xmm14", "xmm15")

ALWAYS_INLINE floats weights_of(const uint32_t *panel, const bool odd, const uint32_t rows)
{
    return odd ? odd_k(panel) : even_k(panel, rows);
}

/* The same of all four. */
ALWAYS_INLINE void add_flat_k(const float *tile, const uint32_t *panel, const bool odd,
                              const uint32_t rows, floats low[][2], floats high[][2])
{
    if (rows == 3) {
        if (odd)
            ADD_THREE(tile, panel, ODD_OF_THREE);
        else
            ADD_THREE(tile, panel, EVEN_OF_THREE);
        return;
    }
    floats x[FLAT_ROWS];
#pragma GCC unroll 3
    for (uint32_t r = 0; r < rows; r++)
        x[r] = broadcast_here(tile + r);
    add_vector(x, weights_of(panel, odd, rows), rows, 0, low);
    add_vector(x, weights_of(panel + VECTOR, odd, rows), rows, 1, low);
    add_vector(x, weights_of(panel + 2 * VECTOR, odd, rows), rows, 0, high);
    add_vector(x, weights_of(panel + 3 * VECTOR, odd, rows), rows, 1, high);
}

/* One line, in turns with the products: a burst of requests holds up the loads behind it. One row
 * waits for its weights, so they come into the first level of cache. */
ALWAYS_INLINE void bring(const uint32_t rows, const char *line)
{
    if (rows == 1)
        __asm__ volatile("prefetcht0 (%0)" ::"r"(line));
    else
        __asm__ volatile("prefetcht1 (%0)" ::"r"(line));
}

/* The same of 1 to 3 rows, all four vectors of outputs. */
ALWAYS_INLINE void multiply_flat(const struct strip *strip, const uint32_t rows)
{
    const struct tile_product *product = strip->product;
    const size_t stride = rows == 1 ? 1 : product->rows;
    const float *tile = (const float *)product->tile + strip->row;
    const uint32_t *panel = product->panel;
    float *out = product->out + strip->row * product->out_stride;
    const char *next = strip->next;
    floats low[FLAT_ROWS][2], high[FLAT_ROWS][2];
    begin_block(product, strip->row, 0, rows, low);
    begin_block(product, strip->row, 2 * VECTOR, rows, high);
    if (!product->pause) {
        prefetch_rows(out, product->out_stride, 0, rows);
        prefetch_rows(out + 2 * VECTOR, product->out_stride, 0, rows);
    }
    for (uint32_t p = 0; p < product->pairs; p++) {
        bring(rows, next);
        add_flat_k(tile, panel, true, rows, low, high);
        bring(rows, next + 64);
        add_flat_k(tile + stride, panel, false, rows, low, high);
        panel += PANEL;
        tile += 2 * stride;
        next += strip->next_step;
    }
    end_block(product, strip->row, 0, rows, low);
    end_block(product, strip->row, 2 * VECTOR, rows, high);
}

#define STRIP_CASE(ROWS)                                                                           \
    case ROWS:                                                                                     \
        if (ROWS <= FLAT_ROWS)                                                                     \
            multiply_flat(strip, ROWS);                                                            \
        else                                                                                       \
            multiply_strip(strip, ROWS);                                                           \
        break;

static void multiply_rows(const struct strip *strip, uint32_t rows)
{
    switch (rows) {
        STRIP_CASE(1)
        STRIP_CASE(2)
        STRIP_CASE(3)
        STRIP_CASE(4)
        STRIP_CASE(5)
        STRIP_CASE(6)
    }
}

/* The strips' heights, by the rows of the tile. */
static const uint8_t heights[TILE_ROWS + 1][2] = {
    {0}, {1}, {2}, {3}, {4}, {5}, {6}, {4, 3}, {5, 3}, {6, 3}, {5, 5}, {6, 5}, {6, 6},
};

ALWAYS_INLINE uint32_t strips_beside(uint32_t rows)
{
    return rows > FLAT_ROWS ? PANEL / (2 * VECTOR) : 1;
}

/* A flat strip alone reads a stream, and asks for what comes in it at distances of its own, in
 * bytes. Measured: other requests for one row cost a fifth of the speed, and 8192 for two rows a
 * tenth. */
#define ONE_ROW_AHEAD 5120
#define FLAT_AHEAD    8704

static void multiply_stream(const struct tile_product *product)
{
    uint32_t ahead = product->rows == 1 ? ONE_ROW_AHEAD : FLAT_AHEAD;
    struct strip strip = {.product = product,
                          .next = (const char *)product->panel + ahead,
                          .next_step = PANEL * sizeof *product->panel};
    multiply_rows(&strip, product->rows);
}

static void multiply(const struct tile_product *product)
{
    if (product->rows <= FLAT_ROWS) {
        multiply_stream(product);
        return;
    }
    const uint8_t *height = heights[product->rows];
    uint32_t count = strips_beside(height[0]) + (height[1] ? strips_beside(height[1]) : 0);
    const char *next = product->next ? product->next : (const char *)product->panel;
    struct strip strip = {.product = product,
                          .next_step = (product->next_step + count - 1) / count};
    uint32_t done = 0;
    for (uint32_t i = 0; i < 2 && height[i]; strip.row += height[i++])
        for (uint32_t beside = 0; beside < strips_beside(height[i]); beside++) {
            strip.n = beside * 2 * VECTOR;
            strip.next = next + product->pairs * product->next_step * done++ / count;
            multiply_rows(&strip, height[i]);
        }
}
