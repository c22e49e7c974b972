/* Attention of rows that are few in their sequence: decoding. A warp does one segment of one (row,
 * KV head) at a time, alone. Tokens (for scores) and dims (for values) are mma's 16 rows, up to 8
 * query heads of the group its columns; sums and their order are those of attention.cuh. A warp's
 * ring of copies runs ahead into its next unit. The last warp of a (row, KV head) merges its
 * segments. If they are many, a launch of its own does that, a warp a query head: one warp would
 * wait for memory while all others have ended.
 *
 * The grid is fixed by the step's rows and the longest context that is allowed for. Lengths are
 * read on the device: each block lists the rows first; only segments that are there are units. */
#include "kernels/cuda/device/attention.cuh"

#define ITEM_TOKENS CUDA_DECODE_TOKENS /* an item of the ring: keys or values of one head */
#define ITEMS       (ATTENTION_SEGMENT_TOKENS / ITEM_TOKENS)

/* --- units of work --- */

INLINE uint32_t segments_of(const attention_parameters &p, uint32_t seen)
{
    return (seen - 1) / ATTENTION_SEGMENT_TOKENS + 1 -
           window_begin(p, seen) / ATTENTION_SEGMENT_TOKENS;
}

/* The launch's rows, in shared memory: row, sequence, tokens up to it, and the segments of the rows
 * up to this one. */
struct row_list {
    uint4 *rows; /* [CUDA_DECODE_ROWS] */
    uint32_t count, segments;
};
/* Lists rows of short runs; all threads of the block together. sums: [2][CUDA_DECODE_WARPS]. */
INLINE row_list list_rows(const attention_parameters &p, uint4 *rows, uint32_t *sums)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    row_list list = {rows, 0, 0};
    for (uint32_t first = p.first_row; first < p.rows; first += p.warps * 32) {
        uint32_t row = first + threadIdx.x, sequence = 0, seen = 0, segments = 0;
        if (row < p.rows)
            sequence = p.row_sequence[row];
        if (row < p.rows && run_end(p, sequence)) {
            seen = p.positions[row] + 1;
            segments = segments_of(p, seen);
        }
        uint32_t real = vote(segments != 0), end = segments;
#pragma unroll
        for (uint32_t step = 1; step < 32; step *= 2) {
            uint32_t before = shuffle(end, (lane - step) % 32);
            end += lane >= step ? before : 0;
        }
        if (lane == 31) {
            sums[warp] = end;
            sums[CUDA_DECODE_WARPS + warp] = count_bits(real);
        }
        block_barrier();
        uint32_t at = list.count + count_bits(real & ((1u << lane) - 1));
        end += list.segments;
        for (uint32_t w = 0; w < p.warps; w++) {
            end += w < warp ? sums[w] : 0;
            at += w < warp ? sums[CUDA_DECODE_WARPS + w] : 0;
            list.segments += sums[w];
            list.count += sums[CUDA_DECODE_WARPS + w];
        }
        if (segments)
            rows[at] = make_uint4(row, sequence, seen, end);
        block_barrier();
    }
    return list;
}

/* One segment of one (row, KV head), and up to CUDA_DECODE_HEADS of its query heads. */
struct work {
    uint32_t row, head, heads; /* head: the first query head; heads: how many. 0: no unit */
    uint32_t pair;             /* its ticket */
    uint32_t place, first_place, segments; /* partial sums: this segment's, the row's */
    uint32_t position;                     /* the segment's first token */
    uint32_t low, high;                    /* tokens of the segment that the row sees */
    uint32_t block;                        /* lane l: of tokens 8 l .. 8 l + 7 */

