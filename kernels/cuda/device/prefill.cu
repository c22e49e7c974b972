/* Attention of many rows by wgmma. A block has two groups of four warps that multiply, each for 64
 * pairs (query row, head) of one KV head, and four warps that copy. They bring halves of segments
 * (128 tokens), keys then values, into a ring by asynchronous copies. int8 is widened in its stage
 * to bf16, which holds it exactly. Sums and their order are those of attention.cuh.
 *
 * Blocks walk over units (tile of rows, KV head), longest contexts first and every second round
 * backwards. Segments that no row of a tile sees are left out. */
#include "kernels/cuda/device/attention.cuh"

#define HALF    CUDA_PREFILL_TOKENS /* tokens of an item of the ring */
#define SIDE    64                  /* pairs of a group that multiplies */
#define COPIERS 128                 /* threads */

#if CUDA_HAS_SM90
/* The unit of a round; none: >= units. */
INLINE uint32_t unit_of_round(uint32_t round)
{
    return round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}
/* The walk over the runs of the block's units, by one warp that copies. Between runs it lies in
 * shared memory: it would cost all of them registers. */
struct walk {
    uint32_t round;
    runs rows;
    tile t;

    /* Goes to the next run. A tile without pairs is the end. */
    INLINE void next(const attention_parameters &p)
    {
        uint32_t tiles = (p.rows - p.first_row + p.tile_rows - 1) / p.tile_rows;
        uint32_t units = tiles * p.chunks * p.kv_heads;
        while (round == 0 || !rows.next(p, t, CUDA_PREFILL_PAIRS)) {
            uint32_t unit = unit_of_round(round);
            if (round++ * gridDim.x >= units) {
                t.pairs = 0;
                return;
            }
            if (unit >= units) {
                rows.end = 0;
                continue;
            }
            t.head = unit % p.kv_heads;
            uint32_t rest = unit / p.kv_heads;
            t.first_pair = rest % p.chunks * CUDA_PREFILL_PAIRS;
            rows.row = p.first_row + (tiles - 1 - rest / p.chunks) * p.tile_rows;
            rows.end = min(rows.row + p.tile_rows, p.rows);
        }
    }
};

template <int D, bool INT8> struct stages {
    static const uint32_t COUNT = CUDA_PREFILL_STAGES(D, INT8);
    static const uint32_t BYTES = HALF * D * 2, SCALE_BYTES = INT8 ? 2 * HALF * 4 : 0;
    uint32_t base, stage, phase;

    INLINE uint32_t at(uint32_t s) const
    {
        return base + s * BYTES;
    }
    INLINE uint32_t scales(uint32_t s) const
    {
        return base + COUNT * BYTES + s * SCALE_BYTES;
    }
    INLINE uint32_t full(uint32_t s) const
    {
        return base + COUNT * (BYTES + SCALE_BYTES) + s * 8;
    }
    INLINE uint32_t empty(uint32_t s) const
    {
        return full(COUNT) + s * 8;
    }
    INLINE void next()
    {
        if (++stage == COUNT) {
            stage = 0;
            phase ^= 1;
        }
    }
};

/* Runs on their way to the groups that multiply and to the warps that copy: two places, each a
 * struct tile. Behind them lies the walk. */
template <int D, bool INT8> struct posts {
    stages<D, INT8> ring;
    uint32_t count;

    INLINE tile *at() const
    {
        return shared_pointer<tile>(ring.empty(stages<D, INT8>::COUNT) + count % 2 * 32, 1);
    }
    INLINE uint32_t full() const
    {
        return ring.empty(stages<D, INT8>::COUNT) + 64 + count % 2 * 8;
    }
    INLINE uint32_t empty() const
    {
        return full() + 16;
    }
    INLINE walk *way() const
    {
        return shared_pointer<walk>(ring.empty(stages<D, INT8>::COUNT) + 96, 1);
    }
    INLINE void set_up()
    {
        *way() = {0, {0, 0}, {}};
        for (count = 0; count < 2; count++) {
            mbarrier_init(full(), 1);
            mbarrier_init(empty(), 3 * 4);
        }
    }
    /* One warp: puts the next run into its place. */
    INLINE void put_next(const attention_parameters &p) const
    {
        walk next = *way();
        next.next(p);
        warp_barrier(); /* all have read it */
        if (threadIdx.x % 32 == 0) {
            mbarrier_wait(empty(), (count / 2 & 1) ^ 1);
            *way() = next;
            *at() = next.t;
            mbarrier_arrive(full());
        }
        warp_barrier();
    }
    /* The next run, which stays until `done`: read where it is needed, it takes no registers. */
    INLINE const tile &take() const
    {
        mbarrier_wait(full(), count / 2 & 1);
        return *at();
    }
    INLINE void done()
    {
        warp_barrier();
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(empty());
        count++;
    }
};

