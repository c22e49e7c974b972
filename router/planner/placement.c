#include "router/planner/placement.h"

#include "common/base/assert.h"
#include "router/planner/deadline_estimate.h"

#include <math.h>
#include <stdlib.h>

/* A queue without placements for so long has no pace. */
#define STALE_US 60000000
/* The pace while others wait follows the last ones of about so many. */
#define PACE_PLACEMENTS 16
/* A deadline within so many times the likely time is in doubt. */
#define DOUBT_PART   8
#define LEARN_TOKENS 8 /* shorter answers don't tell the time of a token */

enum status placement_init(struct placement *placement, const struct placement_config *config)
{
    *placement = (struct placement){.config = *config, .rng = rng_seeded(config->seed)};
    TAILQ_INIT(&placement->all);
    enum status status = candidates_init(&placement->candidates, config->model_count);
    if (status == STATUS_OK)
        status = answer_lengths_create(config->model_count, &placement->answer_lengths);
    if (status == STATUS_OK && config->prefix_limit)
        status = prefix_index_create(config->prefix_limit, config->seed, &placement->prefix_index);
    for (size_t i = 0; i < config->model_count && status == STATUS_OK; i++) {
        struct placement_queue *queue = &placement->queues[i];
        TAILQ_INIT(&queue->regiving);
        TAILQ_INIT(&queue->again);
        TAILQ_INIT(&queue->late);
        for (uint32_t rank = 0; rank < PRIORITIES; rank++) {
            TAILQ_INIT(&queue->tenants[rank]);
            TAILQ_INIT(&queue->shared[rank].requests);
        }
        status = map_create(PLACEMENT_MAX_TENANTS, &queue->by_key);
        if (status == STATUS_OK)
            status = map_create(PLACEMENT_MAX_TENANTS, &queue->here);
    }
    if (status != STATUS_OK)
        placement_deinit(placement);
    return status;
}

void placement_deinit(struct placement *placement)
{
    for (size_t i = 0; i < placement->config.model_count; i++) {
        map_destroy(placement->queues[i].by_key);
        map_destroy(placement->queues[i].here);
    }
    candidates_deinit(&placement->candidates);
    prefix_index_destroy(placement->prefix_index);
    answer_lengths_destroy(placement->answer_lengths);
}

/* ------------------------------------------------------------------------------------ the queue */

/* High comes before normal, normal before offline, and late ones come last. */
static uint32_t rank_of(const struct placement_request *request)
{
    static const uint32_t ranks[PRIORITIES] = {
        [PRIORITY_HIGH] = 0, [PRIORITY_NORMAL] = 1, [PRIORITY_OFFLINE] = 2};
    return request->late ? PLACEMENT_RANKS - 1 : ranks[request->priority];
}

/* Returns the turn of the tenant in this rank, at the end of all if it is new. */
static struct placement_tenant *tenant_of(struct placement_queue *queue, uint64_t key,
                                          uint32_t rank)
{
    key = key * PLACEMENT_RANKS + rank; /* tenants that meet so share a turn */
    struct placement_tenant *tenant = map_get(queue->by_key, key);
    if (tenant)
        return tenant;
    tenant = calloc(1, sizeof *tenant);
    if (tenant && map_put(queue->by_key, key, tenant) != STATUS_OK) {
        free(tenant);
        tenant = NULL;
    }
    if (!tenant)
        tenant = &queue->shared[rank];
    else
        TAILQ_INIT(&tenant->requests);
    tenant->key = key;
    tenant->rank = rank;
    if (!tenant->count)
        TAILQ_INSERT_TAIL(&queue->tenants[rank], tenant, link);
    return tenant;
}

/* Inserts it by the time that it is due, or by arrival, behind all of the same. Most come last. */
static void insert(struct placement_requests *list, struct placement_request *request,
                   bool by_slack)
{
    struct placement_request *before = TAILQ_LAST(list, placement_requests);
    while (before && (by_slack ? before->due_us > request->due_us : before->order > request->order))
        before = TAILQ_PREV(before, placement_requests, waiting_link);
    if (before)
        TAILQ_INSERT_AFTER(list, before, request, waiting_link);
    else
        TAILQ_INSERT_HEAD(list, request, waiting_link);
}

