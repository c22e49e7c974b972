/* Linear layers of bf16 and s8 weights, by both kinds of kernels. */
#include "kernels/cuda/device/linear.cuh"

struct of_bf16 {
    typedef float sum;
    static const bool PROMOTED = false, BLOCK_SCALES = false;
    static INLINE float bits(float v)
    {
        return v;
    }
    static INLINE float from_bits(float v)
    {
        return v;
    }
    static INLINE void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
    {
        mma_bf16(d, a, b0, b1);
    }
    static INLINE float value(const linear_parameters &, float sum, uint32_t, uint32_t)
    {
        return sum;
    }
    template <int BT> static INLINE void group(float (&d)[BT / 2], uint64_t a, uint64_t b)
    {
        wgmma<BT>::bf16(d, a, b);
    }
};
struct of_s8 {
    typedef int sum;
    static const bool PROMOTED = false, BLOCK_SCALES = false;
    static INLINE float bits(int v)
    {
        return __int_as_float(v);
    }
    static INLINE int from_bits(float v)
    {
        return __float_as_int(v);
    }
    static INLINE void mma(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
    {
        mma_s8(d, a, b0, b1);
    }
    static INLINE float value(const linear_parameters &p, int sum, uint32_t token, uint32_t n)
    {
        return float(sum) * (p.input_scales[token] * p.weights.scales[n]);
    }
    template <int BT> static INLINE void group(int (&d)[BT / 2], uint64_t a, uint64_t b)
    {
        wgmma<BT>::s8(d, a, b);
    }
};

/* --- the portable kernel: 4 R warps with 16 weights each --- */

/* Copies one k block of the tile's weights and tokens. */
template <int R, int BT>
INLINE void load_stage(const linear_parameters &p, const unit &u, uint32_t block, uint32_t stage)
{
    const uint8_t *inputs = input_block(p, u.token0, block);
#pragma unroll
    for (int r = 0; r < R; r++) {
        const uint8_t *weights = weight_block(p, u.n0 + r * CUDA_TILE_N, block);
#pragma unroll
        for (uint32_t i = threadIdx.x; i < CUDA_TILE_N * 8; i += R * 128)
            copy_async(stage + r * CUDA_TILE_N * CUDA_K_BYTES + i * 16, weights + i * 16, true);
    }
#pragma unroll
    for (uint32_t i = threadIdx.x; i < BT * 8; i += R * 128)
        copy_async(stage + R * CUDA_TILE_N * CUDA_K_BYTES + i * 16, inputs + i * 16, true);
}
template <class T, int R, int BT>
INLINE void multiply_stage(typename T::sum (&acc)[BT / 8][4], uint32_t stage)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t inputs = stage + R * CUDA_TILE_N * CUDA_K_BYTES;
#pragma unroll
    for (uint32_t step = 0; step < 4; step++) {
        uint32_t a[4];
        ldmatrix_x4(a, stage + swizzled(warp * 16 + lane % 16, 2 * step + lane / 16));
#pragma unroll
        for (uint32_t j = 0; j < BT / 8; j += 2) {
            uint32_t b[4];
            ldmatrix_x4(b,
                        inputs + swizzled(8 * (j + lane / 16) + lane % 8, 2 * step + lane / 8 % 2));
            T::mma(acc[j], a, b[0], b[1]);
            T::mma(acc[j + 1], a, b[2], b[3]);
        }
    }
}
template <class T, int R, int BT> INLINE void linear_portable(const linear_parameters &p)
{
    const int DEPTH = CUDA_PORTABLE_STAGES;
    const uint32_t STAGE_BYTES = (R * CUDA_TILE_N + BT) * CUDA_K_BYTES;
    uint32_t base = shared_base(), flag = base + DEPTH * STAGE_BYTES;
    wait_previous_kernel();
    unit u = unit_at<R, BT>(p, blockIdx.x);
    uint32_t begin = u.segment * p.segment_blocks, end = segment_end(p, u.segments_end - 1);
    typename T::sum acc[BT / 8][4], total[BT / 2];
#pragma unroll
    for (int i = 0; i < BT / 2; i++) {
        acc[i / 4][i % 4] = 0;
        total[i] = 0;
    }
#pragma unroll
    for (uint32_t s = 0; s + 1 < DEPTH; s++) {
        if (begin + s < end)
            load_stage<R, BT>(p, u, begin + s, base + s * STAGE_BYTES);
        copy_async_commit();
    }
    for (uint32_t block = begin, segment = u.segment; block < end; block++) {
        copy_async_wait<DEPTH - 2>();
        block_barrier();
        uint32_t ahead = block + DEPTH - 1;
        if (ahead < end)
            load_stage<R, BT>(p, u, ahead, base + (ahead - begin) % DEPTH * STAGE_BYTES);
        copy_async_commit();
        multiply_stage<T, R, BT>(acc, base + (block - begin) % DEPTH * STAGE_BYTES);
        if (block + 1 < segment_end(p, segment))
            continue;
#pragma unroll
        for (int i = 0; i < BT / 2; i++) {
            total[i] = segment == u.segment ? acc[i / 4][i % 4] : total[i] + acc[i / 4][i % 4];
            acc[i / 4][i % 4] = 0;
        }
        segment++;
    }
    copy_async_wait<0>();
    if (!u.is_whole) {
        store_partial<T, R, BT>(total, partial_at<R, BT>(p, u, u.segment));
        if (!comes_last<R * 128>(p, u, flag))
            return;
        add_partials<T, R, BT>(total, p, u);
    }
    finish_sums<T, R, BT>(total, p, u.n0 + threadIdx.x / 128 * CUDA_TILE_N, u.token0, flag + 16);
}
#define PORTABLE(NAME, T, R, BT)                                                                   \
    CUDA_KERNEL(NAME, linear_parameters, R * 128, 1)                                               \
    {                                                                                              \
        let_next_kernel_start();                                                                   \
        linear_portable<T, R, BT>(p);                                                              \
    }
