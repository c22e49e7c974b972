#include "kernels/cpu/sampler_masses.h"

#include "common/base/fixed_math.h"
#include "common/base/u32.h"

#include <float.h>

static double sum_of_pairs(const pair sums[4])
{
    pair all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return all[0] + all[1];
}

static double fill_block(const float *logits, uint32_t count, float max, float temperature,
                         float *p)
{
    pair sums[4] = {{0}}, low, high;
    uint32_t i = 0;
    for (; i + 2 * QUAD <= count; i += 2 * QUAD)
        for (uint32_t q = 0; q < 2; q++) {
            quad x = (quad_load(logits + i + q * QUAD) - max) / temperature;
            quad mass = quad_exp_negative(x);
            quad_store(p + i + q * QUAD, mass);
            quad_widen(mass, &low, &high);
            sums[2 * q] += low;
            sums[2 * q + 1] += high;
        }
    double sum = sum_of_pairs(sums);
    for (; i < count; i++) {
        p[i] = exp_negative((logits[i] - max) / temperature);
        sum += (double)p[i];
    }
    return sum;
}

double sampler_masses_fill(const struct sampler_masses *masses, const float *logits, float max,
                           float temperature)
{
    double total = 0;
    for (uint32_t first = 0; first < masses->count; first += SAMPLER_BLOCK) {
        uint32_t count = min_u32(SAMPLER_BLOCK, masses->count - first);
        double sum = fill_block(logits + first, count, max, temperature, masses->p + first);
        masses->sums[first / SAMPLER_BLOCK] = sum;
        total += sum;
    }
    return total;
}

/* Returns the sum of the masses that are at least `least`. */
static double sum_from(const float *p, uint32_t count, float least)
{
    pair sums[4] = {{0}}, low, high;
    uint32_t i = 0;
    for (; i + 2 * QUAD <= count; i += 2 * QUAD)
        for (uint32_t q = 0; q < 2; q++) {
            quad mass = quad_load(p + i + q * QUAD);
            quad_widen(quad_where(mass >= quad_of(least), mass), &low, &high);
            sums[2 * q] += low;
            sums[2 * q + 1] += high;
        }
    double sum = sum_of_pairs(sums);
    for (; i < count; i++)
        sum += p[i] >= least ? (double)p[i] : 0;
    return sum;
}

double sampler_masses_keep(const struct sampler_masses *masses, uint64_t bound)
{
    /* Masses equal to the bound's are kept up to its id; behind that id only greater ones. */
    float least = sampler_key_mass(bound);
    float greater = sampler_key_mass(bound + (UINT64_C(1) << 32));
    uint32_t last = ~(uint32_t)bound;
    double total = 0;
    for (uint32_t first = 0; first < masses->count; first += SAMPLER_BLOCK) {
        uint32_t count = min_u32(SAMPLER_BLOCK, masses->count - first);
        uint32_t equals = last < first ? 0 : last - first < count ? last - first + 1 : count;
        double sum = sum_from(masses->p + first, equals, least);
        sum += sum_from(masses->p + first + equals, count - equals, greater);
        masses->sums[first / SAMPLER_BLOCK] = sum;
        total += sum;
    }
    return total;
}

/* Returns how far a sum of `count` masses in one order may be from their sum in another: twice the
 * bound, and the error of a product with it. */
static double margin_of(uint32_t count, double sum)
{
    return 0x1p-50 * ((double)count + 8) * sum;
}

static bool is_kept(const struct sampler_masses *masses, uint32_t id, uint64_t bound)
{
    return masses->p[id] > 0 && sampler_key(masses->p[id], id) >= bound;
}

/* By the definition: sums in ascending order of ids. */
static uint32_t pick_in_order(const struct sampler_masses *masses, uint64_t bound, double unit)
{
    double total = 0;
    for (uint32_t i = 0; i < masses->count; i++)
        if (is_kept(masses, i, bound))
            total += (double)masses->p[i];
    double passed = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < masses->count; i++)
        if (is_kept(masses, i, bound)) {
            last = i;
            passed += (double)masses->p[i];
            if (passed > unit * total)
                break;
        }
    return last; /* unit * total may round up to total: then the last one */
}