    INLINE uint32_t first_item() const
    {
        return low / ITEM_TOKENS;
    }
    INLINE uint32_t items() const /* items of keys, and as many of values */
    {
        return heads ? (high + ITEM_TOKENS - 1) / ITEM_TOKENS - low / ITEM_TOKENS : 0;
    }
};
INLINE work work_at(const attention_parameters &p, const row_list &list, uint32_t number)
{
    work t = {};
    uint32_t each = p.kv_heads * p.chunks, segment = number / each, part = number % each;
    if (segment >= list.segments)
        return t;
    uint32_t at = 0, end = list.count;
    while (at < end) {
        uint32_t middle = (at + end) / 2;
        if (list.rows[middle].w <= segment)
            at = middle + 1;
        else
            end = middle;
    }
    uint4 row = list.rows[at];
    uint32_t chunk = part % p.chunks * CUDA_DECODE_HEADS, seen = row.z;
    uint32_t low = window_begin(p, seen), first = low / ATTENTION_SEGMENT_TOKENS;
    t.row = row.x;
    t.head = part / p.chunks * p.group + chunk;
    t.heads = min(p.group - chunk, uint32_t(CUDA_DECODE_HEADS));
    t.pair = at * each + part;
    t.place = segment;
    t.segments = segments_of(p, seen);
    t.first_place = row.w - t.segments;
    t.position = (first + segment - t.first_place) * ATTENTION_SEGMENT_TOKENS;
    t.low = max(low, t.position) - t.position;
    t.high = min(seen - t.position, uint32_t(ATTENTION_SEGMENT_TOKENS));
    t.block = blocks_of_segment(p.kv, row.y, t.position, t.position + t.low, t.position + t.high);
    return t;
}
/* Units beyond the first of each warp are handed out as warps come; which warp does one doesn't
 * matter. Lane 0 gets the number. */
INLINE uint32_t take_number(const attention_parameters &p)
{
    return threadIdx.x % 32 == 0 ? gridDim.x * p.warps + atomic_add(p.tickets, 1) : 0;
}

/* --- a warp's ring of copies --- */

/* Waits until all but `later` groups of copies of this thread have come, or more. */
INLINE void wait_for_copies(uint32_t later)
{
    if (later >= 12)
        copy_async_wait<12>();
    else if (later >= 8)
        copy_async_wait<8>();
    else if (later >= 5)
        copy_async_wait<5>();
    else if (later >= 3)
        copy_async_wait<3>();
    else if (later == 2)
        copy_async_wait<2>();
    else if (later == 1)
        copy_async_wait<1>();
    else
        copy_async_wait<0>();
}