void placement_wait(struct placement *placement, struct placement_request *request,
                    enum placement_turn turn, uint64_t now_us)
{
    struct placement_queue *queue = &placement->queues[request->model];
    ASSERT(!request->waiting);
    request->waiting = true;
    request->lacks = request->late = request->held = false;
    placement->pass.joined = true;
    request->heard = queue->heard = 0;
    request->turn = turn;
    request->since_us = now_us;
    if (!queue->count)
        queue->backlog_us = 0; /* the time in which none waited is no pace */
    queue->count++;
    placement->waiting++;
    if (turn == PLACEMENT_REGIVE) {
        TAILQ_INSERT_TAIL(&queue->regiving, request, waiting_link);
    } else if (turn == PLACEMENT_AGAIN) {
        insert(&queue->again, request, false);
    } else {
        uint32_t rank = rank_of(request);
        request->in = tenant_of(queue, request->tenant, rank);
        request->in->count++;
        queue->ranks[rank]++;
        insert(&request->in->requests, request, true);
    }
}

static void set_lacks(struct placement_queue *queue, struct placement_request *request, bool lacks)
{
    queue->lacking += lacks;
    queue->lacking -= request->lacks;
    request->lacks = lacks;
}

static void leave_tenant(struct placement *placement, struct placement_queue *queue,
                         struct placement_request *request)
{
    struct placement_tenant *tenant = request->in;
    if (tenant->next == request)
        tenant->next = TAILQ_NEXT(request, waiting_link);
    TAILQ_REMOVE(&tenant->requests, request, waiting_link);
    request->in = NULL;
    if (--tenant->count)
        return;
    if (placement->pass.tenant == tenant)
        placement->pass.tenant = TAILQ_NEXT(tenant, link);
    if (placement->pass.chosen == tenant)
        placement->pass.chosen = NULL;
    TAILQ_REMOVE(&queue->tenants[tenant->rank], tenant, link);
    if (tenant != &queue->shared[tenant->rank])
        free(map_take(queue->by_key, tenant->key));
}

void placement_stop_waiting(struct placement *placement, struct placement_request *request)
{
    struct placement_queue *queue = &placement->queues[request->model];
    if (!request->waiting)
        return;
    request->waiting = false;
    set_lacks(queue, request, false);
    queue->count--;
    queue->held -= request->held;
    placement->waiting--;
    if (request->turn == PLACEMENT_NEW)
        queue->ranks[rank_of(request)]--;
    if (placement->pass.next == request)
        placement->pass.next = TAILQ_NEXT(request, waiting_link);
    if (request->in)
        leave_tenant(placement, queue, request);
    else if (request->turn == PLACEMENT_NEW)
        TAILQ_REMOVE(&queue->late, request, waiting_link);
    else if (request->turn == PLACEMENT_AGAIN)
        TAILQ_REMOVE(&queue->again, request, waiting_link);
    else
        TAILQ_REMOVE(&queue->regiving, request, waiting_link);
}

/* --------------------------------------------------------------------------------------- a pass */

void placement_begin(struct placement *placement, size_t model, uint64_t now_us)
{
    struct candidates *candidates = &placement->candidates;
    candidates->version += candidates->blocked_until_us != 0; /* a block may end without an event */
    if (candidates->blocked_until_us <= now_us)
        candidates->blocked_until_us = 0;
    placement->pass =
        (struct placement_pass){.number = placement->pass.number + 1,
                                .now_us = now_us,
                                .model = model,
                                .facts = candidates->facts_version,
                                .turn = PLACEMENT_REGIVE,
                                .next = TAILQ_FIRST(&placement->queues[model].regiving)};
    if (placement->prefix_index)
        prefix_index_expire(placement->prefix_index, now_us);
}

/* Takes a new request out of its tenant's turn. The last one ends the tenant. */
static void retire(struct placement *placement, struct placement_request *request)
{
    struct placement_queue *queue = &placement->queues[request->model];
    queue->ranks[rank_of(request)]--;
    leave_tenant(placement, queue, request);
    request->late = true;
    queue->ranks[rank_of(request)]++;
    insert(&queue->late, request, false);
}

