/* struct inner of AVX2: its products of linear layers, its scans of attention, and inner_body.h.
 * Sixteen registers need loops of their own; the sums are those of the other sets. */
#include "kernels/cpu/inner/attention_fma.h"
#include "kernels/cpu/inner/product_fma_sums.h"

#include <string.h>

/* --- attention: keys and values where they lie in the pool --- */

/* Sixteen registers hold sums and little else, so rows are cut into equal shares. Over keys a share
 * has a sum for each row, beside the words of eight tokens; these are put side by side once for all
 * its rows. Over values a share has two vectors of sums for each row. Few rows take several
 * vectors: a sum waits four cycles for the one before, and fewer than eight sums leave multipliers
 * idle. */

#define KEY_ROWS   8
#define VALUE_ROWS 6
#define SCAN_SUMS  12

/* add_in_place, by an instruction that the compiler doesn't take apart. */
ALWAYS_INLINE void add_kept(floats *sum, floats a, floats b)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(*sum) : "x"(a), "x"(b));
}

/* Reads the value anew each time: the compiler would keep it for the next vector, and has no
 * register for that. */
ALWAYS_INLINE floats broadcast_anew(const float *value)
{
    floats all;
    __asm__ volatile("vbroadcastss %1, %0" : "=x"(all) : "m"(*value));
    return all;
}

/* Returns the rows of the next share: as few shares as possible, about equally large. */
static inline uint32_t share_of(uint32_t left, uint32_t most)
{
    uint32_t shares = (left + most - 1) / most;
    return (left + shares - 1) / shares;
}

/* --- prefetches of later tokens --- */

/* Tokens ahead: how far prefetches go into the level 2 cache, and from there into the level 1.
 * Measured on a Zen 4: a core waits for few lines of level 1 at once. Prefetches into level 1 alone
 * (nearer, or a whole segment ahead) come at 11 GB/s, both together at 16. */
#define NEAR_TOKENS 32
#define FAR_TOKENS  64

/* Returns token t, or behind the last run one of the tokens of `next`. */
ALWAYS_INLINE const char *token_or_next(const struct attention_scan *scan, uint32_t t)
{
    uint32_t end = (scan->token_count + RUN_TOKENS - 1) / RUN_TOKENS * RUN_TOKENS;
    return t < end ? token_at(scan->tokens, t) : token_at(scan->next, t - end);
}

struct scan_ahead {
    const char *near, *far;
};

/* Begins at a place in the run of token t. */
ALWAYS_INLINE struct scan_ahead ahead_of(const struct attention_scan *scan, uint32_t t,
                                         uint32_t place)
{
    return (struct scan_ahead){.near = token_or_next(scan, t + NEAR_TOKENS) + place,
                               .far = token_or_next(scan, t + FAR_TOKENS) + place};
}

ALWAYS_INLINE void ask_ahead(struct scan_ahead *ahead, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(ahead->near + i, 0, 3);
        __builtin_prefetch(ahead->far + i, 0, 2);
    }
    ahead->near += bytes;
    ahead->far += bytes;
}

/* --- keys --- */

#define KEY_VECTORS(ROWS) ((ROWS) <= 2 ? 4 : (ROWS) <= 4 ? 2 : 1)
_Static_assert(KEY_VECTORS(1) * VECTOR <= PANEL, "no block reads or writes behind a whole panel");

/* Multiplies four words of a vector of tokens by those of the rows, odd numbers first. Prefetches
 * as many bytes, line by line: many at once wait for each other. */
ALWAYS_INLINE void add_words(const words four[4], const float *rows, const uint32_t count,
                             const uint32_t vectors, const bool int8, struct scan_ahead *ahead,
                             floats *sum)
{
    const uint32_t per_word = int8 ? 4 : 2;
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 4 * per_word; i++) {
        uint32_t odd_first = i ^ 1;
        if (i % (2 * per_word) == 0)
            ask_ahead(ahead, sizeof(words[2]));
        floats numbers = widen_number(four[i / per_word], odd_first % per_word, int8);
#pragma GCC unroll 8
        for (uint32_t r = 0; r < count; r++)
            add_kept(&sum[r * vectors], broadcast_anew(rows + r * ATTENTION_STRIDE + odd_first),
                     numbers);
    }
}

