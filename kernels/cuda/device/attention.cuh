/* All kernels of attention share this: one order of operations for a row, in all plans.
 *
 * The context is cut into segments of ATTENTION_SEGMENT_TOKENS at absolute positions. A segment
 * gives (m, l, o). Scores add over d ascending, 16 a step. m is the greatest of them, p = exp2(c *
 * s - c * m), where c is log2(e) * scale. l adds p in eight chains (token % 8), each ascending,
 * then in pairs. o adds p * v over tokens ascending, 16 a step, with p in bf16. Tokens that a row
 * doesn't see weigh exactly zero, so tokens may be left out. Segments merge ascending from (-inf,
 * 0, 0) by one function.
 *
 * int8 pools: scores are multiplied by key scales, and p by value scales before it is rounded.
 * Numbers of a step of 16 of d go to the tensor core in an order of their own (int8_pair). */
#ifndef BATON_KERNELS_CUDA_DEVICE_ATTENTION_CUH
#define BATON_KERNELS_CUDA_DEVICE_ATTENTION_CUH

#include "kernels/cuda/device/epilogue.cuh"

#define MINUS_INFINITY __uint_as_float(0xff800000u)
#define GROUP_TOKENS   8 /* no block has fewer tokens: so many lie side by side */

/* --- where segments meet --- */

struct factors {
    float old, fresh;
};
/* Merges a segment's (ms, ls) into (m, l). Returns the factors of both outputs. Not for a segment
 * that the row doesn't see (ms = -inf). */
INLINE factors merge(float &m, float &l, float ms, float ls, float scale)
{
    float top = m > ms ? m : ms;
    factors f = {exp2_fast((m - top) * scale), exp2_fast((ms - top) * scale)};
    m = top;
    l = fmaf(ls, f.fresh, l * f.old);
    return f;
}
INLINE float merge_output(float o, float fresh, factors f)
{
    return fmaf(fresh, f.fresh, o * f.old);
}

/* --- tiles of rows --- */

struct tile {
    uint32_t sequence, head;         /* head: of the keys and values */
    uint32_t row, pairs, first_pair; /* pair i: row + (first_pair + i) / p.group */
    uint32_t low, high;              /* positions that some row of the run sees: [low, high) */

    /* Whether some row sees one of the `count` tokens from `first` on. */
    INLINE bool sees(uint32_t first, uint32_t count) const
    {
        return first < high && first + count > low;
    }
    INLINE uint32_t first_segment() const /* its first position */
    {
        return low / ATTENTION_SEGMENT_TOKENS * ATTENTION_SEGMENT_TOKENS;
    }
};
INLINE uint32_t window_begin(const attention_parameters &p, uint32_t seen)
{
    return p.window && seen > p.window ? seen - p.window : 0;
}
/* Rows of a step's sequence, if they are this launch's; otherwise none. */
INLINE uint32_t run_end(const attention_parameters &p, uint32_t sequence)
{
    uint32_t first = p.sequence_rows[sequence], last = p.sequence_rows[sequence + 1];
    return last - first < p.least_run || last - first > p.most_run ? 0 : last;
}
/* The runs of rows [row, end): rows of one sequence. A warp calls next() together. */
struct runs {
    uint32_t row, end;

    /* Finds the next run that has pairs from t.first_pair on, `most` of them at most. */
    INLINE bool next(const attention_parameters &p, tile &t, uint32_t most)
    {
        while (row < end) {
            uint32_t lane = threadIdx.x % 32, sequence = 0, last = 0;
            if (row + lane < end) {
                sequence = p.row_sequence[row + lane];
                last = run_end(p, sequence);
            }
            uint32_t found = vote(last != 0);
            if (!found) {
                row += 32;
                continue;
            }
            t.row = row + first_bit(found);
            t.sequence = shuffle(sequence, first_bit(found));
            row = min(end, shuffle(last, first_bit(found)));
            uint32_t pairs = (row - t.row) * p.group;
            if (t.first_pair >= pairs)
                continue;
            t.pairs = min(pairs - t.first_pair, most);
            t.low = window_begin(p, p.positions[t.row] + 1);
            t.high = p.positions[row - 1] + 1;
            return true;
        }
        return false;
    }
};
/* A thread's two pairs: rows lane / 4 and + 8 of its warp's 16. */
struct sight {
    uint32_t end[2]; /* positions before it are seen; a pair that isn't real: none */
    uint32_t window; /* only as many; 0: all */
};
INLINE sight sight_of(const attention_parameters &p, const tile &t, uint32_t first_pair)
{
    sight see;
    see.window = p.window;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t pair = first_pair + threadIdx.x % 32 / 4 + 8 * h;
        see.end[h] = pair < t.pairs ? p.positions[t.row + (t.first_pair + pair) / p.group] + 1 : 0;
    }
    return see;
}

