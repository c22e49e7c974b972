/* Scores choices of workers by the misses that they lead to. PURE.
 *
 * A request attains if its TTFT and its TPOT are within its class's objectives. The score of a
 * choice is the expected number of misses that it adds: this request's own, the ones of requests
 * that it disturbs (behind it on the worker that computes its prompt, beside it on the one that
 * draws its answer), and a price for the slack that later arrivals will need. The least score wins;
 * equal ones by device time.
 *
 * - P(miss) comes from the class's errors of prediction. Beyond the objective a wide spread never
 *   lowers it (predict_miss_hopeless). A small convex term of the time beyond orders choices that
 *   all have P = 0, or all P = 1.
 * - A miss weighs by what is left of its class's error budget.
 * - A request that is late already, and an offline one, disturbs others for free within a floor: a
 *   share of each worker's work.
 *
 * Each term can be switched off, for ablation (GOODPUT_OFF_...). */
#ifndef BATON_ROUTER_PLANNER_GOODPUT_H
#define BATON_ROUTER_PLANNER_GOODPUT_H

#include "router/planner/predict.h"

enum goodput_off {
    GOODPUT_OFF_OWN = 1,       /* this request's P(miss) */
    GOODPUT_OFF_OTHERS = 2,    /* the misses that it adds to others */
    GOODPUT_OFF_TARDINESS = 4, /* the convex term */
    GOODPUT_OFF_PRICE = 8,     /* the shadow price */
    GOODPUT_OFF_WEIGHTS = 16,  /* each miss counts 1 */
    GOODPUT_OFF_ERRORS = 32,   /* P(miss) is 0 or 1, by the predicted time */
    GOODPUT_OFF_BANKED = 64,  /* TPOT limits each step: it is no budget (books: virtual_router.c) */
    GOODPUT_OFF_FLOOR = 128,  /* late requests disturb others as much as they like */
    GOODPUT_OFF_MEMORY = 256, /* preemption is free */
    GOODPUT_OFF_ALL = 511,
    GOODPUT_OFF_HONEST = 512, /* no term of the total: p_miss isn't asked for, and is 0 */
};

struct goodput_config {
    uint32_t off;       /* bits: goodput_off */
    double tardiness;   /* weight of the convex term; 0: the usual one */
    double floor_share; /* each worker's work, for late requests; 0: the usual one */
};

/* One SLO class of one model, as its requests went. Zeroed: nothing is known. */
struct goodput_class {
    struct predict_error ttft, tpot;
    double missed; /* the share that did; older ones weigh less */
    uint64_t ended;
};
/* A request of the class ended. `predicted`: at its first placement. A time of 0 is ignored. */
void goodput_ended(struct goodput_class *slo, const struct prediction *predicted,
                   const struct slo_outcome *measured, bool attained);
/* Returns the weight of a miss of the class, 1 .. 20: a class with a tenth left of all its requests
 * weighs 1. `percentile`: how many are meant to attain, in per cent. */
double goodput_weight(const struct goodput_class *slo, double percentile);

/* Arrivals of one model, in a window that forgets: what later requests will need. Zeroed: none. */
struct goodput_demand {
    double ttft, tpot;                   /* sums of weight / objective, 1 / us */
    double near_ttft, near_tpot;         /* sums of 1 / objective */
    double arrivals;                     /* in the window */
    double tokens;                       /* KV of prompts and expected answers */
    uint64_t at_us;                      /* the last arrival */
    double prompt_tokens, cached_tokens; /* prompts that began; their part in caches */
};
/* A worker found so many tokens of a prompt in its cache. */
void goodput_found(struct goodput_demand *demand, uint64_t prompt_tokens, uint64_t cached_tokens);
void goodput_arrived(struct goodput_demand *demand, const struct predict_request *request,
                     double weight, uint64_t now_us);

/* Returns the arrivals a microsecond. */
double goodput_arrival_rate(const struct goodput_demand *demand, uint64_t now_us);

/* A worker was given work of so much time. */
void goodput_floor_note(struct books_floor *floor, double device_us, bool late);
/* True: late work has had less than its share here. */
bool goodput_floor_due(const struct books_floor *floor, const struct goodput_config *config);

struct goodput_request {
    struct predict_request is;
    const struct goodput_class *slo; /* NULL: its class is not known, a prior counts */
    double weight;                   /* if it misses: goodput_weight */
};

/* The workers that share the arrivals. */
struct goodput_pool {
    const struct goodput_demand *demand; /* NULL: no price */
    uint32_t prefills, decodes;          /* ready ones; with 0 prefills, decodes compute prompts */
    uint64_t now_us;
};

struct goodput_score {
    double total; /* expected misses: all of the next four */
    double own, others, tardiness, price;
    double p_miss; /* this request's, honest: for admission and calibration */
    struct prediction is;
};

/* Scores a choice. With PREDICT_PREFILL and PREDICT_READER: that half of a pair, so that the halves
 * of the best pairs are among the best halves. */
void goodput_score(const struct goodput_config *config, const struct goodput_pool *pool,
                   const struct goodput_request *request, const struct predict_choice *choice,
                   struct goodput_score *out);
/* True: `a` wins. Totals count to a millionth of a miss, then the device time, then TTFT. */
bool goodput_better(const struct goodput_score *a, const struct goodput_score *b);

/* True: nothing that is done for the request lets it attain its TTFT. */
bool goodput_is_late(const struct predict_request *request);

#endif
