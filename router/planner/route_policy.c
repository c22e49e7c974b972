#include "router/planner/route_policy.h"

#include "common/base/domain/tenant_share.h"

/* The order of choices: fewest avoided workers, fewest that have just come, least cost, least work,
 * longest unused. The score of a pair is the sum of its workers' scores, so that the best of each
 * role make the best pair, except that a joint policy gives pairs a cost of their own. */
struct score {
    unsigned avoided, starting;
    struct policy_cost cost;
    uint64_t work_tokens, placed_at;
};

static bool better(const struct score *a, const struct score *b)
{
    if (a->avoided != b->avoided)
        return a->avoided < b->avoided;
    if (a->starting != b->starting)
        return a->starting < b->starting;
    if (a->cost.first != b->cost.first)
        return a->cost.first < b->cost.first;
    if (a->cost.second != b->cost.second)
        return a->cost.second < b->cost.second;
    if (a->cost.third != b->cost.third)
        return a->cost.third < b->cost.third;
    if (a->work_tokens != b->work_tokens)
        return a->work_tokens < b->work_tokens;
    return a->placed_at < b->placed_at;
}

/* A worker that could take the request. */
struct look {
    struct policy_item item;
    struct score score; /* its cost is the item's */
};

/* The best workers of one role, the best first. */
struct shortlist {
    enum policy_stage stage;
    size_t count, most; /* most: at most ROUTE_EXACT */
    /* They compute prompts by themselves. A pair comes before such a decode worker, so that the odd
     * one of a cluster gets requests only where the others are full or have just failed. */
    bool odd;
    struct look looks[ROUTE_EXACT];
};

static void shortlist_offer(struct shortlist *list, const struct look *look)
{
    size_t at = list->count;
    if (at == list->most && !better(&look->score, &list->looks[at - 1].score))
        return;
    for (size_t i = 0; i < list->count; i++)
        if (list->looks[i].item.worker == look->item.worker) /* a sample may meet it twice */
            return;
    at -= at == list->most;
    for (; at > 0 && better(&look->score, &list->looks[at - 1].score); at--)
        list->looks[at] = list->looks[at - 1];
    list->looks[at] = *look;
    list->count += list->count < list->most;
}

struct search {
    const struct candidates *all;
    const struct candidate_pool *pool;
    const struct route_request *request;
    const struct policy_ask *ask;
    const struct route_handle *handle; /* NULL: the prompt is to be computed */
    struct rng *rng;                   /* draws samples; NULL: looks at all */
    struct rng *draws;                 /* the policy's; NULL: none */
    bool with_blocked;                 /* no block counts */
    /* The best choice so far. */
    bool found;
    struct score score;
    struct decision_alternative chosen;
    /* Facts about all candidates, for the outcome if none takes the request. */
    bool candidate;       /* there is one: its workers match */
    bool fits;            /* one is large enough too */
    bool ready;           /* one is ready too, but full */
    uint64_t most_tokens; /* for one request, on the candidates' decode workers */
    uint64_t away_since_us;
};

static struct search search_of(const struct candidates *candidates, size_t model,
                               const struct route_request *request, struct rng *draws)
{
    static const struct policy_ask least_tokens = {.policy = PLACEMENT_LEAST_TOKENS};
    return (struct search){.all = candidates,
                           .pool = &candidates->pools[model],
                           .request = request,
                           .with_blocked = candidates->blocked_until_us <= request->now_us,
                           .ask = request->policy ? request->policy : &least_tokens,
                           .draws = draws};
}

static bool is_ready(const struct search *s, const struct candidate *worker)
{
    return worker->is.ready &&
           (s->with_blocked || worker->is.blocked_until_us <= s->request->now_us);
}

/* True: they fit, and the decode worker may read from that prefill worker now. */
static bool may_pair(const struct search *s, const struct candidate *decode, uint64_t prefill)
{
    bool reads = s->handle || !s->request->ends_at_prefill;
    return !candidate_misfits(decode, prefill) &&
           (s->with_blocked || !reads ||
            !candidates_pair_is_blocked(s->all, decode, prefill, s->request->now_us));
}

static bool holds_enough(const struct search *s, const struct candidate *worker)
{
    uint32_t most = worker->is.max_requests;
    return most && (worker->is.requests >= most ||
                    (s->request->leaves_share &&
                     candidate_requests_of(worker, s->request->tenant) >= tenant_share(most, 1)));
}

