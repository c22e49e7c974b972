#include "router/planner/policy.h"

#include "common/base/assert.h"

#include <math.h>

/* cache_aware: loads are far apart beyond both. */
#define IMBALANCE_REQUESTS 32
#define IMBALANCE_RATIO    1.1

/* The latency scorer. */
#define AFFINITY_STRICT  0.99 /* cached part of the prompt: before the choice of a tier */
#define AFFINITY_LOOSE   0.80 /* within a tier */
#define AFFINITY_LATE_US 5e6  /* beyond the best other worker's */
#define IGNORE_GATE      0.01
#define TTFT_WEIGHT      0.8
#define TPOT_WEIGHT      0.2
#define LEFT_OUT         10 /* added to the cost of a worker that a gate leaves out */

/* Goodput without classes. Times that differ by less are equal: predictions aren't more exact, and
 * a turn of the router takes as long as APART_US. */
#define APART    (1.0 / 8)
#define APART_US 1e3 /* TTFT */
/* A prompt on a decode worker holds its answers up: its own time counts twice there, and a little
 * more. It isn't computed beside pairs while prompts take more of the answers' time. */
#define SOONER_US      10e3
#define PROMPTS_BESIDE 0.01
#define LONG_ROWS      128  /* a prompt of so many rows tells the cost of longer ones */
#define LEFT_OUT_US    1e12 /* as LEFT_OUT */

/* Returns a number above 0 and below 1. */
static double draw(struct rng *rng)
{
    return rng ? rng_unit(rng) * (1 - 1e-12) + 1e-13 : 0.5;
}

/* ------------------------------------------------------------------------------------- a worker */

/* Uncached prompt rows, of this request and of the ones that are placed there, and tokens of active
 * blocks: the ratio of the two costs is Dynamo's, without rounding to blocks. */
static struct policy_cost kv_cost(const struct policy_ask *ask, enum policy_stage stage,
                                  const struct policy_item *item)
{
    const struct worker_books *books = &item->worker->books;
    uint64_t rows = ask->prompt_tokens - item->cached_tokens;
    for (int i = 0; i < PRIORITIES; i++)
        rows += books->prefill[i].rows;
    uint64_t active = books->held_tokens + ask->prompt_tokens;
    double cost = (stage != POLICY_DECODE ? (double)rows : 0) +
                  (stage != POLICY_PREFILL ? (double)active : 0);
    return (struct policy_cost){.first = cost};
}

static const enum predict_way ways[] = {[POLICY_PREFILL] = PREDICT_PREFILL,
                                        [POLICY_DECODE] = PREDICT_READER,
                                        [POLICY_ALONE] = PREDICT_LOCAL};

/* Predicts what the request would take at `worker` in the item's stead. */
static void predict_at(const struct policy_ask *ask, enum policy_stage stage,
                       const struct policy_item *item, const struct candidate *worker,
                       struct prediction *is)
{
    bool goodput = ask->policy == PLACEMENT_GOODPUT, reads = goodput && stage == POLICY_DECODE;
    const struct predict_choice choice = {.way = ways[stage],
                                          .prefill = stage == POLICY_PREFILL ? worker
                                                     : reads                 ? ask->holder
                                                                             : NULL,
                                          .decode = stage == POLICY_PREFILL ? NULL : worker,
                                          .cached_tokens = item->cached_tokens,
                                          .evicted_tokens = item->evicted_tokens,
                                          .ready_us = reads ? ask->ready_us : 0};
    predict(&ask->request->is, &choice, goodput ? COST_P50 : COST_P90, is);
}

/* Half of a pair is scored as if it were all, so that the halves of the best pairs are among the
 * best halves. */
static void look_ahead(const struct policy_ask *ask, enum policy_stage stage,
                       struct policy_item *item)
{
    if (policy_is_joint(ask)) {
        item->cost = policy_score(ask, ways[stage], stage == POLICY_PREFILL ? item : NULL,
                                  stage == POLICY_PREFILL ? NULL : item, NULL);
        return;
    }
    struct prediction is;
    predict_at(ask, stage, item, item->worker, &is);
    item->ttft_us = stage == POLICY_DECODE ? 0 : is.ttft_us;
    item->tpot_us = stage == POLICY_PREFILL ? 0 : is.tpot_us;
    item->prefill_us = is.prefill_us;
    item->known = is.known;
    item->cost = (struct policy_cost){item->ttft_us, item->tpot_us, 0};
}

