/* candidates: a choice is the best of all that there are, whatever other models have; a sample of
 * many refuses nothing. */
#include "router/planner/route_policy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static unsigned repeats(const char *name, unsigned usual)
{
    const char *set = getenv(name);
    return set ? (unsigned)atoi(set) : usual;
}

/* ------------------------------------------------------------------------- against all choices */

#define MODELS      3
#define MOST_OF_ONE 8 /* workers of a role of a model */
#define MOST        (MODELS * 2 * MOST_OF_ONE)

struct cluster {
    struct rng rng;
    struct candidates candidates;
    struct route_worker workers[MOST];
    size_t models[MOST], count;
    bool misfits[MOST][MOST]; /* [prefill][decode], and: */
    uint64_t apart_us[MOST][MOST];
};

static uint64_t draw(struct cluster *c, uint64_t below)
{
    return rng_below(&c->rng, below);
}

/* Few values, so that workers are often alike. */
static struct route_worker random_worker(struct cluster *c, enum worker_role role, uint64_t key)
{
    return (struct route_worker){
        .key = key,
        .role = role,
        .ready = draw(c, 4) != 0,
        .leaving = draw(c, 12) == 0,
        .away_since_us = 1 + draw(c, 4),
        .model_hash = 1 + draw(c, 2),
        .layout_hash = draw(c, 4) ? 1 : 2,
        .numerics_id = draw(c, 4) ? 1 : 2,
        .capacity_tokens = 50 * (1 + draw(c, 6)),
        .work_tokens = draw(c, 4),
        .reported_tokens = draw(c, 4) ? 0 : draw(c, 6),
        .unconfirmed_tokens = 30 * draw(c, 2),
        .unconfirmed_limit_tokens = 120,
        .requests = (uint32_t)draw(c, 3),
        .max_requests = (uint32_t)draw(c, 4),
        .placed_at = draw(c, 3),
        .blocked_until_us = draw(c, 6) ? 0 : 10 * draw(c, 20),
    };
}

static void cluster_init(struct cluster *c, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->rng = rng_seeded(seed);
    assert_int_equal(candidates_init(&c->candidates, MODELS), STATUS_OK);
    for (size_t model = 0; model < MODELS; model++)
        for (enum worker_role role = ROLE_PREFILL; role <= ROLE_DECODE; role++)
            for (size_t left = draw(c, MOST_OF_ONE + 1); left; left--) {
                struct route_worker worker = random_worker(c, role, c->count + 1);
                assert_int_equal(candidates_set(&c->candidates, model, &worker), STATUS_OK);
                candidates_get(&c->candidates, worker.key)->is = worker;
                candidates_block(&c->candidates, worker.key, worker.blocked_until_us);
                c->models[c->count] = model;
                c->workers[c->count++] = worker;
            }
    for (size_t i = draw(c, 2) * draw(c, 20); i && c->count; i--) {
        size_t p = draw(c, c->count), d = draw(c, c->count);
        assert_int_equal(candidates_misfit(&c->candidates, p + 1, d + 1), STATUS_OK);
        c->misfits[p][d] = true;
    }
    struct candidate_pair apart[40];
    size_t count = 0;
    for (size_t i = draw(c, 2) * draw(c, 40); i && c->count; i--) {
        size_t p = draw(c, c->count), d = draw(c, c->count);
        if (c->apart_us[p][d])
            continue;
        c->apart_us[p][d] = 20 * draw(c, 10);
        apart[count++] = (struct candidate_pair){p + 1, d + 1, c->apart_us[p][d]};
    }
    assert_int_equal(candidates_block_pairs(&c->candidates, apart, count / 2), STATUS_OK);
    assert_int_equal(candidates_block_pairs(&c->candidates, apart, count), STATUS_OK);
}

static bool alike(const struct route_worker *a, const struct route_worker *b)
{
    return a->model_hash == b->model_hash && a->layout_hash == b->layout_hash &&
           a->numerics_id == b->numerics_id;
}

/* The two are of one model and can pair. */
static bool fit(const struct cluster *c, size_t p, size_t d)
{
    return c->models[p] == c->models[d] && c->workers[p].role == ROLE_PREFILL &&
           c->workers[d].role == ROLE_DECODE && !c->workers[p].leaving && !c->workers[d].leaving &&
           alike(&c->workers[p], &c->workers[d]) && !c->misfits[p][d];
}