/* --- warps that copy --- */

template <int D, bool INT8> struct copier {
    static const uint32_t LATER = 2; /* items under way: their arrival isn't told yet */
    const attention_parameters &p;
    stages<D, INT8> ring;
    uint32_t untold, told; /* items */

    /* int8: a stage's copies are its second half. A thread widens those chunks of 16 numbers that
     * it copied: SIDE_CHUNKS for each half of the stage. */
    static const uint32_t SIDE_CHUNKS = HALF * D / 16 / 2 / COPIERS;
    static INLINE uint32_t copied(uint32_t i)
    {
        return stages<D, INT8>::BYTES / 2 + (i * COPIERS + threadIdx.x % COPIERS) * 16;
    }
    /* Chunk i of a thread: the first half of a stage has the first 64 numbers of heads of 128, or
     * the first tokens. */
    static INLINE uint32_t token_of_chunk(uint32_t i)
    {
        return (D == 64 ? i / SIDE_CHUNKS * (HALF / 2) : 0) + i % SIDE_CHUNKS * (COPIERS / 4) +
               threadIdx.x % COPIERS / 4;
    }
    static INLINE uint32_t chunk_of(uint32_t i)
    {
        return (D == 128 ? i / SIDE_CHUNKS * 4 : 0) + threadIdx.x % 4;
    }
    static INLINE void put_chunk(uint32_t stage, uint32_t i, bool value, uint4 numbers)
    {
        store_widened<D, HALF>(stage, token_of_chunk(i), chunk_of(i), value, numbers);
    }
    /* Chunks go where all have read: the first half of them to the stage's first half, the third
     * quarter to their copies, the last one to its own copies and those of the third. */
    INLINE void widen(uint32_t stage, bool value) const
    {
        const uint32_t LAST = 3 * SIDE_CHUNKS / 2, COUNT = 2 * SIDE_CHUNKS;
        uint4 kept[COUNT - LAST];
#pragma unroll
        for (uint32_t i = 0; i < LAST; i++) {
            if (i == SIDE_CHUNKS)
                named_barrier(3, COPIERS);
            put_chunk(stage, i, value, load_shared(stage + copied(i)));
        }
#pragma unroll
        for (uint32_t i = LAST; i < COUNT; i++)
            kept[i - LAST] = load_shared(stage + copied(i));
        named_barrier(3, COPIERS);
#pragma unroll
        for (uint32_t i = LAST; i < COUNT; i++)
            put_chunk(stage, i, value, kept[i - LAST]);
    }
    /* Tells the groups that multiply of the oldest item. */
    INLINE void tell()
    {
        uint32_t s = ring.stage + stages<D, INT8>::COUNT - untold;
        s = s % stages<D, INT8>::COUNT;
        if (INT8)
            widen(ring.at(s), told++ % 4 / 2);
        fence_async_shared();
        warp_barrier();
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(ring.full(s));
        untold--;
    }
    /* Scales of keys, then of values; zeros of tokens that no row of the tile sees. */
    INLINE void load_scales(const tile &t, uint32_t segment, uint32_t first, uint32_t blocks)
    {
        uint32_t thread = threadIdx.x % COPIERS, at = first + thread;
        uint32_t block = shuffle(blocks, (at - segment) / GROUP_TOKENS);
        uint32_t to = ring.scales(ring.stage) + thread * 4;
        bool is_real = at >= t.low && at < t.high;
        uint32_t inside = p.kv.scales_bytes + inside_block(p.kv, at) * 4;
        copy_async_word(to, run_of_head(p.kv, block, false, t.head) + inside, is_real);
        copy_async_word(to + HALF * 4, run_of_head(p.kv, block, true, t.head) + inside, is_real);
    }
    /* Copies HALF tokens from `first` on. blocks: of tokens 8 l and on behind `segment`. */
    INLINE void load(const tile &t, uint32_t segment, uint32_t first, bool value, uint32_t blocks)
    {
        const uint32_t CHUNKS = D / 8, ROWS = COPIERS / CHUNKS; /* bf16, at once */
        uint32_t thread = threadIdx.x % COPIERS, stage = ring.at(ring.stage);
        mbarrier_wait(ring.empty(ring.stage), ring.phase ^ 1);
        if (INT8 && !value)
            load_scales(t, segment, first, blocks);
#pragma unroll(INT8 ? 2 : 4)
        for (uint32_t i = 0; i < (INT8 ? 2 * SIDE_CHUNKS : HALF / ROWS); i++) {
            uint32_t token = INT8 ? token_of_chunk(i) : i * ROWS + thread / CHUNKS;
            uint32_t chunk = INT8 ? chunk_of(i) : thread % CHUNKS, at = first + token;
            uint32_t block = shuffle(blocks, (at - segment) / GROUP_TOKENS);
            copy_async(stage + (INT8 ? copied(i) : place<D, HALF>(token, chunk)),
                       run_of_head(p.kv, block, value, t.head) +
                           inside_block(p.kv, at) * p.kv.token_bytes + chunk * 16,
                       at >= t.low && at < t.high);
        }
        copy_async_commit();
        ring.next();
        if (++untold <= LATER)
            return;
        copy_async_wait<LATER>();
        tell();
    }
    INLINE void run()
    {
        posts<D, INT8> post = {ring, 0};
        for (;;) {
            if (threadIdx.x / 32 == 2 * 4)
                post.put_next(p);
            const tile &t = post.take();
            if (!t.pairs)
                break;
            for (uint32_t segment = t.first_segment(); segment < t.high;
                 segment += ATTENTION_SEGMENT_TOKENS) {
                uint32_t blocks = blocks_of_segment(p.kv, t.sequence, segment, t.low, t.high);
#pragma unroll 1
                for (uint32_t i = 0; i < 4; i++)
                    load(t, segment, segment + i % 2 * HALF, i / 2, blocks);
            }
            post.done();
        }
        copy_async_wait<0>();
#pragma unroll 1
        while (untold)
            tell();
    }
};

