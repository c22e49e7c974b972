/* Placement policies: a choice is the best of all by each policy's own definition, which is written
 * here once more, choice by choice. A prefix's holder is found among many. */
#include "router/planner/placement.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST   8 /* workers of a role */
#define BLOCK  16
#define BLOCKS 10
#define PROMPT (BLOCK * BLOCKS + 1)

static unsigned repeats(const char *name, unsigned usual)
{
    const char *set = getenv(name);
    return set ? (unsigned)atoi(set) : usual;
}

/* ---------------------------------------------------------------------------------- a cluster */

struct world {
    struct rng rng;
    struct candidates candidates;
    size_t prefills, decodes; /* keys 1 .. prefills, then the decode workers' */
    struct worker_learnt learnt[2 * MOST + 1];
    struct prefix_index *index;
    struct prefix_hash hashes[BLOCKS];
    struct prefix_names names;
    struct prefix_holder holders[2 * MOST];
    struct goodput_config config;
    struct goodput_class slo;
    struct goodput_demand demand;
    struct goodput_pool pool;
    struct goodput_request request;
    struct policy_ask ask;
    struct route_request asked;
    struct route_handle handle; /* for which a reader is chosen */
};

static uint64_t pick(struct world *w, uint64_t below)
{
    return rng_below(&w->rng, below);
}

/* Tells the index that the worker holds the first `blocks` blocks of the prompt. */
static void hold(struct prefix_index *index, const struct prefix_hash *hashes, uint64_t key,
                 uint32_t blocks)
{
    struct prefix_event events[BLOCKS + 1] = {{.number = 1, .kind = PREFIX_CLEARED}};
    for (uint32_t i = 0; i < blocks; i++)
        events[i + 1] = (struct prefix_event){.number = i + 2,
                                              .kind = PREFIX_STORED,
                                              .hash = hashes[i],
                                              .parent = i ? hashes[i - 1] : hashes[BLOCKS - 1],
                                              .position = i,
                                              .token_count = BLOCK};
    assert_int_equal(prefix_index_take(index, key, events, blocks + 1), PREFIX_TAKE_OK);
}

static void random_books(struct world *w, struct candidate *worker)
{
    struct worker_books *books = &worker->books;
    for (int i = 0; i < PRIORITIES; i++) {
        books->prefill[i].requests = (uint32_t)pick(w, 4);
        books->prompts += books->prefill[i].requests;
        books->prefill[i].rows = books->prefill[i].requests * (1 + pick(w, 400));
        books->prefill[i].positions = books->prefill[i].rows * pick(w, 400);
    }
    books->drawing.rows = (uint32_t)pick(w, 40);
    books->drawing.context = books->drawing.rows * (100 + pick(w, 500));
    books->left[7] = books->drawing;
    books->left_set = books->drawing.rows ? 1U << 7 : 0;
    const struct books_part beside = {.tolerance = (uint8_t)(20 + pick(w, 40)),
                                      .tolerance_weight = BOOKS_WEIGHT_ONE * (uint16_t)pick(w, 4)};
    worker_books_add(books, &beside);
    books->held_tokens = books->drawing.context + pick(w, 1000);
    books->promised_tokens = 2 * books->held_tokens;
    books->moving_tokens = worker->is.role == ROLE_DECODE ? pick(w, 4) * 400 : 0;
}

static void add_worker(struct world *w, enum worker_role role, uint64_t key)
{
    uint64_t slow = pick(w, 3) ? 1 : 100;
    const struct step_cost cost = {.step_us = 500 + (double)pick(w, 20000),
                                   .prefill_row_us = (double)slow * (10 + (double)pick(w, 200)),
                                   .decode_row_us = 10 + (double)pick(w, 100),
                                   .decode_context_us = 1e-3 * (double)pick(w, 100)};
    cost_fit_init(&w->learnt[key].steps, &cost, 100);
    w->learnt[key].chunk_rows = pick(w, 3) ? 512 : (uint32_t)pick(w, 200);
    w->learnt[key].answers_us = 1e6;
    w->learnt[key].prompts_us = pick(w, 3) ? 0 : 2e4;
    w->learnt[key].lane_bytes_per_second = (pick(w, 4) != 0) * (100000 << pick(w, 10));
    w->learnt[key].link_bytes_per_second = pick(w, 2) * (100000 << pick(w, 10));
    w->learnt[key].kv_bytes_per_token = pick(w, 4) ? 2000 : 0;
    struct route_worker worker = {.key = key,
                                  .role = role,
                                  .ready = pick(w, 8) != 0,
                                  .model_hash = 7,
                                  .numerics_id = 9,
                                  .block_tokens = BLOCK,
                                  .capacity_tokens = pick(w, 8) ? 1000 : 100,
                                  .pool_tokens = 100000,
                                  .max_requests = 200,
                                  .unconfirmed_limit_tokens = 1000,
                                  .learnt = pick(w, 6) ? &w->learnt[key] : NULL,
                                  .placed_at = key * 3 % 7,
                                  .work_tokens = pick(w, 5) * 100,
                                  .requests = (uint32_t)pick(w, pick(w, 2) ? 4 : 90)};
    assert_int_equal(candidates_set(&w->candidates, 0, &worker), STATUS_OK);
    struct candidate *candidate = candidates_get(&w->candidates, key);
    candidate->is = worker;
    candidate->proven = pick(w, 3) ? CANDIDATE_PROVEN : 0;
    random_books(w, candidate);
    hold(w->index, w->hashes, key, (uint32_t)(pick(w, 2) * pick(w, BLOCKS + 1)));
    prefix_index_free_blocks(w->index, key, (uint32_t)pick(w, BLOCKS));
}

