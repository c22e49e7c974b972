#include "tests/bench/tournament/contest.h"

#include "common/base/assert.h"
#include "common/base/domain/content_hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WARM_SHARE  0.1  /* so many requests at the start don't count */
#define DRIFT_LATER 2000 /* requests until predictions must follow a drift */

static uint32_t build_workers(const struct contest *contest, struct virtual_worker *workers)
{
    const struct shape *shape = contest->shape;
    uint32_t count = shape->prefills + shape->decodes;
    uint32_t chunk = contest->chunk_tokens ? contest->chunk_tokens : 2048;
    ASSERT(count <= CONTEST_MAX_WORKERS);
    for (uint32_t i = 0; i < count; i++) {
        bool prefills = i < shape->prefills;
        workers[i] = virtual_worker_default(prefills ? ROLE_PREFILL : ROLE_DECODE,
                                            &contest->profile, WORKLOAD_CONTEXT,
                                            prefills               ? chunk
                                            : shape->prompts_first ? 16384
                                                                   : 512);
        workers[i].scheduler.prompts_first = shape->prompts_first;
        workers[i].scheduler.chunk_us = shape->prompts_first ? 0 : 40000;
        if (shape->small && !prefills && (i - shape->prefills) % 2 == 0) {
            workers[i].scheduler.block_count /= 8;
            workers[i].scheduler.host_slots /= 8;
        }
        workers[i].profile.noise_seed = contest->seed * 1000 + i;
        workers[i].slowness = shape->mixed && i % 2 ? 1.5 : 1;
        workers[i].reported = shape->liar && i + 1 == count ? 0.5 : 1;
    }
    return count;
}

static void start_drift(const struct contest *contest, struct virtual_cluster *cluster)
{
    if (contest->drift == DRIFT_WIPED)
        virtual_cluster_wipe(cluster);
    if (contest->drift == DRIFT_SLOW)
        virtual_cluster_slow(cluster, contest->shape->prefills, 1.5);
}

/* Runs until half of the requests have come, drifts, and runs to the end. */
static void run_all(const struct contest *contest, struct virtual_cluster *cluster,
                    const struct audience *audience)
{
    for (uint64_t until_us = 1000000;
         contest->drift && audience->taken < audience->plan->request_count / 2; until_us += 1000000)
        virtual_cluster_run(cluster, until_us);
    start_drift(contest, cluster);
    virtual_cluster_run(cluster, UINT64_MAX);
}

/* ------------------------------------------------------------------------------------- figures */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void quantiles(double *values, uint32_t count, double out[3])
{
    static const double wanted[] = {0.5, 0.9, 0.99};
    qsort(values, count, sizeof *values, by_value);
    for (int i = 0; i < 3; i++)
        out[i] = count ? values[(uint32_t)(wanted[i] * (count - 1))] : 0;
}

static int by_prompt(const void *a, const void *b)
{
    const struct virtual_outcome *x = *(const struct virtual_outcome *const *)a,
                                 *y = *(const struct virtual_outcome *const *)b;
    if (x->prompt_tokens != y->prompt_tokens)
        return x->prompt_tokens < y->prompt_tokens ? -1 : 1;
    /* Equal ones in no order of time. */
    uint64_t a_order = content_hash(&x->id, sizeof x->id),
             b_order = content_hash(&y->id, sizeof y->id);
    return (a_order > b_order) - (a_order < b_order);
}

/* Attainment by prompt length, over the requests first .. last. */
static void fill_deciles(const struct audience *audience, uint32_t first,
                         struct contest_result *result)
{
    uint32_t count = audience->ended - first;
    const struct virtual_outcome **order = calloc(count + 1, sizeof *order);
    ASSERT(order);
    for (uint32_t i = 0; i < count; i++)
        order[i] = &audience->outcomes[first + i];
    qsort(order, count, sizeof *order, by_prompt);
    for (uint32_t d = 0; d < CONTEST_DECILES; d++) {
        uint32_t from = count * d / CONTEST_DECILES, to = count * (d + 1) / CONTEST_DECILES,
                 attained = 0;
        for (uint32_t i = from; i < to; i++)
            attained += order[i]->attained;
        result->deciles[d] = to > from ? (double)attained / (to - from) : 0;
    }
    free(order);
}

