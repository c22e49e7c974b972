/* Attention by mma.sync for any number of rows, on every GPU. A block has up to 64 pairs (query
 * row, head) of one KV head, 16 a warp. Rows of several sequences in its tile go one sequence after
 * another. */
#include "kernels/cuda/device/attention.cuh"

#define PAIRS  64 /* a block */
#define TOKENS 64 /* a stage */
#define STAGES 3
#define PARTS  (ATTENTION_SEGMENT_TOKENS / TOKENS)

/* Brings keys or values of TOKENS tokens from `position` on into a stage. Tokens outside [low,
 * high) become zeros: what lies there may be anything. */
template <int D, bool INT8>
INLINE void load_tokens(const attention_parameters &p, const tile &t, uint32_t position, bool value,
                        uint32_t stage)
{
    const uint32_t PER = INT8 ? 16 : 8; /* numbers of 16 bytes */
    for (uint32_t i = threadIdx.x; i < TOKENS * (D / PER); i += 128) {
        uint32_t token = i / (D / PER), chunk = i % (D / PER), at = position + token;
        bool is_real = at >= t.low && at < t.high;
        const char *from = p.kv.pool;
        if (is_real)
            from = run_of_head(p.kv, block_of(p.kv, t.sequence, at), value, t.head) +
                   inside_block(p.kv, at) * p.kv.token_bytes + chunk * 16;
        if (!INT8) {
            copy_async(stage + place<D, TOKENS>(token, chunk), from, is_real);
            continue;
        }
        uint4 v = make_uint4(0, 0, 0, 0);
        if (is_real)
            v = *reinterpret_cast<const uint4 *>(from);
        store_widened<D, TOKENS>(stage, token, chunk, value, v);
    }
}

/* Scales of the segment's keys, then values, [2][ATTENTION_SEGMENT_TOKENS]. */
INLINE void load_scales(const attention_parameters &p, const tile &t, uint32_t first,
                        uint32_t scales)
{
    float *to = shared_pointer<float>(scales, 2 * ATTENTION_SEGMENT_TOKENS);
    for (uint32_t i = threadIdx.x; i < 2 * ATTENTION_SEGMENT_TOKENS; i += 128) {
        uint32_t at = first + i % ATTENTION_SEGMENT_TOKENS;
        uint32_t block = at < t.high ? block_of(p.kv, t.sequence, at) : 0;
        to[i] = scale_at(p, t, block, at, i >= ATTENTION_SEGMENT_TOKENS);
    }
}
/* s[4 j ...] = the warp's 16 queries times TOKENS keys, 8 of them a j. */
template <int D> INLINE void score(float (&s)[TOKENS / 8][4], uint32_t queries, uint32_t stage)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (uint32_t d = 0; d < D / 16; d++) {
        uint32_t q[4];
        ldmatrix_x4(q, queries + place<D, PAIRS>(warp * 16 + lane % 16, 2 * d + lane / 16));
#pragma unroll
        for (uint32_t j = 0; j < TOKENS / 8; j += 2) {
            uint32_t k[4];
            ldmatrix_x4(
                k, stage + place<D, TOKENS>(8 * (j + lane / 16) + lane % 8, 2 * d + lane / 8 % 2));
            mma_bf16(s[j], q, k[0], k[1]);
            mma_bf16(s[j + 1], q, k[2], k[3]);
        }
    }
}
/* o += p v for TOKENS tokens. */
template <int D>
INLINE void weigh(float (&o)[D / 8][4], const uint32_t (*weights)[4], uint32_t stage)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < TOKENS / 16; i++)
#pragma unroll
        for (uint32_t d = 0; d < D / 8; d += 2) {
            uint32_t v[4];
            ldmatrix_x4_transposed(v, stage + place<D, TOKENS>(16 * i + lane % 16, d + lane / 16));
            mma_bf16(o[d], weights[i], v[0], v[1]);
            mma_bf16(o[d + 1], weights[i], v[2], v[3]);
        }
}

/* --- the ring of stages --- */

/* Items are parts of the keys, then of the values, of one segment after another. Parts that no row
 * sees are left out. */