/* The answer may come from workers of this kind. */
static bool of_kind(const struct route_request *request, const struct candidate_kind *kind)
{
    const struct route_kind *begun = request->kind;
    return !begun ||
           (begun->model_hash == kind->model_hash && begun->numerics_id == kind->numerics_id);
}

static bool holds(const struct candidate_kind *kind, const struct route_handle *handle)
{
    return kind->model_hash == handle->model_hash && kind->layout_hash == handle->layout_hash &&
           kind->numerics_id == handle->numerics_id;
}

/* Offers a choice. `prefill` NULL: the decode worker does all that is to be done. */
static void offer(struct search *s, const struct look *prefill, const struct look *decode,
                  struct score score, struct decision_alternative *choice)
{
    choice->prefill = prefill ? prefill->item.worker->is.key : 0;
    choice->decode = decode->item.worker->is.key;
    decision_consider(s->request->decision, choice);
    if (s->found && !better(&score, &s->score))
        return;
    s->found = true;
    s->score = score;
    s->chosen = *choice;
}

/* --------------------------------------------------------------------------- the best of a kind */

/* Enters a worker in the list, by the policy. */
static void look_at(const struct search *s, struct shortlist *list, const struct candidate *worker,
                    unsigned avoided)
{
    uint64_t work = worker->is.work_tokens, reported = worker->is.reported_tokens;
    struct look look;
    policy_look(s->ask, list->stage, worker, s->draws, &look.item);
    look.score = (struct score){.avoided = avoided,
                                .starting = s->ask->policy != PLACEMENT_LEAST_TOKENS &&
                                            candidate_is_starting(worker),
                                .cost = look.item.cost,
                                .work_tokens = work > reported ? work : reported,
                                .placed_at = worker->is.placed_at};
    shortlist_offer(list, &look);
}

static void consider_prefill(const struct search *s, struct shortlist *list,
                             const struct candidate *prefill)
{
    if (is_ready(s, prefill) && s->request->prompt_tokens <= prefill->is.capacity_tokens &&
        !holds_enough(s, prefill))
        look_at(s, list, prefill, prefill->is.key == s->request->avoid_prefill);
}

/* `idle`: the decode worker of this pair gets no command. All such workers are equal. */
static void consider_decode(const struct search *s, struct shortlist *list,
                            const struct candidate *decode, bool idle)
{
    const struct route_worker *is = &decode->is;
    unsigned avoided = list->odd + (is->key == s->request->avoid_decode);
    if (!is_ready(s, decode) || s->request->total_tokens > is->capacity_tokens)
        return;
    if (idle) {
        shortlist_offer(list, &(struct look){.item = {.worker = decode}, .score = {avoided}});
        return;
    }
    /* A worker without others takes any request. Otherwise a prompt above the limit would wait for
     * ever. */
    uint64_t unconfirmed_tokens = is->unconfirmed_tokens + s->request->prompt_tokens;
    bool crowded =
        !s->handle && is->unconfirmed_tokens && unconfirmed_tokens > is->unconfirmed_limit_tokens;
    if (!crowded && !holds_enough(s, decode))
        look_at(s, list, decode, avoided);
}

/* Replaces the costs by those among the workers of the list. `pair`: the best prefill worker. */
static void compare(const struct search *s, struct shortlist *list, const struct shortlist *pair)
{
    struct policy_item *items[ROUTE_EXACT];
    if (!policy_compares(s->ask))
        return;
    for (size_t i = 0; i < list->count; i++)
        items[i] = &list->looks[i].item;
    policy_compare(s->ask, list->stage, items, list->count,
                   pair && pair->count ? &pair->looks[0].item : NULL, s->draws);
    struct shortlist sorted = {.stage = list->stage, .most = list->most, .odd = list->odd};
    for (size_t i = 0; i < list->count; i++) {
        struct score *score = &list->looks[i].score;
        score->cost = list->looks[i].item.cost;
        shortlist_offer(&sorted, &list->looks[i]);
    }
    *list = sorted;
}

/* The workers of a list that are looked at: all, or the holders of the prefix and a sample. */
struct looks {
    const struct search *s;
    const struct candidate_list *list;
    size_t count, at, holder;
    bool samples;
    bool holds; /* the last one was a holder */
};