static void fill_times(const struct audience *audience, uint32_t first,
                       struct contest_result *result)
{
    double *ttft = calloc(audience->ended + 1, sizeof *ttft),
           *tpot = calloc(audience->ended + 1, sizeof *tpot);
    uint32_t count = 0, several = 0;
    uint64_t cached = 0, prompts = 0;
    ASSERT(ttft && tpot);
    for (uint32_t i = first; i < audience->ended; i++) {
        const struct virtual_outcome *outcome = &audience->outcomes[i];
        if (outcome->status != TERMINAL_OK)
            continue;
        ttft[count++] = (double)outcome->ttft_us / 1e6;
        cached += outcome->cached_tokens;
        prompts += outcome->prompt_tokens;
        if (outcome->answer_tokens > 1)
            tpot[several++] =
                (double)(outcome->e2e_us - outcome->ttft_us) / 1e6 / (outcome->answer_tokens - 1);
    }
    quantiles(ttft, count, result->ttft_s);
    quantiles(tpot, several, result->tpot_s);
    result->cached = prompts ? (double)cached / (double)prompts : 0;
    free(ttft);
    free(tpot);
}

/* Predictions of requests that came before the middle, and at least `settle` behind it. One that
 * was rejected has no outcome, and says nothing of its prediction. */
static void fill_bins(const struct audience *audience, uint32_t first, uint32_t settle,
                      struct contest_result *result)
{
    uint32_t middle = audience->plan->request_count / 2;
    for (uint32_t i = first; i < audience->ended; i++) {
        const struct virtual_outcome *outcome = &audience->outcomes[i];
        if (outcome->status == TERMINAL_OVERLOADED || (i >= middle && i < middle + settle))
            continue;
        uint32_t class = audience_class(audience, audience->request_of[i]);
        for (int stage = 0; stage < ADMISSION_STAGES; stage++) {
            double miss = outcome->miss[stage].used;
            struct contest_bins *bins = &result->bins[class][stage][i >= middle];
            uint32_t bin = miss < 0 ? 0 : (uint32_t)(miss * CONTEST_BINS);
            bin = bin < CONTEST_BINS ? bin : CONTEST_BINS - 1;
            bins->count[bin] += miss >= 0;
            bins->predicted[bin] += miss >= 0 ? miss : 0;
            bins->missed[bin] += miss >= 0 && !outcome->attained;
        }
    }
}

static void fill(const struct contest *contest, const struct audience *audience,
                 struct contest_result *result)
{
    uint32_t first = contest->lead ? contest->lead : (uint32_t)(WARM_SHARE * audience->ended),
             devices = contest->shape->prefills + contest->shape->decodes;
    uint64_t from_us = UINT64_MAX, to_us = 0;
    for (uint32_t i = first; i < audience->ended; i++) {
        const struct virtual_outcome *outcome = &audience->outcomes[i];
        result->requests++;
        result->attained += outcome->attained;
        result->answered += outcome->status == TERMINAL_OK;
        result->refused += outcome->status == TERMINAL_OVERLOADED;
        from_us = outcome->arrived_us < from_us ? outcome->arrived_us : from_us;
        to_us = outcome->arrived_us > to_us ? outcome->arrived_us : to_us;
    }
    result->span_s = to_us > from_us ? (double)(to_us - from_us) / 1e6 : 1;
    result->goodput = result->attained / result->span_s / devices;
    result->offered = result->requests / result->span_s / devices;
    result->attainment = result->requests ? (double)result->attained / result->requests : 0;
    fill_deciles(audience, first, result);
    fill_times(audience, first, result);
    fill_bins(audience, first, contest->settle ? contest->settle : DRIFT_LATER, result);
}

double contest_error(const struct contest_bins *bins, uint32_t *count)
{
    double error = 0;
    *count = 0;
    for (int i = 0; i < CONTEST_BINS; i++) {
        error += fabs(bins->predicted[i] - bins->missed[i]);
        *count += bins->count[i];
    }
    return *count ? error / *count : 0;
}

