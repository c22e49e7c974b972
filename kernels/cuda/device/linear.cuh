/* Linear layers: out[t][n] = sum over k of in[t][k] * w[n][k], with one order of sums for every
 * number of rows, both kinds of kernels and all plans:
 *
 * K is cut into segments at absolute positions. A segment's sum starts at zero and the tensor core
 * adds 16 of k a step, ascending. Segments are added ascending: ((s0 + s1) + s2) + ... Sums of s8
 * are exact. Weights are the operand of 64 rows, tokens the columns.
 *
 * A tile has 64 R weights and BT tokens. A block does all segments of a tile. Or each block does
 * one segment and leaves its sums in the L2 cache, and the last block to come adds them all.
 *
 * Blocks of a cluster have neighbouring tiles of weights and the same tokens. Each copies a part of
 * the tokens, for all of them.
 *
 * These are templates over a type T of weights (of_bf16 of linear.cu, of_e4m3 of fp8.cu):
 * T::sum, its bits in a float, T::group and T::value. T::PROMOTED sums go through
 * multiply_promoted, and T::BLOCK_SCALES come along with each k block. */
#ifndef BATON_KERNELS_CUDA_DEVICE_LINEAR_CUH
#define BATON_KERNELS_CUDA_DEVICE_LINEAR_CUH

#include "kernels/cuda/device/epilogue.cuh"

/* --- units of work --- */

/* A block's work at a time: one tile, all or one of its segments. */
struct unit {
    uint32_t n0, token0; /* first weight and token */
    uint32_t split;      /* number of the tile among those that are split */
    uint32_t segment, segments_end;
    bool is_whole;
};
/* Tiles are those of a cluster together. Counts anew each time: loops have no register for it. */
template <int R, int BT> INLINE uint32_t count_units(const linear_parameters &p)
{
    uint32_t rows = p.rows, high = 64 * R * p.cluster;
    opaque(rows);
    opaque(high);
    uint32_t tiles = (p.weights.n + high - 1) / high * ((rows + BT - 1) / BT);
    return p.whole + (tiles - p.whole) * p.segments;
}
/* Whole tiles first, then the segments of the others. Tiles go in groups of `group` row tiles. */
template <int R, int BT> INLINE unit unit_at(const linear_parameters &p, uint32_t u)
{
    uint32_t rank = p.cluster == 1 ? 0 : cluster_rank();
    uint32_t high = 64 * R * p.cluster, rows = p.rows, segments = p.segments, group = p.group;
    opaque(high); /* as in row_at: nothing of this is kept over a unit */
    opaque(rows);
    opaque(segments);
    opaque(group);
    uint32_t row_tiles = (p.weights.n + high - 1) / high, token_tiles = (rows + BT - 1) / BT;
    unit r;
    r.is_whole = u < p.whole;
    uint32_t tile = r.is_whole ? u : p.whole + (u - p.whole) / segments;
    r.split = (tile - p.whole) * p.cluster + rank;
    r.segment = r.is_whole ? 0 : (u - p.whole) % segments;
    r.segments_end = r.is_whole ? segments : r.segment + 1;
    uint32_t first = tile / (group * token_tiles) * group;
    uint32_t size = row_tiles - first < group ? row_tiles - first : group;
    uint32_t inside = tile - first * token_tiles;
    r.n0 = (first + inside % size) * high + rank * (64 * R);
    r.token0 = inside / size * BT;
    return r;
}
INLINE uint32_t segment_end(const linear_parameters &p, uint32_t segment)
{
    return min((segment + 1) * p.segment_blocks, p.weights.k_blocks);
}
INLINE const uint8_t *weight_block(const linear_parameters &p, uint32_t n0, uint32_t block)
{
    return p.weights.packed +
           (uint64_t(n0 / CUDA_TILE_N) * p.weights.k_blocks + block) * (CUDA_TILE_N * CUDA_K_BYTES);
}
INLINE const uint8_t *input_block(const linear_parameters &p, uint32_t token0, uint32_t block)
{
    return p.inputs.cells +
           (uint64_t(block) * (p.inputs.padded / CUDA_CELL_ROWS) + token0 / CUDA_CELL_ROWS) *
               CUDA_CELL_BYTES;
}