static void world_init(struct world *w, uint64_t seed, enum placement_policy policy)
{
    memset(w, 0, sizeof *w);
    w->rng = rng_seeded(seed);
    assert_int_equal(candidates_init(&w->candidates, 1), STATUS_OK);
    assert_int_equal(prefix_index_create(1000, 1, &w->index), STATUS_OK);
    for (uint32_t i = 0; i < BLOCKS; i++)
        w->hashes[i] = (struct prefix_hash){rng_next(&w->rng), i};
    w->names = (struct prefix_names){.model_hash = 7,
                                     .numerics_id = 9,
                                     .block_tokens = BLOCK,
                                     .match_count = BLOCKS,
                                     .count = BLOCKS,
                                     .names = w->hashes};
    w->prefills = pick(w, 6) ? 1 + pick(w, MOST) : 0;
    w->decodes = 1 + pick(w, MOST);
    for (uint64_t key = 1; key <= w->prefills + w->decodes; key++)
        add_worker(w, key <= w->prefills ? ROLE_PREFILL : ROLE_DECODE, key);
    for (uint64_t i = pick(w, 2) * pick(w, 20); i && w->prefills; i--)
        assert_int_equal(candidates_misfit(&w->candidates, 1 + pick(w, w->prefills),
                                           w->prefills + 1 + pick(w, w->decodes)),
                         STATUS_OK);
    w->request = (struct goodput_request){
        .is = {.age_us = (double)(pick(w, 2) * pick(w, 400000)),
               .prompt_tokens = PROMPT,
               .answer_tokens = 1 + (double)pick(w, 2 << pick(w, 8)),
               .answer_p90_tokens = 300,
               .objective = {.ttft_us = pick(w, 4) ? 5000 << pick(w, 8) : 0,
                             .tpot_us = pick(w, 4) ? 500 << pick(w, 8) : 0}},
        .slo = &w->slo,
        .weight = 1};
    w->pool = (struct goodput_pool){
        .demand = &w->demand, .prefills = (uint32_t)w->prefills, .decodes = (uint32_t)w->decodes};
    goodput_arrived(&w->demand, &w->request.is, 1, 1);
    w->ask = (struct policy_ask){.policy = policy,
                                 .tuning.packs = pick(w, 2) != 0,
                                 .has_classes = pick(w, 3) != 0,
                                 .prompt_tokens = PROMPT,
                                 .request = &w->request,
                                 .goodput = &w->config,
                                 .pool = &w->pool,
                                 .prefixes = w->index,
                                 .names = &w->names,
                                 .name_kinds = 1,
                                 .holders = w->holders};
    w->ask.holder_count = prefix_index_match(w->index, &w->names, 1, w->holders, 2 * MOST);
    w->asked = (struct route_request){.policy = &w->ask,
                                      .prompt_tokens = PROMPT,
                                      .total_tokens = PROMPT + 50,
                                      .avoid_prefill = pick(w, 4),
                                      .avoid_decode = pick(w, 20),
                                      .ends_at_prefill = pick(w, 8) == 0,
                                      .local = pick(w, 3) == 0,
                                      .never_local = pick(w, 5) == 0};
}

static void world_end(struct world *w)
{
    candidates_deinit(&w->candidates);
    prefix_index_destroy(w->index);
}

/* -------------------------------------------------------------- each policy's own definition */