/* All choices, looked at one by one. */
struct oracle {
    const struct cluster *c;
    const struct route_request *request;
    bool with_blocked;
    bool candidate, fits, ready, found;
    unsigned avoided;
    uint64_t work, placed_at, since_us;
    struct route_choice chosen; /* the choice under test */
    bool chosen_seen;
    unsigned chosen_avoided;
    uint64_t chosen_work, chosen_placed_at;
};

static bool up(const struct oracle *o, const struct route_worker *worker)
{
    return worker->ready && (o->with_blocked || worker->blocked_until_us <= o->request->now_us);
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool is_full(const struct oracle *o, const struct route_worker *p,
                    const struct route_worker *d)
{
    if (p && p->max_requests && p->requests >= p->max_requests)
        return true;
    if (p && o->request->ends_at_prefill)
        return false;
    if (d->max_requests && d->requests >= d->max_requests)
        return true;
    return d->unconfirmed_tokens &&
           d->unconfirmed_tokens + o->request->prompt_tokens > d->unconfirmed_limit_tokens;
}

/* A breaker keeps the two apart, and bytes are to be read. */
static bool is_apart(const struct oracle *o, const struct route_worker *p,
                     const struct route_worker *d)
{
    return p && !o->with_blocked && !o->request->ends_at_prefill &&
           o->c->apart_us[p->key - 1][d->key - 1] > o->request->now_us;
}

static void look(struct oracle *o, const struct route_worker *p, const struct route_worker *d,
                 bool odd)
{
    const struct route_request *request = o->request;
    o->candidate = true;
    if (request->total_tokens > d->capacity_tokens ||
        (p && request->prompt_tokens > p->capacity_tokens))
        return;
    o->fits = true;
    if (!up(o, d) || (p && !up(o, p)) || is_apart(o, p, d))
        return;
    o->ready = true;
    if (is_full(o, p, d))
        return;
    bool idle = p && request->ends_at_prefill;
    unsigned avoided =
        odd + (p && p->key == request->avoid_prefill) + (d->key == request->avoid_decode);
    uint64_t work = (p ? most(p->work_tokens, p->reported_tokens) : 0) +
                    (idle ? 0 : most(d->work_tokens, d->reported_tokens));
    uint64_t placed_at = (p ? p->placed_at : 0) + (idle ? 0 : d->placed_at);
    if (!o->found || avoided < o->avoided ||
        (avoided == o->avoided &&
         (work < o->work || (work == o->work && placed_at < o->placed_at)))) {
        o->avoided = avoided;
        o->work = work;
        o->placed_at = placed_at;
    }
    o->found = true;
    if (o->chosen.decode == d->key && o->chosen.prefill == (p ? p->key : 0)) {
        o->chosen_seen = true;
        o->chosen_avoided = avoided;
        o->chosen_work = work;
        o->chosen_placed_at = placed_at;
    }
}

/* Looks at the places of one decode worker. `away`: at those for which prefill workers are away. */
static void look_at(struct oracle *o, size_t d, bool away)
{
    const struct cluster *c = o->c;
    const struct route_worker *decode = &c->workers[d];
    const struct route_kind *kind = o->request->kind;
    bool any = false, any_up = false, any_fits = false;
    uint64_t since_us = 0;
    if (decode->role != ROLE_DECODE || decode->leaving ||
        (kind &&
         (kind->model_hash != decode->model_hash || kind->numerics_id != decode->numerics_id)))
        return;
    for (size_t p = 0; p < c->count; p++) {
        if (!fit(c, p, d))
            continue;
        any = true;
        if (!away && !o->request->local)
            look(o, &c->workers[p], decode, false);
        if (o->request->prompt_tokens > c->workers[p].capacity_tokens)
            continue;
        any_fits = true;
        any_up |= c->workers[p].ready;
        since_us = most(since_us, c->workers[p].away_since_us);
    }
    if (o->request->local || !any) {
        if (!away)
            look(o, NULL, decode, true);
        return;
    }
    if (any_up || !any_fits)
        return;
    if (decode->ready && since_us < o->since_us)
        o->since_us = since_us;
    if (away && since_us <= o->request->local_away_us)
        look(o, NULL, decode, false);
}

static enum route_outcome ask_oracle(struct oracle *o, size_t model)
{
    o->since_us = UINT64_MAX;
    for (int away = 0; away < 2; away++) {
        if (away && (o->ready || !o->request->local_away_us))
            break;
        for (size_t d = 0; d < o->c->count; d++)
            if (o->c->models[d] == model)
                look_at(o, d, away);
    }
    return o->found                   ? ROUTE_PLACED
           : o->ready                 ? ROUTE_FULL
           : o->candidate && !o->fits ? ROUTE_TOO_LONG
                                      : ROUTE_NO_WORKER;
}

static bool is_blocked(const struct cluster *c, uint64_t now_us)
{
    bool blocked = false;
    for (size_t i = 0; i < c->count; i++) {
        blocked |= c->workers[i].blocked_until_us > now_us;
        for (size_t d = 0; d < c->count; d++)
            blocked |= c->apart_us[i][d] > now_us;
    }
    return blocked;
}

static void check_choice(const struct cluster *c, size_t model, const struct route_request *request,
                         struct route_choice choice, uint64_t seed)
{
    struct oracle o = {.c = c, .request = request, .chosen = choice};
    enum route_outcome outcome = ask_oracle(&o, model);
    if (outcome == ROUTE_NO_WORKER && is_blocked(c, request->now_us)) {
        o = (struct oracle){.c = c, .request = request, .chosen = choice, .with_blocked = true};
        outcome = ask_oracle(&o, model);
    }
    if (choice.outcome != outcome)
        fail_msg("seed %llu: outcome %d, not %d", (unsigned long long)seed, choice.outcome,
                 outcome);
    if (outcome == ROUTE_NO_WORKER && choice.away_since_us != o.since_us)
        fail_msg("seed %llu: away since %llu, not %llu", (unsigned long long)seed,
                 (unsigned long long)choice.away_since_us, (unsigned long long)o.since_us);
    if (outcome != ROUTE_PLACED)
        return;
    if (!o.chosen_seen)
        fail_msg("seed %llu: %llu and %llu are no place", (unsigned long long)seed,
                 (unsigned long long)choice.prefill, (unsigned long long)choice.decode);
    if (o.chosen_avoided != o.avoided || o.chosen_work != o.work ||
        o.chosen_placed_at != o.placed_at)
        fail_msg("seed %llu: not the best place", (unsigned long long)seed);
}

static struct route_request random_request(struct cluster *c, struct route_kind *kind)
{
    *kind = (struct route_kind){1 + draw(c, 2), 1 + draw(c, 2)};
    uint64_t prompt = 1 + draw(c, 120);
    return (struct route_request){.kind = draw(c, 4) ? NULL : kind,
                                  .prompt_tokens = prompt,
                                  .total_tokens = prompt + draw(c, 60),
                                  .ends_at_prefill = draw(c, 5) == 0,
                                  .avoid_prefill = draw(c, MOST / 2),
                                  .avoid_decode = draw(c, MOST / 2),
                                  .local = draw(c, 8) == 0,
                                  .local_away_us = draw(c, 4),
                                  .now_us = 100};
}

static void test_a_choice_is_the_best_of_all(void **state)
{
    (void)state;
    static struct cluster c;
    unsigned outcomes[ROUTE_TOO_LONG + 1] = {0}, pairs = 0, begun = 0, apart = 0,
                                       seeds = repeats("SEEDS", 4000);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        cluster_init(&c, seed);
        for (int k = 0; k < 4; k++) {
            struct route_kind kind;
            struct route_request request = random_request(&c, &kind);
            size_t model = draw(&c, MODELS);
            struct route_choice choice = route_request(&c.candidates, model, &request, &c.rng);
            check_choice(&c, model, &request, choice, seed);
            outcomes[choice.outcome]++;
            pairs += choice.prefill != 0;
            begun += request.kind && choice.outcome == ROUTE_PLACED;
            apart += choice.prefill &&
                     c.apart_us[choice.prefill - 1][choice.decode - 1] > request.now_us;
        }
        candidates_deinit(&c.candidates);
    }
    for (int outcome = 0; outcome <= ROUTE_TOO_LONG; outcome++)
        assert_true(outcome == ROUTE_NO_READER || outcomes[outcome] > seeds / 50);
    assert_true(pairs > seeds / 10 && begun > seeds / 50);
    assert_true(apart && apart < pairs / 10); /* only where there is no other */
}