/* --- sums to their places --- */

/* Scales the sums of a group of 128 threads (epilogue.cuh has their places), and sends them on
 * their way. n0: the group's first packed row. */
template <class T, int R, int BT>
INLINE void finish_sums(const typename T::sum (&sums)[BT / 2], const linear_parameters &p,
                        uint32_t n0, uint32_t token0, uint32_t slots)
{
    uint32_t t = threadIdx.x % 128;
    opaque(t);
    uint32_t place = n0 + t / 32 * 16 + t % 32 / 4, n = p.weights.n;
    uint32_t rows[2] = {row_at(place, p.epilogue.pair, n), row_at(place + 8, p.epilogue.pair, n)};
    float v[BT / 2];
#pragma unroll
    for (int i = 0; i < BT / 2; i++) {
        uint32_t token = token0 + i / 4 * 8 + t % 4 * 2 + i % 2;
        v[i] = T::value(p, sums[i], min(token, p.rows - 1), min(rows[i / 2 % 2], n - 1));
        if (i % 16 == 15)
            memory_order(); /* no more scales than that in registers */
    }
    finish<R * 128, BT, T::PROMOTED>(v, p.epilogue, n0, token0, slots);
}
/* Sums of one segment of a split tile in global memory: a float4 a thread and 8 tokens. */
template <int R, int BT>
INLINE float4 *partial_at(const linear_parameters &p, const unit &u, uint32_t segment)
{
    return reinterpret_cast<float4 *>(p.partials) +
           (uint64_t(u.split) * p.segments + segment) * (BT / 8) * (R * 128) + threadIdx.x;
}
template <class T, int R, int BT>
INLINE void store_partial(const typename T::sum (&v)[BT / 2], float4 *at)
{
#pragma unroll
    for (int j = 0; j < BT / 8; j++)
        store_l2(at + j * R * 128, make_float4(T::bits(v[4 * j]), T::bits(v[4 * j + 1]),
                                               T::bits(v[4 * j + 2]), T::bits(v[4 * j + 3])));
}
/* Adds all segments of the tile, ascending. Loads of several are under way at once. */
template <class T, int R, int BT>
INLINE void add_partials(typename T::sum (&total)[BT / 2], const linear_parameters &p,
                         const unit &u)
{
    const uint32_t AT_ONCE = BT >= 128 ? 1 : BT == 64 ? 2 : 4;
    const int WIDE = BT / 8 < 8 ? BT / 8 : 8;
#pragma unroll 1
    for (uint32_t first = 0; first < p.segments; first += AT_ONCE)
#pragma unroll
        for (int j = 0; j < BT / 8; j += WIDE) {
            float4 v[AT_ONCE][WIDE];
#pragma unroll
            for (uint32_t s = 0; s < AT_ONCE; s++) {
                const float4 *at = partial_at<R, BT>(p, u, first + s);
                if (first + s < p.segments)
#pragma unroll
                    for (int i = 0; i < WIDE; i++)
                        v[s][i] = load_l2(at + (j + i) * R * 128);
            }
#pragma unroll
            for (uint32_t s = 0; s < AT_ONCE; s++)
                if (first + s < p.segments)
#pragma unroll
                    for (int i = 0; i < 4 * WIDE; i++) {
                        float4 x = v[s][i / 4];
                        float bits = i % 4 == 0 ? x.x : i % 4 == 1 ? x.y : i % 4 == 2 ? x.z : x.w;
                        typename T::sum &sum = total[4 * j + i];
                        sum = first + s == 0 ? T::from_bits(bits) : sum + T::from_bits(bits);
                    }
            memory_order();
        }
}
/* After a segment of a split tile is stored: returns whether this block is the last to come, and
 * so finishes the tile. Which one it is doesn't matter. flag: 4 bytes of shared memory. */