static struct looks looks_at(const struct search *s, const struct candidate_list *list)
{
    if (!s->rng || list->count <= ROUTE_EXACT)
        return (struct looks){.list = list, .count = list->count};
    size_t root = 1;
    while (root * root < list->count)
        root++;
    return (struct looks){.s = s, .list = list, .count = 4 * root, .samples = true};
}

static const struct candidate *next_look(struct looks *looks)
{
    const struct candidate_list *list = looks->list;
    while (looks->samples && looks->holder < looks->s->ask->holder_count) {
        uint64_t key = looks->s->ask->holders[looks->holder++].worker;
        const struct candidate *holder = candidates_get(looks->s->all, key);
        if (holder && holder->kind && holder->index < list->count &&
            list->items[holder->index] == holder) {
            looks->holds = true;
            return holder;
        }
    }
    if (looks->at == looks->count)
        return NULL;
    size_t at = looks->at++;
    looks->holds = false;
    return list->items[looks->samples ? rng_below(looks->s->rng, list->count) : at];
}

/* The report of a choice by a policy that adds costs. Without costs the least work wins. */
static struct decision_alternative told(const struct search *s, const struct score *score,
                                        double ttft_us, double tpot_us)
{
    bool has_cost = s->ask->policy != PLACEMENT_LEAST_TOKENS &&
                    (s->ask->policy != PLACEMENT_PREDICTED_LATENCY || s->ask->request) &&
                    (s->ask->policy != PLACEMENT_GOODPUT || s->ask->request);
    double total = has_cost ? score->cost.first : (double)score->work_tokens;
    total /= policy_mixes(s->ask) ? 1e3 : 1; /* ms */
    return (struct decision_alternative){
        .ttft_us = ttft_us, .tpot_us = tpot_us, .p_miss = -1, .total = total};
}

/* Offers pairs: each prefill worker with the best decode worker that fits it, or with all where the
 * policy scores pairs jointly, or tells of each. */
static void pair_up(struct search *s, const struct shortlist *prefills,
                    const struct shortlist *decodes)
{
    bool joint = policy_is_joint(s->ask), all = policy_mixes(s->ask), paired;
    enum predict_way way = s->request->ends_at_prefill ? PREDICT_PREFILL : PREDICT_PAIR;
    struct decision_alternative choice;
    for (size_t p = 0; p < prefills->count; p++) {
        const struct look *prefill = &prefills->looks[p];
        paired = false;
        for (size_t d = 0; d < decodes->count && !(paired && !all); d++) {
            const struct look *decode = &decodes->looks[d];
            if (!may_pair(s, decode->item.worker, prefill->item.worker->is.key))
                continue;
            const struct score *a = &prefill->score, *b = &decode->score;
            struct score score = {.avoided = a->avoided + b->avoided,
                                  .starting = a->starting + b->starting,
                                  .cost = {a->cost.first + b->cost.first,
                                           a->cost.second + b->cost.second,
                                           a->cost.third + b->cost.third},
                                  .work_tokens = a->work_tokens + b->work_tokens,
                                  .placed_at = a->placed_at + b->placed_at};
            if (joint)
                score.cost = policy_score(s->ask, way, &prefill->item, &decode->item, &choice);
            else
                choice = told(s, &score, prefill->item.ttft_us, decode->item.tpot_us);
            offer(s, prefill, decode, score, &choice);
            paired = true;
        }
    }
}

/* Offers decode workers that do it all: they read a handle, or compute the prompt too. `prefill`:
 * the best one of the pairs beside them, NULL: none. If it has failed or is new, so are they: that
 * moves no prompt. */
static void offer_alone(struct search *s, const struct shortlist *list, const struct look *prefill)
{
    enum predict_way way = s->handle ? PREDICT_READER : PREDICT_LOCAL;
    struct decision_alternative choice;
    for (size_t i = 0; i < list->count; i++) {
        const struct look *look = &list->looks[i];
        struct score score = look->score;
        if (prefill) { /* only costs tell it from pairs */
            score.avoided += prefill->score.avoided;
            score.starting += prefill->score.starting;
        }
        if (s->found && !s->request->decision && !better(&score, &s->score))
            break; /* the ones behind it are no better */
        if (policy_is_joint(s->ask))
            score.cost = policy_score(s->ask, way, NULL, &look->item, &choice);
        else
            choice = told(s, &score, look->item.ttft_us, look->item.tpot_us);
        offer(s, NULL, look, score, &choice);
    }
}