/* --- the pool, and stages in shared memory --- */

/* Address of number `chunk` * 8 of a token or query in its stage of ROWS rows: up to 64 bf16 of
 * each, then the next 64. Chunks of 16 bytes are swizzled, as wgmma reads them. */
template <int D, int ROWS> INLINE uint32_t place(uint32_t row, uint32_t chunk)
{
    const uint32_t chunks = D < 64 ? D / 8 : 8;
    return chunk / chunks * (ROWS * 128) + (row * chunks + (chunk ^ row) % chunks) * 16;
}
/* Keys or values of one head in a block. */
INLINE const char *run_of_head(const cuda_kv &kv, uint32_t block, bool value, uint32_t head)
{
    return kv.pool + block * kv.block_bytes + kv.offset_bytes[value] + head * kv.head_bytes;
}
/* block_tokens is a power of two. */
INLINE uint32_t inside_block(const cuda_kv &kv, uint32_t position)
{
    return position & (kv.block_tokens - 1);
}
INLINE uint32_t block_of(const cuda_kv &kv, uint32_t sequence, uint32_t position)
{
    return kv
        .tables[uint64_t(sequence) * kv.table_stride + (position >> first_bit(kv.block_tokens))];
}
/* Lane l returns the block of tokens 8 l .. 8 l + 7 behind `first`; where none of them is within
 * [low, high), 0, and reads nothing. */
INLINE uint32_t blocks_of_segment(const cuda_kv &kv, uint32_t sequence, uint32_t first,
                                  uint32_t low, uint32_t high)
{
    uint32_t at = first + threadIdx.x % 32 * GROUP_TOKENS;
    return at < high && at + GROUP_TOKENS > low ? block_of(kv, sequence, at) : 0;
}
/* Numbers i and j of a word of four as bf16. */
INLINE uint32_t widened(uint32_t numbers, uint32_t i, uint32_t j)
{
    return pack_bf16(float(int8_t(numbers >> 8 * i)), float(int8_t(numbers >> 8 * j)));
}
/* Thread c of a quad multiplies numbers 4 c .. 4 c + 3 of a step of 16, which ldmatrix brings
 * it: pairs 2 c .. of the step's first half hold 4 c and 4 c + 1, those of its second half 4
 * c + 2 and 4 c + 3. Keys of int8 and their queries lie so in stages. */
INLINE uint4 int8_pairs(uint4 v, uint32_t half)
{
    return make_uint4(widened(v.x, 2 * half, 2 * half + 1), widened(v.y, 2 * half, 2 * half + 1),
                      widened(v.z, 2 * half, 2 * half + 1), widened(v.w, 2 * half, 2 * half + 1));
}
/* Stores 16 numbers of a token, `chunk` * 16 and on, as bf16. */
template <int D, int ROWS>
INLINE void store_widened(uint32_t stage, uint32_t token, uint32_t chunk, bool value, uint4 v)
{
    uint4 first = int8_pairs(v, 0), second = int8_pairs(v, 1);
    if (value) {
        uint4 low = make_uint4(first.x, second.x, first.y, second.y);
        second = make_uint4(first.z, second.z, first.w, second.w);
        first = low;
    }
    store_shared(stage + place<D, ROWS>(token, 2 * chunk), first);
    store_shared(stage + place<D, ROWS>(token, 2 * chunk + 1), second);
}
/* The scale of a token's key or value; 0 of one that no row of the tile sees. */
INLINE float scale_at(const attention_parameters &p, const tile &t, uint32_t block,
                      uint32_t position, bool value)
{
    if (position < t.low || position >= t.high)
        return 0;
    const char *scales = run_of_head(p.kv, block, value, t.head) + p.kv.scales_bytes;
    return reinterpret_cast<const float *>(scales)[inside_block(p.kv, position)];
}
/* A query head's numbers in qkv. */
INLINE const float *query_of(const attention_parameters &p, uint32_t row, uint32_t head)
{
    return p.qkv + (uint64_t(row) * (p.heads + 2 * p.kv_heads) + head) * p.head_dim;
}
/* Queries of 64 pairs of the tile from `first` on, rounded to bf16; pairs that aren't real are
 * zeros. Done by 128 threads. */