uint32_t sampler_masses_pick(const struct sampler_masses *masses, uint64_t bound, double total,
                             double unit)
{
    double aim = unit * total, margin = margin_of(masses->count, total), passed = 0;
    uint32_t block = 0, blocks = divide_up(masses->count, SAMPLER_BLOCK);
    while (block < blocks && passed + masses->sums[block] <= aim)
        passed += masses->sums[block++];
    uint32_t first = block * SAMPLER_BLOCK;
    uint32_t end = min_u32(first + SAMPLER_BLOCK, masses->count);
    for (uint32_t id = first; id < end; id++) {
        double before = passed;
        passed += is_kept(masses, id, bound) ? (double)masses->p[id] : 0;
        if (passed <= aim)
            continue;
        bool is_sure = passed > aim + margin && (before == 0 || before < aim - margin);
        return is_sure ? id : pick_in_order(masses, bound, unit);
    }
    return pick_in_order(masses, bound, unit);
}

/* --- top_k and top_p by the definition: in descending order --- */

static void sift_down(uint64_t *heap, uint32_t count, uint32_t at)
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

/* Moves the greatest of heap[0 .. count) behind the other count - 1 keys. Returns its p. */
static double pop_greatest(uint64_t *heap, uint32_t count)
{
    uint64_t key = heap[0];
    heap[0] = heap[count - 1];
    heap[count - 1] = key;
    sift_down(heap, count - 1, 0);
    return (double)sampler_key_mass(key);
}

/* Makes a max-heap of the tokens with p > 0. Returns how many. */
static uint32_t build_heap(uint64_t *heap, const struct sampler_masses *masses, double *total)
{
    uint32_t count = 0;
    *total = 0;
    for (uint32_t i = 0; i < masses->count; i++)
        if (masses->p[i] > 0) {
            heap[count++] = sampler_key(masses->p[i], i);
            *total += (double)masses->p[i];
        }
    for (uint32_t i = count / 2; i-- > 0;)
        sift_down(heap, count, i);
    return count;
}

/* Pops as few as possible: top_p usually keeps a few of many. */
static uint64_t bound_in_order(uint64_t *heap, const struct sampler_masses *masses, uint32_t top_k,
                               float top_p)
{
    double total, prefix = 0;
    uint32_t count = build_heap(heap, masses, &total), popped = 0; /* descending from the end */
    if (top_k && top_k < count)
        for (total = 0; popped < top_k; popped++)
            total += pop_greatest(heap, count - popped);
    uint32_t limit = popped ? popped : count, kept = 0;
    for (; kept < limit && prefix < (double)top_p * total; kept++) {
        if (kept == popped)
            pop_greatest(heap, count - popped++);
        prefix += (double)sampler_key_mass(heap[count - 1 - kept]);
    }
    return heap[count - kept];
}

/* --- top_k and top_p by buckets --- */

/* Each level's buckets are told apart by more bits of p: 13 (the first, the sign, is never set),
 * then 9, then 9. */
static const struct level {
    uint32_t shift, buckets;
} levels[] = {{18, SAMPLER_BUCKETS}, {9, SAMPLER_FINER_BUCKETS}, {0, SAMPLER_FINER_BUCKETS}};
enum { LEVELS = sizeof levels / sizeof *levels };

static uint32_t bucket_of(uint64_t key, const struct level *level)
{
    return (uint32_t)(key >> 32 >> level->shift) & (level->buckets - 1);
}

static void add_to_bucket(struct sampler_bucket *buckets, const struct level *level, uint64_t key)
{
    struct sampler_bucket *bucket = &buckets[bucket_of(key, level)];
    bucket->mass += (double)sampler_key_mass(key);
    bucket->count++;
}

/* Counts the masses from `least` > 0 on, in buckets of the first level. */
static void count_masses(struct sampler_bucket *buckets, const struct sampler_masses *masses,
                         float least)
{
    const float *p = masses->p;
    uint32_t i = 0;
    memset(buckets, 0, SAMPLER_BUCKETS * sizeof *buckets);
    for (; i < masses->count; i += QUAD) {
        uint32_t end = min_u32(i + QUAD, masses->count);
        if (end - i == QUAD && !quad_any(quad_load(p + i) >= quad_of(least)))
            continue;
        for (uint32_t id = i; id < end; id++)
            if (p[id] >= least)
                add_to_bucket(buckets, &levels[0], sampler_key(p[id], id));
    }
}

/* Lists the keys of the masses in one bucket of the first level, by ascending ids. Returns how
 * many. */
static uint32_t list_bucket(const struct sampler_masses *masses, uint32_t at, uint64_t *keys)
{
    const float *p = masses->p;
    float least = sampler_key_mass((uint64_t)at << levels[0].shift << 32);
    float greater = sampler_key_mass(((uint64_t)at + 1) << levels[0].shift << 32);
    uint32_t count = 0;
    for (uint32_t i = 0; i < masses->count; i += QUAD) {
        uint32_t end = min_u32(i + QUAD, masses->count);
        if (end - i == QUAD) {
            quad q = quad_load(p + i);
            if (!quad_any((q >= quad_of(least)) & (q < quad_of(greater))))
                continue;
        }
        for (uint32_t id = i; id < end; id++)
            if (p[id] >= least && p[id] < greater)
                keys[count++] = sampler_key(p[id], id);
    }
    return count;
}

