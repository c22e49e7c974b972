/* Kernels that work on rows: packing, embedding, norms, rotary embedding with append, SwiGLU. A
 * block of CUDA_ROW_THREADS has one row. */
#include "kernels/cuda/device/epilogue.cuh"

/* --- packing --- */

/* The inverse of row_at. */
INLINE uint32_t place_of(uint32_t row, uint32_t pair)
{
    if (!pair)
        return row;
    uint32_t i = row % pair;
    return row / pair / 2 * ((pair + 7) / 8 * 16) + i / 8 * 16 + row / pair % 2 * 8 + i % 8;
}

/* Grid: [blocks of k, rows]. A thread moves 16 bytes. Kernels of layers load weights before they
 * wait for the kernel ahead of them. So none starts before this one has ended. */
CUDA_KERNEL(pack_rows, pack_parameters, 32, 1)
{
    wait_previous_kernel();
    const cuda_weights &w = p.weights;
    uint32_t row_bytes = w.k * (w.scales ? 1 : 2);
    for (uint32_t i = blockIdx.y; i < p.row_count; i += gridDim.y) {
        uint32_t n = p.first_row + i, place = place_of(n, p.pair);
        for (uint32_t chunk = blockIdx.x * 32 + threadIdx.x; chunk < w.k_blocks * 8;
             chunk += gridDim.x * 32) {
            const uint8_t *from = p.rows + uint64_t(i) * row_bytes + chunk * 16;
            uint8_t *to = w.packed +
                          (uint64_t(place / CUDA_TILE_N) * w.k_blocks + chunk / 8) *
                              (CUDA_TILE_N * CUDA_K_BYTES) +
                          swizzled(place % CUDA_TILE_N, chunk % 8);
            for (uint32_t b = 0; b < 16 && chunk * 16 + b < row_bytes; b++)
                to[b] = from[b];
        }
        uint32_t scaled = p.scales_too ? place : n;
        for (uint32_t s = threadIdx.x; blockIdx.x == 0 && s < w.scale_columns; s += 32)
            w.scales[uint64_t(s) * w.scale_rows + scaled] =
                p.scales[uint64_t(i) * w.scale_columns + s];
    }
}

/* --- inputs of linear layers --- */

/* Grid: [rows], of both kernels. */
CUDA_KERNEL(inputs_bf16, inputs_parameters, CUDA_ROW_THREADS, 1)
{
    let_next_kernel_start();
    wait_previous_kernel();
    float *slots = shared_pointer<float>(shared_base(), CUDA_ROW_THREADS / 32);
    const float *in = row_of(p);
    float factor = p.norm ? factor_of(in, p.k, p.eps, slots) : 0.0f;
    for (uint32_t pair = threadIdx.x; pair < p.to.k_blocks * 32; pair += CUDA_ROW_THREADS) {
        uint32_t k = 2 * pair;
        float low = k < p.k ? input_of(p, in, k, factor) : 0.0f;
        float high = k + 1 < p.k ? input_of(p, in, k + 1, factor) : 0.0f;
        *reinterpret_cast<uint32_t *>(cell_at(p.to, blockIdx.x, 4 * pair)) = pack_bf16(low, high);
    }
}

CUDA_KERNEL(inputs_s8, inputs_parameters, CUDA_ROW_THREADS, 1)
{
    let_next_kernel_start();
    wait_previous_kernel();
    float *slots = shared_pointer<float>(shared_base(), CUDA_ROW_THREADS / 32);
    const float *in = row_of(p);
    float factor = p.norm ? factor_of(in, p.k, p.eps, slots) : 0.0f, largest = 0;
    for (uint32_t k = threadIdx.x; k < p.k; k += CUDA_ROW_THREADS) {
        float size = magnitude_of(input_of(p, in, k, factor));
        largest = size > largest ? size : largest;
    }
    quantizer q = quantizer_of(over_block(largest, slots, most_of<float>()));
    for (uint32_t word = threadIdx.x; word < p.to.k_blocks * 32; word += CUDA_ROW_THREADS) {
        uint32_t numbers = 0;
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t k = 4 * word + i;
            if (k < p.k)
                numbers |= (uint32_t(quantized(input_of(p, in, k, factor), q)) & 255) << 8 * i;
        }
        *reinterpret_cast<uint32_t *>(cell_at(p.to, blockIdx.x, 4 * word)) = numbers;
    }
    if (threadIdx.x == 0)
        p.scales[blockIdx.x] = q.scale;
}