/* Takes the tenant's late requests out of its turn. The tenant may be gone then. */
static void retire_late(struct placement *placement, struct placement_tenant *tenant)
{
    struct placement_request *request, *next;
    for (request = TAILQ_FIRST(&tenant->requests);
         request && request->due_us < placement->pass.now_us; request = next) {
        next = TAILQ_NEXT(request, waiting_link);
        if (request->has_ttft)
            retire(placement, request);
    }
}

void placement_hold(struct placement *placement, struct placement_request *request)
{
    ASSERT(request->waiting && request->turn == PLACEMENT_NEW);
    placement->pass.chosen = NULL;
    struct placement_queue *queue = &placement->queues[request->model];
    if (!request->late) {
        retire(placement, request);
        request->held = true;
        queue->held++;
        return;
    }
    placement->pass.late_tries = PLACEMENT_LATE_TRIES; /* no worker has room for late ones */
    if (!queue->held_us)
        queue->held_us = placement->pass.now_us;
}

bool placement_may_hold(const struct placement *placement, const struct placement_request *request)
{
    uint32_t most = placement->config.held_limit;
    return request->late || !most || placement->queues[request->model].held < most;
}

bool placement_is_owed(const struct placement *placement)
{
    return placement->pass.turn == PLACEMENT_FLOOR;
}

/* Returns the next new request in the turns of the tenants. A tenant keeps its turn until one of
 * its requests is placed. */
static struct placement_request *next_new(struct placement *placement)
{
    struct placement_pass *pass = &placement->pass;
    while (pass->tenant) {
        struct placement_tenant *tenant = pass->tenant;
        if (tenant->pass != pass->number) {
            tenant->pass = pass->number;
            retire_late(placement, tenant);
            if (pass->tenant != tenant)
                continue; /* it is gone */
            tenant->next = TAILQ_FIRST(&tenant->requests);
        }
        struct placement_request *request = tenant->next;
        if (!request) {
            pass->tenant = TAILQ_NEXT(tenant, link);
            continue;
        }
        tenant->next = TAILQ_NEXT(request, waiting_link);
        return request;
    }
    return NULL;
}

/* Returns a request of the last rank below `end` that was passed over too often, or while late ones
 * were held and none was placed for long: a wrong belief must not stop all. NULL: none was. */
static struct placement_request *owed(const struct placement_queue *queue, uint32_t end,
                                      uint64_t now_us)
{
    uint32_t rank = end - 1;
    bool idle = queue->held_us && now_us - queue->held_us >= PLACEMENT_OVERTAKE_US;
    while (rank &&
           (!queue->ranks[rank] || (queue->passed[rank] < PLACEMENT_FLOOR_EVERY - 1 && !idle)))
        rank--;
    if (!rank)
        return NULL;
    if (rank == PLACEMENT_RANKS - 1)
        return TAILQ_FIRST(&queue->late);
    const struct placement_tenant *tenant = TAILQ_FIRST(&queue->tenants[rank]);
    return tenant ? TAILQ_FIRST(&tenant->requests) : NULL;
}

/* Goes on to the next turn of the pass. False: it was the last one. */
static bool next_turn(struct placement_pass *pass, const struct placement_queue *queue)
{
    switch (pass->turn) {
    case PLACEMENT_REGIVE:
        pass->turn = PLACEMENT_AGAIN;
        pass->next = TAILQ_FIRST(&queue->again);
        return true;
    case PLACEMENT_AGAIN:
        pass->turn = PLACEMENT_FLOOR;
        pass->next = owed(queue, PLACEMENT_RANKS, pass->now_us);
        return true;
    case PLACEMENT_FLOOR:
        pass->turn = PLACEMENT_NEW;
        pass->rank = 0;
        pass->tenant = TAILQ_FIRST(&queue->tenants[0]);
        return true;
    case PLACEMENT_NEW:
        if (++pass->rank < PRIORITIES) {
            pass->tenant = TAILQ_FIRST(&queue->tenants[pass->rank]);
            return true;
        }
        pass->turn = PLACEMENT_LATE;
        pass->next = TAILQ_FIRST(&queue->late);
        return true;
    case PLACEMENT_LATE: break;
    }
    return false;
}