/* Keeps the keys of one bucket of the level. Returns how many. */
static uint32_t narrow_keys(uint64_t *keys, uint32_t count, const struct level *level, uint32_t at)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = keys[i];
        keys[kept] = key;
        kept += bucket_of(key, level) == at;
    }
    return kept;
}

/* Tokens in descending order are passed until their count or their mass reaches this. */
struct aim {
    uint64_t count;
    double mass;
};

struct found {
    uint64_t key; /* the last token's; 0: all were passed, and neither aim was reached */
    uint32_t count;
    double mass, mass_before; /* with and without it */
};

/* Passes whole buckets. Returns the bucket in which an aim is reached, or UINT32_MAX. */
static uint32_t pass_buckets(const struct sampler_bucket *buckets, uint32_t count,
                             const struct aim *aim, struct found *found)
{
    for (uint32_t at = count; at-- > 0;) {
        const struct sampler_bucket *bucket = &buckets[at];
        if (bucket->count && ((uint64_t)found->count + bucket->count >= aim->count ||
                              found->mass + bucket->mass >= aim->mass))
            return at;
        found->count += bucket->count;
        found->mass += bucket->mass;
    }
    return UINT32_MAX;
}

/* Passes tokens of equal p. */
static void pass_equals(const uint64_t *keys, uint32_t count, const struct aim *aim,
                        struct found *found)
{
    for (uint32_t i = 0; i < count; i++) {
        found->mass_before = found->mass;
        found->mass += (double)sampler_key_mass(keys[i]);
        found->key = keys[i];
        if (++found->count >= aim->count || found->mass >= aim->mass)
            return;
    }
    found->key = 0;
}

/* top->buckets are filled (count_masses). */
static struct found find(const struct sampler_top *top, const struct sampler_masses *masses,
                         const struct aim *aim)
{
    struct found found = {0};
    uint32_t count = 0;
    for (int i = 0; i < LEVELS; i++) {
        struct sampler_bucket *buckets = i == 0 ? top->buckets : top->finer;
        if (i > 0)
            memset(buckets, 0, levels[i].buckets * sizeof *buckets);
        for (uint32_t k = 0; k < count; k++)
            add_to_bucket(buckets, &levels[i], top->keys[k]);
        uint32_t at = pass_buckets(buckets, levels[i].buckets, aim, &found);
        if (at == UINT32_MAX)
            return found;
        count = i == 0 ? list_bucket(masses, at, top->keys)
                       : narrow_keys(top->keys, count, &levels[i], at);
    }
    pass_equals(top->keys, count, aim, &found);
    return found;
}

/* Returns true if sums by the definition end with this token, too. */
static bool is_sure(const struct found *found, const struct aim *aim, double margin)
{
    bool is_enough = found->count == aim->count || found->mass > aim->mass + margin;
    return found->key && is_enough &&
           (found->count == 1 || found->mass_before < aim->mass - margin);
}

uint64_t sampler_top_bound(const struct sampler_top *top, const struct sampler_masses *masses,
                           double total, uint32_t top_k, float top_p)
{
    struct aim aim = {UINT64_MAX, INFINITY};
    struct found found = {.mass = total};
    bool may_cut = top_k && top_k < masses->count;
    if (!may_cut && top_p >= 1.0f)
        return 0;
    /* No token below `least` is in top_p's prefix: all tokens below it together weigh less than the
     * rest that top_p leaves out. */
    float least = may_cut ? FLT_MIN : (float)(0.5 * (1 - (double)top_p) * total / masses->count);
    count_masses(top->buckets, masses, least);
    uint64_t positive = 0;
    for (uint32_t i = 0; i < SAMPLER_BUCKETS; i++)
        positive += top->buckets[i].count;
    if (may_cut && top_k < positive) {
        aim.count = top_k;
        found = find(top, masses, &aim);
    }
    if (top_p >= 1.0f)
        return found.key;
    aim.mass = (double)top_p * found.mass;
    double margin = margin_of(masses->count, found.mass);
    found = find(top, masses, &aim);
    return is_sure(&found, &aim, margin) ? found.key
                                         : bound_in_order(top->keys, masses, top_k, top_p);
}