template <int D, bool INT8> struct items {
    static const uint32_t ROW_BYTES = INT8 ? D : 2 * D, CHUNKS = ROW_BYTES / 16;
    static const uint32_t NUMBERS_BYTES = ITEM_TOKENS * ROW_BYTES;
    static const uint32_t BYTES = NUMBERS_BYTES + (INT8 ? ITEM_TOKENS * 4 : 0);
    const attention_parameters &p;
    uint32_t base, put, get, in_flight;
    uint32_t loaded; /* items of the unit at hand and the next */

    /* Chunk of 16 bytes `chunk` of a token: eight tokens' same chunks lie in different banks. */
    static INLINE uint32_t place(uint32_t token, uint32_t chunk)
    {
        return token * ROW_BYTES + (chunk ^ (CHUNKS < 8 ? token / 2 % CHUNKS : token % 8)) * 16;
    }
    struct source { /* as in struct work */
        uint32_t head, position, low, high, block;
    };
    /* Copies item `item` of the segment; tokens that aren't seen become zeros. */
    INLINE void load(const source &t, uint32_t item, bool value)
    {
        const uint32_t ROWS = 32 / CHUNKS; /* at once */
        uint32_t lane = threadIdx.x % 32, to = base + put * BYTES;
        uint32_t token = lane / CHUNKS, chunk = lane % CHUNKS, head = t.head / p.group;
#pragma unroll
        for (uint32_t g = 0; g < ITEM_TOKENS / GROUP_TOKENS; g++) {
            uint32_t first = item * ITEM_TOKENS + g * GROUP_TOKENS;
            uint32_t block = shuffle(t.block, first / GROUP_TOKENS);
            const char *run = run_of_head(p.kv, block, value, head);
            uint32_t inside = inside_block(p.kv, t.position + first);
            const char *from = run + (inside + token) * ROW_BYTES + chunk * 16;
            bool all = first >= t.low && first + GROUP_TOKENS <= t.high;
            bool any = first < t.high && first + GROUP_TOKENS > t.low;
#pragma unroll
            for (uint32_t r = 0; r < GROUP_TOKENS; r += ROWS) {
                uint32_t at = first + r + token;
                copy_async(to + place(g * GROUP_TOKENS + r + token, chunk), from + r * ROW_BYTES,
                           all || (at >= t.low && at < t.high));
            }
            if (INT8 && lane < 2)
                copy_async(to + NUMBERS_BYTES + (2 * g + lane) * 16,
                           run + p.kv.scales_bytes + (inside + 4 * lane) * 4, any);
        }
    }
    /* Begins to copy the next item of the two units, if there is one and a stage is free. */
    INLINE bool load_next(const work &now, const work &next)
    {
        uint32_t first = 2 * now.items();
        if (in_flight == p.stages || loaded == first + 2 * next.items())
            return false;
        bool ahead = loaded >= first;
        uint32_t item = ahead ? loaded - first : loaded;
        uint32_t count = ahead ? next.items() : now.items();
        bool value = item >= count;
        source from = {ahead ? next.head : now.head, ahead ? next.position : now.position,
                       ahead ? next.low : now.low, ahead ? next.high : now.high,
                       ahead ? next.block : now.block};
        load(from, from.low / ITEM_TOKENS + item - (value ? count : 0), value);
        copy_async_commit();
        put = put + 1 == p.stages ? 0 : put + 1;
        loaded++;
        in_flight++;
        return true;
    }
    /* Returns the next item, once it is there. */
    INLINE uint32_t wait() const
    {
        wait_for_copies(in_flight - 1);
        warp_barrier();
        return base + get * BYTES;
    }
    /* The warp has read the item. */
    INLINE void release()
    {
        warp_barrier();
        get = get + 1 == p.stages ? 0 : get + 1;
        in_flight--;
    }
};

/* --- one unit --- */

/* Queries as mma's columns: heads that aren't real are zeros. */
template <int D, bool INT8>
INLINE void load_columns(uint32_t (&q)[D / 16][2], const attention_parameters &p, const work &t)
{
    uint32_t lane = threadIdx.x % 32, head = lane / 4, c = lane % 4;
    const float *from = query_of(p, t.row, t.head + head);
#pragma unroll
    for (uint32_t d = 0; d < D / 16; d++) {
        q[d][0] = q[d][1] = 0;
        if (head < t.heads) {
            const float *low = from + 16 * d + (INT8 ? 4 * c : 2 * c);
            const float *high = low + (INT8 ? 2 : 8);
            q[d][0] = pack_bf16(low[0], low[1]);
            q[d][1] = pack_bf16(high[0], high[1]);
        }
    }
}
/* s[i][...] += 16 tokens from 16 i on of an item's keys, times the columns. */
template <int D, bool INT8>
INLINE void score_item(float (&s)[2][4], const uint32_t (&q)[D / 16][2], uint32_t keys)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t d = 0; d < D / 16; d += INT8 ? 2 : 1)
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t f[4];
            ldmatrix_x4(f, keys + items<D, INT8>::place(i * 16 + lane % 16,
                                                        (INT8 ? d : 2 * d) + lane / 16));
            if constexpr (!INT8)
                mma_bf16(s[i], f, q[d][0], q[d][1]);
            else {
#pragma unroll
                for (uint32_t e = 0; e < 2; e++) {
                    const uint32_t a[4] = {widened(f[2 * e], 0, 1), widened(f[2 * e + 1], 0, 1),
                                           widened(f[2 * e], 2, 3), widened(f[2 * e + 1], 2, 3)};
                    mma_bf16(s[i], a, q[d + e][0], q[d + e][1]);
                }
            }
        }
}
/* The places of a thread's sums: o[i][2 h + e] belongs to dim dim_of(i, h), query head 2 (lane % 4)
 * + e. */