static void test_who_is_there_is_counted(void **state)
{
    (void)state;
    struct candidates all;
    struct route_worker up = {.key = 1, .role = ROLE_DECODE, .ready = true},
                        down = {.key = 2, .role = ROLE_DECODE},
                        draining = {.key = 3, .role = ROLE_DECODE, .draining = true},
                        prefill = {.key = 4, .role = ROLE_PREFILL, .ready = true};
    assert_int_equal(candidates_init(&all, 3), STATUS_OK);
    assert_int_equal(candidates_set(&all, 2, &prefill), STATUS_OK);
    assert_int_equal(candidates_set(&all, 0, &up), STATUS_OK);
    assert_int_equal(candidates_set(&all, 0, &down), STATUS_OK);
    assert_int_equal(candidates_set(&all, 0, &draining), STATUS_OK);
    assert_int_equal(all.pools[0].roles[ROLE_DECODE].known, 3);
    assert_int_equal(all.pools[0].roles[ROLE_DECODE].up, 1);
    assert_int_equal(all.pools[0].roles[ROLE_DECODE].draining, 1);
    assert_int_equal(all.pools[0].roles[ROLE_PREFILL].known, 0);
    assert_int_equal(all.pools[1].kind_count, 0);
    assert_int_equal(all.pools[2].roles[ROLE_PREFILL].up, 1);
    up.ready = false;
    up.leaving = true;
    assert_int_equal(candidates_set(&all, 0, &up), STATUS_OK);
    assert_int_equal(all.pools[0].roles[ROLE_DECODE].known, 2);
    assert_int_equal(all.pools[0].roles[ROLE_DECODE].up, 0);
    candidates_remove(&all, 1);
    candidates_remove(&all, 3);
    assert_int_equal(all.pools[0].roles[ROLE_DECODE].known, 1);
    assert_int_equal(all.pools[0].roles[ROLE_DECODE].draining, 0);
    candidates_deinit(&all);
}

