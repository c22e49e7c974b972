/* The way on of a linear layer's sums, for the kernels of all its types, and what they share with
 * the kernels of rows: cells of inputs, rows of heads, quantization.
 *
 * A group of 128 threads has a tile of 64 packed rows (n) x BT tokens. Thread t, c = t % 4, g = t %
 * 32 / 4, w = t / 32: v[4 j + 2 h + e] is of packed row 16 w + 8 h + g and token 8 j + 2 c + e.
 * Two rows that an epilogue joins lie 8 apart (row_at): in one thread.
 *
 * Operations are those of the kernels of rows one by one, in fp32: the same bits. */
#ifndef BATON_KERNELS_CUDA_DEVICE_EPILOGUE_CUH
#define BATON_KERNELS_CUDA_DEVICE_EPILOGUE_CUH

#include "kernels/cuda/device/ptx.cuh"

/* --- inputs of layers --- */

/* Cells of 8 rows lie side by side for each block of k. */
INLINE uint8_t *cell_at(const cuda_inputs &to, uint32_t row, uint32_t byte)
{
    return to.cells +
           (uint64_t(byte / CUDA_K_BYTES) * (to.padded / CUDA_CELL_ROWS) + row / CUDA_CELL_ROWS) *
               CUDA_CELL_BYTES +
           swizzled(row % CUDA_CELL_ROWS, byte % CUDA_K_BYTES / 16) + byte % 16;
}

/* A row's scale and its inverse by kernels.h: zero and NaN rows have the inverse 0. */
struct quantizer {
    float scale, inverse;
};
INLINE quantizer quantizer_of(float largest, bool is_finite)
{
    bool zero = !is_finite || largest < 0x1p-100f;
    quantizer q;
    q.inverse = zero ? 0.0f : 127.0f / largest;
    q.scale = !is_finite ? __uint_as_float(0x7fc00000u) : zero ? 0.0f : largest / 127.0f;
    return q;
}
/* NaN and infinite numbers have no int: their rows hold zeros. */
INLINE int quantized(float x, const quantizer &q)
{
    return q.inverse == 0 ? 0 : __float2int_rn(x * q.inverse);
}
/* |x|, or infinity if x isn't finite. */
INLINE float magnitude_of(float x)
{
    float size = x < 0 ? -x : x;
    return size <= 0x1.fffffep127f ? size : __uint_as_float(0x7f800000u);
}
INLINE quantizer quantizer_of(float largest)
{
    return quantizer_of(largest, largest <= 0x1.fffffep127f);
}

/* x / scale for e4m3, with the bits of a division but no call: two steps of Newton's method by an
 * exact remainder (Markstein, 1990). Scales of inputs keep it clear of underflow, and quotients
 * beyond 512 are rounded to 448 whatever they are. A number that isn't finite becomes NaN, which
 * spoils its row alone. */
INLINE float scaled(float x, const cuda_scale &by)
{
    float quick = x * by.inverse, q = quick;
    q = fmaf(fmaf(-by.scale, q, x), by.inverse, q);
    q = fmaf(fmaf(-by.scale, q, x), by.inverse, q);
    q = magnitude_of(quick) < 512.0f ? q : quick;
    return magnitude_of(x) <= 0x1.fffffep127f ? q : __uint_as_float(0x7fc00000u);
}

INLINE float norm_factor(float sum, uint32_t count, double eps)
{
    return float(1.0 / sqrt(double(sum) / count + eps));
}

/* A number of a row, behind the norm. */
INLINE float input_of(const inputs_parameters &p, const float *in, uint32_t k, float factor)
{
    return p.norm ? in[k] * factor * p.norm[k] : in[k];
}
INLINE const float *row_of(const inputs_parameters &p)
{
    return p.in + uint64_t(p.chosen ? p.chosen[blockIdx.x] : blockIdx.x) * p.k;
}
/* The factor of a row's norm. Every thread of the block gets it. */
INLINE float factor_of(const float *x, uint32_t count, double eps, float *slots)
{
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < count; i += CUDA_ROW_THREADS)
        sum += x[i] * x[i];
    return norm_factor(over_block(sum, slots, sum_of<float>()), count, eps);
}

/* --- heads --- */