template <int D, bool INT8>
INLINE void load_queries(const attention_parameters &p, const tile &t, uint32_t first, uint32_t to)
{
    for (uint32_t i = threadIdx.x % 128; i < 64 * (D / 8); i += 128) {
        uint32_t pair = i / (D / 8), chunk = i % (D / 8), at = t.first_pair + first + pair;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (first + pair < t.pairs) {
            const float *q = query_of(p, t.row + at / p.group, t.head * p.group + at % p.group);
            /* int8: the pairs of int8_pairs */
            const uint32_t STEP = INT8 ? 4 : 2;
            q += INT8 ? chunk / 2 * 16 + chunk % 2 * 2 : chunk * 8;
            v = make_uint4(pack_bf16(q[0], q[1]), pack_bf16(q[STEP], q[STEP + 1]),
                           pack_bf16(q[2 * STEP], q[2 * STEP + 1]),
                           pack_bf16(q[3 * STEP], q[3 * STEP + 1]));
        }
        store_shared(to + place<D, 64>(pair, chunk), v);
    }
}

/* --- one segment, with pairs as the tensor core's rows --- */

INLINE float over_quad(float v)
{
    v = v + shuffle_xor(v, 1);
    return v + shuffle_xor(v, 2);
}
INLINE float most_of_quad(float v)
{
    v = fmaxf(v, shuffle_xor(v, 1));
    return fmaxf(v, shuffle_xor(v, 2));
}
INLINE float minus_most(float m, float scale)
{
    return m == MINUS_INFINITY ? 0.0f : -(m * scale);
}
/* Scores become weights in the form of mma's first operand; gives m and l of the two pairs. s[4 j +
 * 2 h + e]: pair h, token 8 j + 2 (lane % 4) + e. scales: of each TOKENS tokens, [2][TOKENS]. */
template <bool INT8, int TOKENS>
INLINE void soften(float (&s)[ATTENTION_SEGMENT_TOKENS / 2],
                   uint32_t (&weights)[ATTENTION_SEGMENT_TOKENS / 16][4], float (&m)[2],
                   float (&l)[2], const sight &see, uint32_t first, float scale,
                   const uint32_t (&scales)[ATTENTION_SEGMENT_TOKENS / TOKENS])
{
    const uint32_t COUNT = ATTENTION_SEGMENT_TOKENS / TOKENS;
    uint32_t column = threadIdx.x % 4 * 2;
    const float *of_keys[COUNT];
    if (INT8) {
#pragma unroll
        for (uint32_t i = 0; i < COUNT; i++)
            of_keys[i] = shared_pointer<float>(scales[i], 2 * TOKENS) + column;
#pragma unroll
        for (uint32_t i = 0; i < ATTENTION_SEGMENT_TOKENS / 2; i++) {
            uint32_t token = i / 4 * 8 + i % 2;
            s[i] = s[i] * of_keys[token / TOKENS][token % TOKENS];
            if (i % 16 == 15)
                memory_order(); /* scales are read where they are used: fewer registers */
        }
    }
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        /* The thread's pair sees all of most segments. int8 has no register left for that. */
        bool sees_all = !INT8 && first + ATTENTION_SEGMENT_TOKENS <= see.end[h] &&
                        !(see.window && see.end[h] - first > see.window);
        if (!sees_all) {
#pragma unroll
            for (uint32_t i = 2 * h; i < ATTENTION_SEGMENT_TOKENS / 2; i += i % 2 ? 3 : 1) {
                uint32_t position = first + i / 4 * 8 + column + i % 2;
                if (position >= see.end[h] || (see.window && see.end[h] - position > see.window))
                    s[i] = MINUS_INFINITY;
            }
        }
    }
    float chain[2][2] = {{0, 0}, {0, 0}}, minus[2];
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        m[h] = MINUS_INFINITY;
#pragma unroll
        for (uint32_t j = 0; j < ATTENTION_SEGMENT_TOKENS / 8; j++)
            m[h] = fmaxf(m[h], fmaxf(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]));
        m[h] = most_of_quad(m[h]);
        minus[h] = minus_most(m[h], scale);
    }