template <int THREADS>
INLINE bool comes_last(const linear_parameters &p, const unit &u, uint32_t flag)
{
    uint32_t *is_last = shared_pointer<uint32_t>(flag, 1);
    device_fence();
    named_barrier(1, THREADS);
    if (threadIdx.x == 0) {
        uint32_t *ticket = p.tickets + u.split;
        *is_last = atomic_add(ticket, 1) + 1 == p.segments;
        if (*is_last)
            *ticket = 0;
    }
    named_barrier(1, THREADS);
    bool last = *is_last;
    if (last)
        device_fence();
    return last;
}

/* --- the kernel for sm_90a: R groups of 128 threads multiply, one warp copies --- */

#if CUDA_HAS_SM90
/* A ring of `stages` buffers, each R x 8 KiB of weights, BT x 128 bytes of inputs, and scales: f32
 * of 64 R weights, then of BT tokens. */
template <class T, int R, int BT> struct buffers {
    static const uint32_t WEIGHT_BYTES = R * CUDA_TILE_N * CUDA_K_BYTES;
    static const uint32_t SCALES = WEIGHT_BYTES + BT * CUDA_K_BYTES;
    static const uint32_t SCALED_ROWS = T::BLOCK_SCALES ? R * CUDA_TILE_N : 0;
    static const uint32_t SCALED_TOKENS = T::BLOCK_SCALES ? BT : 0;
    static const uint32_t BYTES = SCALES + (T::BLOCK_SCALES ? CUDA_STAGE_SCALE_BYTES : 0);
    uint32_t base, full, empty, stages, cluster, stage, phase;

    INLINE uint32_t at() const
    {
        return base + stage * BYTES;
    }
    INLINE void next()
    {
        if (++stage == stages) {
            stage = 0;
            phase ^= 1;
        }
    }
    /* A warp has read the stage: all blocks of the cluster may copy to it. */
    INLINE void release(uint32_t read)
    {
        uint32_t lane = threadIdx.x % 32;
        if (cluster == 1) {
            if (lane == 0)
                mbarrier_arrive(empty + read * 8);
        } else if (lane < cluster)
            mbarrier_arrive_at(empty + read * 8, lane);
    }
};
template <class T, int R, int BT> struct producer {
    typedef buffers<T, R, BT> stage_of;
    const linear_parameters &p;
    stage_of ring;

    INLINE void load_weights(const unit &u, uint32_t block, uint32_t stage)
    {
        uint32_t full = ring.full + stage * 8;
        mbarrier_arrive_expect(full, stage_of::SCALES +
                                         4 * (stage_of::SCALED_ROWS + stage_of::SCALED_TOKENS));
#pragma unroll
        for (int r = 0; r < R; r++)
            bulk_load(ring.base + stage * stage_of::BYTES + r * 8192,
                      weight_block(p, u.n0 + r * CUDA_TILE_N, block), 8192, full);
        if (T::BLOCK_SCALES)
            bulk_load(ring.base + stage * stage_of::BYTES + stage_of::SCALES,
                      p.weights.scales + uint64_t(block) * p.weights.scale_rows + u.n0,
                      stage_of::SCALED_ROWS * 4, full);
    }
    INLINE void load_inputs(const unit &u, uint32_t block, uint32_t stage)
    {
        uint32_t at = ring.base + stage * stage_of::BYTES, full = ring.full + stage * 8;
        const uint8_t *inputs = input_block(p, u.token0, block);
        if (ring.cluster == 1)
            bulk_load(at + stage_of::WEIGHT_BYTES, inputs, BT * CUDA_K_BYTES, full);
        else {
            uint32_t bytes = BT * CUDA_K_BYTES / ring.cluster, part = cluster_rank() * bytes;
            bulk_load_to((1 << ring.cluster) - 1, at + stage_of::WEIGHT_BYTES + part, inputs + part,
                         bytes, full);
        }
        if (T::BLOCK_SCALES)
            bulk_load(at + stage_of::SCALES + stage_of::SCALED_ROWS * 4,
                      p.input_scales + uint64_t(block) * p.inputs.padded + u.token0,
                      stage_of::SCALED_TOKENS * 4, full);
    }
    INLINE void run()
    {
        uint32_t clusters = gridDim.x / ring.cluster, first = blockIdx.x / ring.cluster;
        for (uint32_t i = first; i < count_units<R, BT>(p); i += clusters) {
            unit u = unit_at<R, BT>(p, i);
            uint32_t block = u.segment * p.segment_blocks;
            uint32_t end = segment_end(p, u.segments_end - 1);
            if (i == first) {
                /* The ring is empty. Weights don't depend on the kernel ahead, inputs do. */
                uint32_t count = min(p.stages, end - block);
                for (uint32_t s = 0; s < count; s++)
                    load_weights(u, block + s, s);
                wait_previous_kernel();
                for (uint32_t s = 0; s < count; s++) {
                    load_inputs(u, block + s, s);
                    ring.next();
                }
                block += count;
            }
            for (; block < end; block++) {
                mbarrier_wait(ring.empty + ring.stage * 8, ring.phase ^ 1);
                load_weights(u, block, ring.stage);
                load_inputs(u, block, ring.stage);
                ring.next();
            }
        }
    }
};