template <bool INT8> INLINE uint32_t dim_of(uint32_t i, uint32_t h)
{
    uint32_t g = threadIdx.x % 32 / 4;
    return 16 * i + (INT8 ? 2 * g + h : g + 8 * h);
}
/* o += values of an item's 16 tokens from 16 k on, times their weights. */
template <int D, bool INT8>
INLINE void weigh_item(float (&o)[D / 16][4], uint32_t w0, uint32_t w1, uint32_t values, uint32_t k)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < D / 16; i += INT8 ? 2 : 1) {
        uint32_t f[4];
        uint32_t token = k * 16 + (INT8 ? lane % 16 : lane / 16 * 8 + lane % 8);
        uint32_t chunk = INT8 ? i + lane / 16 : i * 2 + lane / 8 % 2;
        ldmatrix_x4_transposed(f, values + items<D, INT8>::place(token, chunk));
        if constexpr (!INT8)
            mma_bf16(o[i], f, w0, w1);
        else {
#pragma unroll
            for (uint32_t e = 0; e < 2; e++) {
                const uint32_t a[4] = {widened(f[2 * e], 0, 2), widened(f[2 * e], 1, 3),
                                       widened(f[2 * e + 1], 0, 2), widened(f[2 * e + 1], 1, 3)};
                mma_bf16(o[i + e], a, w0, w1);
            }
        }
    }
}
/* Over the eight tokens that a column's lanes hold: the pairs of soften's chains. */
INLINE float most_of_column(float v)
{
    v = fmaxf(v, shuffle_xor(v, 4));
    v = fmaxf(v, shuffle_xor(v, 8));
    return fmaxf(v, shuffle_xor(v, 16));
}
INLINE float over_column(float v)
{
    v = v + shuffle_xor(v, 4);
    v = v + shuffle_xor(v, 8);
    return v + shuffle_xor(v, 16);
}
/* Scores become weights that aren't rounded yet; gives m and l of the thread's two heads. s[i][2 h
 * + e]: token 16 i + 8 h + lane / 4. */
INLINE void soften_columns(float (&s)[ATTENTION_SEGMENT_TOKENS / 16][4], float (&m)[2],
                           float (&l)[2], const work &t, float scale)
{
    uint32_t g = threadIdx.x % 32 / 4;
    if (t.low > 0 || t.high < ATTENTION_SEGMENT_TOKENS) {
#pragma unroll
        for (uint32_t i = 0; i < ATTENTION_SEGMENT_TOKENS / 4; i++) {
            uint32_t token = i / 4 * 16 + i / 2 % 2 * 8 + g;
            if (token < t.low || token >= t.high)
                s[i / 4][i % 4] = MINUS_INFINITY;
        }
    }
#pragma unroll
    for (uint32_t e = 0; e < 2; e++) {
        m[e] = MINUS_INFINITY;
#pragma unroll
        for (uint32_t i = 0; i < ATTENTION_SEGMENT_TOKENS / 16; i++)
            m[e] = fmaxf(m[e], fmaxf(s[i][e], s[i][2 + e]));
        m[e] = most_of_column(m[e]);
        float minus = minus_most(m[e], scale);
        l[e] = 0;
#pragma unroll
        for (uint32_t i = 0; i < ATTENTION_SEGMENT_TOKENS / 16; i++)
#pragma unroll
            for (uint32_t h = 0; h < 2; h++) {
                s[i][2 * h + e] = exp2_fast(fmaf(s[i][2 * h + e], scale, minus));
                l[e] = l[e] + s[i][2 * h + e];
            }
        l[e] = over_column(l[e]);
    }
}

/* --- segments to results --- */