struct cursor {
    uint32_t segment, part;
    bool value;
};
template <int D, bool INT8> struct ring {
    const attention_parameters &p;
    const tile &t;
    uint32_t stages, end; /* first segment behind the last */
    cursor next;          /* to be loaded */
    uint32_t loaded, used;

    INLINE bool is_seen(uint32_t segment, uint32_t part) const
    {
        return t.sees(segment * ATTENTION_SEGMENT_TOKENS + part * TOKENS, TOKENS);
    }
    INLINE void load()
    {
        while (next.segment < end && !is_seen(next.segment, next.part))
            step();
        if (next.segment < end) {
            load_tokens<D, INT8>(p, t, next.segment * ATTENTION_SEGMENT_TOKENS + next.part * TOKENS,
                                 next.value, stages + loaded % STAGES * (TOKENS * D * 2));
            loaded++;
            step();
        }
        copy_async_commit();
    }
    INLINE void step()
    {
        if (++next.part < PARTS)
            return;
        next.part = 0;
        next.segment += next.value;
        next.value = !next.value;
    }
    /* Returns the next item's stage, once it is there, and loads a later one. */
    INLINE uint32_t take()
    {
        copy_async_wait<STAGES - 2>();
        block_barrier();
        load();
        return stages + used++ % STAGES * (TOKENS * D * 2);
    }
};

template <int D>
INLINE void put_out(const attention_parameters &p, const tile &t, const float (&o)[D / 2],
                    const float (&m)[2], const float (&l)[2], uint32_t segment)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t pair = warp * 16 + lane / 4 + 8 * h, at = t.first_pair + pair;
        if (pair >= t.pairs)
            continue;
        if (!p.segments) {
            put_pair<D>(p, t, pair, o, h, l[h]);
            continue;
        }
        uint32_t row = t.row + at / p.group - p.first_row, head = t.head * p.group + at % p.group;
        uint64_t place = (uint64_t(row) * p.heads + head) * p.segments + segment;
        float2 *to = reinterpret_cast<float2 *>(p.partial_o + place * D) + lane % 4;
#pragma unroll
        for (uint32_t d = 0; d < D / 8; d++)
            to[4 * d] = make_float2(o[4 * d + 2 * h], o[4 * d + 2 * h + 1]);
        if (lane % 4 == 0) {
            p.partial_ml[2 * place] = m[h];
            p.partial_ml[2 * place + 1] = l[h];
        }
    }
}

/* Segments [segment, end) of a tile, one after another. */
template <int D, bool INT8>
INLINE void attend(const attention_parameters &p, const tile &t, uint32_t segment, uint32_t end)
{
    uint32_t queries = shared_base(), stages = queries + PAIRS * D * 2;
    const uint32_t scales[1] = {stages + STAGES * TOKENS * D * 2};
    sight see = sight_of(p, t, threadIdx.x / 32 * 16);
    load_queries<D, INT8>(p, t, 0, queries);
    ring<D, INT8> items = {p, t, stages, end, {segment, 0, false}, 0, 0};
#pragma unroll
    for (int i = 0; i + 1 < STAGES; i++)
        items.load();
    float o[D / 2];
#if CUDA_HAS_SM90
    float m[2], l[2];
#else
    /* sm_80 has no registers left for these, which are used once a segment. */
    float *kept = shared_pointer<float>(scales[0] + 2 * ATTENTION_SEGMENT_TOKENS * 4 + 32, 4 * 128);
    float(&m)[2] = *reinterpret_cast<float(*)[2]>(kept + threadIdx.x * 4);
    float(&l)[2] = *reinterpret_cast<float(*)[2]>(kept + threadIdx.x * 4 + 2);
#endif
    m[0] = m[1] = MINUS_INFINITY;
    l[0] = l[1] = 0;
#pragma unroll
    for (uint32_t i = 0; i < D / 2; i++)
        o[i] = 0;
    for (uint32_t at = segment; at < end; at++) {
        float s[PARTS][TOKENS / 8][4], ms[2], ls[2], fresh[D / 8][4];
        uint32_t weights[ATTENTION_SEGMENT_TOKENS / 16][4];
        if (INT8)
            load_scales(p, t, at * ATTENTION_SEGMENT_TOKENS, scales[0]);
#pragma unroll
        for (uint32_t part = 0; part < PARTS; part++) {
#pragma unroll
            for (uint32_t i = 0; i < TOKENS / 2; i++)
                s[part][i / 4][i % 4] = 0;
            if (items.is_seen(at, part))
                score<D>(s[part], queries, items.take());
        }
        soften<INT8, ATTENTION_SEGMENT_TOKENS>(
            reinterpret_cast<float(&)[ATTENTION_SEGMENT_TOKENS / 2]>(s), weights, ms, ls, see,
            at * ATTENTION_SEGMENT_TOKENS, p.scale, scales);
#pragma unroll
        for (uint32_t i = 0; i < D / 2; i++)
            fresh[i / 4][i % 4] = 0;
#pragma unroll
        for (uint32_t part = 0; part < PARTS; part++)
            if (items.is_seen(at, part))
                weigh<D>(fresh, weights + part * (TOKENS / 16), items.take());
        const float(&sums)[D / 2] = reinterpret_cast<const float(&)[D / 2]>(fresh);
        if (p.segments)
            put_out<D>(p, t, sums, ms, ls, at);
        else
            add_segment<D>(o, m, l, sums, ms, ls, p.scale);
    }
    if (!p.segments)
        put_out<D>(p, t, o, m, l, 0);
    copy_async_wait<0>();
    block_barrier(); /* the next run of the tile uses the same memory */
}

