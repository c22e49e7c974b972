/* Linear layers of e4m3 weights by wgmma, and their inputs: for sm_90a alone (kernels.h has the
 * arithmetic, kernels/cpu/e4m3.h a model of the tensor core's).
 *
 * The tensor core keeps 13 bits of a sum. So each k block, 128 of k, starts at zero, and its sum is
 * added to fp32 registers: promoted. mma.sync widens e4m3 to f16 and gives other bits: it has no
 * place here. */
#include "kernels/cuda/device/linear.cuh"

/* Per row: scales of weights and tokens are applied at the end. By blocks: at each promotion. */
template <bool BLOCKS> struct of_e4m3 {
    typedef float sum;
    static const bool PROMOTED = true, BLOCK_SCALES = BLOCKS;
    static INLINE float bits(float v)
    {
        return v;
    }
    static INLINE float from_bits(float v)
    {
        return v;
    }
    static INLINE float value(const linear_parameters &p, float sum, uint32_t token, uint32_t n)
    {
        if (BLOCKS)
            return sum;
        float scale = p.fixed_scale > 0 ? p.fixed_scale : p.input_scales[token];
        return sum * (scale * p.weights.scales[n]);
    }
};

/* --- inputs --- */

/* A scale by kernels.h; NaN where an input isn't finite. */
INLINE float e4m3_scale(float largest, bool is_finite)
{
    float scale = largest < 0x1p-100f ? 0.0f : largest / 448.0f;
    return is_finite ? scale : __uint_as_float(0x7fc00000u);
}
/* Four numbers of a row, zeros behind its end. Rows without a sound scale of their own hold
 * zeros. */
INLINE uint32_t e4m3_word(const inputs_parameters &p, const float *in, uint32_t k, float factor,
                          float scale)
{
    float x[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        x[i] = scale > 0 && k + i < p.k ? input_of(p, in, k + i, factor) : 0.0f;
        x[i] = p.fixed.scale > 0 ? scaled(x[i], p.fixed) : scale > 0 ? x[i] / scale : 0.0f;
    }
    return pack_e4m3(x[0], x[1]) | pack_e4m3(x[2], x[3]) << 16;
}
struct magnitude {
    float largest, sound; /* sound: 1, or 0 with a number that isn't finite */

    INLINE void add(float x)
    {
        float size = x < 0 ? -x : x;
        sound = size <= 0x1.fffffep127f ? sound : 0;
        largest = size > largest ? size : largest;
    }
};

/* Grid: [rows]. */
CUDA_KERNEL(inputs_e4m3, inputs_parameters, CUDA_ROW_THREADS, 1)
{
    let_next_kernel_start();
    wait_previous_kernel();
    float *slots = shared_pointer<float>(shared_base(), CUDA_ROW_THREADS / 32);
    const float *in = row_of(p);
    float factor = p.norm ? factor_of(in, p.k, p.eps, slots) : 0.0f;
    float scale = p.fixed.scale;
    if (scale == 0) {
        magnitude m = {0, 1};
        for (uint32_t k = threadIdx.x; k < p.k; k += CUDA_ROW_THREADS)
            m.add(input_of(p, in, k, factor));
        m.largest = over_block(m.largest, slots, most_of<float>());
        m.sound = -over_block(-m.sound, slots, most_of<float>());
        scale = e4m3_scale(m.largest, m.sound != 0);
        if (threadIdx.x == 0)
            p.scales[blockIdx.x] = scale;
    }
    for (uint32_t word = threadIdx.x; word < p.to.k_blocks * 32; word += CUDA_ROW_THREADS)
        *reinterpret_cast<uint32_t *>(cell_at(p.to, blockIdx.x, 4 * word)) =
            e4m3_word(p, in, 4 * word, factor, scale);
}

/* Grid: [rows]. A warp has a k block at a time, and a lane four of its numbers. */
CUDA_KERNEL(inputs_e4m3_blocks, inputs_parameters, CUDA_ROW_THREADS, 1)
{
    let_next_kernel_start();
    wait_previous_kernel();
    float *slots = shared_pointer<float>(shared_base(), CUDA_ROW_THREADS / 32);
    const float *in = row_of(p);
    float factor = p.norm ? factor_of(in, p.k, p.eps, slots) : 0.0f;
    for (uint32_t block = threadIdx.x / 32; block < p.to.k_blocks; block += CUDA_ROW_THREADS / 32) {
        uint32_t word = block * 32 + threadIdx.x % 32;
        magnitude m = {0, 1};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            if (4 * word + i < p.k)
                m.add(input_of(p, in, 4 * word + i, factor));
        m.largest = over_warp(m.largest, most_of<float>());
        m.sound = -over_warp(-m.sound, most_of<float>());
        float scale = e4m3_scale(m.largest, m.sound != 0);
        *reinterpret_cast<uint32_t *>(cell_at(p.to, blockIdx.x, 4 * word)) =
            e4m3_word(p, in, 4 * word, factor, scale);
        if (threadIdx.x % 32 == 0)
            p.scales[uint64_t(block) * p.to.padded + blockIdx.x] = scale;
    }
}