void policy_look(const struct policy_ask *ask, enum policy_stage stage,
                 const struct candidate *worker, struct rng *rng, struct policy_item *item)
{
    *item = (struct policy_item){.worker = worker};
    const struct prefix_names *names =
        ask->prefixes && stage != POLICY_DECODE
            ? prefix_names_for(ask->names, ask->name_kinds, &worker->is)
            : NULL;
    if (names) {
        uint64_t held = prefix_index_tokens(ask->prefixes, worker->is.key);
        item->cached_tokens = held < ask->prompt_tokens ? held : ask->prompt_tokens - 1;
        uint64_t rest = ask->prompt_tokens - item->cached_tokens;
        uint32_t blocks = (uint32_t)((rest + names->block_tokens - 1) / names->block_tokens);
        item->evicted_tokens = (uint64_t)names->block_tokens *
                               prefix_index_evicts(ask->prefixes, worker->is.key, blocks);
    }
    switch (ask->policy) {
    case PLACEMENT_LEAST_TOKENS:
    case PLACEMENT_POLICY_COUNT: break;
    case PLACEMENT_RANDOM: item->cost.first = draw(rng); break;
    case PLACEMENT_ROUND_ROBIN: item->cost.first = (double)worker->is.placed_at; break;
    case PLACEMENT_PREFIX:
        item->cost.first = -(double)item->cached_tokens;
        item->cost.second = worker->is.requests;
        break;
    case PLACEMENT_KV_COST: item->cost = kv_cost(ask, stage, item); break;
    case PLACEMENT_PREDICTED_LATENCY:
    case PLACEMENT_GOODPUT:
        if (ask->request)
            look_ahead(ask, stage, item);
        break;
    }
}

/* ---------------------------------------------------------------------------- among each other */

struct range {
    double least, most;
};

static void widen(struct range *range, double value)
{
    range->least = value < range->least ? value : range->least;
    range->most = value > range->most ? value : range->most;
}

/* Returns where the value is in the range, 0 .. 1. */
static double part_of(struct range range, double value)
{
    double width = range.most - range.least;
    return width > 0 ? fmin(fmax((value - range.least) / width, 0), 1) : 0;
}

static void compare_loads(struct policy_item *const *items, size_t count)
{
    struct range requests = {INFINITY, 0};
    for (size_t i = 0; i < count; i++)
        widen(&requests, items[i]->worker->is.requests);
    if (requests.most - requests.least <= IMBALANCE_REQUESTS ||
        requests.most <= IMBALANCE_RATIO * requests.least)
        return;
    for (size_t i = 0; i < count; i++)
        items[i]->cost = (struct policy_cost){.first = items[i]->worker->is.requests};
}

/* The workers that gates have left. */
struct gated {
    const struct policy_ask *ask;
    struct policy_item *const *items;
    size_t count;
    bool in[POLICY_MOST];
};

/* Leaves the workers that hold so much of the prompt, unless there are none, the best of them is
 * much later than the best other one, or a draw says so. */
static void gate_affinity(struct gated *g, double threshold, struct rng *rng)
{
    bool holds[POLICY_MOST];
    double holder_us = INFINITY, other_us = INFINITY;
    for (size_t i = 0; i < g->count; i++) {
        const struct policy_item *item = g->items[i];
        holds[i] =
            g->in[i] && (double)item->cached_tokens >= threshold * (double)g->ask->prompt_tokens;
        double *best_us = holds[i] ? &holder_us : &other_us;
        if (g->in[i])
            *best_us = fmin(*best_us, item->ttft_us);
    }
    bool late = holder_us - other_us > AFFINITY_LATE_US;
    if (holder_us == INFINITY || late || draw(rng) < IGNORE_GATE)
        return;
    for (size_t i = 0; i < g->count; i++)
        g->in[i] = holds[i];
}

/* An objective of 0 is none. A time of 0 isn't predicted at this stage. */
static bool attains(uint64_t objective_us, double predicted_us)
{
    return !objective_us || predicted_us <= (double)objective_us;
}

/* Returns the tier of a worker. 3: it attains. Otherwise the higher one comes first: only TPOT is
 * missed, only TTFT, both. */
static int tier_of(const struct gated *g, const struct policy_item *item)
{
    const struct slo_objective *objective = &g->ask->request->is.objective;
    return 2 * attains(objective->ttft_us, item->ttft_us) +
           attains(objective->tpot_us, item->tpot_us);
}

/* Leaves one tier. Idle ones come first among workers that miss. */
static void gate_tier(struct gated *g, struct rng *rng)
{
    bool one_attains = false, one_misses = false, idle = false;
    int best = 0;
    for (size_t i = 0; i < g->count; i++) {
        int tier = tier_of(g, g->items[i]);
        one_attains |= g->in[i] && tier == 3;
        one_misses |= g->in[i] && tier < 3;
        idle |= g->in[i] && tier < 3 && !g->items[i]->worker->is.requests;
    }
    bool take_misses = one_misses && (!one_attains || draw(rng) < IGNORE_GATE);
    for (size_t i = 0; i < g->count; i++) {
        int tier = tier_of(g, g->items[i]);
        bool busy = take_misses && idle && g->items[i]->worker->is.requests;
        g->in[i] = g->in[i] && (tier < 3) == take_misses && !busy;
        best = g->in[i] && tier > best ? tier : best;
    }
    for (size_t i = 0; i < g->count; i++)
        g->in[i] = g->in[i] && tier_of(g, g->items[i]) == best;
}

