/* Draws of tokens, exactly those of SAMPLER_VERSION 1 (kernels.h). A block has a row at a time.
 *
 * The definition adds masses in fp64 in a fixed order, one after another. The block adds side by
 * side, and takes a result only if it is surely that of the definition: no order of n additions is
 * further from the true sum than n * 2^-53 of it (kernels/cpu/sampler_masses.h). Otherwise, in
 * about one of ten thousand draws, one thread adds by the definition. */
#include "kernels/cuda/device/ptx.cuh"

#define BUCKETS CUDA_SAMPLE_BUCKETS

/* The block shares this. The first thread writes what isn't an array. */
struct shared {
    double mass[BUCKETS];
    uint64_t slots[CUDA_ROW_THREADS];
    uint32_t count[BUCKETS];
    double found_mass, found_mass_before; /* with and without the last token that is kept */
    uint64_t key;                         /* its key; 0: all are kept */
    uint32_t found_count, prefix, nth, token;
    bool is_found;
};
static_assert(sizeof(shared) <= CUDA_SAMPLE_SHARED_BYTES, "a launch has too little shared memory");

struct row {
    const float *logits;
    float *masses;  /* [vocab] */
    uint64_t *heap; /* [vocab] */
    uint32_t vocab;
    shared *block;
};

/* Orders tokens by descending mass, then ascending id. */
INLINE uint64_t key_of(float mass, uint32_t id)
{
    return uint64_t(__float_as_uint(mass)) << 32 | uint32_t(~id);
}
INLINE double key_mass(uint64_t key)
{
    return double(__uint_as_float(uint32_t(key >> 32)));
}
INLINE double margin_of(uint32_t count, double sum)
{
    return 0x1p-50 * (double(count) + 8) * sum;
}

/* exp of common/base/fixed_math.h: the same operations, the same bits. */
INLINE float exp_negative(float given)
{
    float x = given > -87.0f ? given : -87.0f;
    float shifted = x * 1.44269504f + 0.5f;
    float n = float(int(shifted));
    n -= n > shifted ? 1.0f : 0.0f;
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    return given > -87.0f ? y * __uint_as_float(uint32_t(int(n) + 127) << 23) : 0.0f;
}

/* Philox4x32-10, as rng_unit_at of common/base/rng.c. */
INLINE double unit_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t counter[4] = {uint32_t(index), uint32_t(index >> 32), uint32_t(stream),
                           uint32_t(stream >> 32)};
    uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = uint64_t(0xd2511f53u) * counter[0], b = uint64_t(0xcd9e8d57u) * counter[2];
        uint32_t first = uint32_t(b >> 32) ^ counter[1] ^ key[0];
        uint32_t third = uint32_t(a >> 32) ^ counter[3] ^ key[1];
        counter[0] = first;
        counter[1] = uint32_t(b);
        counter[2] = third;
        counter[3] = uint32_t(a);
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    return double((uint64_t(counter[1]) << 32 | counter[0]) >> 11) * 0x1p-53;
}

/* --- the greatest logit --- */

/* Returns the id and value of the greatest; of equals, the lower id. *sound: none is NaN or
 * +infinity. */
INLINE uint32_t greatest(const row &r, float *value, bool *sound)
{
    uint64_t best = 0, bad = 0;
    for (uint32_t id = threadIdx.x; id < r.vocab; id += CUDA_ROW_THREADS) {
        float x = r.logits[id] + 0.0f; /* -0 becomes 0, its equal */
        bad |= !(x < __uint_as_float(0x7f800000u));
        uint32_t bits = __float_as_uint(x), ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
        uint64_t key = uint64_t(ordered) << 32 | uint32_t(~id);
        best = key > best ? key : best;
    }
    best = over_block(best, r.block->slots, most_of<uint64_t>());
    bad = over_block(bad, r.block->slots, most_of<uint64_t>());
    uint32_t ordered = uint32_t(best >> 32);
    *value = __uint_as_float(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
    *sound = !bad;
    return ~uint32_t(best);
}

/* --- top_k and top_p by the definition: in descending order, by the first thread --- */

INLINE void sift_down(uint64_t *heap, uint32_t count, uint32_t at)
{
    uint64_t key = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] > heap[child])
            child++;
        if (heap[child] <= key)
            break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}