static struct placement_request *next_of_pass(struct placement *placement)
{
    struct placement_pass *pass = &placement->pass;
    const struct placement_queue *queue = &placement->queues[pass->model];
    struct placement_request *request = NULL;
    do {
        request = pass->turn == PLACEMENT_NEW ? next_new(placement) : pass->next;
        if (request && pass->turn != PLACEMENT_NEW)
            pass->next = pass->turn == PLACEMENT_FLOOR ? NULL : TAILQ_NEXT(request, waiting_link);
    } while (!request && next_turn(pass, queue));
    return request;
}

/* True: a request holds the place of all that come after it in this turn. */
static bool is_stopped(const struct placement_pass *pass)
{
    return pass->stopped ||
           (pass->turn == PLACEMENT_LATE && pass->late_tries >= PLACEMENT_LATE_TRIES);
}

struct placement_request *placement_next(struct placement *placement)
{
    struct placement_pass *pass = &placement->pass;
    struct placement_queue *queue = &placement->queues[pass->model];
    struct placement_request *request = NULL;
    do { /* the life of each must hear whether it lacks a worker, though its turn doesn't come */
        if (is_stopped(pass) && !queue->lacking && queue->heard == pass->facts)
            return NULL;
        request = next_of_pass(placement);
    } while (request && is_stopped(pass) && !request->lacks && request->heard == pass->facts);
    if (request)
        pass->unheard += request->heard != pass->facts;
    else if (!pass->joined && !pass->unheard)
        queue->heard = pass->facts;
    return request;
}

/* The tenant has had its turn: it is the last one now. */
static void end_turn(struct placement *placement, struct placement_tenant *tenant)
{
    struct placement_pass *pass = &placement->pass;
    struct placement_tenants *tenants = &placement->queues[pass->model].tenants[tenant->rank];
    struct placement_tenant *next = TAILQ_NEXT(tenant, link);
    if (!next)
        return; /* it is the last one, and goes on */
    TAILQ_REMOVE(tenants, tenant, link);
    TAILQ_INSERT_TAIL(tenants, tenant, link);
    if (pass->tenant == tenant)
        pass->tenant = next;
}

/* True: all workers are too full for it if they are for one that needs no more. */
static bool can_compare(const struct placement_ask *ask)
{
    return !ask->handle && !ask->request.ends_at_prefill && !ask->request.kind;
}

/* True: one that needs no more than this one was too large, and nothing has changed since. */
static bool is_known_full(const struct placement *placement, const struct placement_full *full,
                          const struct placement_request *request, const struct placement_ask *ask,
                          uint64_t total_tokens)
{
    return request->heard == placement->candidates.facts_version && !request->lacks &&
           can_compare(ask) && full->version == placement->candidates.version &&
           ask->request.prompt_tokens >= full->prompt_tokens &&
           total_tokens >= full->total_tokens &&
           (!full->deadline_us || (ask->deadline_us && ask->deadline_us < full->deadline_us));
}

static void note_full(struct placement *placement, struct placement_full *full,
                      const struct placement_request *request, const struct placement_ask *ask,
                      uint64_t total_tokens)
{
    bool old = full->version != placement->candidates.version;
    if (!can_compare(ask) || (!old && ask->request.prompt_tokens > full->prompt_tokens))
        return;
    full->version = placement->candidates.version;
    full->prompt_tokens = ask->request.prompt_tokens;
    full->total_tokens = total_tokens;
    full->deadline_us = 0;
    if (full == &placement->queues[request->model].early)
        full->deadline_us =
            placement->pass.now_us + (uint64_t)fmin(DOUBT_PART * request->likely_us, 1e18);
}

static void fill_in(const struct placement *placement, struct route_request *request,
                    uint64_t now_us)
{
    uint64_t local_us = placement->config.local_us;
    request->local = placement->config.force_local;
    request->never_local = local_us == UINT64_MAX;
    request->local_away_us = now_us > local_us ? now_us - local_us : 0;
    request->now_us = now_us;
}

/* All that the policy knows of a request. */
struct asked {
    struct policy_ask policy;
    struct goodput_request request;
    struct goodput_pool pool;
    struct prefix_holder holders[ROUTE_EXACT];
};