/* Costs by the places in the ranges of TTFT and TPOT of the workers that are left. */
static void cost_latency(struct gated *g, struct rng *rng)
{
    const struct slo_objective *objective = &g->ask->request->is.objective;
    const struct policy_tuning *tuning = &g->ask->tuning;
    struct range ttft = {INFINITY, 0}, tpot = {INFINITY, 0};
    bool packs = false;
    for (size_t i = 0; i < g->count; i++) {
        if (!g->in[i])
            continue;
        widen(&ttft, g->items[i]->ttft_us);
        widen(&tpot, g->items[i]->tpot_us);
        packs = tuning->packs && tier_of(g, g->items[i]) == 3 &&
                (objective->ttft_us || objective->tpot_us);
    }
    double ttft_weight = ttft.most > ttft.least ? TTFT_WEIGHT : 0;
    double tpot_weight = tpot.most > tpot.least ? TPOT_WEIGHT : 0;
    double sum = ttft_weight + tpot_weight > 0 ? ttft_weight + tpot_weight : 1;
    for (size_t i = 0; i < g->count; i++) {
        struct policy_item *item = g->items[i];
        double cost = (ttft_weight * part_of(ttft, item->ttft_us) +
                       tpot_weight * part_of(tpot, item->tpot_us)) /
                      sum;
        if (packs)
            cost = 1 - cost;
        if (tuning->temperature > 0) { /* a weighted draw: Efraimidis and Spirakis, 2006 */
            double weight = pow(fmax(1 - cost, 1e-9), 1 / tuning->temperature);
            double key = -log(draw(rng)) / weight;
            cost = key / (1 + key);
        }
        item->cost = (struct policy_cost){.first = g->in[i] ? cost : LEFT_OUT + cost};
    }
}

/* ------------------------------------------------------------------------ without classes */

/* Times of workers of unknown cost are guesses. They become what they would be if these workers
 * were like the best known one, where that is less: so they get to be known. */
static void guess_times(const struct policy_ask *ask, enum policy_stage stage,
                        struct policy_item *const *items, size_t count)
{
    const struct policy_item *best = NULL;
    size_t unknown = 0;
    for (size_t i = 0; i < count; i++) {
        const struct policy_item *item = items[i];
        unknown += !item->known;
        bool better = !best || (stage == POLICY_DECODE ? item->tpot_us < best->tpot_us
                                                       : item->ttft_us < best->ttft_us);
        best = item->known && better ? item : best;
    }
    if (!best || !unknown)
        return;
    struct candidate stranger = *best->worker;
    struct prediction is;
    double age_us = ask->request->is.age_us;
    stranger.is.learnt = NULL;
    predict_at(ask, stage, best, &stranger, &is);
    double ttft = is.ttft_us > age_us ? (best->ttft_us - age_us) / (is.ttft_us - age_us) : 1;
    double tpot = is.tpot_us > 0 ? best->tpot_us / is.tpot_us : 1;
    ttft = fmin(ttft, 1);
    tpot = fmin(tpot, 1);
    for (size_t i = 0; i < count; i++) {
        if (items[i]->known)
            continue;
        if (stage != POLICY_DECODE)
            items[i]->ttft_us = age_us + ttft * (items[i]->ttft_us - age_us);
        items[i]->prefill_us *= ttft;
        items[i]->tpot_us *= tpot;
    }
}

/* Returns the time, or `least_us` where predictions don't tell them apart. */
static double apart_us(double us, double least_us, double more_us)
{
    return us <= least_us * (1 + APART) + more_us ? least_us : us;
}