INLINE double pop_greatest(uint64_t *heap, uint32_t count)
{
    uint64_t key = heap[0];
    heap[0] = heap[count - 1];
    heap[count - 1] = key;
    sift_down(heap, count - 1, 0);
    return key_mass(key);
}
INLINE uint64_t bound_in_order(const row &r, uint32_t top_k, float top_p)
{
    double total = 0, prefix = 0;
    uint32_t count = 0, popped = 0;
    for (uint32_t id = 0; id < r.vocab; id++)
        if (r.masses[id] > 0) {
            r.heap[count++] = key_of(r.masses[id], id);
            total += double(r.masses[id]);
        }
    for (uint32_t i = count / 2; i-- > 0;)
        sift_down(r.heap, count, i);
    if (top_k && top_k < count)
        for (total = 0; popped < top_k; popped++)
            total += pop_greatest(r.heap, count - popped);
    uint32_t limit = popped ? popped : count, kept = 0;
    for (; kept < limit && prefix < double(top_p) * total; kept++) {
        if (kept == popped)
            pop_greatest(r.heap, count - popped++);
        prefix += key_mass(r.heap[count - 1 - kept]);
    }
    return r.heap[count - kept];
}

/* --- top_k and top_p by buckets, 8 bits of the masses at a time --- */

struct aim {
    uint64_t count;
    double mass;
};

/* Passes whole buckets in descending order. The first thread notes the one in which an aim is
 * reached. */