/* --- embedding --- */

CUDA_KERNEL(embed_rows, embed_parameters, CUDA_ROW_THREADS, 1)
{
    let_next_kernel_start();
    wait_previous_kernel();
    const cuda_weights &w = p.weights;
    uint32_t n = p.tokens[blockIdx.x];
    const uint8_t *tile =
        w.packed + uint64_t(n / CUDA_TILE_N) * w.k_blocks * (CUDA_TILE_N * CUDA_K_BYTES);
    float scale = w.scales ? w.scales[n] : 0.0f;
    for (uint32_t k = threadIdx.x; k < w.k; k += CUDA_ROW_THREADS) {
        uint32_t byte = w.scales ? k : 2 * k;
        const uint8_t *at = tile + uint64_t(byte / CUDA_K_BYTES) * (CUDA_TILE_N * CUDA_K_BYTES) +
                            swizzled(n % CUDA_TILE_N, byte % CUDA_K_BYTES / 16) + byte % 16;
        p.x[uint64_t(blockIdx.x) * w.k + k] =
            w.scales ? float(*reinterpret_cast<const int8_t *>(at)) * scale
                     : bf16_to_float(*reinterpret_cast<const uint16_t *>(at));
    }
}

/* --- norms --- */

CUDA_KERNEL(rmsnorm_rows, rmsnorm_parameters, CUDA_ROW_THREADS, 1)
{
    let_next_kernel_start();
    wait_previous_kernel();
    float *slots = shared_pointer<float>(shared_base(), CUDA_ROW_THREADS / 32);
    uint32_t row = p.rows ? p.rows[blockIdx.x] : blockIdx.x;
    const float *x = p.x + uint64_t(row) * p.hidden;
    float factor = factor_of(x, p.hidden, p.eps, slots);
    for (uint32_t i = threadIdx.x; i < p.hidden; i += CUDA_ROW_THREADS)
        p.out[uint64_t(blockIdx.x) * p.hidden + i] = x[i] * factor * p.weight[i];
}

/* --- bias, norm of heads, rotary embedding, append --- */

/* A warp has a head at a time, and a lane pairs i, i + 32, ... < E / 2 with their partners. */
#define MAX_PAIRS (CUDA_MAX_HEAD_DIM / 64)

/* Writes a head's lane numbers a (at i) and b (at i + E / 2) to the pool. */
INLINE void append_head(const cuda_heads &p, uint32_t row, bool value, uint32_t head,
                        const float (&a)[MAX_PAIRS], const float (&b)[MAX_PAIRS])
{
    uint32_t lane = threadIdx.x % 32, half = p.head_dim / 2, position = p.positions[row];
    uint32_t token = position % p.kv.block_tokens;
    char *run = kv_run(p.kv, p.row_sequence[row], position, value, head);
    char *at = run + uint64_t(token) * p.kv.token_bytes;
    if (!p.int8) {
        uint16_t *to = reinterpret_cast<uint16_t *>(at);
#pragma unroll
        for (uint32_t i = 0; i < MAX_PAIRS; i++)
            if (lane + 32 * i < half) {
                to[lane + 32 * i] = uint16_t(float_to_bf16(a[i]));
                to[lane + 32 * i + half] = uint16_t(float_to_bf16(b[i]));
            }
        return;
    }
    float largest = 0;
#pragma unroll
    for (uint32_t i = 0; i < MAX_PAIRS; i++)
        if (lane + 32 * i < half) {
            float low = magnitude_of(a[i]), high = magnitude_of(b[i]);
            largest = low > largest ? low : largest;
            largest = high > largest ? high : largest;
        }
    quantizer q = quantizer_of(over_warp(largest, most_of<float>()));
    int8_t *to = reinterpret_cast<int8_t *>(at);
#pragma unroll
    for (uint32_t i = 0; i < MAX_PAIRS; i++)
        if (lane + 32 * i < half) {
            to[lane + 32 * i] = int8_t(quantized(a[i], q));
            to[lane + 32 * i + half] = int8_t(quantized(b[i], q));
        }
    if (lane == 0)
        reinterpret_cast<float *>(run + p.kv.scales_bytes)[token] = q.scale;
}