/* `count` and `int8` are constants at every call, so that the sums live in registers. */
ALWAYS_INLINE void scan_keys_block(const struct attention_scan *scan, uint32_t t, uint32_t first,
                                   const uint32_t count, const bool int8)
{
    const uint32_t per_word = int8 ? 4 : 2, vectors = KEY_VECTORS(count);
    const float *rows = scan->rows + first * ATTENTION_STRIDE;
    const size_t stride = scan->tokens->token_bytes;
    const char *runs[4][VECTOR_RUNS];
    floats sum[SCAN_SUMS];
#pragma GCC unroll 4
    for (uint32_t v = 0; v < vectors; v++)
        find_tokens(scan->tokens, t + v * VECTOR, runs[v]);
#pragma GCC unroll 12
    for (uint32_t i = 0; i < count * vectors; i++)
        sum[i] = (floats){0};
    /* The block prefetches as many tokens as it has, run by run; a run has `left` bytes left. */
    uint32_t run = t;
    struct scan_ahead ahead = ahead_of(scan, run, 0);
    const int run_bytes = (int)(RUN_TOKENS * stride),
              step_bytes = (int)(vectors * sizeof(words[4]));
    int left = run_bytes;
    for (uint32_t w = scan->tokens->head_dim / per_word; w > 0; w -= 4, rows += 4 * per_word) {
        for (; left <= 0; left += run_bytes)
            ahead = ahead_of(scan, run += RUN_TOKENS, 0);
        left -= step_bytes;
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vectors; v++) {
            words four[4];
            take_words(runs[v], stride, four);
            add_words(four, rows, count, vectors, int8, &ahead, sum + v);
        }
    }
    float *out = scan->out + first * scan->out_stride + t;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < count; r++, out += scan->out_stride)
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vectors; v++)
            ((floats *)out)[v] = sum[r * vectors + v];
}

/* --- values --- */

/* Tokens that all shares and columns go over before the next ones: they stay in the level 1
 * cache. */
#define CHUNK_TOKENS 64

#define VALUE_VECTORS(ROWS) ((ROWS) <= 3 ? 4 : 2)

/* two_vectors of bf16, with a mask that takes no register. */
ALWAYS_INLINE void two_bf16_vectors(const char *numbers, floats out[2])
{
    static const uint32_t mask[VECTOR]
        __attribute__((aligned(32))) = {0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000,
                                        0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};
    words packed = *(const words *)numbers;
    __asm__("vandps %1, %2, %0" : "=x"(out[1]) : "m"(*(const words *)mask), "x"(packed));
    out[0] = (floats)(packed << 16);
}

ALWAYS_INLINE void scan_value(const char *token, const float *weights, const uint32_t count,
                              const bool int8, floats sum[SCAN_SUMS])
{
    const uint32_t vectors = VALUE_VECTORS(count);
#pragma GCC unroll 4
    for (uint32_t v = 0; v < vectors; v += 2) {
        floats value[2];
        if (int8)
            two_vectors(token + v * VECTOR, true, value);
        else
            two_bf16_vectors(token + v * VECTOR * sizeof(uint16_t), value);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < count; r++) {
            floats weight = broadcast_anew(weights + r * ATTENTION_STRIDE);
            add_kept(&sum[r * vectors + v], weight, value[0]);
            add_kept(&sum[r * vectors + v + 1], weight, value[1]);
        }
    }
}

/* Adds a chunk's values, columns from d on, to the sums in `out`. There the even places of bf16
 * come before the odd ones. */