PORTABLE(linear_bf16_64x16, of_bf16, 1, 16)
PORTABLE(linear_bf16_64x64, of_bf16, 1, 64)
PORTABLE(linear_bf16_128x64, of_bf16, 2, 64)
PORTABLE(linear_s8_64x16, of_s8, 1, 16)
PORTABLE(linear_s8_64x64, of_s8, 1, 64)
PORTABLE(linear_s8_128x64, of_s8, 2, 64)

SM90(linear_bf16_64x8_sm90, of_bf16, 1, 8)
SM90(linear_bf16_64x16_sm90, of_bf16, 1, 16)
SM90(linear_bf16_64x32_sm90, of_bf16, 1, 32)
SM90(linear_bf16_64x64_sm90, of_bf16, 1, 64)
SM90(linear_bf16_64x128_sm90, of_bf16, 1, 128)
SM90(linear_bf16_128x16_sm90, of_bf16, 2, 16)
SM90(linear_bf16_128x64_sm90, of_bf16, 2, 64)
SM90(linear_bf16_128x128_sm90, of_bf16, 2, 128)
SM90(linear_bf16_128x256_sm90, of_bf16, 2, 256)
SM90(linear_s8_64x8_sm90, of_s8, 1, 8)
SM90(linear_s8_64x16_sm90, of_s8, 1, 16)
SM90(linear_s8_64x32_sm90, of_s8, 1, 32)
SM90(linear_s8_64x64_sm90, of_s8, 1, 64)
SM90(linear_s8_64x128_sm90, of_s8, 1, 128)
SM90(linear_s8_128x16_sm90, of_s8, 2, 16)
SM90(linear_s8_128x64_sm90, of_s8, 2, 64)
SM90(linear_s8_128x128_sm90, of_s8, 2, 128)
SM90(linear_s8_128x256_sm90, of_s8, 2, 256)