/* Adds k blocks [block, end) into acc, which begins at zero. */
template <class T, int R, int BT>
INLINE void multiply_segment(typename T::sum (&acc)[BT / 2], buffers<T, R, BT> &ring,
                             uint32_t block, uint32_t end)
{
    uint32_t group = threadIdx.x / 128, before = 0;
#pragma unroll
    for (int i = 0; i < BT / 2; i++)
        acc[i] = 0;
    for (bool first = true; block < end; block++, first = false) {
        mbarrier_wait(ring.full + ring.stage * 8, ring.phase);
        uint64_t weights = wgmma_operand(ring.at() + group * 8192);
        uint64_t inputs = wgmma_operand(ring.at() + buffers<T, R, BT>::WEIGHT_BYTES);
        fence_registers(acc);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
            T::template group<BT>(acc, weights + 2 * k, inputs + 2 * k);
        wgmma_commit();
        fence_registers(acc);
        wgmma_wait<1>(); /* the block before has read its buffer */
        if (!first)
            ring.release(before);
        before = ring.stage;
        ring.next();
    }
    wgmma_wait<0>();
    fence_registers(acc);
    ring.release(before);
}
/* The same for sums that are promoted after each k block (fp8.cu). */
template <class T, int R, int BT>
INLINE void multiply_promoted(float (&sum)[BT / 2], buffers<T, R, BT> &ring, uint32_t block,
                              uint32_t end);

/* Adds a segment's sums to those of the segments before it. If registers keep only a part of
 * them, the sums are left in acc, too. rest: shared memory of the other ones, 16 bytes of each
 * thread side by side. */
template <class T, int R, int BT, int KEPT>
INLINE void add_segment(typename T::sum (&total)[KEPT], typename T::sum (&acc)[BT / 2],
                        uint32_t rest, bool first, bool last)
{
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        total[i] = first ? acc[i] : total[i] + acc[i];
        if (KEPT < BT / 2)
            acc[i] = total[i];
    }
    rest += threadIdx.x * 16;
    opaque(rest);
#pragma unroll
    for (int i = KEPT; i < BT / 2; i += 4) {
        uint32_t at = rest + (i - KEPT) / 4 * (R * 128 * 16);
        if (!first) {
            uint4 v = load_shared(at);
            acc[i] = T::from_bits(__uint_as_float(v.x)) + acc[i];
            acc[i + 1] = T::from_bits(__uint_as_float(v.y)) + acc[i + 1];
            acc[i + 2] = T::from_bits(__uint_as_float(v.z)) + acc[i + 2];
            acc[i + 3] = T::from_bits(__uint_as_float(v.w)) + acc[i + 3];
        }
        if (!last)
            store_shared(at, make_uint4(__float_as_uint(T::bits(acc[i])),
                                        __float_as_uint(T::bits(acc[i + 1])),
                                        __float_as_uint(T::bits(acc[i + 2])),
                                        __float_as_uint(T::bits(acc[i + 3]))));
    }
}