/* A choice is compared by these, the first one first. */
#define TERMS 7
struct terms {
    double of[TERMS]; /* avoided, starting, cost, cost, cost, work, last use */
};

static bool less(const struct terms *a, const struct terms *b)
{
    for (int i = 0; i < TERMS; i++) {
        double margin = 1e-9 * fmax(1, fmax(fabs(a->of[i]), fabs(b->of[i])));
        if (fabs(a->of[i] - b->of[i]) > margin)
            return a->of[i] < b->of[i];
    }
    return false;
}

/* The workers among which one is chosen. */
struct group {
    struct world *w;
    enum policy_stage stage;
    size_t count;
    const struct candidate *items[MOST];
};

static double cached_at(const struct group *g, const struct candidate *worker)
{
    uint32_t blocks = prefix_index_blocks(g->w->index, worker->is.key, g->w->hashes, BLOCKS);
    return g->stage == POLICY_DECODE ? 0 : (double)blocks * BLOCK;
}

static struct predict_choice choice_of(const struct group *g, enum predict_way way,
                                       const struct candidate *prefill,
                                       const struct candidate *decode)
{
    const struct candidate *computes = prefill ? prefill : decode;
    double cached = cached_at(g, computes);
    uint32_t rest = (uint32_t)ceil((PROMPT - cached) / BLOCK);
    uint64_t evicted = BLOCK * prefix_index_evicts(g->w->index, computes->is.key, rest);
    bool reads = way == PREDICT_READER && g->w->ask.policy == PLACEMENT_GOODPUT;
    return (struct predict_choice){.way = way,
                                   .prefill = reads ? g->w->ask.holder : prefill,
                                   .decode = decode,
                                   .cached_tokens = (uint64_t)cached,
                                   .evicted_tokens = g->stage == POLICY_DECODE ? 0 : evicted,
                                   .ready_us = reads ? g->w->ask.ready_us : 0};
}

static void latencies(const struct group *g, const struct candidate *worker, double *ttft,
                      double *tpot)
{
    struct prediction is;
    bool prefills = g->stage == POLICY_PREFILL;
    struct predict_choice choice = choice_of(g,
                                             prefills                    ? PREDICT_PREFILL
                                             : g->stage == POLICY_DECODE ? PREDICT_READER
                                                                         : PREDICT_LOCAL,
                                             prefills ? worker : NULL, prefills ? NULL : worker);
    predict(&g->w->request.is, &choice, COST_P90, &is);
    *ttft = g->stage == POLICY_DECODE ? 0 : is.ttft_us;
    *tpot = g->stage == POLICY_PREFILL ? 0 : is.tpot_us;
}

/* Returns the group without the workers for which `keeps` is false; all, if none would be left. */
static struct group only(const struct group *g, const bool *keeps)
{
    struct group left = {.w = g->w, .stage = g->stage};
    for (size_t i = 0; i < g->count; i++)
        if (keeps[i])
            left.items[left.count++] = g->items[i];
    return left.count ? left : *g;
}

static struct group near_prefix(const struct group *g, double share)
{
    bool holds[MOST];
    double mine = INFINITY, others = INFINITY, ttft, tpot;
    for (size_t i = 0; i < g->count; i++) {
        holds[i] = cached_at(g, g->items[i]) >= share * PROMPT;
        latencies(g, g->items[i], &ttft, &tpot);
        mine = holds[i] && ttft < mine ? ttft : mine;
        others = !holds[i] && ttft < others ? ttft : others;
    }
    return mine > others + 5e6 ? *g : only(g, holds);
}

static int missed(const struct group *g, const struct candidate *worker)
{
    const struct slo_objective *objective = &g->w->request.is.objective;
    double ttft, tpot;
    latencies(g, worker, &ttft, &tpot);
    return (objective->tpot_us && tpot > (double)objective->tpot_us ? 1 : 0) +
           (objective->ttft_us && ttft > (double)objective->ttft_us ? 2 : 0);
}

static struct group best_tier(const struct group *g)
{
    bool keeps[MOST] = {false};
    struct group left = *g;
    for (size_t i = 0; i < g->count; i++)
        keeps[i] = missed(g, g->items[i]) == 0;
    left = only(g, keeps);
    if (missed(&left, left.items[0]) == 0)
        return left;
    for (size_t i = 0; i < g->count; i++)
        keeps[i] = g->items[i]->is.requests == 0;
    left = only(g, keeps);
    for (int worst = 1; worst <= 3; worst++) { /* TPOT alone, TTFT alone, both */
        bool any = false;
        for (size_t i = 0; i < left.count; i++)
            any |= keeps[i] = missed(&left, left.items[i]) == worst;
        if (any)
            return only(&left, keeps);
    }
    return left;
}