#pragma unroll
    for (uint32_t j = 0; j < ATTENTION_SEGMENT_TOKENS / 8; j++)
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            float low = exp2_fast(fmaf(s[4 * j + 2 * h], scale, minus[h]));
            float high = exp2_fast(fmaf(s[4 * j + 2 * h + 1], scale, minus[h]));
            chain[h][0] += low;
            chain[h][1] += high;
            if (INT8) {
                const float *of_values = of_keys[j * 8 / TOKENS] + TOKENS + j * 8 % TOKENS;
                low = low * of_values[0];
                high = high * of_values[1];
                if (j % 4 == 3)
                    memory_order();
            }
            weights[j / 2][j % 2 * 2 + h] = pack_bf16(low, high);
        }
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
        l[h] = over_quad(chain[h][0] + chain[h][1]);
}
/* Merges a segment's sums into those of the segments before it. */
template <int D>
INLINE void add_segment(float (&o)[D / 2], float (&m)[2], float (&l)[2],
                        const float (&fresh)[D / 2], const float (&ms)[2], const float (&ls)[2],
                        float scale)
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        if (ms[h] == MINUS_INFINITY)
            continue;
        factors f = merge(m[h], l[h], ms[h], ls[h], scale);
#pragma unroll
        for (uint32_t d = 0; d < D / 8; d++)
#pragma unroll
            for (uint32_t e = 4 * d + 2 * h; e < 4 * d + 2 * h + 2; e++)
                o[e] = merge_output(o[e], fresh[e], f);
    }
}
/* Two neighbours of a row that becomes inputs. */
INLINE void put_inputs(const attention_parameters &p, uint32_t row, uint32_t column, float low,
                       float high)
{
    if (CUDA_HAS_SM90 && p.fixed.scale > 0)
        put_words(cell_at(p.inputs, row, column),
                  uint16_t(pack_e4m3(scaled(low, p.fixed), scaled(high, p.fixed))));
    else
        put_words(cell_at(p.inputs, row, 2 * column), pack_bf16(low, high));
}
/* Numbers d and d + 1 of a head's result. */
INLINE void put_result(const attention_parameters &p, uint32_t row, uint32_t head, uint32_t d,
                       float low, float high)
{
    uint32_t column = head * p.head_dim + d, width = p.heads * p.head_dim;
    if (p.out)
        *reinterpret_cast<float2 *>(p.out + uint64_t(row) * width + column) =
            make_float2(low, high);
    else
        put_inputs(p, row, column, low, high);
}
/* Inputs end with zeros, up to a whole block of k: the thread with the last head writes them. Heads
 * of 128 fill their blocks. */
INLINE void put_end(const attention_parameters &p, uint32_t row, uint32_t head)
{
    uint32_t bytes = p.heads * p.head_dim * (p.fixed.scale > 0 ? 1 : 2);
    for (; head + 1 == p.heads && bytes < p.inputs.k_blocks * CUDA_K_BYTES; bytes += 4)
        put_words(cell_at(p.inputs, row, bytes), 0u);
}
/* The results of a thread's pair h, which is pair `pair` of the tile. */
template <int D>
INLINE void put_pair(const attention_parameters &p, const tile &t, uint32_t pair,
                     const float (&o)[D / 2], uint32_t h, float l)
{
    uint32_t at = t.first_pair + pair, row = t.row + at / p.group;
    uint32_t head = t.head * p.group + at % p.group, column = head * D + threadIdx.x % 4 * 2;
    float inverse = 1.0f / l;
    if (p.out) {
        float2 *to = reinterpret_cast<float2 *>(p.out + uint64_t(row) * p.heads * D + column);
#pragma unroll
        for (uint32_t d = 0; d < D / 8; d++)
            to[4 * d] = make_float2(o[4 * d + 2 * h] * inverse, o[4 * d + 2 * h + 1] * inverse);
        return;
    }
#pragma unroll
    for (uint32_t d = 0; d < D / 8; d++)
        put_inputs(p, row, column + 8 * d, o[4 * d + 2 * h] * inverse,
                   o[4 * d + 2 * h + 1] * inverse);
    if (D < 128 && threadIdx.x % 4 == 0)
        put_end(p, row, head);
}

#endif