template <class T, int R, int BT>
INLINE void multiply_units(const linear_parameters &p, buffers<T, R, BT> &ring, uint32_t flag)
{
    const int KEPT = CUDA_KEPT_SUMS(BT, T::PROMOTED);
    uint32_t group_n = threadIdx.x / 128 * CUDA_TILE_N, rest = flag + 16 + 4 * R * BT * 4;
    for (uint32_t i = blockIdx.x / ring.cluster; i < count_units<R, BT>(p);
         i += gridDim.x / ring.cluster) {
        unit u = unit_at<R, BT>(p, i);
        typename T::sum acc[BT / 2], total[KEPT];
        for (uint32_t segment = u.segment; segment < u.segments_end; segment++) {
            uint32_t block = segment * p.segment_blocks, end = segment_end(p, segment);
            if constexpr (T::PROMOTED)
                multiply_promoted<T, R, BT>(acc, ring, block, end);
            else
                multiply_segment<T, R, BT>(acc, ring, block, end);
            bool last = segment + 1 == u.segments_end;
            add_segment<T, R, BT>(total, acc, rest, segment == u.segment, last);
            if (KEPT < BT / 2 && last) { /* `total` ends here: acc has all sums */
                finish_sums<T, R, BT>(acc, p, u.n0 + group_n, u.token0, flag + 16);
                break;
            }
        }
        if constexpr (KEPT == BT / 2) {
            if (!u.is_whole) {
                store_partial<T, R, BT>(total, partial_at<R, BT>(p, u, u.segment));
                if (!comes_last<R * 128>(p, u, flag))
                    continue;
                add_partials<T, R, BT>(total, p, u);
            }
            finish_sums<T, R, BT>(total, p, u.n0 + group_n, u.token0, flag + 16);
        }
    }
}
#endif

template <class T, int R, int BT> INLINE void linear_sm90(const linear_parameters &p)
{
#if CUDA_HAS_SM90
    /* Big tiles take more registers than an even share: the group that copies gives its own. */
    const bool BIG = CUDA_TILE_IS_WIDE(R, BT);
    uint32_t base = (shared_base() + 1023) & ~1023u;
    uint32_t full = base + p.stages * buffers<T, R, BT>::BYTES;
    buffers<T, R, BT> ring = {base, full, full + CUDA_MOST_STAGES * 8, p.stages, p.cluster, 0, 0};
    uint32_t flag = ring.empty + CUDA_MOST_STAGES * 8;
    if (threadIdx.x == 0) {
        for (uint32_t s = 0; s < p.stages; s++) {
            mbarrier_init(ring.full + s * 8, 1);
            mbarrier_init(ring.empty + s * 8, R * 4 * p.cluster);
        }
        mbarrier_init_fence();
    }
    if (p.cluster == 1)
        block_barrier();
    else
        cluster_barrier();
    if (threadIdx.x >= R * 128) {
        if (BIG)
            give_registers<40>();
        if (threadIdx.x == R * 128) {
            producer<T, R, BT> copies = {p, ring};
            copies.run();
        } else
            wait_previous_kernel();
    } else {
        if (BIG)
            take_registers<232>();
        wait_previous_kernel();
        multiply_units<T, R, BT>(p, ring, flag);
    }
    warp_barrier();
    if (p.cluster > 1)
        cluster_barrier(); /* no block ends while others copy to it, or arrive there */
#endif
}
#define SM90(NAME, T, R, BT)                                                                       \
    CUDA_KERNEL(NAME, linear_parameters, CUDA_TILE_THREADS(R, BT),                                 \
                CUDA_TILE_BLOCKS(R, BT, T::PROMOTED))                                              \
    {                                                                                              \
        let_next_kernel_start();                                                                   \
        linear_sm90<T, R, BT>(p);                                                                  \
    }

#endif