/* Returns the place of one worker's latency among those of the group, 0 .. 1. */
static double place_in(const struct group *g, const struct candidate *worker, bool first,
                       bool *differs)
{
    double least = INFINITY, most = 0, us[2];
    for (size_t i = 0; i < g->count; i++) {
        latencies(g, g->items[i], &us[0], &us[1]);
        double value = us[first ? 0 : 1];
        least = fmin(least, value);
        most = fmax(most, value);
    }
    latencies(g, worker, &us[0], &us[1]);
    double mine = fmax(least, fmin(most, us[first ? 0 : 1]));
    *differs = most > least;
    return most > least ? (mine - least) / (most - least) : 0;
}

static double latency_cost(const struct group *all, const struct candidate *worker)
{
    struct group g = near_prefix(all, 0.99);
    g = best_tier(&g);
    g = near_prefix(&g, 0.8);
    bool in = false, has_ttft, has_tpot;
    for (size_t i = 0; i < g.count; i++)
        in |= g.items[i] == worker;
    double ttft = place_in(&g, worker, true, &has_ttft);
    double tpot = place_in(&g, worker, false, &has_tpot);
    double cost = has_ttft && has_tpot ? 0.8 * ttft + 0.2 * tpot : has_ttft ? ttft : tpot;
    const struct slo_objective *objective = &g.w->request.is.objective;
    bool has_objective = objective->ttft_us || objective->tpot_us;
    bool packs = all->w->ask.tuning.packs && has_objective && !missed(&g, g.items[0]);
    return (packs ? 1 - cost : cost) + (in ? 0 : 10);
}

static double kv_of(const struct group *g, const struct candidate *worker)
{
    double rows = PROMPT - cached_at(g, worker);
    for (int i = 0; i < PRIORITIES; i++)
        rows += (double)worker->books.prefill[i].rows;
    double active = (double)worker->books.held_tokens + PROMPT;
    return g->stage == POLICY_PREFILL ? rows : g->stage == POLICY_DECODE ? active : rows + active;
}

static void prefix_cost(const struct group *g, const struct candidate *worker, double *costs)
{
    uint32_t least = UINT32_MAX, most = 0;
    for (size_t i = 0; i < g->count; i++) {
        uint32_t requests = g->items[i]->is.requests;
        least = requests < least ? requests : least;
        most = requests > most ? requests : most;
    }
    bool apart = most > least + 32 && most > 1.1 * least;
    costs[0] = apart ? worker->is.requests : -cached_at(g, worker);
    costs[1] = apart ? 0 : worker->is.requests;
}

/* Returns the terms of one worker within its group. */
static struct terms terms_of(const struct group *g, const struct candidate *worker)
{
    const struct world *w = g->w;
    const struct route_request *asked = &w->asked;
    bool starting = worker->proven < CANDIDATE_PROVEN && worker->is.requests >= 4 + worker->proven;
    struct terms t = {{worker->is.key == (g->stage == POLICY_PREFILL ? asked->avoid_prefill
                                                                     : asked->avoid_decode),
                       starting && w->ask.policy != PLACEMENT_LEAST_TOKENS, 0, 0, 0,
                       (double)worker->is.work_tokens, (double)worker->is.placed_at}};
    if (w->ask.policy == PLACEMENT_ROUND_ROBIN)
        t.of[2] = (double)worker->is.placed_at;
    else if (w->ask.policy == PLACEMENT_PREFIX)
        prefix_cost(g, worker, &t.of[2]);
    else if (w->ask.policy == PLACEMENT_KV_COST)
        t.of[2] = kv_of(g, worker);
    else if (w->ask.policy == PLACEMENT_PREDICTED_LATENCY)
        t.of[2] = latency_cost(g, worker);
    else if (w->ask.policy == PLACEMENT_RANDOM)
        t.of[2] = 0.5;
    return t;
}

/* The costs of a whole choice by goodput with classes. */
static void goodput_costs(const struct world *w, const struct predict_choice *choice,
                          struct terms *t)
{
    struct goodput_score score;
    goodput_score(&w->config, &w->pool, &w->request, choice, &score);
    t->of[2] = floor(score.total * 1e6); /* as goodput_better */
    t->of[3] = score.is.device_us;
    t->of[4] = score.is.ttft_us;
}

/* Goodput without classes: predicted times of one worker by itself, from now on. */
struct times {
    double ttft, tpot, prefill;
};