/* Pairs each decode worker on its own, as the shortlists hold none that fit each other. One that
 * may pair with all takes the best prefill worker; the others look at all. */
static void pair_singly(struct search *s, const struct candidate_kind *kind,
                        const struct shortlist *best)
{
    struct shortlist prefill = {.stage = POLICY_PREFILL, .most = 1},
                     decode = {.stage = POLICY_DECODE, .most = 1};
    for (size_t d = 0; d < kind->of[ROLE_DECODE].count; d++) {
        const struct candidate *worker = kind->of[ROLE_DECODE].items[d];
        decode.count = 0;
        if (!candidate_is_alone(worker))
            consider_decode(s, &decode, worker, s->request->ends_at_prefill);
        bool any = !worker->misfit_count && !worker->blocked_pairs;
        if (any)
            pair_up(s, best, &decode);
        for (size_t p = 0; !any && decode.count && p < kind->of[ROLE_PREFILL].count; p++) {
            prefill.count = 0;
            consider_prefill(s, &prefill, kind->of[ROLE_PREFILL].items[p]);
            pair_up(s, &prefill, &decode);
        }
    }
}

/* Looks for the best place on workers of one kind. */
static void search_kind(struct search *s, const struct candidate_kind *kind)
{
    const struct candidate_list *prefills = &kind->of[ROLE_PREFILL],
                                *decodes = &kind->of[ROLE_DECODE];
    bool joint = policy_is_joint(s->ask), few = false;
    bool none = s->request->local || !prefills->count, idle = s->request->ends_at_prefill;
    size_t most =
        s->rng && (policy_mixes(s->ask) || !policy_compares(s->ask)) ? ROUTE_BEST : ROUTE_EXACT;
    const struct candidate *worker;
    struct shortlist prefill = {.stage = POLICY_PREFILL, .most = most};
    for (struct looks looks = looks_at(s, prefills);
         !none && !s->handle && (worker = next_look(&looks));)
        consider_prefill(s, &prefill, worker);
    bool mixes =
        policy_mixes(s->ask) && !s->request->never_local && (joint || prefill.count || none);
    struct shortlist decode = {.stage = POLICY_DECODE, .most = most},
                     alone = {.stage = s->handle ? POLICY_DECODE : POLICY_ALONE,
                              .most = most,
                              .odd = !s->handle && !mixes};
    for (struct looks looks = looks_at(s, decodes); (worker = next_look(&looks));) {
        bool paired = !s->handle && !none && !(kind->misfit_count && candidate_is_alone(worker));
        if (s->handle && !may_pair(s, worker, s->handle->prefill))
            continue;
        if (paired)
            consider_decode(s, &decode, worker, idle);
        if (!paired || (mixes && (!looks.samples || looks.holds || idle)))
            consider_decode(s, &alone, worker, false);
        few |= mixes && paired && looks.samples && !idle;
    }
    for (size_t i = 0; few && i < decode.count; i++)
        consider_decode(s, &alone, decode.looks[i].item.worker, false);
    compare(s, &alone, &prefill);
    offer_alone(s, &alone, mixes && prefill.count ? &prefill.looks[0] : NULL);
    if (none || s->handle)
        return;
    compare(s, &prefill, NULL);
    if (!idle) /* otherwise all of them are equal */
        compare(s, &decode, NULL);
    pair_up(s, &prefill, &decode);
    if ((kind->misfit_count || kind->blocked_pairs) && !s->rng && !s->found)
        pair_singly(s, kind, &prefill);
}

/* --------------------------------------------------------------------- why none takes a request */

/* How prompts reach a decode worker: the prefill workers that fit it. */
struct reach {
    bool exists;       /* one fits */
    bool holds_prompt; /* and one of these is large enough */
    bool ready;        /* and one of these is ready, and not kept apart from it */
    /* The time since which all that are large enough have been away. UINT64_MAX: one is up, or none
     * exists. */
    uint64_t since_us;
};