template <int D, bool INT8>
INLINE void store_segment(const attention_parameters &p, const work &t, const float (&o)[D / 16][4],
                          const float (&m)[2], const float (&l)[2])
{
#pragma unroll
    for (uint32_t e = 0; e < 2; e++) {
        uint32_t head = threadIdx.x % 4 * 2 + e;
        if (head >= t.heads)
            continue;
        uint64_t place = uint64_t(t.place) * p.heads + t.head + head;
#pragma unroll
        for (uint32_t i = 0; i < D / 8; i++)
            store_l2(p.partial_o + place * D + dim_of<INT8>(i / 2, i % 2), o[i / 2][i % 2 * 2 + e]);
        if (threadIdx.x % 32 < 4)
            store_l2(reinterpret_cast<float2 *>(p.partial_ml) + place, make_float2(m[e], l[e]));
    }
}
/* After a segment is stored: returns whether the warp is the last of the row's, and so merges. */
INLINE bool comes_last(const attention_parameters &p, const work &t)
{
    device_fence();
    warp_barrier();
    uint32_t last = 0;
    if (threadIdx.x % 32 == 0) {
        uint32_t *ticket = p.tickets + CUDA_DECODE_COUNTERS + t.pair;
        last = atomic_add(ticket, 1) + 1 == t.segments;
        if (last)
            *ticket = 0;
    }
    last = shuffle(last, 0);
    if (last)
        device_fence();
    return last;
}
template <int D> struct dims_of_lane;
template <> struct dims_of_lane<64> {
    typedef float2 vector;
};
template <> struct dims_of_lane<128> {
    typedef float4 vector;
};
/* Merges all segments of the row, ascending, four heads at a time. A lane has D / 32 dims. */
template <int D> INLINE void merge_row(const attention_parameters &p, const work &t)
{
    typedef typename dims_of_lane<D>::vector vector;
    const uint32_t PER = D / 32, JOINED = 4, BATCH = 256 / D;
    uint32_t lane = threadIdx.x % 32;
#pragma unroll 1
    for (uint32_t first = 0; first < t.heads; first += JOINED) {
        uint64_t place = uint64_t(t.first_place) * p.heads + t.head + first;
        float m[JOINED], l[JOINED], o[JOINED][PER];
#pragma unroll
        for (uint32_t i = 0; i < JOINED * PER; i++) {
            m[i / PER] = MINUS_INFINITY;
            l[i / PER] = 0;
            o[i / PER][i % PER] = 0;
        }
#pragma unroll 1
        for (uint32_t s = 0; s < t.segments; s += BATCH) {
            float2 ml[BATCH][JOINED];
            vector v[BATCH][JOINED];
#pragma unroll
            for (uint32_t i = 0; i < BATCH * JOINED; i++)
                if (s + i / JOINED < t.segments && first + i % JOINED < t.heads) {
                    uint64_t at = place + uint64_t(s + i / JOINED) * p.heads + i % JOINED;
                    ml[i / JOINED][i % JOINED] =
                        load_l2(reinterpret_cast<const float2 *>(p.partial_ml) + at);
                    v[i / JOINED][i % JOINED] =
                        load_l2(reinterpret_cast<const vector *>(p.partial_o + at * D) + lane);
                }
#pragma unroll
            for (uint32_t i = 0; i < BATCH * JOINED; i++)
                if (s + i / JOINED < t.segments && first + i % JOINED < t.heads) {
                    uint32_t h = i % JOINED;
                    float2 one = ml[i / JOINED][h];
                    const float *fresh = reinterpret_cast<const float *>(&v[i / JOINED][h]);
                    factors f = merge(m[h], l[h], one.x, one.y, p.scale);
#pragma unroll
                    for (uint32_t d = 0; d < PER; d++)
                        o[h][d] = merge_output(o[h][d], fresh[d], f);
                }
        }
#pragma unroll
        for (uint32_t h = 0; h < JOINED; h++) {
            if (first + h >= t.heads)
                continue;
            float inverse = 1.0f / l[h];
#pragma unroll
            for (uint32_t d = 0; d < PER; d += 2)
                put_result(p, t.row, t.head + first + h, lane * PER + d, o[h][d] * inverse,
                           o[h][d + 1] * inverse);
            if (D < 128 && lane == 0)
                put_end(p, t.row, t.head + first + h);
        }
    }
}