/* ---------------------------------------------------------------------------------------- runs */

static void run_plan(const struct contest *contest, const struct load_plan *plan,
                     struct contest_result *result, enum status *status, struct error *err)
{
    struct virtual_worker workers[CONTEST_MAX_WORKERS];
    struct virtual_cluster *cluster;
    struct audience audience = {.plan = plan,
                                .workload = contest->workload,
                                .seed = contest->seed,
                                .classless = contest->classless};
    if (contest->drift == DRIFT_LONGER) {
        audience.longer = 3;
        audience.longer_from = plan->request_count / 2;
    }
    audience_open(&audience);
    struct request_limits limits = request_limits_default();
    limits.bind_late = contest->policy == PLACEMENT_GOODPUT;
    const struct virtual_config config = {.placement = {.model_count = 1,
                                                        .policy = contest->policy,
                                                        .binds_late = limits.bind_late,
                                                        .goodput = {.off = contest->off},
                                                        .seed = contest->seed,
                                                        .prefix_limit = 1u << 20,
                                                        .has_classes = !contest->classless},
                                          .limits = limits,
                                          .worker_count = build_workers(contest, workers),
                                          .workers = workers,
                                          .max_queue =
                                              contest->max_queue ? contest->max_queue : 1024,
                                          .takes_all = contest->takes_all,
                                          .message_us = 200,
                                          .seed = contest->seed,
                                          .clients = audience_clients(&audience)};
    *status = virtual_cluster_create(&config, &cluster, err);
    if (*status == STATUS_OK) {
        run_all(contest, cluster, &audience);
        ASSERT(audience.ended == plan->request_count);
        fill(contest, &audience, result);
        result->hash = virtual_cluster_figures(cluster).hash;
        result->consistent = virtual_cluster_is_consistent(cluster);
        virtual_cluster_destroy(cluster);
    }
    audience_close(&audience);
}

/* The first ones come at the lead's rate. */
static void lead_in(const struct contest *contest, struct load_plan *plan)
{
    uint32_t lead = contest->lead < plan->request_count ? contest->lead : plan->request_count - 1;
    double slower = contest->rate / contest->lead_rate;
    uint64_t until_ns = plan->requests[lead].at_ns;
    for (uint32_t i = 0; i < plan->request_count; i++) {
        uint64_t *at_ns = &plan->requests[i].at_ns;
        *at_ns = *at_ns < until_ns ? (uint64_t)(slower * (double)*at_ns)
                                   : (uint64_t)(slower * (double)until_ns) + (*at_ns - until_ns);
    }
}

enum status contest_run(const struct contest *contest, struct contest_result *result,
                        struct error *err)
{
    const struct workload_ask ask = {.data = contest->data,
                                     .rate = contest->rate,
                                     .count = contest->count,
                                     .seed = contest->seed,
                                     .lengths = contest->workload->lengths};
    struct load_plan plan;
    load_plan_init(&plan);
    *result = (struct contest_result){0};
    enum status status = contest->workload->build(&plan, &ask, err);
    if (status == STATUS_OK && contest->lead && contest->workload->needs_data) {
        const struct load_arrivals arrivals = {.rate = contest->rate, .burstiness = 1};
        load_plan_set_arrivals(&plan, &arrivals, contest->seed + 1);
    }
    if (status == STATUS_OK && contest->lead)
        lead_in(contest, &plan);
    if (status == STATUS_OK)
        run_plan(contest, &plan, result, &status, err);
    load_plan_deinit(&plan);
    return status;
}

enum status contest_knee(const struct contest *contest, double *rate, struct error *err)
{
    uint32_t devices = contest->shape->prefills + contest->shape->decodes;
    struct contest probe = *contest;
    struct contest_result result;
    double low = 0.02, high = 20;
    while (high / low > 1.02) {
        double middle = sqrt(low * high);
        probe.rate = middle * devices;
        TRY(contest_run(&probe, &result, err));
        *(result.attainment >= 0.9 ? &low : &high) = middle;
    }
    *rate = low;
    return STATUS_OK;
}