/* at: position / kv.block_tokens. */
INLINE char *kv_run_of(const cuda_kv &kv, uint32_t sequence, uint32_t at, bool value, uint32_t head)
{
    uint32_t block = kv.tables[uint64_t(sequence) * kv.table_stride + at];
    return kv.pool + block * kv.block_bytes + kv.offset_bytes[value] + head * kv.head_bytes;
}

INLINE char *kv_run(const cuda_kv &kv, uint32_t sequence, uint32_t position, bool value,
                    uint32_t head)
{
    return kv_run_of(kv, sequence, position / kv.block_tokens, value, head);
}

/* Numbers i and i + E / 2 of a head turn together. */
INLINE void turn(float &a, float &b, float cosine, float sine)
{
    float x = a, y = b;
    a = x * cosine - y * sine;
    b = y * cosine + x * sine;
}

/* --- a tile's numbers, token by token --- */

/* The layer's row at packed place q; n or more: none. Rows r and r + pair of 2 pair neighbours lie
 * 8 apart: 8 of the ones, then 8 of the others. */
INLINE uint32_t row_at(uint32_t q, uint32_t pair, uint32_t n)
{
    if (!pair)
        return q;
    opaque(pair); /* inverses for divisions are made here, and take no register of the main loop */
    uint32_t block = (pair + 7) / 8 * 16, i = q % block / 16 * 8 + q % 8;
    return i < pair ? q / block * 2 * pair + q % 16 / 8 * pair + i : n;
}

/* The types of inputs that an epilogue writes: bytes of a number, two numbers in a word, and words
 * that hold nothing else. */
struct as_bf16 {
    static const uint32_t BYTES = 2;
    static INLINE uint32_t pair(float low, float high)
    {
        return pack_bf16(low, high);
    }
    template <class W> static INLINE W narrow(W words)
    {
        return words;
    }
};
struct as_e4m3 {
    static const uint32_t BYTES = 1;
    static INLINE uint32_t pair(float low, float high)
    {
        return pack_e4m3(low, high);
    }
    static INLINE uint16_t narrow(uint32_t word)
    {
        return uint16_t(word);
    }
    static INLINE uint32_t narrow(uint2 words)
    {
        return words.x | words.y << 16;
    }
    static INLINE uint2 narrow(uint4 words)
    {
        return make_uint2(words.x | words.y << 16, words.z | words.w << 16);
    }
};

/* Exchanges within a warp's 8 rows (g) and tokens 2 c + e. Returns two rows of one token: g & 6 and
 * the next, of token 2 c + g % 2. */
template <class AS> INLINE uint32_t two_rows(float first, float second)
{
    bool odd = threadIdx.x & 4;
    float got = shuffle_xor(odd ? first : second, 4);
    return odd ? AS::pair(got, second) : AS::pair(first, got);
}
/* The same once more, of words with tokens 8 or 16 apart: lanes with `mask` keep b, others a. */
INLINE uint2 join_rows(uint32_t a, uint32_t b, uint32_t mask)
{
    bool upper = threadIdx.x & mask;
    uint32_t got = shuffle_xor(upper ? a : b, mask);
    return upper ? make_uint2(got, b) : make_uint2(a, got);
}
/* Gives 8 rows of a warp, value(j, e), as inputs: put(token, byte, words), where `byte` is the
 * offset in the bytes of the token's rows. All lanes of the warp call it. */
template <class AS, int BT, class V, class P> INLINE void by_token(V value, P put)
{
    uint32_t lane = threadIdx.x % 32, token = lane % 4 * 2 + lane / 4 % 2;
    auto two = [&](int j) { return two_rows<AS>(value(j, 0), value(j, 1)); };
    if constexpr (BT == 8)
        put(token, lane / 8 * 2 * AS::BYTES, AS::narrow(two(0)));
    else if constexpr (BT == 16)
        put(token + lane / 8 % 2 * 8, lane / 16 * 4 * AS::BYTES,
            AS::narrow(join_rows(two(0), two(1), 8)));
    else
#pragma unroll
        for (int j = 0; j < BT / 8; j += 4) {
            uint2 low = join_rows(two(j), two(j + 1), 8),
                  high = join_rows(two(j + 2), two(j + 3), 8);
            uint2 x = join_rows(low.x, high.x, 16), y = join_rows(low.y, high.y, 16);
            put(token + 8 * j + lane / 16 * 16 + lane / 8 % 2 * 8, 0,
                AS::narrow(make_uint4(x.x, y.x, x.y, y.y)));
        }
}
template <class T> INLINE void put_words(void *at, T words)
{
    *static_cast<T *>(at) = words;
}

