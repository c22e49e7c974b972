/* One run of a tournament: a policy, a cluster and a workload in virtual time, and its figures. */
#ifndef BATON_TESTS_BENCH_TOURNAMENT_CONTEST_H
#define BATON_TESTS_BENCH_TOURNAMENT_CONTEST_H

#include "common/base/domain/placement_policy.h"
#include "tests/bench/tournament/workload.h"

#define CONTEST_DECILES     10
#define CONTEST_BINS        10
#define CONTEST_MAX_WORKERS 32
#define CONTEST_CLASSES     2

struct shape {
    const char *name;
    uint32_t prefills, decodes;
    bool mixed; /* every second worker of a role is 1.5 times slower */
    bool liar;  /* the last decode worker reports half its times */
    bool prompts_first;
    bool small; /* every second decode worker has an eighth of the KV */
};

enum drift { DRIFT_NONE, DRIFT_SLOW, DRIFT_LONGER, DRIFT_WIPED };

struct contest {
    const char *data;
    struct step_profile profile;
    const struct shape *shape;
    const struct workload *workload;
    enum placement_policy policy;
    uint32_t off; /* terms of goodput's score (enum goodput_off) */
    double rate;  /* requests a second */
    uint32_t count;
    uint64_t seed;
    uint32_t chunk_tokens; /* a prefill worker's; 0: 2048 */
    enum drift drift;      /* half-way */
    uint32_t settle;       /* requests after it that don't count for calibration; 0: 2000 */
    uint32_t max_queue;    /* 0: 1024 */
    bool takes_all;        /* no admission */
    bool classless;        /* there are no SLO classes */
    /* So many requests come before those that are counted, at this rate; 0: a tenth of all are not
     * counted. */
    uint32_t lead;
    double lead_rate;
};

struct contest_bins {
    double predicted[CONTEST_BINS], missed[CONTEST_BINS];
    uint32_t count[CONTEST_BINS];
};

struct contest_result {
    uint32_t requests, attained, answered, refused; /* after the warm-up */
    double span_s;                                  /* from its first arrival to its last */
    double goodput, offered; /* attained and all requests, a second and device */
    double attainment, deciles[CONTEST_DECILES]; /* by prompt length, the shortest first */
    double ttft_s[3], tpot_s[3];                 /* P50, P90, P99 of answered ones */
    double cached;                               /* share of prompt tokens */
    /* P(miss) of requests of a class that weren't rejected: before the drift, and 2,000 later. */
    struct contest_bins bins[CONTEST_CLASSES][ADMISSION_STAGES][2];
    uint64_t hash;
    bool consistent;
};

/* Runs one contest. STATUS_INVALID, STATUS_IO: with a sentence. */
enum status contest_run(const struct contest *contest, struct contest_result *result,
                        struct error *err) WARN_UNUSED;
/* Returns the expected calibration error; *count: its predictions. */
double contest_error(const struct contest_bins *bins, uint32_t *count);
/* Finds the largest rate a device at which nine of ten requests attain, within 2 %. */
enum status contest_knee(const struct contest *contest, double *rate,
                         struct error *err) WARN_UNUSED;

#endif