ALWAYS_INLINE void scan_values_block(const struct attention_scan *scan, uint32_t begin, uint32_t d,
                                     uint32_t first, const uint32_t count, const bool int8)
{
    const uint32_t vectors = VALUE_VECTORS(count), width = vectors * VECTOR;
    const uint32_t bytes = RUN_TOKENS * width * (int8 ? 1 : sizeof(uint16_t));
    const float *weights = scan->rows + first * ATTENTION_STRIDE + begin;
    const size_t stride = scan->tokens->token_bytes, column = d * (int8 ? 1 : sizeof(uint16_t));
    const uint32_t left = scan->token_count - begin;
    const uint32_t end = begin + (left < CHUNK_TOKENS ? left : CHUNK_TOKENS);
    float *out = scan->out + first * scan->out_stride + d;
    floats sum[SCAN_SUMS];
#pragma GCC unroll 12
    for (uint32_t i = 0; i < count * vectors; i++)
        sum[i] = ((floats *)(out + i / vectors * scan->out_stride))[i % vectors];
    /* All passes over the chunk together prefetch as many tokens: a run has as many parts as there
     * are passes. */
    uint32_t passes = scan->tokens->head_dim / width;
    uint32_t part = d / width * ((end - begin + RUN_TOKENS - 1) / RUN_TOKENS);
    for (uint32_t t = begin; t < end; t += RUN_TOKENS, part++) {
        const char *token = token_at(scan->tokens, t) + column;
        struct scan_ahead ahead =
            ahead_of(scan, begin + part / passes * RUN_TOKENS, part % passes * bytes);
        uint32_t run = end - t < RUN_TOKENS ? end - t : RUN_TOKENS;
        for (uint32_t i = 0; i < run; i += 2, weights += 2, token += 2 * stride) {
            ask_ahead(&ahead, bytes / RUN_TOKENS * 2);
            /* the weight behind the last token is zero; any number may lie there */
            scan_value(i + 1 < run ? token + stride : token, weights + 1, count, int8, sum);
            scan_value(token, weights, count, int8, sum);
        }
    }
#pragma GCC unroll 12
    for (uint32_t i = 0; i < count * vectors; i++)
        ((floats *)(out + i / vectors * scan->out_stride))[i % vectors] = sum[i];
}

static void clear_sums(const struct attention_scan *scan)
{
    for (uint32_t r = 0; r < scan->count; r++)
        memset(scan->out + r * scan->out_stride, 0, scan->tokens->head_dim * sizeof(float));
}

static void put_in_turns(const struct attention_scan *scan)
{
    for (uint32_t r = 0; r < scan->count; r++)
        for (uint32_t d = 0; d < scan->tokens->head_dim; d += 2 * VECTOR) {
            floats *at = (floats *)(scan->out + r * scan->out_stride + d);
            floats even = at[0], odd = at[1];
            at[0] = in_turns_low(even, odd);
            at[1] = in_turns_high(even, odd);
        }
}

/* --- shares --- */

#define SHARE_CASE(SHARE, ROWS)                                                                    \
    case ROWS:                                                                                     \
        if (scan->tokens->int8)                                                                    \
            SHARE(ROWS, true)                                                                      \
        else                                                                                       \
            SHARE(ROWS, false)                                                                     \
        break;
#define SHARE_CASES(SHARE)                                                                         \
    SHARE_CASE(SHARE, 1)                                                                           \
    SHARE_CASE(SHARE, 2)                                                                           \
    SHARE_CASE(SHARE, 3) SHARE_CASE(SHARE, 4) SHARE_CASE(SHARE, 5) SHARE_CASE(SHARE, 6)

#define KEYS_SHARE(ROWS, INT8)                                                                     \
    for (uint32_t t = 0; t < scan->token_count; t += KEY_VECTORS(ROWS) * VECTOR)                   \
        scan_keys_block(scan, t, r, ROWS, INT8);
static void scan_keys(const struct attention_scan *scan)
{
    for (uint32_t r = 0, rows; r < scan->count; r += rows) {
        rows = share_of(scan->count - r, KEY_ROWS);
        switch (rows) {
            SHARE_CASES(KEYS_SHARE)
            SHARE_CASE(KEYS_SHARE, 7)
            SHARE_CASE(KEYS_SHARE, 8)
        }
    }
}
#undef KEYS_SHARE

#define VALUES_SHARE(ROWS, INT8)                                                                   \
    for (uint32_t d = 0; d < scan->tokens->head_dim; d += VALUE_VECTORS(ROWS) * VECTOR)            \
        scan_values_block(scan, t, d, r, ROWS, INT8);