/* -------------------------------------------------------------------------------------- samples */

#define MANY 300

static struct route_worker plain(enum worker_role role, uint64_t key)
{
    return (struct route_worker){.key = key,
                                 .role = role,
                                 .ready = true,
                                 .capacity_tokens = 1000,
                                 .unconfirmed_limit_tokens = 500,
                                 .max_requests = 4};
}

static void add_plain(struct candidates *all, enum worker_role role, uint64_t first, size_t count)
{
    for (uint64_t key = first; key < first + count; key++) {
        struct route_worker worker = plain(role, key);
        assert_int_equal(candidates_set(all, 0, &worker), STATUS_OK);
    }
}

/* One decode worker of many has room, and one prefill worker: they are found each time. When none
 * has room, the request hears that they are full. */
static void test_a_sample_refuses_nothing(void **state)
{
    (void)state;
    struct candidates all;
    struct rng rng = rng_seeded(7);
    const struct route_request small = {.prompt_tokens = 10, .total_tokens = 20};
    const struct route_handle handle = {.prefill = 1};
    assert_int_equal(candidates_init(&all, 1), STATUS_OK);
    add_plain(&all, ROLE_PREFILL, 1, MANY);
    add_plain(&all, ROLE_DECODE, MANY + 1, MANY);
    for (uint64_t key = 1; key <= 2 * MANY; key++)
        candidates_get(&all, key)->is.requests = 4;
    assert_int_equal(route_request(&all, 0, &small, &rng).outcome, ROUTE_FULL);
    for (uint64_t i = 0; i < 200; i++) {
        struct route_worker *prefill = &candidates_get(&all, 1 + rng_below(&rng, MANY))->is,
                            *decode = &candidates_get(&all, MANY + 1 + rng_below(&rng, MANY))->is;
        prefill->requests = decode->requests = 3;
        struct route_choice choice = route_request(&all, 0, &small, &rng);
        assert_int_equal(choice.outcome, ROUTE_PLACED);
        assert_int_equal(choice.prefill, prefill->key);
        assert_int_equal(choice.decode, decode->key);
        choice = route_handle(&all, 0, &small, &handle, &rng);
        assert_int_equal(choice.decode, decode->key);
        prefill->requests = decode->requests = 4;
    }
    candidates_deinit(&all);
}