static struct times times_of(const struct group *g, const struct candidate *worker)
{
    struct prediction is;
    bool prefills = g->stage == POLICY_PREFILL, decodes = g->stage == POLICY_DECODE;
    struct predict_choice choice = choice_of(g,
                                             prefills  ? PREDICT_PREFILL
                                             : decodes ? PREDICT_READER
                                                       : PREDICT_LOCAL,
                                             prefills ? worker : NULL, prefills ? NULL : worker);
    predict(&g->w->request.is, &choice, COST_P50, &is);
    double ttft = decodes ? 0 : is.ttft_us - g->w->request.is.age_us;
    return (struct times){ttft, prefills ? 0 : is.tpot_us, is.prefill_us};
}

/* The same; a worker of unknown cost is to the best known one as if both were unknown. */
static struct times likely_times(const struct group *g, const struct candidate *worker)
{
    struct times mine = times_of(g, worker), best = {INFINITY, INFINITY, 0};
    struct candidate *known = NULL;
    for (size_t i = 0; i < g->count && !worker->is.learnt; i++) {
        struct times t = times_of(g, g->items[i]);
        if (g->items[i]->is.learnt &&
            (g->stage == POLICY_DECODE ? t.tpot < best.tpot : t.ttft < best.ttft)) {
            best = t;
            known = candidates_get(&g->w->candidates, g->items[i]->is.key);
        }
    }
    if (!known)
        return mine;
    const struct worker_learnt *learnt = known->is.learnt;
    known->is.learnt = NULL;
    struct times guess = times_of(g, known);
    known->is.learnt = learnt;
    double ttft = guess.ttft > 0 ? fmin(best.ttft / guess.ttft, 1) : 1;
    double tpot = guess.tpot > 0 ? fmin(best.tpot / guess.tpot, 1) : 1;
    return (struct times){mine.ttft * ttft, mine.tpot * tpot, mine.prefill * ttft};
}

/* Returns the TTFT that counts. `pair`: the best prefill worker beside which it computes the prompt
 * alone; NULL: none. */
static double ttft_of(const struct group *g, const struct candidate *worker,
                      const struct candidate *pair)
{
    struct times t = likely_times(g, worker);
    if (!pair)
        return t.ttft;
    struct group pairs = {.w = g->w, .stage = POLICY_PREFILL};
    double rows = fmin(PROMPT - cached_at(g, worker), 128);
    bool guessed = !worker->is.learnt || worker->is.learnt->chunk_rows < rows;
    double own = guessed ? fmax(t.prefill, times_of(&pairs, pair).prefill) : t.prefill;
    return t.ttft - t.prefill + 2 * own + 10e3;
}

/* Sets the terms to those times as they are among the group's. */
static void even_times(const struct group *g, const struct candidate *worker,
                       const struct candidate *pair, double *terms)
{
    double ttft = INFINITY, tpot = INFINITY, mine;
    for (size_t i = 0; i < g->count; i++) {
        ttft = fmin(ttft, ttft_of(g, g->items[i], pair));
        tpot = fmin(tpot, likely_times(g, g->items[i]).tpot);
    }
    mine = ttft_of(g, worker, pair);
    terms[0] += mine <= 1.125 * ttft + 1e3 ? ttft : mine;
    mine = likely_times(g, worker).tpot;
    terms[1] += mine <= 1.125 * tpot ? tpot : mine;
}

/* Returns the prefill worker that is best by its unrounded TTFT. */
static const struct candidate *soonest(const struct group *g)
{
    struct terms best = {{0}};
    const struct candidate *found = NULL;
    for (size_t i = 0; i < g->count; i++) {
        struct terms t = terms_of(g, g->items[i]);
        t.of[2] = times_of(g, g->items[i]).ttft;
        if (!found || less(&t, &best)) {
            best = t;
            found = g->items[i];
        }
    }
    return found;
}

static bool can_prefill(const struct candidate *p)
{
    return p->is.ready && p->is.capacity_tokens >= PROMPT && p->is.requests < p->is.max_requests;
}

static bool can_decode(const struct world *w, const struct candidate *d)
{
    return d->is.ready && d->is.capacity_tokens >= w->asked.total_tokens &&
           d->is.requests < d->is.max_requests;
}

static bool is_alone(const struct world *w, const struct candidate *d)
{
    for (uint64_t p = 1; p <= w->prefills; p++)
        if (!candidate_misfits(d, p))
            return w->asked.local;
    return true;
}

struct groups {
    struct group prefills, decodes, alone;
};