/* `decode` NULL: of one that may pair with all. */
static struct reach reach_of(const struct search *s, const struct candidate_kind *kind,
                             const struct candidate *decode)
{
    struct reach reach = {.since_us = 0};
    const struct candidate_list *prefills = &kind->of[ROLE_PREFILL];
    for (size_t i = 0; i < prefills->count; i++) {
        const struct candidate *prefill = prefills->items[i];
        if (decode && candidate_misfits(decode, prefill->is.key))
            continue;
        reach.exists = true;
        if (s->request->prompt_tokens > prefill->is.capacity_tokens)
            continue;
        reach.holds_prompt = true;
        reach.ready |= is_ready(s, prefill) && (!decode || may_pair(s, decode, prefill->is.key));
        if (prefill->is.ready)
            reach.since_us = UINT64_MAX;
        else if (prefill->is.away_since_us > reach.since_us)
            reach.since_us = prefill->is.away_since_us;
    }
    if (!reach.holds_prompt)
        reach.since_us = UINT64_MAX;
    return reach;
}

/* `shared`: of those that may pair with all. */
static struct reach reach_at(const struct search *s, const struct candidate *decode,
                             struct reach shared)
{
    bool any = !decode->misfit_count && !decode->blocked_pairs;
    return any ? shared : reach_of(s, decode->kind, decode);
}

static void see(struct search *s, const struct candidate *decode, bool holds_prompt, bool ready)
{
    s->candidate = true;
    if (decode->is.capacity_tokens > s->most_tokens)
        s->most_tokens = decode->is.capacity_tokens;
    if (!holds_prompt || s->request->total_tokens > decode->is.capacity_tokens)
        return;
    s->fits = true;
    s->ready |= ready && is_ready(s, decode);
}

/* True: no prefill worker is needed for this decode worker, or none fits it. */
static bool is_alone(const struct search *s, const struct candidate *decode)
{
    return s->request->local || candidate_is_alone(decode);
}

static void see_kind(struct search *s, const struct candidate_kind *kind)
{
    const struct candidate_list *decodes = &kind->of[ROLE_DECODE];
    struct reach shared = reach_of(s, kind, NULL);
    for (size_t i = 0; i < decodes->count; i++) {
        const struct candidate *decode = decodes->items[i];
        struct reach reach = reach_at(s, decode, shared);
        bool alone = is_alone(s, decode);
        see(s, decode, alone || reach.holds_prompt, alone || reach.ready);
        if (!alone && decode->is.ready && reach.since_us < s->away_since_us)
            s->away_since_us = reach.since_us;
    }
}

/* Offers the decode workers of a kind that have lacked their prefill workers for long enough. */
static void search_away(struct search *s, const struct candidate_kind *kind)
{
    const struct candidate_list *decodes = &kind->of[ROLE_DECODE];
    struct reach shared = reach_of(s, kind, NULL);
    struct shortlist alone = {.stage = POLICY_ALONE, .most = ROUTE_EXACT};
    for (size_t i = 0; i < decodes->count; i++) {
        const struct candidate *decode = decodes->items[i];
        struct reach reach = reach_at(s, decode, shared);
        if (is_alone(s, decode) || reach.since_us > s->request->local_away_us)
            continue;
        see(s, decode, true, true);
        consider_decode(s, &alone, decode, false);
    }
    compare(s, &alone, NULL);
    offer_alone(s, &alone, NULL);
}

/* The obstacle of a ready decode worker that isn't full. */
static enum route_lack lack_of(const struct search *s, const struct candidate *decode,
                               struct reach shared)
{
    if (!of_kind(s->request, decode->kind))
        return ROUTE_LACKS_KIND;
    if (s->request->total_tokens > decode->is.capacity_tokens)
        return ROUTE_LACKS_SPACE;
    if (is_alone(s, decode))
        return ROUTE_LACKS_NOTHING;
    struct reach reach = reach_at(s, decode, shared);
    return reach.holds_prompt ? ROUTE_LACKS_PREFILL : ROUTE_LACKS_SPACE;
}

static enum route_lack least_lack(const struct search *s)
{
    enum route_lack least = ROUTE_LACKS_DECODE;
    for (size_t k = 0; k < s->pool->kind_count; k++) {
        const struct candidate_list *decodes = &s->pool->kinds[k]->of[ROLE_DECODE];
        struct reach shared = reach_of(s, s->pool->kinds[k], NULL);
        for (size_t i = 0; i < decodes->count && least < ROUTE_LACKS_PREFILL; i++) {
            if (!decodes->items[i]->is.ready)
                continue;
            enum route_lack lack = lack_of(s, decodes->items[i], shared);
            least = lack > least ? lack : least;
        }
    }
    return least;
}

/* ------------------------------------------------------------------------------------- requests */