/* Merges all segments of one query head, ascending: the loads of many are under way at once. */
template <int D>
INLINE void merge_head(const attention_parameters &p, uint32_t row, uint32_t head, uint32_t place,
                       uint32_t segments)
{
    typedef typename dims_of_lane<D>::vector vector;
    const uint32_t PER = D / 32, BATCH = 2048 / D;
    uint32_t lane = threadIdx.x % 32;
    uint64_t first = uint64_t(place) * p.heads + head;
    const float2 *ml = reinterpret_cast<const float2 *>(p.partial_ml) + first;
    const vector *fresh = reinterpret_cast<const vector *>(p.partial_o) + first * 32 + lane;
    float m = MINUS_INFINITY, l = 0, o[PER];
#pragma unroll
    for (uint32_t d = 0; d < PER; d++)
        o[d] = 0;
#pragma unroll 1
    for (uint32_t s = 0; s < segments; s += BATCH) {
        float2 one = make_float2(MINUS_INFINITY, 0); /* segment s + lane */
        vector v[BATCH];
        if (lane < BATCH && s + lane < segments)
            one = load_l2(ml + uint64_t(s + lane) * p.heads);
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++)
            if (s + i < segments)
                v[i] = load_l2(fresh + uint64_t(s + i) * p.heads * 32);
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            float ms = shuffle(one.x, i), ls = shuffle(one.y, i);
            if (s + i >= segments)
                continue;
            const float *numbers = reinterpret_cast<const float *>(&v[i]);
            factors f = merge(m, l, ms, ls, p.scale);
#pragma unroll
            for (uint32_t d = 0; d < PER; d++)
                o[d] = merge_output(o[d], numbers[d], f);
        }
    }
    float inverse = 1.0f / l;
#pragma unroll
    for (uint32_t d = 0; d < PER; d += 2)
        put_result(p, row, head, lane * PER + d, o[d] * inverse, o[d + 1] * inverse);
    if (D < 128 && lane == 0)
        put_end(p, row, head);
}

/* --- the kernels --- */

template <int D, bool INT8>
INLINE void decode_work(const attention_parameters &p, const work &now, const work &next,
                        items<D, INT8> &ring)
{
    while (ring.load_next(now, next))
        ;
    uint32_t q[D / 16][2], lane = threadIdx.x % 32, first = now.first_item();
    uint32_t end = first + now.items();
    load_columns<D, INT8>(q, p, now);
    float s[ATTENTION_SEGMENT_TOKENS / 16][4], o[D / 16][4], m[2], l[2];
#pragma unroll
    for (uint32_t i = 0; i < ATTENTION_SEGMENT_TOKENS / 4; i++)
        s[i / 4][i % 4] = 0;
#pragma unroll
    for (uint32_t b = 0; b < ITEMS; b++) {
        if (b < first || b >= end)
            continue;
        uint32_t keys = ring.wait();
        float(&sums)[2][4] = reinterpret_cast<float(&)[2][4]>(s[2 * b]);
        score_item<D, INT8>(sums, q, keys);
        if (INT8) {
            const float *scales =
                shared_pointer<float>(keys + items<D, INT8>::NUMBERS_BYTES, ITEM_TOKENS);
#pragma unroll
            for (uint32_t i = 0; i < 8; i++)
                sums[i / 4][i % 4] =
                    sums[i / 4][i % 4] * scales[i / 4 * 16 + i / 2 % 2 * 8 + lane / 4];
        }
        ring.release();
        ring.load_next(now, next);
    }
    soften_columns(s, m, l, now, p.scale);
#pragma unroll
    for (uint32_t i = 0; i < D / 4; i++)
        o[i / 4][i % 4] = 0;
#pragma unroll
    for (uint32_t b = 0; b < ITEMS; b++) {
        if (b < first || b >= end)
            continue;
        uint32_t values = ring.wait();
        const float *scales = NULL;
        if (INT8)
            scales = shared_pointer<float>(values + items<D, INT8>::NUMBERS_BYTES, ITEM_TOKENS);
#pragma unroll
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t w[2];
#pragma unroll
            for (uint32_t h = 0; h < 2; h++) {
                float low = s[2 * b + k][2 * h], high = s[2 * b + k][2 * h + 1];
                if (INT8) {
                    /* Anything may lie at tokens that aren't seen. */
                    uint32_t token = 16 * k + 8 * h + lane / 4, at = b * ITEM_TOKENS + token;
                    float scale = at >= now.low && at < now.high ? scales[token] : 0.0f;
                    low = low * scale;
                    high = high * scale;
                }
                w[h] = transpose_tile(pack_bf16(low, high));
            }
            weigh_item<D, INT8>(o, w[0], w[1], values, k);
        }
        ring.release();
        ring.load_next(now, next);
    }
    store_segment<D, INT8>(p, now, o, m, l);
    if (now.segments <= p.merges && comes_last(p, now))
        merge_row<D>(p, now);
}