static void scan_values(const struct attention_scan *scan)
{
    clear_sums(scan);
    for (uint32_t t = 0; t < scan->token_count; t += CHUNK_TOKENS)
        for (uint32_t r = 0, rows; r < scan->count; r += rows) {
            rows = share_of(scan->count - r, VALUE_ROWS);
            switch (rows) {
                SHARE_CASES(VALUES_SHARE)
            }
        }
    if (!scan->tokens->int8)
        put_in_turns(scan);
}
#undef VALUES_SHARE

/* --- linear layers --- */

/* A product is cut into strips: 4 to 6 rows x two vectors of outputs, or 1 to 3 rows x all four of
 * a panel. Each strip has at least eight sums, to cover the latency of the instruction (one row has
 * four, but waits for memory). It has at most twelve, which leave four registers for weights and
 * rows. Weights stay bf16 until they are in a register: the cache holds twice as many then, and
 * nothing is stored. product_fma_sums.h has the tile. */

#define WIDEN      NULL
#define WHOLE_ROWS FLAT_ROWS
#define NEAR_ROWS  0

#define FLAT_ROWS 3 /* most rows of a strip of four vectors */

struct strip {
    const struct tile_product *product;
    uint32_t row, n;
    const char *next; /* memory to prefetch */
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

/* Widens a vector of weights of odd k: their halves of the words, blended with zeros, which takes
 * no register. */
#define ODD_K(PANEL_K, W)                                                                          \
    "vpxor " W ", " W ", " W "\n\tvpblendw $0xaa, " PANEL_K ", " W ", " W "\n\t"

ALWAYS_INLINE floats odd_k(const uint32_t *panel)
{
    floats w;
    __asm__ volatile(ODD_K("%1", "%0") : "=x"(w) : "m"(*(const words *)panel));
    return w;
}

/* Widens a vector of weights of even k by a shuffle, since some cores shift on the ports that
 * multiply. Its control has a register, except beside six rows. */
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

/* Multiplies a strip of 4 to 6 rows. `rows` is a constant at every call, so that the sums live in
 * registers. */
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
            __builtin_prefetch(next, 0, 2); /* into the level 2 cache */
            add_k(tile, odd_k(panel), odd_k(panel + VECTOR), rows, sum);
            add_k(tile + stride, even_k(panel, rows), even_k(panel + VECTOR, rows), rows, sum);
            panel += PANEL;
            tile += 2 * stride;
            next += strip->next_step;
        }
    }
    end_block(product, strip->row, strip->n, rows, sum);
}

/* Adds one k of 1 to 3 rows and one vector of outputs. */
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

/* Adds one k of three rows with all sixteen registers, which the compiler can't do without the
 * stack. */
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

/* Adds one k of 1 to 3 rows and all four vectors of outputs. */
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

/* Prefetches one line, in turns with the products: a burst of requests holds up the loads behind
 * it. One row waits for its weights, so they come into the level 1 cache. */
ALWAYS_INLINE void bring(const uint32_t rows, const char *line)
{
    if (rows == 1)
        __asm__ volatile("prefetcht0 (%0)" ::"r"(line));
    else
        __asm__ volatile("prefetcht1 (%0)" ::"r"(line));
}

/* Multiplies a strip of 1 to 3 rows and all four vectors of outputs. */
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

/* The heights of the strips, by the rows of the tile. */
static const uint8_t heights[TILE_ROWS + 1][2] = {
    {0}, {1}, {2}, {3}, {4}, {5}, {6}, {4, 3}, {5, 3}, {6, 3}, {5, 5}, {6, 5}, {6, 6},
};

ALWAYS_INLINE uint32_t strips_beside(uint32_t rows)
{
    return rows > FLAT_ROWS ? PANEL / (2 * VECTOR) : 1;
}

/* A flat strip alone reads a stream and prefetches it at a distance of its own, in bytes. Measured:
 * other requests cost one row a fifth of the speed, and 8192 costs two rows a tenth. */
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

#include "kernels/cpu/inner/inner_body.h"

const struct inner inner_avx2 = INNER_TABLE("avx2");