/* --- products --- */

#if CUDA_HAS_SM90
/* Adds the sums of a k block to the segment's. Weights and tokens as in epilogue.cuh; their
 * scales lie in the stage. */
template <class T, int R, int BT>
INLINE void promote(float (&sum)[BT / 2], const float (&acc)[BT / 2], uint32_t scales)
{
    if (!T::BLOCK_SCALES) {
#pragma unroll
        for (int i = 0; i < BT / 2; i++)
            sum[i] += acc[i];
        return;
    }
    uint32_t t = threadIdx.x;
    opaque(t);
    uint32_t row = t / 32 * 16 + t % 32 / 4;
    const float *weights = shared_pointer<float>(scales, R * CUDA_TILE_N);
    const float *tokens = shared_pointer<float>(scales + R * CUDA_TILE_N * 4, BT) + t % 4 * 2;
    float low = weights[row], high = weights[row + 8];
#pragma unroll
    for (int j = 0; j < BT / 8; j++) {
        float even = tokens[8 * j], odd = tokens[8 * j + 1];
        sum[4 * j] = fmaf(acc[4 * j], even * low, sum[4 * j]);
        sum[4 * j + 1] = fmaf(acc[4 * j + 1], odd * low, sum[4 * j + 1]);
        sum[4 * j + 2] = fmaf(acc[4 * j + 2], even * high, sum[4 * j + 2]);
        sum[4 * j + 3] = fmaf(acc[4 * j + 3], odd * high, sum[4 * j + 3]);
        if (j % 4 == 3)
            memory_order(); /* no more scales than that in registers */
    }
}
/* Adds k blocks [block, end), promoted one by one, into sum, which begins at zero. The other group
 * of the tile multiplies while this one promotes. */
template <class T, int R, int BT>
INLINE void multiply_promoted(float (&sum)[BT / 2], buffers<T, R, BT> &ring, uint32_t block,
                              uint32_t end)
{
    uint32_t group = threadIdx.x / 128;
#pragma unroll
    for (int i = 0; i < BT / 2; i++)
        sum[i] = 0;
    for (; block < end; block++) {
        float acc[BT / 2];
        mbarrier_wait(ring.full + ring.stage * 8, ring.phase);
        uint64_t weights = wgmma_operand(ring.at() + group * 8192);
        uint64_t inputs = wgmma_operand(ring.at() + buffers<T, R, BT>::WEIGHT_BYTES);
        fence_registers(acc);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma<BT>::e4m3(acc, weights + 2 * k, inputs + 2 * k, k > 0);
        wgmma_commit();
        fence_registers(acc);
        wgmma_wait<0>();
        fence_registers(acc);
        promote<T, R, BT>(sum, acc, ring.at() + buffers<T, R, BT>::SCALES);
        if (T::BLOCK_SCALES)
            warp_barrier(); /* all lanes have read them */
        ring.release(ring.stage);
        ring.next();
    }
}
#endif

SM90(linear_e4m3_64x8_sm90, of_e4m3<false>, 1, 8)
SM90(linear_e4m3_64x16_sm90, of_e4m3<false>, 1, 16)
SM90(linear_e4m3_64x64_sm90, of_e4m3<false>, 1, 64)
SM90(linear_e4m3_128x16_sm90, of_e4m3<false>, 2, 16)
SM90(linear_e4m3_128x64_sm90, of_e4m3<false>, 2, 64)
SM90(linear_e4m3_128x128_sm90, of_e4m3<false>, 2, 128)
SM90(linear_e4m3_blocks_64x8_sm90, of_e4m3<true>, 1, 8)
SM90(linear_e4m3_blocks_64x16_sm90, of_e4m3<true>, 1, 16)
SM90(linear_e4m3_blocks_64x64_sm90, of_e4m3<true>, 1, 64)
SM90(linear_e4m3_blocks_128x16_sm90, of_e4m3<true>, 2, 16)
SM90(linear_e4m3_blocks_128x64_sm90, of_e4m3<true>, 2, 64)
SM90(linear_e4m3_blocks_128x128_sm90, of_e4m3<true>, 2, 128)