static void compare_times(const struct policy_ask *ask, enum policy_stage stage,
                          struct policy_item *const *items, size_t count,
                          const struct policy_item *pair)
{
    double age_us = ask->request->is.age_us;
    struct range ttft = {INFINITY, 0}, tpot = {INFINITY, 0};
    guess_times(ask, stage, items, count);
    for (size_t i = 0; i < count; i++) {
        struct policy_cost *cost = &items[i]->cost;
        *cost = (struct policy_cost){items[i]->ttft_us, items[i]->tpot_us, 0};
        if (stage == POLICY_ALONE && pair) {
            /* Before the first such prompt its cost is a guess: it is no faster. */
            uint64_t rows = ask->prompt_tokens - items[i]->cached_tokens;
            uint64_t least_rows = rows < LONG_ROWS ? rows : LONG_ROWS;
            const struct worker_learnt *learnt = items[i]->worker->is.learnt;
            double prefill_us = items[i]->prefill_us, wait_us = items[i]->ttft_us - prefill_us;
            if (!learnt || learnt->chunk_rows < least_rows)
                prefill_us = fmax(prefill_us, pair->prefill_us);
            cost->first = wait_us + 2 * prefill_us + SOONER_US;
        }
        widen(&ttft, cost->first - age_us);
        widen(&tpot, cost->second);
    }
    for (size_t i = 0; i < count; i++) {
        const struct worker_learnt *learnt = items[i]->worker->is.learnt;
        struct policy_cost *cost = &items[i]->cost;
        if (stage != POLICY_DECODE)
            cost->first = age_us + apart_us(cost->first - age_us, ttft.least, APART_US);
        cost->second = apart_us(cost->second, tpot.least, 0);
        if (stage == POLICY_ALONE && pair && learnt &&
            worker_learnt_prompts(learnt) > PROMPTS_BESIDE)
            cost->first += LEFT_OUT_US;
    }
}

/* ---------------------------------------------------------------------------- among each other */

bool policy_compares(const struct policy_ask *ask)
{
    return ask->policy == PLACEMENT_PREFIX ||
           (ask->policy == PLACEMENT_KV_COST && ask->tuning.temperature > 0) ||
           (ask->policy == PLACEMENT_PREDICTED_LATENCY && ask->request) ||
           (ask->policy == PLACEMENT_GOODPUT && ask->request && !ask->has_classes);
}

void policy_compare(const struct policy_ask *ask, enum policy_stage stage,
                    struct policy_item *const *items, size_t count, const struct policy_item *pair,
                    struct rng *rng)
{
    ASSERT(count <= POLICY_MOST && policy_compares(ask));
    if (ask->policy == PLACEMENT_PREFIX) {
        compare_loads(items, count);
        return;
    }
    if (ask->policy == PLACEMENT_GOODPUT) {
        compare_times(ask, stage, items, count, pair);
        return;
    }
    struct gated g = {.ask = ask, .items = items, .count = count};
    struct range costs = {INFINITY, 0};
    for (size_t i = 0; i < count; i++) {
        g.in[i] = true;
        widen(&costs, items[i]->cost.first);
    }
    if (ask->policy == PLACEMENT_KV_COST) {
        /* A softmax of -cost / (range * temperature): the least of cost + Gumbel noise is such a
         * draw (Gumbel, 1954; Maddison et al., NeurIPS'14). */
        for (size_t i = 0; i < count; i++)
            items[i]->cost.first = part_of(costs, items[i]->cost.first) / ask->tuning.temperature +
                                   log(-log(draw(rng)));
        return;
    }
    gate_affinity(&g, AFFINITY_STRICT, rng);
    gate_tier(&g, rng);
    gate_affinity(&g, AFFINITY_LOOSE, rng);
    cost_latency(&g, rng);
}

/* ------------------------------------------------------------------------------------- jointly */

bool policy_mixes(const struct policy_ask *ask)
{
    return ask->policy == PLACEMENT_GOODPUT && ask->request;
}

bool policy_is_joint(const struct policy_ask *ask)
{
    return policy_mixes(ask) && ask->has_classes;
}

struct policy_cost policy_score(const struct policy_ask *ask, enum predict_way way,
                                const struct policy_item *prefill, const struct policy_item *decode,
                                struct decision_alternative *choice)
{
    const struct policy_item *computes = prefill ? prefill : decode;
    struct predict_choice is = {.way = way,
                                .prefill = prefill ? prefill->worker : ask->holder,
                                .decode = decode ? decode->worker : NULL,
                                .cached_tokens = computes->cached_tokens,
                                .evicted_tokens = computes->evicted_tokens,
                                .ready_us = ask->ready_us};
    struct goodput_score score;
    struct goodput_config config = *ask->goodput;
    config.off |= choice ? 0 : GOODPUT_OFF_HONEST;
    goodput_score(&config, ask->pool, ask->request, &is, &score);
    if (choice)
        *choice = (struct decision_alternative){.ttft_us = score.is.ttft_us,
                                                .tpot_us = score.is.tpot_us,
                                                .p_miss = score.p_miss,
                                                .others = score.others,
                                                .price = score.price,
                                                .total = score.total};
    /* A millionth of a miss is a tie: the least device time wins, then the least TTFT. */
    return (struct policy_cost){floor(score.total * 1e6), score.is.device_us, score.is.ttft_us};
}