static void ask_policy(struct placement *placement, const struct placement_request *request,
                       const struct placement_ask *ask, struct asked *asked)
{
    const struct placement_config *config = &placement->config;
    const struct candidate_pool *pool = &placement->candidates.pools[request->model];
    const struct goodput_class *slo = ask->slo_class < SLO_MAX_CLASSES
                                          ? &placement->classes[request->model][ask->slo_class]
                                          : NULL;
    double weight =
        slo ? (double)placement_weight(placement, request->model, ask->slo_class, ask->percentile) /
                  BOOKS_WEIGHT_ONE
            : 1;
    *asked = (struct asked){
        .policy =
            {
                .policy = config->policy,
                .tuning = config->tuning,
                .has_classes = config->has_classes,
                .prompt_tokens = ask->request.prompt_tokens,
                .goodput = &config->goodput,
                .pool = &asked->pool,
                .request = ask->predict.answer_tokens >= 1 ? &asked->request : NULL,
                .holder = ask->handle ? candidates_get(&placement->candidates, ask->handle->prefill)
                                      : NULL,
                .ready_us = ask->ready_us,
            },
        .request = {.is = ask->predict, .slo = slo, .weight = weight},
        .pool = {.demand = &placement->demands[request->model],
                 .prefills = pool->roles[ROLE_PREFILL].up,
                 .decodes = pool->roles[ROLE_DECODE].up,
                 .now_us = placement->pass.now_us}};
    if (slo && !request->heard && request->turn == PLACEMENT_NEW && asked->policy.request)
        goodput_arrived(&placement->demands[request->model], &ask->predict, weight,
                        placement->pass.now_us);
    if (config->policy == PLACEMENT_GOODPUT && rng_unit(&placement->rng) < POLICY_EXPLORE) {
        asked->policy.policy = PLACEMENT_ROUND_ROBIN;
        asked->policy.explores = true;
    }
    if (placement->prefix_index && ask->prefix_kind_count) {
        struct policy_ask *policy = &asked->policy;
        policy->holder_count =
            prefix_index_match(placement->prefix_index, ask->prefixes, ask->prefix_kind_count,
                               asked->holders, ROUTE_EXACT);
        policy->holders = asked->holders;
        policy->prefixes = placement->prefix_index;
        policy->names = ask->prefixes;
        policy->name_kinds = ask->prefix_kind_count;
    }
}

/* Notes what is to be expected of a place for a prompt, and what of the reader that it is bound to
 * in the end: errors are those of the last choice. */
static void note_prediction(const struct placement *placement, struct placement_request *request,
                            const struct placement_ask *ask, const struct asked *asked,
                            const struct route_choice *choice)
{
    const struct policy_ask *policy = &asked->policy;
    uint64_t computes = choice->prefill ? choice->prefill : choice->decode;
    struct predict_choice place = {
        .way = ask->handle       ? PREDICT_READER
               : choice->prefill ? PREDICT_PAIR
                                 : PREDICT_LOCAL,
        .prefill =
            ask->handle ? policy->holder : candidates_get(&placement->candidates, choice->prefill),
        .decode = candidates_get(&placement->candidates, choice->decode),
        .cached_tokens = policy->prefixes ? prefix_index_tokens(policy->prefixes, computes) : 0,
        .ready_us = ask->ready_us};
    struct prediction is;
    if (!policy->request)
        return;
    predict(&policy->request->is, &place, COST_P50, &is);
    if (ask->handle) {
        request->predicted.tpot_us = is.tpot_us;
        return;
    }
    request->predicted = is;
    request->cached_tokens = place.cached_tokens;
    request->hopeless = asked->request.slo == NULL || goodput_is_late(&policy->request->is);
    double tokens = ask->likely_tokens > 1 ? ask->likely_tokens : 1;
    request->chosen_us = placement->pass.now_us;
    request->times = predict_times(&policy->request->is, &place, &request->predicted, tokens);
    request->answer_us = predict_times_answer_us(&request->times, tokens) *
                         predict_error_median(&placement->errors[request->model].answer);
    request->likely_us =
        request->answer_us +
        request->times.prompt_us * predict_error_median(&placement->errors[request->model].prompt);
    if (!is.known)
        request->answer_us = 0; /* a guess makes no prompt wait for others */
}

enum deadline_verdict { DEADLINE_FITS, DEADLINE_TOO_EARLY, DEADLINE_BEHIND, DEADLINE_HOPELESS };