INLINE void pass_buckets(const row &r, const aim &a)
{
    shared &b = *r.block;
    b.is_found = false;
#pragma unroll 1
    for (uint32_t at = BUCKETS; at-- > 0;) {
        if (b.count[at] && (uint64_t(b.found_count) + b.count[at] >= a.count ||
                            b.found_mass + b.mass[at] >= a.mass)) {
            b.prefix = b.prefix << 8 | at;
            b.is_found = true;
            return;
        }
        b.found_count += b.count[at];
        b.found_mass += b.mass[at];
    }
}
/* Passes tokens of equal mass `prefix`: how many, and is an aim reached? */
INLINE void pass_equals(const row &r, const aim &a, uint32_t equals)
{
    shared &b = *r.block;
    double mass = double(__uint_as_float(b.prefix));
    b.is_found = false;
    for (b.nth = 0; b.nth < equals && !b.is_found; b.nth++) {
        b.found_mass_before = b.found_mass;
        b.found_mass += mass;
        b.is_found = ++b.found_count >= a.count || b.found_mass >= a.mass;
    }
}
/* The thread that has the nth token (from 1) of mass `prefix` writes its key. */
INLINE void find_nth(const row &r)
{
    shared &b = *r.block;
    uint32_t part = (r.vocab + CUDA_ROW_THREADS - 1) / CUDA_ROW_THREADS;
    uint32_t begin = min(threadIdx.x * part, r.vocab), end = min(begin + part, r.vocab);
    uint32_t mine = 0, before = 0;
    for (uint32_t id = begin; id < end; id++)
        mine += __float_as_uint(r.masses[id]) == b.prefix;
    b.slots[threadIdx.x] = mine;
    block_barrier();
#pragma unroll 1
    for (uint32_t i = 0; i < threadIdx.x; i++)
        before += uint32_t(b.slots[i]);
    if (before < b.nth && before + mine >= b.nth)
        for (uint32_t id = begin; id < end; id++)
            if (__float_as_uint(r.masses[id]) == b.prefix && ++before == b.nth)
                b.key = key_of(r.masses[id], id);
    block_barrier();
}
/* Finds the token, in descending order, at which an aim is reached: b.key, 0 if none is. */
INLINE void find(const row &r, const aim &a)
{
    shared &b = *r.block;
    if (threadIdx.x == 0) {
        b.found_count = b.prefix = 0;
        b.found_mass = b.found_mass_before = 0;
        b.key = 0;
        b.is_found = true;
    }
    block_barrier();
    bool found = true;
#pragma unroll 1
    for (uint32_t shift = 32; shift > 0 && found;) {
        shift -= 8;
        b.mass[threadIdx.x] = 0;
        b.count[threadIdx.x] = 0;
        block_barrier();
        uint32_t prefix = b.prefix;
        for (uint32_t id = threadIdx.x; id < r.vocab; id += CUDA_ROW_THREADS) {
            uint32_t bits = __float_as_uint(r.masses[id]);
            if (bits == 0 || (shift < 24 && bits >> (shift + 8) != prefix))
                continue;
            shared_atomic_add(&b.mass[bits >> shift & (BUCKETS - 1)], double(r.masses[id]));
            shared_atomic_add(&b.count[bits >> shift & (BUCKETS - 1)], 1u);
        }
        block_barrier();
        if (threadIdx.x == 0)
            pass_buckets(r, a);
        block_barrier();
        found = b.is_found;
    }
    block_barrier();
    if (!found)
        return;
    if (threadIdx.x == 0)
        pass_equals(r, a, b.count[b.prefix & (BUCKETS - 1)]);
    block_barrier();
    if (b.is_found)
        find_nth(r);
}
/* Returns the least key that top_k and top_p keep; 0: they keep all. */
INLINE uint64_t top_bound(const row &r, double total, uint32_t positive, uint32_t top_k,
                          float top_p)
{
    shared &b = *r.block;
    aim a = {~uint64_t(0), __longlong_as_double(0x7ff0000000000000ll)};
    bool may_cut = top_k && top_k < r.vocab, cuts = may_cut && top_k < positive;
    if (!may_cut && top_p >= 1.0f)
        return 0;
    double mass = total;
    uint64_t key = 0;
    if (cuts) {
        a.count = top_k;
        find(r, a);
        mass = b.found_mass;
        key = b.key;
        block_barrier();
    }
    if (top_p >= 1.0f)
        return key;
    a.mass = double(top_p) * mass;
    double margin = margin_of(r.vocab, mass);
    find(r, a);
    bool enough = b.found_count == a.count || b.found_mass > a.mass + margin;
    bool sure = b.key && enough && (b.found_count == 1 || b.found_mass_before < a.mass - margin);
    block_barrier();
    if (!sure) {
        if (threadIdx.x == 0)
            b.key = bound_in_order(r, top_k, top_p);
        block_barrier();
    }
    return b.key;
}

/* --- the draw --- */

INLINE bool is_kept(const row &r, uint32_t id, uint64_t bound)
{
    return r.masses[id] > 0 && key_of(r.masses[id], id) >= bound;
}
INLINE uint32_t pick_in_order(const row &r, uint64_t bound, double unit)
{
    double total = 0, passed = 0;
    uint32_t last = 0;
    for (uint32_t id = 0; id < r.vocab; id++)
        total += is_kept(r, id, bound) ? double(r.masses[id]) : 0.0;
    for (uint32_t id = 0; id < r.vocab; id++)
        if (is_kept(r, id, bound)) {
            last = id;
            passed += double(r.masses[id]);
            if (passed > unit * total)
                break;
        }
    return last;
}
/* By the first thread. mass[i]: the kept masses of part i of the ids. */
INLINE uint32_t pick(const row &r, uint64_t bound, double unit)
{
    const shared &b = *r.block;
    uint32_t part = (r.vocab + CUDA_ROW_THREADS - 1) / CUDA_ROW_THREADS, at = 0;
    double total = 0, passed = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < CUDA_ROW_THREADS; i++)
        total += b.mass[i];
    double aimed = unit * total, margin = margin_of(r.vocab, total);
    while (at < CUDA_ROW_THREADS && passed + b.mass[at] <= aimed)
        passed += b.mass[at++];
    uint32_t end = min((at + 1) * part, r.vocab);
    for (uint32_t id = at * part; id < end; id++) {
        double before = passed;
        passed += is_kept(r, id, bound) ? double(r.masses[id]) : 0.0;
        if (passed <= aimed)
            continue;
        bool sure = passed > aimed + margin && (before == 0 || before < aimed - margin);
        return sure ? id : pick_in_order(r, bound, unit);
    }
    return pick_in_order(r, bound, unit);
}

