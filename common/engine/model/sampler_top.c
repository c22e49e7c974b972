#include "common/engine/model/sampler_top.h"

#include "common/base/u32.h"
#include "common/engine/model/quads.h"

#include <float.h>

/* --- in order: as it is defined --- */

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

/* Moves the greatest of heap[0 .. count) behind the other count - 1 keys; returns its p. */
static double pop_greatest(uint64_t *heap, uint32_t count)
{
    uint64_t key = heap[0];
    heap[0] = heap[count - 1];
    heap[count - 1] = key;
    sift_down(heap, count - 1, 0);
    return (double)sampler_key_mass(key);
}

/* Makes heap a max-heap of the tokens with p > 0; returns how many. */
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

/* Pops no more than it has to: top_p usually keeps a few of many. */
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

/* --- by buckets --- */

/* Bits of p that tell a bucket of one level from another: 13, the first of which is never set, 9
 * and 9. */
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

/* Of masses from `least` > 0 on. */
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

static void count_keys(struct sampler_bucket *buckets, const uint64_t *keys, uint32_t count,
                       const struct level *level)
{
    memset(buckets, 0, level->buckets * sizeof *buckets);
    for (uint32_t i = 0; i < count; i++)
        add_to_bucket(buckets, level, keys[i]);
}

/* The keys of masses in one bucket of the first level, by ascending ids; returns how many. */
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

/* Tokens in descending order are passed until there are `count` of them, or `mass`. */
struct aim {
    uint64_t count;
    double mass;
};

struct found {
    uint64_t key; /* of the last one; 0: all were passed, and neither was reached */
    uint32_t count;
    double mass, mass_before; /* with and without it */
};

/* Passes whole buckets; returns that in which an aim is reached, or UINT32_MAX. */
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

/* Among equals. */
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

/* top->buckets: count_masses. */
static struct found find(const struct sampler_top *top, const struct sampler_masses *masses,
                         const struct aim *aim)
{
    struct found found = {0};
    uint32_t count = 0;
    for (int i = 0; i < LEVELS; i++) {
        struct sampler_bucket *buckets = i == 0 ? top->buckets : top->finer;
        if (i > 0)
            count_keys(buckets, top->keys, count, &levels[i]);
        uint32_t at = pass_buckets(buckets, levels[i].buckets, aim, &found);
        if (at == UINT32_MAX)
            return found;
        count = i == 0 ? list_bucket(masses, at, top->keys)
                       : narrow_keys(top->keys, count, &levels[i], at);
    }
    pass_equals(top->keys, count, aim, &found);
    return found;
}

static uint64_t count_positive(const struct sampler_bucket *buckets)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < SAMPLER_BUCKETS; i++)
        count += buckets[i].count;
    return count;
}

/* Whether sums in order would end with this token, too. */
static bool is_sure(const struct found *found, const struct aim *aim, double margin)
{
    bool is_enough = found->count == aim->count || found->mass > aim->mass + margin;
    return found->key && is_enough &&
           (found->count == 1 || found->mass_before < aim->mass - margin);
}

/* Below this no token is in the shortest prefix: all that are less have less than the rest
 * together. */
static float least_of_top_p(const struct sampler_masses *masses, double total, float top_p)
{
    return (float)(0.5 * (1 - (double)top_p) * total / masses->count);
}

uint64_t sampler_top_bound(const struct sampler_top *top, const struct sampler_masses *masses,
                           double total, uint32_t top_k, float top_p)
{
    struct aim aim = {UINT64_MAX, INFINITY};
    struct found found = {.mass = total};
    bool may_cut = top_k && top_k < masses->count;
    float least = may_cut ? FLT_MIN : least_of_top_p(masses, total, top_p);
    if (!may_cut && top_p >= 1.0f)
        return 0;
    count_masses(top->buckets, masses, least);
    if (may_cut && top_k < count_positive(top->buckets)) {
        aim.count = top_k;
        found = find(top, masses, &aim);
    }
    if (top_p >= 1.0f)
        return found.key;
    aim.mass = (double)top_p * found.mass;
    double margin = sampler_margin(masses->count, found.mass);
    found = find(top, masses, &aim);
    return is_sure(&found, &aim, margin) ? found.key
                                         : bound_in_order(top->keys, masses, top_k, top_p);
}