/* Judges the place of a new request: HOPELESS there, by the fault of others, TOO_EARLY for its
 * prompt, or BEHIND one for which it is that. It FITS if the costs of its workers are a guess. */
static enum deadline_verdict judge_deadline(const struct placement *placement,
                                            const struct placement_request *request,
                                            const struct placement_ask *ask)
{
    const struct predict_times *times = &request->times;
    uint64_t now_us = placement->pass.now_us;
    double plain_us = times->prompt_us + predict_times_answer_us(times, ask->likely_tokens);
    double ahead_us = times->prompt_us + PLACEMENT_AHEAD_US;
    if (request->turn != PLACEMENT_NEW || !request->predicted.known)
        return DEADLINE_FITS;
    if (placement->pass.early && !ask->request.ends_at_prefill &&
        fmax(request->predicted.room_us, times->room_us) > ahead_us)
        return DEADLINE_BEHIND;
    if (ask->deadline_us == UINT64_MAX || ask->deadline_us <= now_us)
        return DEADLINE_FITS;
    double left_us = (double)(ask->deadline_us - now_us);
    if (deadline_is_unlikely(left_us, request->likely_us,
                             times->alone_us * request->likely_us / plain_us))
        return DEADLINE_HOPELESS;
    bool in_doubt = DOUBT_PART * request->likely_us > left_us;
    return in_doubt && times->room_us > ahead_us ? DEADLINE_TOO_EARLY : DEADLINE_FITS;
}

/* It waits behind all that are in time. */
static void hold_back(struct placement *placement, struct placement_request *request)
{
    struct placement_queue *queue = &placement->queues[request->model];
    struct placement_pass *pass = &placement->pass;
    if (pass->next == request)
        pass->next = TAILQ_NEXT(request, waiting_link);
    if (pass->turn == PLACEMENT_FLOOR) /* its rank's turn is for nothing: another may be owed one */
        pass->next = owed(queue, rank_of(request), pass->now_us);
    queue->ranks[rank_of(request)]--;
    if (request->in)
        leave_tenant(placement, queue, request);
    else
        TAILQ_REMOVE(&queue->late, request, waiting_link);
    pass->late_tries += request->late;
    request->late = true;
    queue->ranks[rank_of(request)]++;
    TAILQ_INSERT_TAIL(&queue->late, request, waiting_link);
}

