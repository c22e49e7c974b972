#include "common/engine/model/sampler_masses.h"

#include "common/base/u32.h"
#include "common/engine/model/fixed_math.h"
#include "common/engine/model/quads.h"

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

/* Of those that are at least `least`. */
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
    /* Of equals as great as the bound, ids up to its own are kept: behind it only greater ones. */
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

static bool is_kept(const struct sampler_masses *masses, uint32_t id, uint64_t bound)
{
    return masses->p[id] > 0 && sampler_key(masses->p[id], id) >= bound;
}

/* As it is defined. */
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
    return last; /* unit * total may round up to total: the last one then */
}

uint32_t sampler_masses_pick(const struct sampler_masses *masses, uint64_t bound, double total,
                             double unit)
{
    double aim = unit * total, margin = sampler_margin(masses->count, total), passed = 0;
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