/* A burst spreads over many workers as well as the power of d choices has it. */
static void test_a_sample_spreads_a_burst(void **state)
{
    (void)state;
    struct candidates all;
    struct rng rng = rng_seeded(11);
    const struct route_request small = {.prompt_tokens = 10, .total_tokens = 20};
    assert_int_equal(candidates_init(&all, 1), STATUS_OK);
    add_plain(&all, ROLE_PREFILL, 1, MANY);
    add_plain(&all, ROLE_DECODE, MANY + 1, MANY);
    for (uint64_t i = 1; i <= 2 * MANY; i++) {
        struct route_choice choice = route_request(&all, 0, &small, &rng);
        struct route_worker *workers[] = {&candidates_get(&all, choice.prefill)->is,
                                          &candidates_get(&all, choice.decode)->is};
        for (int k = 0; k < 2; k++) {
            workers[k]->work_tokens += 10;
            workers[k]->placed_at = i;
        }
    }
    uint64_t most_work = 0;
    for (uint64_t key = 1; key <= 2 * MANY; key++)
        most_work = most(most_work, candidates_get(&all, key)->is.work_tokens);
    assert_true(most_work <= 30); /* 20 each, if all were looked at */
    candidates_deinit(&all);
}

static void test_steps_tell_what_prompts_take_beside_answers(void **state)
{
    (void)state;
    static struct worker_learnt learnt;
    const struct step_cost cost = {
        .step_us = 1000, .prefill_row_us = 10, .decode_row_us = 20, .decode_context_us = 0.1};
    const struct step_shape both = {100, 0, 10, 1000}, rows = {0, 0, 10, 1000},
                            alone = {256, 0, 0, 0};
    double rows_us = step_cost_predict(&cost, &rows), both_us = step_cost_predict(&cost, &both);
    cost_fit_init(&learnt.steps, &cost, 1e6);
    assert_true(worker_learnt_prompts(&learnt) <= 0);
    for (int i = 0; i < 40; i++) {
        worker_learnt_step(&learnt, &alone, step_cost_predict(&cost, &alone));
        worker_learnt_step(&learnt, &both, both_us);
        worker_learnt_step(&learnt, &rows, rows_us);
    }
    assert_int_equal(learnt.chunk_rows, 256);
    assert_true(fabs(learnt.chunk_us - 1000) < 10);
    double part = 1000 / (both_us + rows_us);
    assert_true(fabs(worker_learnt_prompts(&learnt) - part) < 0.1 * part);
    for (int i = 0; i < 20000; i++) /* prompts come no more */
        worker_learnt_step(&learnt, &rows, rows_us);
    assert_true(worker_learnt_prompts(&learnt) < 0.01);
    for (int i = 0; i < 2000000; i += 100) /* a clock that is wrong */
        worker_learnt_step(&learnt, &both, both_us / 1000);
    assert_true(worker_learnt_prompts(&learnt) <= 0.9);
}

static void test_sequences_share_kv(void **state)
{
    (void)state;
    struct worker_learnt learnt = {.chunk_rows = 0};
    const struct step_shape answers = {0, 0, 10, 790}, both = {1, 0, 10, 790},
                            prompt = {1, 0, 0, 0};
    assert_true(worker_learnt_kv_part(&learnt) >= 1);
    for (int i = 0; i < 1000; i++) { /* half of their tokens are the same ones */
        worker_learnt_kv(&learnt, &answers, 200, 500);
        worker_learnt_kv(&learnt, &both, 200, 1000); /* the prompt takes some, too */
        worker_learnt_kv(&learnt, &prompt, 0, 1000);
    }
    assert_true(fabs(worker_learnt_kv_part(&learnt) - 0.5) < 1e-9);
    for (int i = 0; i < 600; i++) /* not any more; blocks are whole */
        worker_learnt_kv(&learnt, &answers, 0, 850);
    assert_true(worker_learnt_kv_part(&learnt) >= 1);
    for (int i = 0; i < 1000; i++) /* which can't be */
        worker_learnt_kv(&learnt, &answers, UINT64_MAX, 0);
    assert_true(fabs(worker_learnt_kv_part(&learnt) - 0.05) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_tell_what_prompts_take_beside_answers),
        cmocka_unit_test(test_sequences_share_kv),
        cmocka_unit_test(test_a_choice_is_the_best_of_all),
        cmocka_unit_test(test_who_is_there_is_counted),
        cmocka_unit_test(test_a_sample_refuses_nothing),
        cmocka_unit_test(test_a_sample_spreads_a_burst),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