static void each_kind(struct search *s,
                      void (*look)(struct search *, const struct candidate_kind *))
{
    for (size_t i = 0; i < s->pool->kind_count; i++)
        if (of_kind(s->request, s->pool->kinds[i]))
            look(s, s->pool->kinds[i]);
}

static struct route_choice choice_of(const struct search *s)
{
    if (s->found) {
        decision_choose(s->request->decision, &s->chosen,
                        s->ask->explores ? DECISION_EXPLORED : DECISION_LEAST);
        return (struct route_choice){.outcome = ROUTE_PLACED,
                                     .prefill = s->chosen.prefill,
                                     .decode = s->chosen.decode,
                                     .away_since_us = UINT64_MAX};
    }
    enum route_outcome outcome = ROUTE_NO_WORKER;
    if (s->ready)
        outcome = ROUTE_FULL;
    else if (s->candidate && !s->fits)
        outcome = ROUTE_TOO_LONG;
    return (struct route_choice){
        .outcome = outcome, .away_since_us = s->away_since_us, .most_tokens = s->most_tokens};
}

/* True: some list is too long to be searched whole each time. */
static bool is_large(const struct candidate_pool *pool)
{
    for (size_t i = 0; i < pool->kind_count; i++)
        if (pool->kinds[i]->of[ROLE_PREFILL].count > ROUTE_EXACT ||
            pool->kinds[i]->of[ROLE_DECODE].count > ROUTE_EXACT)
            return true;
    return false;
}

/* Searches among all. */
static struct route_choice request_exactly(struct search s)
{
    s.away_since_us = UINT64_MAX;
    each_kind(&s, search_kind);
    if (s.found)
        return choice_of(&s);
    each_kind(&s, see_kind);
    if (!s.ready && s.request->local_away_us)
        each_kind(&s, search_away);
    struct route_choice choice = choice_of(&s);
    if (choice.outcome == ROUTE_NO_WORKER)
        choice.lack = least_lack(&s);
    return choice;
}

struct route_choice route_request(const struct candidates *candidates, size_t model,
                                  const struct route_request *request, struct rng *rng)
{
    struct search s = search_of(candidates, model, request, rng);
    if (rng && is_large(s.pool)) {
        struct search sampled = s;
        sampled.rng = rng;
        each_kind(&sampled, search_kind);
        if (sampled.found)
            return choice_of(&sampled);
    }
    struct route_choice choice = request_exactly(s);
    if (choice.outcome == ROUTE_NO_WORKER && !s.with_blocked) {
        s.with_blocked = true;
        choice = request_exactly(s);
    }
    return choice;
}

/* ---------------------------------------------------------------------------------- of a handle */

/* Decode workers that are ready, by what keeps them from the handle. */
struct strangers {
    bool misfit, other, small;
    bool begins; /* one of another kind could begin the request again */
};

static struct strangers see_readers(struct search *s)
{
    struct strangers seen = {0};
    for (size_t k = 0; k < s->pool->kind_count; k++) {
        const struct candidate_kind *kind = s->pool->kinds[k];
        const struct candidate_list *decodes = &kind->of[ROLE_DECODE];
        for (size_t i = 0; i < decodes->count; i++) {
            const struct candidate *decode = decodes->items[i];
            if (!holds(kind, s->handle)) {
                seen.other |= decode->is.ready;
                seen.begins |= decode->is.ready && of_kind(s->request, kind) &&
                               s->request->total_tokens <= decode->is.capacity_tokens;
            } else if (candidate_misfits(decode, s->handle->prefill)) {
                seen.misfit |= decode->is.ready;
            } else {
                seen.small |= decode->is.ready; /* used only if none takes it and none is full */
                see(s, decode, true, may_pair(s, decode, s->handle->prefill));
            }
        }
    }
    return seen;
}

static void search_readers(struct search *s)
{
    for (size_t k = 0; k < s->pool->kind_count; k++)
        if (holds(s->pool->kinds[k], s->handle))
            search_kind(s, s->pool->kinds[k]);
}

static struct route_choice handle_exactly(struct search s)
{
    s.away_since_us = UINT64_MAX;
    search_readers(&s);
    if (s.found)
        return choice_of(&s);
    struct strangers seen = see_readers(&s);
    struct route_choice choice = choice_of(&s);
    bool useless = seen.misfit || seen.begins || (seen.other && !s.candidate);
    if (choice.outcome == ROUTE_NO_WORKER && useless)
        choice.outcome = ROUTE_NO_READER;
    if (choice.outcome == ROUTE_NO_WORKER)
        choice.lack = seen.small   ? ROUTE_LACKS_SPACE
                      : seen.other ? ROUTE_LACKS_FIT
                                   : ROUTE_LACKS_DECODE;
    return choice;
}

