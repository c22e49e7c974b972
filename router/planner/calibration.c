#include "router/planner/calibration.h"

#include <math.h>

/* A bin of the map begins with a part of a request that came as predicted: enough to keep the
 * order of bins that nothing is known of, too little to bias the others. */
#define PRIOR_REQUESTS 0.2
#define MOST_ODDS      10.0 /* natural logarithm; beyond it is the last bin */

static uint32_t bin_of(double share, uint32_t bins)
{
    uint32_t bin = share > 0 ? (uint32_t)(share * bins) : 0;
    return bin < bins ? bin : bins - 1;
}

static uint32_t map_bin(double raw)
{
    double least = 1 / (1 + exp(MOST_ODDS));
    double p = raw < least ? least : raw > 1 - least ? 1 - least : raw;
    return bin_of((log(p / (1 - p)) / MOST_ODDS + 1) / 2, CALIBRATION_MAP_BINS);
}

/* Pools adjacent violators: a pool joins the one before while its share of misses is smaller. */
static void fit(struct calibration *c)
{
    struct {
        double weight, missed;
        uint32_t bins;
    } pools[CALIBRATION_MAP_BINS];
    uint32_t count = 0, at = 0;
    for (uint32_t i = 0; i < CALIBRATION_MAP_BINS; i++) {
        double odds = ((i + 0.5) / CALIBRATION_MAP_BINS * 2 - 1) * MOST_ODDS;
        pools[count].weight = c->raw[i].weight + PRIOR_REQUESTS;
        pools[count].missed = c->raw[i].missed + PRIOR_REQUESTS / (1 + exp(-odds));
        pools[count++].bins = 1;
        while (count > 1 && pools[count - 1].missed * pools[count - 2].weight <
                                pools[count - 2].missed * pools[count - 1].weight) {
            pools[count - 2].weight += pools[count - 1].weight;
            pools[count - 2].missed += pools[count - 1].missed;
            pools[count - 2].bins += pools[count - 1].bins;
            count--;
        }
    }
    for (uint32_t pool = 0; pool < count; pool++)
        for (uint32_t i = 0; i < pools[pool].bins; i++)
            c->map[at++] = pools[pool].missed / pools[pool].weight;
}

double calibration_map(const struct calibration *c, double raw)
{
    return c->requests ? c->map[map_bin(raw)] : raw;
}

/* All requests weigh less, by the factor `keep`, and this one is added to bins[at]. */
static void add(struct calibration_bin *bins, uint32_t count, double keep, uint32_t at,
                struct calibration_bin one)
{
    for (uint32_t i = 0; i < count; i++) {
        bins[i].weight = keep * bins[i].weight + (i == at ? one.weight : 0);
        bins[i].predicted = keep * bins[i].predicted + (i == at ? one.predicted : 0);
        bins[i].missed = keep * bins[i].missed + (i == at ? one.missed : 0);
    }
}

void calibration_note(struct calibration *c, double raw, double used, bool missed)
{
    c->requests++;
    add(c->raw, CALIBRATION_MAP_BINS, 1 - 1.0 / CALIBRATION_MAP_REQUESTS, map_bin(raw),
        (struct calibration_bin){1, raw, missed});
    add(c->used, CALIBRATION_BINS, 1 - 1.0 / CALIBRATION_ERROR_REQUESTS,
        bin_of(used, CALIBRATION_BINS), (struct calibration_bin){1, used, missed});
    fit(c);
}

/* Returns the error. *chance: the one that perfect predictions would show, by their number. A share
 * of misses among n has the standard deviation sqrt(p (1 - p) / n), and is off by sqrt(2 / pi)
 * of that on average. */
static double error_of(const struct calibration *c, double *chance)
{
    double weight = 0, error = 0;
    *chance = 0;
    for (uint32_t i = 0; i < CALIBRATION_BINS; i++) {
        const struct calibration_bin *bin = &c->used[i];
        weight += bin->weight;
        error += fabs(bin->predicted - bin->missed);
        if (bin->weight <= 0)
            continue;
        double p = bin->predicted / bin->weight;
        *chance += bin->weight * sqrt(M_2_PI * p * (1 - p) / bin->weight);
    }
    if (weight <= 0)
        return 0;
    *chance /= weight;
    return error / weight;
}

double calibration_error(const struct calibration *c)
{
    double chance;
    return error_of(c, &chance);
}

bool calibration_is_good(const struct calibration *c)
{
    double chance;
    return c->requests >= CALIBRATION_LEAST && error_of(c, &chance) <= CALIBRATION_GOOD + chance;
}