/* --- epilogues --- */

/* One pointer walks over the tokens: others would take registers, and instructions of the tile. */
template <int BT>
INLINE void store_tile(const float (&v)[BT / 2], const cuda_epilogue &to, uint32_t place,
                       uint32_t token0)
{
    uint32_t lane = threadIdx.x % 32, token = token0 + lane % 4 * 2;
    uint32_t first = row_at(place + lane / 4, to.pair, to.n);
    uint32_t second = row_at(place + lane / 4 + 8, to.pair, to.n);
    int left = int(to.rows - token); /* tokens from this thread's first on; none: not above 0 */
    bool is_real[2] = {first < to.n, second < to.n}, adds = to.kind == EPILOGUE_ADD;
    float *out = to.out + uint64_t(token) * to.n + first;
#pragma unroll
    for (int j = 0; j < BT / 8; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (is_real[h] && 8 * j + e < left) {
                    float *at = out + (e ? to.n : 0) + (h ? second - first : 0);
                    if (adds)
                        global_add(at, v[4 * j + 2 * h + e]);
                    else
                        *at = v[4 * j + 2 * h + e];
                }
        out += 8 * uint64_t(to.n);
        opaque(out);
    }
}

/* Writes numbers of a tile, eight of each token from `first` on, and the zeros behind all of them:
 * tiles have 32 of k, and a block has more. */
template <class AS, int BT, class V>
INLINE void put_gated(V value, const cuda_epilogue &to, uint32_t first, uint32_t token0)
{
    cuda_inputs gated = to.gated;
    opaque(gated.padded); /* as in row_at */
    opaque(gated.k_blocks);
    by_token<AS, BT>(value, [&](uint32_t token, uint32_t byte, auto words) {
        if (token0 + token < to.rows)
            put_words(cell_at(gated, token0 + token, AS::BYTES * first + byte), words);
    });
    uint32_t whole = (to.pair + 31) / 32 * 32, end = gated.k_blocks * CUDA_K_BYTES / AS::BYTES;
    for (uint32_t k = first + 32; first + 32 >= whole && k < end; k += 32)
        for (uint32_t token = token0 + threadIdx.x % 32; token < token0 + BT && token < to.rows;
             token += 32)
            put_words(cell_at(gated, token, AS::BYTES * k), AS::narrow(make_uint4(0, 0, 0, 0)));
}

/* silu(gate) * up, as inputs of the next layer: cells of bf16, or of e4m3 by a scale of all rows
 * (kernels of e4m3 alone), or f32 rows if each row is quantized by its own. */
template <int BT, bool E4M3>
INLINE void gate_tile(float (&v)[BT / 2], const cuda_epilogue &to, uint32_t place, uint32_t token0)
{
    uint32_t lane = threadIdx.x % 32, first = place / 2, f = first + lane / 4;
#pragma unroll
    for (int j = 0; j < BT / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float gate = v[4 * j + e];
            v[4 * j + e] = gate / (1.0f + exp_fixed(-gate)) * v[4 * j + 2 + e];
            uint32_t token = token0 + 8 * j + lane % 4 * 2 + e;
            if (to.out && token < to.rows && f < to.pair)
                to.out[uint64_t(token) * to.pair + f] = v[4 * j + e];
        }
    if (to.out)
        return;
    if (E4M3 && to.gated_by.scale > 0)
        put_gated<as_e4m3, BT>([&](int j, int e) { return scaled(v[4 * j + e], to.gated_by); }, to,
                               first, token0);
    else
        put_gated<as_bf16, BT>([&](int j, int e) { return v[4 * j + e]; }, to, first, token0);
}

/* Joins a number of each token over a head: 8 pairs of rows by a tree, then its warps ascending.
 * norm_head (rows.cu) adds alike. `end` turns it into the result, which lies in the slots of the
 * head's first warp until a named barrier ends its use. THREADS: all that call it, R groups of 128;
 * heads lie inside. slots: their warps x BT floats of shared memory. */