/* --- groups that multiply --- */

/* s = 64 queries times HALF keys. The first step of d doesn't add. */
template <int D> INLINE void score_half(float (&s)[HALF / 2], uint32_t queries, uint32_t keys)
{
    uint64_t q = wgmma_operand(queries), k = wgmma_operand(keys);
    wgmma<HALF>::bf16_first(s, q, k);
#pragma unroll
    for (uint32_t d = 1; d < D / 16; d++)
        wgmma<HALF>::bf16(s, q + d / 4 * (SIDE * 128 / 16) + d % 4 * 2,
                          k + d / 4 * (HALF * 128 / 16) + d % 4 * 2);
    wgmma_commit();
}
/* o += weights times values of HALF tokens. */
template <int D, bool FIRST>
INLINE void weigh_half(float (&o)[D / 2], const uint32_t (*weights)[4], uint32_t values)
{
    uint64_t v = wgmma_values(values, HALF * 128);
    if (FIRST)
        wgmma_weigh<D>::bf16_first(o, weights[0], v);
    else
        wgmma_weigh<D>::bf16(o, weights[0], v);
#pragma unroll
    for (uint32_t i = 1; i < HALF / 16; i++)
        wgmma_weigh<D>::bf16(o, weights[i], v + i * 128);
    wgmma_commit();
}