/* Decode workers that have prefill workers compute prompts alone, too. */
static bool mixes(const struct groups *groups)
{
    const struct world *w = groups->prefills.w;
    return w->ask.policy == PLACEMENT_GOODPUT && !w->asked.never_local &&
           (w->ask.has_classes || w->asked.local || !w->prefills || groups->prefills.count);
}

static void sort_out(struct world *w, struct groups *groups)
{
    *groups = (struct groups){.prefills = {.w = w, .stage = POLICY_PREFILL},
                              .decodes = {.w = w, .stage = POLICY_DECODE},
                              .alone = {.w = w, .stage = POLICY_ALONE}};
    for (uint64_t key = 1; key <= w->prefills + w->decodes; key++) {
        const struct candidate *worker = candidates_get(&w->candidates, key);
        struct group *prefills = &groups->prefills, *decodes = &groups->decodes,
                     *alone = &groups->alone;
        if (key <= w->prefills) {
            if (can_prefill(worker))
                prefills->items[prefills->count++] = worker;
            continue;
        }
        if (!can_decode(w, worker))
            continue;
        if (!is_alone(w, worker))
            decodes->items[decodes->count++] = worker;
        if (is_alone(w, worker) || mixes(groups))
            alone->items[alone->count++] = worker;
    }
}

/* Returns the terms of a pair. */
static struct terms terms_of_pair(struct groups *groups, const struct candidate *p,
                                  const struct candidate *d)
{
    struct world *w = groups->prefills.w;
    struct terms t = terms_of(&groups->prefills, p), decode = terms_of(&groups->decodes, d);
    bool idle = w->asked.ends_at_prefill;
    for (int i = 0; i < TERMS; i++)
        t.of[i] += idle && i ? 0 : decode.of[i];
    struct predict_choice choice =
        choice_of(&groups->prefills, idle ? PREDICT_PREFILL : PREDICT_PAIR, p, d);
    if (w->ask.policy == PLACEMENT_GOODPUT && w->ask.has_classes)
        goodput_costs(w, &choice, &t);
    else if (w->ask.policy == PLACEMENT_GOODPUT) {
        even_times(&groups->prefills, p, NULL, &t.of[2]);
        if (!idle)
            even_times(&groups->decodes, d, NULL, &t.of[2]);
    }
    return t;
}

/* A failed or new prefill worker is no reason to compute the prompt elsewhere. */
static void least_avoided(const struct group *prefills, struct terms *t)
{
    double least[2] = {INFINITY, INFINITY};
    for (size_t i = 0; i < prefills->count; i++) {
        struct terms p = terms_of(prefills, prefills->items[i]);
        if (p.of[0] < least[0] || (p.of[0] == least[0] && p.of[1] < least[1]))
            memcpy(least, p.of, sizeof(least));
    }
    for (int i = 0; i < 2 && prefills->count; i++)
        t->of[i] += least[i];
}

static struct terms terms_alone(struct groups *groups, const struct candidate *d)
{
    struct world *w = groups->alone.w;
    struct terms t = terms_of(&groups->alone, d);
    struct predict_choice choice = choice_of(&groups->alone, PREDICT_LOCAL, NULL, d);
    if (w->ask.policy == PLACEMENT_GOODPUT && w->ask.has_classes) {
        goodput_costs(w, &choice, &t);
        least_avoided(&groups->prefills, &t);
    } else if (w->ask.policy == PLACEMENT_GOODPUT) {
        const struct candidate *pair = w->asked.local ? NULL : soonest(&groups->prefills);
        const struct worker_learnt *learnt = d->is.learnt;
        even_times(&groups->alone, d, pair, &t.of[2]);
        struct terms beside = pair ? terms_of(&groups->prefills, pair) : (struct terms){{0}};
        t.of[0] += beside.of[0];
        t.of[1] += beside.of[1];
        t.of[2] += pair && learnt && learnt->prompts_us > 0.01 * learnt->answers_us ? 1e12 : 0;
    }
    t.of[0] += !mixes(groups); /* a pair comes first */
    return t;
}