/* Grid: [tiles x chunks, KV heads, segments or 1]. */
template <int D, bool INT8> INLINE void attention(const attention_parameters &p)
{
    let_next_kernel_start();
    wait_previous_kernel();
    /* The run lies in shared memory: read where it is needed, it takes no registers. */
    tile *run = shared_pointer<tile>(
        shared_base() + (PAIRS + STAGES * TOKENS) * D * 2 + 2 * ATTENTION_SEGMENT_TOKENS * 4, 1);
    for (uint32_t row = 0;;) {
        uint32_t first = p.first_row + blockIdx.x / p.chunks * p.tile_rows;
        runs rows = {first + row, min(first + p.tile_rows, p.rows)};
        tile t;
        t.head = blockIdx.y;
        t.first_pair = blockIdx.x % p.chunks * PAIRS;
        if (!rows.next(p, t, PAIRS))
            break;
        row = rows.row - first;
        uint32_t segment = t.low / ATTENTION_SEGMENT_TOKENS;
        uint32_t end = (t.high - 1) / ATTENTION_SEGMENT_TOKENS + 1;
        if (p.segments) {
            if (blockIdx.z < segment || blockIdx.z >= end)
                continue;
            segment = blockIdx.z;
            end = segment + 1;
        }
        if (threadIdx.x == 0)
            *run = t;
        block_barrier();
        attend<D, INT8>(p, *run, segment, end);
    }
}
#define ATTENTION(D)                                                                               \
    CUDA_KERNEL(attention_bf16_##D, attention_parameters, 128, 1)                                  \
    {                                                                                              \
        attention<D, false>(p);                                                                    \
    }                                                                                              \
    CUDA_KERNEL(attention_int8_##D, attention_parameters, 128, 1)                                  \
    {                                                                                              \
        attention<D, true>(p);                                                                     \
    }
ATTENTION(16)
ATTENTION(32)
ATTENTION(64)
ATTENTION(128)

/* Adds the segments of each (row, head) of runs that were split. Grid: [rows]; a warp a head. */
CUDA_KERNEL(attention_merge, attention_parameters, CUDA_ROW_THREADS, 1)
{
    let_next_kernel_start();
    wait_previous_kernel();
    uint32_t row = p.first_row + blockIdx.x;
    uint32_t seen = p.positions[row] + 1, low = window_begin(p, seen), lane = threadIdx.x % 32;
    if (!run_end(p, p.row_sequence[row]))
        return;
    for (uint32_t head = threadIdx.x / 32; head < p.heads; head += CUDA_ROW_THREADS / 32) {
        uint64_t place = (uint64_t(blockIdx.x) * p.heads + head) * p.segments;
        for (uint32_t d = 2 * lane; d < p.head_dim; d += 64) {
            float m = MINUS_INFINITY, l = 0, o[2] = {0, 0};
            for (uint32_t s = low / ATTENTION_SEGMENT_TOKENS;
                 s <= (seen - 1) / ATTENTION_SEGMENT_TOKENS; s++) {
                float ms = p.partial_ml[2 * (place + s)];
                if (ms == MINUS_INFINITY)
                    continue;
                factors f = merge(m, l, ms, p.partial_ml[2 * (place + s) + 1], p.scale);
                const float *fresh = p.partial_o + (place + s) * p.head_dim + d;
                o[0] = merge_output(o[0], fresh[0], f);
                o[1] = merge_output(o[1], fresh[1], f);
            }
            float inverse = 1.0f / l;
            put_result(p, row, head, d, o[0] * inverse, o[1] * inverse);
        }
        if (lane == 0)
            put_end(p, row, head);
    }
}