template <int THREADS, int BT, class V, class F, class E>
INLINE void over_heads(V value, F join, E end, uint32_t slots, uint32_t head_dim)
{
    uint32_t lane = threadIdx.x % 32, warps = head_dim / 16;
    float *all = shared_pointer<float>(slots, THREADS / 32 * BT);
#pragma unroll
    for (int j = 0; j < BT / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float x = value(j, e);
#pragma unroll
            for (uint32_t mask = 4; mask < 32; mask *= 2)
                x = join(x, shuffle_xor(x, mask));
            if (lane < 4)
                all[threadIdx.x / 32 * BT + 8 * j + 2 * lane + e] = x;
        }
    named_barrier(1, THREADS);
    for (uint32_t i = threadIdx.x; i < THREADS / 32 / warps * BT; i += THREADS) {
        float *head = all + i / BT * warps * BT + i % BT, x = head[0];
        for (uint32_t w = 1; w < warps; w++)
            x = join(x, head[w * BT]);
        head[0] = end(x);
    }
    named_barrier(1, THREADS);
}

/* A thread's place in the tile of a layer of queries, keys and values. */
struct head_place {
    uint32_t head_dim, head, i,
        half; /* numbers i and i + half of the head, which are a and b of a token */
    bool is_real, is_turned;
    const float *joined; /* [tokens]: what over_heads leaves for the head */
};

template <int THREADS, int BT>
INLINE void norm_heads(float (&v)[BT / 2], const cuda_heads &p, const head_place &at,
                       uint32_t slots)
{
    uint32_t lane = threadIdx.x % 32;
    over_heads<THREADS, BT>(
        [&](int j, int e) {
            return v[4 * j + e] * v[4 * j + e] + v[4 * j + 2 + e] * v[4 * j + 2 + e];
        },
        sum_of<float>(), [&](float sum) { return norm_factor(sum, at.head_dim, p.norm_eps); },
        slots, at.head_dim);
    if (at.is_turned) {
        const float *weight = at.head < p.heads ? p.q_norm : p.k_norm;
        float low = weight[at.i], high = weight[at.i + at.half];
#pragma unroll
        for (int j = 0; j < BT / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float factor = at.joined[8 * j + lane % 4 * 2 + e];
                v[4 * j + e] = v[4 * j + e] * factor * low;
                v[4 * j + 2 + e] = v[4 * j + 2 + e] * factor * high;
                memory_order();
            }
    }
    named_barrier(1, THREADS);
}

/* Keys and values in s8, with a scale for each token and head. */
template <int THREADS, int BT>
INLINE void append_s8(const float (&v)[BT / 2], const cuda_epilogue &to, const head_place &at,
                      uint32_t token0, uint32_t slots)
{
    const cuda_heads &p = to.heads;
    uint32_t lane = threadIdx.x % 32, block_tokens = p.kv.block_tokens;
    opaque(block_tokens); /* as in row_at */
    over_heads<THREADS, BT>(
        [&](int j, int e) {
            float a = magnitude_of(v[4 * j + e]), b = magnitude_of(v[4 * j + 2 + e]);
            return a > b ? a : b;
        },
        most_of<float>(), [](float most) { return most; }, slots, at.head_dim);
    if (at.is_real && at.head >= p.heads)
#pragma unroll
        for (int j = 0; j < BT / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                uint32_t token = 8 * j + lane % 4 * 2 + e, row = token0 + token;
                if (row >= to.rows)
                    continue;
                quantizer q = quantizer_of(at.joined[token]);
                uint32_t position = p.positions[row], place = position % block_tokens;
                char *run = kv_run_of(p.kv, p.row_sequence[row], position / block_tokens,
                                      !at.is_turned, (at.head - p.heads) % p.kv_heads);
                memory_order(); /* one token's addresses at a time */
                int8_t *numbers =
                    reinterpret_cast<int8_t *>(run + uint64_t(place) * p.kv.token_bytes);
                numbers[at.i] = int8_t(quantized(v[4 * j + e], q));
                numbers[at.i + at.half] = int8_t(quantized(v[4 * j + 2 + e], q));
                if (at.i == 0)
                    reinterpret_cast<float *>(run + p.kv.scales_bytes)[place] = q.scale;
            }
    named_barrier(1, THREADS);
}