struct route_choice placement_choose(struct placement *placement, struct placement_request *request,
                                     const struct placement_ask *ask, uint64_t *placed_tokens)
{
    const struct candidates *candidates = &placement->candidates;
    struct placement_pass *pass = &placement->pass;
    struct route_request asked = ask->request;
    struct route_choice choice = {.outcome = ROUTE_FULL, .away_since_us = UINT64_MAX};
    struct asked policy;
    request->prefixes = ask->prefixes;
    request->prefix_kind_count = ask->prefix_kind_count;
    fill_in(placement, &asked, pass->now_us);
    if (ask->most_tokens) {
        uint64_t room = route_room(candidates, request->model, &asked, ask->handle);
        if (room) /* otherwise the sentence says what it lacks */
            asked.total_tokens = room < ask->most_tokens ? room : ask->most_tokens;
    }
    *placed_tokens = asked.total_tokens;
    struct placement_full *full = &placement->queues[request->model].full;
    struct placement_full *held = request->in ? &request->in->held : NULL;
    asked.tenant = request->tenant;
    asked.leaves_share = !ask->handle && placement_has_others(placement, request);
    bool is_held = asked.leaves_share && held &&
                   is_known_full(placement, held, request, ask, asked.total_tokens);
    struct placement_full *early = &placement->queues[request->model].early;
    bool known = is_held || is_known_full(placement, full, request, ask, asked.total_tokens);
    bool is_early = !known && is_known_full(placement, early, request, ask, asked.total_tokens);
    known |= is_early;
    if (!known) {
        ask_policy(placement, request, ask, &policy);
        asked.policy = &policy.policy;
        choice = ask->handle ? route_handle(candidates, request->model, &asked, ask->handle,
                                            &placement->rng)
                             : route_request(candidates, request->model, &asked, &placement->rng);
    }
    bool turned = !is_stopped(pass) || request->turn == PLACEMENT_REGIVE;
    if (choice.outcome == ROUTE_PLACED && !turned) /* it hears that there are workers, and waits */
        choice = (struct route_choice){.outcome = ROUTE_FULL, .away_since_us = UINT64_MAX};
    if (choice.outcome == ROUTE_FULL && !known && turned && asked.leaves_share) {
        asked.leaves_share = false;
        asked.decision = NULL;
        is_held = route_request(candidates, request->model, &asked, &placement->rng).outcome ==
                  ROUTE_PLACED;
        full = is_held ? held : full;
    }
    pass->unheard -= request->heard != pass->facts;
    request->heard = pass->facts;
    set_lacks(&placement->queues[request->model], request, choice.outcome == ROUTE_NO_WORKER);
    if (choice.outcome == ROUTE_PLACED && (!ask->handle || ask->ready_us > 0))
        note_prediction(placement, request, ask, &policy, &choice);
    if (choice.outcome == ROUTE_PLACED && !ask->handle) {
        enum deadline_verdict verdict = judge_deadline(placement, request, ask);
        if (verdict != DEADLINE_FITS)
            choice = (struct route_choice){.outcome = ROUTE_FULL, .away_since_us = UINT64_MAX};
        is_early = verdict == DEADLINE_TOO_EARLY;
        full = is_early ? early : full; /* others find room */
        if (verdict == DEADLINE_HOPELESS)
            hold_back(placement, request);
        if (verdict == DEADLINE_BEHIND)
            pass->stopped |= ++pass->behind >= PLACEMENT_LATE_TRIES;
        if (verdict == DEADLINE_HOPELESS || verdict == DEADLINE_BEHIND)
            return choice;
    }
    pass->chosen = choice.outcome == ROUTE_PLACED ? request->in : NULL;
    if (choice.outcome == ROUTE_FULL && !known && turned && full)
        note_full(placement, full, request, ask, asked.total_tokens);
    /* An answer that has begun leaves workers of other kinds to others: it holds no place there. */
    bool holds = !ask->request.kind || candidates->pools[request->model].kind_count == 1;
    if (choice.outcome == ROUTE_FULL && request->turn != PLACEMENT_REGIVE && holds && !is_held &&
        pass->now_us - request->since_us >= PLACEMENT_OVERTAKE_US)
        *(is_early ? &pass->early : &pass->stopped) = true;
    return choice;
}

void placement_placed(struct placement *placement, const struct placement_request *request,
                      uint64_t prefill, uint64_t decode)
{
    struct placement_queue *queue = &placement->queues[request->model];
    const struct prediction *predicted = &request->predicted;
    const uint64_t keys[] = {prefill, decode};
    double prefill_us = prefill ? fmin(predicted->prefill_us, predicted->device_us) : 0;
    const double device_us[] = {prefill_us, predicted->device_us - prefill_us};
    placement->placements++;
    for (int i = 0; i < 2; i++) {
        struct candidate *worker = candidates_get(&placement->candidates, keys[i]);
        if (!worker)
            continue;
        bool guess = i && prefill && placement->config.binds_late;
        worker->is.placed_at = guess ? worker->is.placed_at : placement->placements;
        if (request->turn != PLACEMENT_REGIVE)
            goodput_floor_note(&worker->floor, device_us[i], request->hopeless);
    }
    if (request->turn == PLACEMENT_REGIVE)
        return; /* it had its turn before: it is no pace */
    uint64_t now_us = placement->pass.now_us;
    queue->held_us = 0;
    queue->recent_us[queue->placed++ % PLACEMENT_RECENT] = now_us;
    if (queue->backlog_us) {
        double gap_us = (double)(now_us - queue->backlog_us);
        queue->pace_us += (gap_us - queue->pace_us) / (queue->pace_us > 0 ? PACE_PLACEMENTS : 1);
    }
    queue->backlog_us = now_us;
    if (request->turn != PLACEMENT_NEW)
        return;
    if (placement->pass.chosen)
        end_turn(placement, placement->pass.chosen);
    placement->pass.chosen = NULL;
    uint32_t rank = rank_of(request);
    queue->passed[rank] = 0;
    while (++rank < PLACEMENT_RANKS)
        queue->passed[rank] = queue->ranks[rank] ? queue->passed[rank] + 1 : 0;
}