/* Straight lines: wgmma of a segment under conditions would be done one after another. */
template <int D, bool INT8> struct multiplier {
    const attention_parameters &p;
    stages<D, INT8> ring;
    uint32_t queries; /* the group's */

    /* Waits for the next half of a segment. Returns its stage. */
    INLINE uint32_t take()
    {
        uint32_t s = ring.stage;
        mbarrier_wait(ring.full(s), ring.phase);
        ring.next();
        return s;
    }
    INLINE void release(uint32_t s)
    {
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(ring.empty(s));
    }
    /* Weights of a segment from its keys, and m and l. */
    INLINE void weights_of(uint32_t (&weights)[2 * HALF / 16][4], float (&m)[2], float (&l)[2],
                           const sight &see, uint32_t segment)
    {
        float s[HALF];
        float(&s0)[HALF / 2] = reinterpret_cast<float(&)[HALF / 2]>(s[0]);
        float(&s1)[HALF / 2] = reinterpret_cast<float(&)[HALF / 2]>(s[HALF / 2]);
        uint32_t first = take(), second = take();
        wgmma_fence();
        score_half<D>(s0, queries, ring.at(first));
        score_half<D>(s1, queries, ring.at(second));
        wgmma_wait<1>();
        if (!INT8)
            release(first);
        wgmma_wait<0>();
        fence_registers(s0);
        fence_registers(s1);
        if (!INT8)
            release(second);
        const uint32_t scales[2] = {ring.scales(first), ring.scales(second)};
        soften<INT8, HALF>(s, weights, m, l, see, segment, p.scale, scales);
        if (INT8) {
            release(first);
            release(second);
        }
    }
    INLINE void weigh(float (&o)[D / 2], const uint32_t (&weights)[2 * HALF / 16][4])
    {
        uint32_t first = take(), second = take();
        wgmma_fence();
        weigh_half<D, true>(o, weights, ring.at(first));
        weigh_half<D, false>(o, weights + HALF / 16, ring.at(second));
        wgmma_wait<1>();
        release(first);
        wgmma_wait<0>();
        fence_registers(o);
        release(second);
    }
    INLINE void run()
    {
        uint32_t most = p.rows * p.kv_heads * p.chunks + 1, group = threadIdx.x / 128;
        posts<D, INT8> post = {ring, 0};
        /* Registers of the groups are allotted well only in loops with an even bound. */
        for (uint32_t run = 0; run < most; run++) {
            const tile &t = post.take();
            if (!t.pairs)
                break;
            named_barrier(1 + group, 128); /* the run before is multiplied */
            load_queries<D, INT8>(p, t, group * SIDE, queries);
            fence_async_shared();
            named_barrier(1 + group, 128);
            sight see = sight_of(p, t, threadIdx.x / 32 * 16);
            float o[D / 2], m[2] = {MINUS_INFINITY, MINUS_INFINITY}, l[2] = {0, 0};
#pragma unroll
            for (uint32_t i = 0; i < D / 2; i++)
                o[i] = 0;
            for (uint32_t segment = t.first_segment(); segment < t.high;
                 segment += ATTENTION_SEGMENT_TOKENS) {
                uint32_t weights[2 * HALF / 16][4];
                float ms[2], ls[2], fresh[D / 2];
                weights_of(weights, ms, ls, see, segment);
                weigh(fresh, weights);
                add_segment<D>(o, m, l, fresh, ms, ls, p.scale);
            }
            uint32_t pair = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
            for (uint32_t h = 0; h < 2; h++)
                if (pair + 8 * h < t.pairs)
                    put_pair<D>(p, t, pair + 8 * h, o, h, l[h]);
            post.done();
        }
    }
};
#endif

template <int D, bool INT8> INLINE void prefill(const attention_parameters &p)
{
#if CUDA_HAS_SM90
    /* Registers of a thread: 384 threads begin with 168 each. */
    const int MULTIPLIES = 224, COPIES = 3 * 168 - 2 * MULTIPLIES;
    uint32_t base = (shared_base() + 1023) & ~1023u, side_bytes = SIDE * D * 2;
    stages<D, INT8> ring = {base + 2 * side_bytes, 0, 0};
    let_next_kernel_start();
    if (threadIdx.x == 0) {
        for (uint32_t s = 0; s < stages<D, INT8>::COUNT; s++) {
            mbarrier_init(ring.full(s), COPIERS / 32);
            mbarrier_init(ring.empty(s), 2 * 4);
        }
        posts<D, INT8> post = {ring, 0};
        post.set_up();
        mbarrier_init_fence();
    }
    block_barrier();
    wait_previous_kernel();
    if (threadIdx.x >= 2 * 128) {
        give_registers<COPIES>();
        copier<D, INT8> copies = {p, ring, 0, 0};
        copies.run();
    } else {
        take_registers<MULTIPLIES>();
        multiplier<D, INT8> sums = {p, ring, base + threadIdx.x / 128 * side_bytes};
        sums.run();
    }
#endif
}
#define PREFILL(NAME, D, INT8)                                                                     \
    CUDA_KERNEL(NAME, attention_parameters, 3 * 128, 1)                                            \
    {                                                                                              \
        prefill<D, INT8>(p);                                                                       \
    }
PREFILL(attention_bf16_64_sm90, 64, false)
PREFILL(attention_int8_64_sm90, 64, true)
PREFILL(attention_bf16_128_sm90, 128, false)
PREFILL(attention_int8_128_sm90, 128, true)