/* Fills the masses. Returns their sum and how many are positive. */
INLINE double fill_masses(const row &r, float max, float temperature, uint32_t *positive)
{
    double sum = 0;
    uint64_t count = 0;
    for (uint32_t id = threadIdx.x; id < r.vocab; id += CUDA_ROW_THREADS) {
        float mass = exp_negative((r.logits[id] - max) / temperature);
        r.masses[id] = mass;
        sum += double(mass);
        count += mass > 0;
    }
    sum = over_block(sum, r.block->mass, sum_of<double>());
    *positive = uint32_t(over_block(count, r.block->slots, sum_of<uint64_t>()));
    return sum;
}

INLINE kernels_drawn draw_row(const row &r, const kernels_draw &draw)
{
    shared &b = *r.block;
    float max;
    bool sound;
    uint32_t best = greatest(r, &max, &sound), positive;
    if (!sound || max == __uint_as_float(0xff800000u)) {
        kernels_drawn none = {0, uint32_t(sound ? STATUS_INVALID : STATUS_INTERNAL)};
        return none;
    }
    kernels_drawn drawn = {best, STATUS_OK};
    if (draw.temperature == 0)
        return drawn;
    double total = fill_masses(r, max, draw.temperature, &positive);
    uint64_t bound = draw.min_p > 0 ? key_of(draw.min_p, ~0u) : 0;
    uint64_t top = top_bound(r, total, positive, draw.top_k, draw.top_p);
    bound = top > bound ? top : bound;
    uint32_t part = (r.vocab + CUDA_ROW_THREADS - 1) / CUDA_ROW_THREADS;
    uint32_t begin = min(threadIdx.x * part, r.vocab), end = min(begin + part, r.vocab);
    double mine = 0;
    for (uint32_t id = begin; id < end; id++)
        mine += is_kept(r, id, bound) ? double(r.masses[id]) : 0.0;
    block_barrier();
    b.mass[threadIdx.x] = mine;
    block_barrier();
    if (threadIdx.x == 0)
        b.token = pick(r, bound, unit_at(draw.seed, draw.choice, draw.index));
    block_barrier();
    drawn.token = b.token;
    return drawn;
}

CUDA_KERNEL(sample_rows, sample_parameters, CUDA_ROW_THREADS, 1)
{
    let_next_kernel_start();
    wait_previous_kernel();
    char *slot = p.scratch + blockIdx.x * p.slot_bytes;
    row r;
    r.masses = reinterpret_cast<float *>(slot);
    r.heap = reinterpret_cast<uint64_t *>(slot + (uint64_t(p.vocab) * 4 + 15) / 16 * 16);
    r.vocab = p.vocab;
    r.block = shared_pointer<shared>(shared_base(), 1);
    for (uint32_t i = blockIdx.x; i < p.rows; i += gridDim.x) {
        r.logits = p.logits + uint64_t(i) * p.vocab;
        kernels_drawn drawn = draw_row(r, p.draws[i]);
        if (threadIdx.x == 0)
            p.drawn[i] = drawn;
        block_barrier();
    }
}