void placement_learn_times(struct placement *placement, const struct placement_request *request,
                           uint64_t first_us, uint64_t last_us, uint32_t tokens)
{
    if (!request->predicted.known || first_us <= request->chosen_us)
        return;
    predict_error_learn(&placement->errors[request->model].prompt, request->times.prompt_us,
                        (double)(first_us - request->chosen_us));
    if (tokens >= LEARN_TOKENS)
        predict_error_learn(&placement->errors[request->model].answer,
                            predict_times_answer_us(&request->times, tokens),
                            (double)(last_us - first_us));
}

/* --------------------------------------------------------------------------- expectations */

static bool takes(struct route_choice choice)
{
    return choice.outcome == ROUTE_PLACED || choice.outcome == ROUTE_FULL;
}

bool placement_takes(const struct placement *placement, size_t model,
                     const struct route_request *request, uint64_t now_us)
{
    struct route_request asked = *request;
    fill_in(placement, &asked, now_us);
    return takes(route_request(&placement->candidates, model, &asked, NULL));
}

uint16_t placement_weight(const struct placement *placement, size_t model, uint32_t slo_class,
                          double percentile)
{
    if (placement->config.goodput.off & GOODPUT_OFF_WEIGHTS)
        return BOOKS_WEIGHT_ONE;
    return (uint16_t)(BOOKS_WEIGHT_ONE *
                      goodput_weight(&placement->classes[model][slo_class], percentile));
}

bool placement_serves(const struct placement *placement, size_t model, uint64_t now_us,
                      uint64_t *at_us)
{
    struct route_request smallest = {.prompt_tokens = 1, .total_tokens = 2};
    fill_in(placement, &smallest, now_us);
    struct route_choice choice = route_request(&placement->candidates, model, &smallest, NULL);
    uint64_t local_us = placement->config.local_us;
    bool waits = choice.outcome == ROUTE_NO_WORKER && choice.away_since_us < UINT64_MAX - local_us;
    *at_us = waits ? choice.away_since_us + local_us : UINT64_MAX;
    return takes(choice);
}

uint64_t placement_room(const struct placement *placement, size_t model)
{
    struct route_request smallest = {.prompt_tokens = 1, .total_tokens = 1};
    smallest.local = placement->config.force_local;
    return route_room(&placement->candidates, model, &smallest, NULL);
}

uint64_t placement_retry_us(const struct placement *placement, size_t model, uint64_t now_us)
{
    const struct placement_queue *queue = &placement->queues[model];
    uint64_t known = queue->placed < PLACEMENT_RECENT ? queue->placed : PLACEMENT_RECENT;
    if (!known)
        return PLACEMENT_RETRY_LEAST_US;
    uint64_t oldest_us = queue->recent_us[(queue->placed - known) % PLACEMENT_RECENT];
    uint64_t span_us = now_us > oldest_us ? now_us - oldest_us : 0;
    if (span_us > STALE_US)
        span_us = STALE_US;
    uint64_t drain_us = (queue->count + 1) * span_us / known;
    if (drain_us < PLACEMENT_RETRY_LEAST_US)
        return PLACEMENT_RETRY_LEAST_US;
    return drain_us < PLACEMENT_RETRY_MOST_US ? drain_us : PLACEMENT_RETRY_MOST_US;
}

uint64_t placement_wait_us(const struct placement *placement,
                           const struct placement_request *request)
{
    const struct placement_queue *queue = &placement->queues[request->model];
    uint32_t rank = rank_of(request), before = queue->count - queue->ranks[rank];
    for (uint32_t later = rank + 1; later < PLACEMENT_RANKS; later++)
        before -= queue->ranks[later];
    uint64_t tenants = 0, turns = queue->ranks[rank];
    const struct placement_tenant *tenant;
    if (request->in) {
        TAILQ_FOREACH(tenant, &queue->tenants[rank], link)
        tenants++;
        if (tenants * request->in->count < turns)
            turns = tenants * request->in->count;
    }
    return (uint64_t)((double)(before + turns) * queue->pace_us);
}

uint32_t placement_reserve(uint32_t total, size_t model_count)
{
    return (uint32_t)(total / (2 * model_count));
}