/* Looks at every reader of the handle. Returns how many there are. */
static unsigned look_at_readers(struct world *w, struct terms *best,
                                const struct route_choice *chosen, struct terms *mine)
{
    struct group readers = {.w = w, .stage = POLICY_DECODE};
    for (uint64_t key = w->prefills + 1; key <= w->prefills + w->decodes; key++) {
        const struct candidate *d = candidates_get(&w->candidates, key);
        if (can_decode(w, d) && !candidate_misfits(d, w->handle.prefill))
            readers.items[readers.count++] = d;
    }
    for (size_t i = 0; i < readers.count; i++) {
        const struct candidate *d = readers.items[i];
        struct terms t = terms_of(&readers, d);
        struct predict_choice choice = choice_of(&readers, PREDICT_READER, NULL, d);
        if (w->ask.policy == PLACEMENT_GOODPUT && w->ask.has_classes)
            goodput_costs(w, &choice, &t);
        else if (w->ask.policy == PLACEMENT_GOODPUT)
            even_times(&readers, d, NULL, &t.of[2]);
        *best = !i || less(&t, best) ? t : *best;
        *mine = chosen->decode == d->is.key ? t : *mine;
    }
    return (unsigned)readers.count;
}

/* Looks at every choice. Returns how many there are. */
static unsigned look_at_all(struct world *w, struct terms *best, const struct route_choice *chosen,
                            struct terms *mine)
{
    struct groups groups;
    unsigned count = 0;
    sort_out(w, &groups);
    for (size_t i = 0; i < groups.alone.count; i++, count++) {
        const struct candidate *d = groups.alone.items[i];
        struct terms t = terms_alone(&groups, d);
        *best = !count || less(&t, best) ? t : *best;
        *mine = !chosen->prefill && chosen->decode == d->is.key ? t : *mine;
    }
    for (size_t i = 0; i < groups.prefills.count; i++)
        for (size_t k = 0; k < groups.decodes.count; k++) {
            const struct candidate *p = groups.prefills.items[i], *d = groups.decodes.items[k];
            if (candidate_misfits(d, p->is.key))
                continue;
            struct terms t = terms_of_pair(&groups, p, d);
            *best = !count++ || less(&t, best) ? t : *best;
            *mine = chosen->prefill == p->is.key && chosen->decode == d->is.key ? t : *mine;
        }
    return count;
}

/* The second choice, of the reader, when the prompt starts. */
static void test_a_reader_is_the_best_of_all_by_each_policy(void **state)
{
    (void)state;
    static struct world w;
    unsigned seeds = repeats("POLICY_SEEDS", 500);
    for (int policy = 0; policy < PLACEMENT_POLICY_COUNT; policy++) {
        unsigned chosen = 0;
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            world_init(&w, seed, (enum placement_policy)policy);
            w.asked.ends_at_prefill = w.asked.local = false;
            w.handle = (struct route_handle){
                .prefill = 1 + pick(&w, w.prefills + 1), .model_hash = 7, .numerics_id = 9};
            w.handle.prefill = w.handle.prefill > w.prefills ? 100 : w.handle.prefill; /* gone */
            w.ask.holder = candidates_get(&w.candidates, w.handle.prefill);
            w.ask.ready_us = (double)pick(&w, 1000000);
            struct route_choice choice = route_handle(&w.candidates, 0, &w.asked, &w.handle, NULL);
            struct terms best = {0}, mine = {{INFINITY}};
            unsigned count = look_at_readers(&w, &best, &choice, &mine);
            if ((choice.outcome == ROUTE_PLACED) != (count > 0) || (count && less(&best, &mine)))
                fail_msg("%s, seed %llu: not the best of %u", placement_policy_names[policy],
                         (unsigned long long)seed, count);
            chosen += count > 1;
            world_end(&w);
        }
        assert_true(chosen > seeds / 2);
    }
}

static void test_a_choice_is_the_best_of_all_by_each_policy(void **state)
{
    (void)state;
    static struct world w;
    unsigned seeds = repeats("POLICY_SEEDS", 500);
    for (int policy = 0; policy < PLACEMENT_POLICY_COUNT; policy++) {
        unsigned pairs = 0, alone = 0;
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            world_init(&w, seed, (enum placement_policy)policy);
            struct route_choice choice = route_request(&w.candidates, 0, &w.asked, NULL);
            struct terms best = {0}, mine = {{INFINITY}};
            unsigned count = look_at_all(&w, &best, &choice, &mine);
            if ((choice.outcome == ROUTE_PLACED) != (count > 0) || (count && less(&best, &mine)))
                fail_msg("%s, seed %llu: not the best of %u", placement_policy_names[policy],
                         (unsigned long long)seed, count);
            pairs += choice.prefill != 0;
            alone += !choice.prefill && choice.decode;
            world_end(&w);
        }
        assert_true(pairs > seeds / 8 && alone > seeds / 16);
    }
}

/* ------------------------------------------------------------------------------------- many */