/* p.warps warps a block; shared memory: the rings, the list of rows, sums. */
template <int D, bool INT8> INLINE void decode(const attention_parameters &p)
{
    let_next_kernel_start();
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t ring_bytes = p.stages * items<D, INT8>::BYTES;
    uint32_t rows = shared_base() + p.warps * ring_bytes;
    items<D, INT8> ring = {p, shared_base() + warp * ring_bytes, 0, 0, 0, 0};
    wait_previous_kernel();
    row_list list =
        list_rows(p, shared_pointer<uint4>(rows, CUDA_DECODE_ROWS),
                  shared_pointer<uint32_t>(rows + CUDA_DECODE_ROWS * 16, 2 * CUDA_DECODE_WARPS));
    work now = work_at(p, list, blockIdx.x + gridDim.x * warp);
    uint32_t number = take_number(p);
    while (now.heads) {
        work next = work_at(p, list, shuffle(number, 0));
        number = take_number(p); /* long before it is needed */
        decode_work<D, INT8>(p, now, next, ring);
        ring.loaded -= 2 * now.items();
        now = next;
    }
    /* The last warp to end leaves zeros for the next launch: behind all numbers that were taken. */
    if (lane == 0) {
        device_fence();
        if (atomic_add(p.tickets + 1, 1) + 1 == gridDim.x * p.warps) {
            p.tickets[0] = 0;
            p.tickets[1] = 0;
        }
    }
}
#define DECODE(D)                                                                                  \
    CUDA_KERNEL(attention_decode_bf16_##D, attention_parameters, CUDA_DECODE_WARPS * 32, 1)        \
    {                                                                                              \
        decode<D, false>(p);                                                                       \
    }                                                                                              \
    CUDA_KERNEL(attention_decode_int8_##D, attention_parameters, CUDA_DECODE_WARPS * 32, 1)        \
    {                                                                                              \
        decode<D, true>(p);                                                                        \
    }
DECODE(64)
DECODE(128)

/* Merges rows of more segments than p.merges: a warp a query head. p.warps is CUDA_DECODE_HEADS. */
template <int D> INLINE void merge_long_rows(const attention_parameters &p)
{
    let_next_kernel_start();
    wait_previous_kernel();
    row_list list = list_rows(
        p, shared_pointer<uint4>(shared_base(), CUDA_DECODE_ROWS),
        shared_pointer<uint32_t>(shared_base() + CUDA_DECODE_ROWS * 16, 2 * CUDA_DECODE_WARPS));
    uint32_t each = p.kv_heads * p.chunks, warp = threadIdx.x / 32;
    for (uint32_t unit = blockIdx.x; unit < list.count * each; unit += gridDim.x) {
        uint4 row = list.rows[unit / each];
        uint32_t part = unit % each, segments = segments_of(p, row.z);
        uint32_t head = part % p.chunks * CUDA_DECODE_HEADS + warp; /* in the group */
        if (segments > p.merges && head < p.group)
            merge_head<D>(p, row.x, part / p.chunks * p.group + head, row.w - segments, segments);
    }
}
CUDA_KERNEL(attention_decode_merge_64, attention_parameters, CUDA_DECODE_HEADS * 32, 1)
{
    merge_long_rows<64>(p);
}
CUDA_KERNEL(attention_decode_merge_128, attention_parameters, CUDA_DECODE_HEADS * 32, 1)
{
    merge_long_rows<128>(p);
}