/* Keys and values in bf16. All lanes of a warp have one head. */
template <int BT>
INLINE void append_bf16(const float (&v)[BT / 2], const cuda_epilogue &to, const head_place &at,
                        uint32_t token0)
{
    const cuda_heads &p = to.heads;
    if (!at.is_real || at.head < p.heads)
        return;
    uint32_t block_tokens = p.kv.block_tokens;
    opaque(block_tokens); /* as in row_at */
#pragma unroll
    for (int h = 0; h < 2; h++)
        by_token<as_bf16, BT>(
            [&](int j, int e) { return v[4 * j + 2 * h + e]; },
            [&](uint32_t token, uint32_t byte, auto words) {
                uint32_t row = token0 + token;
                if (row >= to.rows)
                    return;
                uint32_t position = p.positions[row];
                char *run = kv_run_of(p.kv, p.row_sequence[row], position / block_tokens,
                                      !at.is_turned, (at.head - p.heads) % p.kv_heads);
                put_words(run + uint64_t(position % block_tokens) * p.kv.token_bytes +
                              2 * (at.i / 8 * 8 + h * at.half) + byte,
                          words);
            });
}

/* Bias, norm of heads, rotation. Queries go to their places in `out`, keys and values to the
 * pool. */
template <int THREADS, int BT>
INLINE void append_tile(float (&v)[BT / 2], const cuda_epilogue &to, uint32_t place,
                        uint32_t token0, uint32_t slots)
{
    const cuda_heads &p = to.heads;
    uint32_t lane = threadIdx.x % 32;
    head_place at;
    at.head_dim = p.head_dim;
    opaque(at.head_dim); /* as in row_at */
    uint32_t warps = at.head_dim / 16;
    at.head = place / at.head_dim;
    at.half = at.head_dim / 2;
    at.i = place % at.head_dim / 2 + lane / 4;
    at.is_real = at.head < p.heads + 2 * p.kv_heads;
    at.is_turned = at.head < p.heads + p.kv_heads;
    at.joined =
        shared_pointer<float>(slots, THREADS / 32 * BT) + threadIdx.x / 32 / warps * warps * BT;
    if (p.bias && at.is_real) {
        const float *bias = p.bias + uint64_t(at.head) * p.head_dim + at.i;
        float low = bias[0], high = bias[at.half];
#pragma unroll
        for (int i = 0; i < BT / 2; i++)
            v[i] += i / 2 % 2 ? high : low;
    }
    if (p.q_norm)
        norm_heads<THREADS, BT>(v, p, at, slots);
    int left = int(to.rows - token0 - lane % 4 * 2); /* tokens from this thread's first on */
    if (at.is_turned) {
        const uint32_t *positions = p.positions + token0 + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < BT / 8; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                uint32_t position = 8 * j + e < left ? positions[e] : 0;
                const float *rope = p.rope + at.i + uint64_t(position) * p.head_dim;
                turn(v[4 * j + e], v[4 * j + 2 + e], rope[0], rope[at.half]);
            }
            positions += 8;
            opaque(positions);
            if (j % (BT > 64 ? 2 : 4) == (BT > 64 ? 1 : 3))
                memory_order(); /* as many loads at once */
        }
    }
    if (at.head < p.heads) {
        float *out = to.out + uint64_t(token0 + lane % 4 * 2) * to.n + at.head * p.head_dim + at.i;
#pragma unroll
        for (int j = 0; j < BT / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (8 * j + i % 2 < left)
                    out[i % 2 * to.n + i / 2 * at.half] = v[4 * j + i];
            out += 8 * uint64_t(to.n);
            opaque(out);
        }
    }
    if (p.int8)
        append_s8<THREADS, BT>(v, to, at, token0, slots);
    else
        append_bf16<BT>(v, to, at, token0);
}

/* n0: first packed row of the group of 128 threads. slots: as in over_heads, for APPEND. E4M3: as
 * in gate_tile. */
template <int THREADS, int BT, bool E4M3>
INLINE void finish(float (&v)[BT / 2], const cuda_epilogue &to, uint32_t n0, uint32_t token0,
                   uint32_t slots)
{
    uint32_t place = n0 + threadIdx.x % 128 / 32 * 16;
    opaque(place); /* otherwise addresses are computed ahead of the main loop, and spill */
    if constexpr (BT <= CUDA_MOST_HEAD_TOKENS)
        if (to.kind == EPILOGUE_APPEND)
            return append_tile<THREADS, BT>(v, to, place, token0, slots);
    if (to.kind == EPILOGUE_SWIGLU)
        gate_tile<BT, E4M3>(v, to, place, token0);
    else
        store_tile<BT>(v, to, place, token0);
}

#endif