static struct route_worker plain(enum worker_role role, uint64_t key)
{
    return (struct route_worker){.key = key,
                                 .role = role,
                                 .ready = true,
                                 .model_hash = 7,
                                 .numerics_id = 9,
                                 .block_tokens = BLOCK,
                                 .capacity_tokens = 1000,
                                 .unconfirmed_limit_tokens = 1000000};
}

static void add_plain(struct candidates *all, enum worker_role role, uint64_t first, uint64_t count)
{
    for (uint64_t key = first; key < first + count; key++) {
        struct route_worker worker = plain(role, key);
        assert_int_equal(candidates_set(all, 0, &worker), STATUS_OK);
        candidates_get(all, key)->proven = CANDIDATE_PROVEN;
    }
}

#define MANY 300

/* Many equal workers. `holder`: the one that holds the prefix; 0: none. */
static void many_init(struct world *w, uint64_t holder)
{
    world_init(w, 3, PLACEMENT_GOODPUT);
    candidates_deinit(&w->candidates);
    assert_int_equal(candidates_init(&w->candidates, 1), STATUS_OK);
    add_plain(&w->candidates, ROLE_PREFILL, 1000, MANY);
    add_plain(&w->candidates, ROLE_DECODE, 2000, MANY);
    if (holder)
        hold(w->index, w->hashes, holder, BLOCKS);
    w->ask.holder_count = prefix_index_match(w->index, &w->names, 1, w->holders, 2 * MOST);
    w->asked = (struct route_request){
        .policy = &w->ask, .prompt_tokens = PROMPT, .total_tokens = PROMPT + 50};
    w->ask.has_classes = false;
    w->request.is.answer_tokens = 50;
    w->request.is.objective = (struct slo_objective){0};
}

/* One worker of many holds the prefix: no sample misses it. */
static void test_the_holder_of_a_prefix_is_found_among_many(void **state)
{
    (void)state;
    static const enum placement_policy policies[] = {
        PLACEMENT_PREFIX, PLACEMENT_KV_COST, PLACEMENT_PREDICTED_LATENCY, PLACEMENT_GOODPUT};
    static struct world w;
    many_init(&w, 1234);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        unsigned found = 0;
        w.ask.policy = policies[i];
        for (int k = 0; k < 200; k++)
            found += route_request(&w.candidates, 0, &w.asked, &w.rng).prefill == 1234;
        if (policies[i] == PLACEMENT_PREDICTED_LATENCY)
            assert_true(found >= 195); /* the cold ones look slower, also past a gate */
        else
            assert_int_equal(found, 200);
    }
    world_end(&w);
}

/* Among many, the best readers and the holders are looked at alone, too. */
static void test_decode_workers_alone_are_found_among_many(void **state)
{
    (void)state;
    static struct world w;
    static struct worker_learnt slow, busy, usual = {.chunk_rows = 512};
    const struct step_cost cost = {.step_us = 1e6, .prefill_row_us = 1e4, .decode_row_us = 100};
    cost_fit_init(&slow.steps, &cost, 100);
    cost_fit_init(&usual.steps,
                  &(struct step_cost){.step_us = 1e4, .prefill_row_us = 100, .decode_row_us = 50},
                  100);
    for (int holds = 0; holds < 2; holds++) {
        many_init(&w, holds ? 2234 : 0);
        for (uint64_t key = 1000; key < 1000 + MANY; key++)
            candidates_get(&w.candidates, key)->is.learnt = holds ? NULL : &slow;
        for (uint64_t key = 2000; key < 2000 + MANY; key++)
            candidates_get(&w.candidates, key)->is.learnt = &usual;
        cost_fit_init(
            &busy.steps,
            &(struct step_cost){.step_us = 3e3, .prefill_row_us = 200, .decode_row_us = 12e3}, 100);
        busy.chunk_rows = 512;
        candidates_get(&w.candidates, 2234)->is.learnt = &busy; /* not among the best readers */
        for (int k = 0; k < 200; k++) {
            struct route_choice choice = route_request(&w.candidates, 0, &w.asked, &w.rng);
            assert_int_equal(choice.outcome, ROUTE_PLACED);
            assert_int_equal(choice.prefill, 0); /* its TTFT is the least */
            assert_true(choice.decode && (choice.decode == 2234) == holds);
        }
        world_end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_choice_is_the_best_of_all_by_each_policy),
        cmocka_unit_test(test_a_reader_is_the_best_of_all_by_each_policy),
        cmocka_unit_test(test_the_holder_of_a_prefix_is_found_among_many),
        cmocka_unit_test(test_decode_workers_alone_are_found_among_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