struct route_choice route_handle(const struct candidates *candidates, size_t model,
                                 const struct route_request *request,
                                 const struct route_handle *handle, struct rng *rng)
{
    struct search s = search_of(candidates, model, request, rng);
    s.handle = handle;
    if (rng && is_large(s.pool)) {
        struct search sampled = s;
        sampled.rng = rng;
        search_readers(&sampled);
        if (sampled.found)
            return choice_of(&sampled);
    }
    struct route_choice choice = handle_exactly(s);
    if (choice.outcome != ROUTE_PLACED && choice.outcome != ROUTE_FULL && !s.with_blocked) {
        s.with_blocked = true;
        choice = handle_exactly(s);
    }
    return choice;
}

/* ----------------------------------------------------------------------------------------- room */

/* How well a request can reach a decode worker. */
enum reached {
    UNREACHED,
    BY_AWAY, /* its matching prefill workers are away */
    BY_NONE, /* no prefill worker fits it, though its model has some */
    REACHED, /* one is ready, or none is needed */
    REACHED_COUNT,
};

/* All decode workers of a kind without misfits. */
static enum reached reached_kind(const struct candidate_pool *pool,
                                 const struct candidate_kind *kind,
                                 const struct route_request *request)
{
    if (request->local || !pool->roles[ROLE_PREFILL].known)
        return REACHED;
    if (!kind->of[ROLE_PREFILL].count)
        return BY_NONE;
    if (kind->most_ready_prefill_tokens >= request->prompt_tokens)
        return REACHED;
    return kind->most_prefill_tokens >= request->prompt_tokens ? BY_AWAY : UNREACHED;
}

static enum reached reached_one(const struct candidate *decode, const struct route_request *request)
{
    const struct candidate_list *prefills = &decode->kind->of[ROLE_PREFILL];
    if (request->local)
        return REACHED;
    if (candidate_is_alone(decode))
        return BY_NONE;
    enum reached most = UNREACHED;
    for (size_t p = 0; most < REACHED && p < prefills->count; p++) {
        const struct route_worker *prefill = &prefills->items[p]->is;
        if (!candidate_misfits(decode, prefill->key) &&
            request->prompt_tokens <= prefill->capacity_tokens)
            most = prefill->ready ? REACHED : BY_AWAY;
    }
    return most;
}

/* Enters the room on each ready decode worker of the kind. */
static void room_of_each(const struct candidate_kind *kind, const struct route_request *request,
                         const struct route_handle *handle, uint64_t rooms[REACHED_COUNT])
{
    const struct candidate_list *decodes = &kind->of[ROLE_DECODE];
    for (size_t d = 0; d < decodes->count; d++) {
        const struct candidate *decode = decodes->items[d];
        uint64_t tokens = decode->is.capacity_tokens;
        if (!decode->is.ready || tokens < request->total_tokens)
            continue;
        enum reached reached = !handle ? reached_one(decode, request)
                               : candidate_misfits(decode, handle->prefill) ? UNREACHED
                                                                            : REACHED;
        if (tokens > rooms[reached])
            rooms[reached] = tokens;
    }
}

uint64_t route_room(const struct candidates *candidates, size_t model,
                    const struct route_request *request, const struct route_handle *handle)
{
    const struct candidate_pool *pool = &candidates->pools[model];
    uint64_t rooms[REACHED_COUNT] = {0};
    for (size_t k = 0; k < pool->kind_count; k++) {
        struct candidate_kind *kind = pool->kinds[k];
        if (!of_kind(request, kind) || (handle && !holds(kind, handle)))
            continue;
        if (kind->misfit_count) {
            room_of_each(kind, request, handle, rooms);
            continue;
        }
        candidate_kind_refresh(kind);
        uint64_t tokens = kind->most_ready_decode_tokens;
        enum reached reached = handle ? REACHED : reached_kind(pool, kind, request);
        if (tokens >= request->total_tokens && tokens > rooms[reached])
            rooms[reached] = tokens;
    }
    return rooms[REACHED] ? rooms[REACHED] : rooms[BY_NONE] ? rooms[BY_NONE] : rooms[BY_AWAY];
}
