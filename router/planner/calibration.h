/* How far predicted probabilities of a miss can be believed: predictions against what came of them,
 * in bins, for the requests of one class. PURE.
 *
 * Map. A policy's raw P(miss) becomes the P that is used by a monotone map: the share of misses
 * among the requests of its bin, made monotone by pooling adjacent violators (isotonic regression:
 * Zadrozny and Elkan, KDD'02). Its bins are equal in the logarithm of the odds, as raw P gather
 * near 0 and 1. A calibration of no request returns the raw P.
 *
 * Error. The expected calibration error (Naeini et al., AAAI'15) of the P that were used, each as
 * it was when it was used: the mean over CALIBRATION_BINS equal bins of |mean P - share of misses|,
 * weighted by the requests in the bin.
 *
 * Drift. Both forget: a request counts 1/e after CALIBRATION_MAP_REQUESTS, or
 * CALIBRATION_ERROR_REQUESTS, further ones. So a device that becomes slower, answers that become
 * longer and caches that are wiped are followed within 2,000 requests, in the error too.
 *
 * Memory: the caller's; all zeros is a calibration of no request. Owner: one thread. */
#ifndef BATON_ROUTER_PLANNER_CALIBRATION_H
#define BATON_ROUTER_PLANNER_CALIBRATION_H

#include <stdbool.h>
#include <stdint.h>

#define CALIBRATION_BINS           10
#define CALIBRATION_MAP_BINS       16
#define CALIBRATION_MAP_REQUESTS   250
#define CALIBRATION_ERROR_REQUESTS 700
#define CALIBRATION_LEAST          200  /* with fewer requests no calibration is good */
#define CALIBRATION_GOOD           0.05 /* error beyond what chance explains, at most */

/* Sums over the requests of a bin, each with the weight that it has left. */
struct calibration_bin {
    double weight, predicted, missed;
};

struct calibration {
    uint64_t requests; /* with a known outcome */
    struct calibration_bin raw[CALIBRATION_MAP_BINS], used[CALIBRATION_BINS];
    double map[CALIBRATION_MAP_BINS]; /* ascending */
};

/* Returns the P(miss) to use in place of the policy's raw one. Both are 0 .. 1. */
double calibration_map(const struct calibration *calibration, double raw);
/* The outcome of a request is known. `used`: what calibration_map returned when it was decided. */
void calibration_note(struct calibration *calibration, double raw, double used, bool missed);
/* Returns the expected calibration error of the P that were used, 0 .. 1. 0: no request. */
double calibration_error(const struct calibration *calibration);
/* Returns true if the P may be acted on: at least CALIBRATION_LEAST outcomes are known, and the
 * error is at most CALIBRATION_GOOD beyond the error that the same number of perfectly calibrated
 * predictions would show by chance. */
bool calibration_is_good(const struct calibration *calibration);

#endif