/* The sum of a head adds 8 pairs by a tree, then those ascending, as over_heads does. */
INLINE void norm_head(const cuda_heads &p, const float *weight, float (&a)[MAX_PAIRS],
                      float (&b)[MAX_PAIRS])
{
    uint32_t lane = threadIdx.x % 32, half = p.head_dim / 2;
    float sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < MAX_PAIRS; i++) {
        float eight = a[i] * a[i] + b[i] * b[i];
#pragma unroll
        for (uint32_t mask = 1; mask < 8; mask *= 2)
            eight += shuffle_xor(eight, mask);
#pragma unroll
        for (uint32_t g = 0; g < 4; g++) {
            float more = shuffle(eight, 8 * g);
            sum = i + g == 0 ? more : sum + more;
        }
    }
    float factor = norm_factor(sum, p.head_dim, p.norm_eps);
#pragma unroll
    for (uint32_t i = 0; i < MAX_PAIRS; i++)
        if (lane + 32 * i < half) {
            a[i] = a[i] * factor * weight[lane + 32 * i];
            b[i] = b[i] * factor * weight[lane + 32 * i + half];
        }
}

/* Grid: [rows]. Heads are queries, keys, then values. */
CUDA_KERNEL(rope_append_rows, rope_parameters, CUDA_ROW_THREADS, 1)
{
    let_next_kernel_start();
    wait_previous_kernel();
    const cuda_heads &of = p.heads;
    uint32_t row = blockIdx.x, lane = threadIdx.x % 32, half = of.head_dim / 2;
    uint32_t heads = of.heads + 2 * of.kv_heads, turned = of.heads + of.kv_heads;
    const float *cos_sin = of.rope + uint64_t(of.positions[row]) * of.head_dim;
    for (uint32_t h = threadIdx.x / 32; h < heads; h += CUDA_ROW_THREADS / 32) {
        float *head = p.qkv + (uint64_t(row) * heads + h) * of.head_dim;
        const float *bias = of.bias + uint64_t(h) * of.head_dim;
        float a[MAX_PAIRS], b[MAX_PAIRS];
#pragma unroll
        for (uint32_t i = 0; i < MAX_PAIRS; i++) {
            uint32_t at = lane + 32 * i;
            a[i] = at < half ? head[at] : 0.0f;
            b[i] = at < half ? head[at + half] : 0.0f;
            if (of.bias && at < half) {
                a[i] += bias[at];
                b[i] += bias[at + half];
            }
        }
        if (of.q_norm && h < turned)
            norm_head(of, h < of.heads ? of.q_norm : of.k_norm, a, b);
#pragma unroll
        for (uint32_t i = 0; i < MAX_PAIRS; i++) {
            uint32_t at = lane + 32 * i;
            if (at >= half)
                continue;
            if (h < turned)
                turn(a[i], b[i], cos_sin[at], cos_sin[half + at]);
            head[at] = a[i];
            head[at + half] = b[i];
        }
        if (h >= of.heads)
            append_head(of, row, h >= turned, (h - of.heads) % of.kv_heads, a, b);
    }
}

/* --- SwiGLU and tokens --- */

/* Grid: [parts of a row, rows]. */
CUDA_KERNEL(swiglu_rows, swiglu_parameters, CUDA_ROW_THREADS, 1)
{
    let_next_kernel_start();
    wait_previous_kernel();
    for (uint32_t row = blockIdx.y; row < p.rows; row += gridDim.y) {
        const float *gates = p.gate_up + uint64_t(row) * 2 * p.ffn;
        for (uint32_t f = blockIdx.x * CUDA_ROW_THREADS + threadIdx.x; f < p.ffn;
             f += gridDim.x * CUDA_ROW_THREADS) {
            float gate = gates[f];
            p.out[uint64_t(row) * p.ffn + f] = gate / (1.0f + exp_fixed(-gate)) * gates[p.ffn + f];
        }
    }
}

CUDA_KERNEL(take_rows, take_parameters, CUDA_ROW_THREADS, 1)
{
    let_next_kernel_start();
    wait_previous_kernel();
    for (uint32_t t = blockIdx.x * CUDA_ROW_THREADS + threadIdx.x; t < p.rows;
         t += gridDim.x * CUDA_ROW_THREADS)
        if (p.from[t] != KERNELS_TOKEN_GIVEN)
            p.tokens[t] = p.drawn[p.from[t]].token;
}
