/* The router of a cluster in virtual time: requests from arrival to end, and their placement. */
#include "common/base/assert.h"
#include "common/base/domain/content_hash.h"
#include "router/planner/virtual_cluster.h"
#include "router/planner/virtual_state.h"

#include <math.h>
#include <stdlib.h>

#define P90_SIGMAS     1.2816 /* a normal distribution's */
#define EVENTS_AT_ONCE 64     /* a prefix cache's */

/* -------------------------------------------------------------------------------------- actions */

static uint64_t prompt_tokens(const struct virtual_call *call)
{
    return (uint64_t)call->asked.prompt_tokens + call->life.delivered;
}

static uint64_t longest_tokens(const struct virtual_call *call)
{
    return (uint64_t)call->asked.prompt_tokens + call->asked.max_tokens;
}

/* Returns how many tokens its answer surely still has. */
static uint32_t least_tokens(const struct virtual_call *call)
{
    return deadline_least_tokens(call->asked.exact, call->asked.max_tokens, 0,
                                 call->life.delivered);
}

static bool ends_at_prefill(const struct virtual_call *call)
{
    return call->place.kind == LIFE_PLACE && call->life.delivered + 1 >= call->asked.max_tokens;
}

void virtual_prompt(struct virtual_cluster *cluster, const struct virtual_run *run,
                    uint32_t *tokens)
{
    const struct virtual_call *call = run->call;
    cluster->config.clients.prompt(cluster->config.clients.context, call->id, tokens);
    for (uint32_t i = 0; i < run->emitted_tokens; i++)
        tokens[call->asked.prompt_tokens + i] =
            virtual_answer_token(cluster->config.seed, call->id, i);
}

static struct answer_ask answer_ask(const struct virtual_call *call)
{
    return (struct answer_ask){.model = VIRTUAL_MODEL,
                               .prompt_tokens = call->asked.prompt_tokens,
                               .max_tokens = call->asked.max_tokens,
                               .exact = call->asked.exact};
}

/* Returns all that predictions know of it. */
static struct predict_request predictable(const struct virtual_cluster *cluster,
                                          struct virtual_call *call)
{
    const struct answer_ask ask = answer_ask(call);
    uint32_t drawn = call->life.delivered;
    struct answer_length whole =
        answer_lengths_follow(cluster->placement.answer_lengths, &ask, &call->course, drawn);
    struct predict_request is = {
        .age_us = (double)(cluster->figures.now_us - call->arrived_us),
        .priority = call->asked.priority,
        .prompt_tokens = prompt_tokens(call),
        .answer_tokens = fmax(whole.mean - drawn, 1),
        .answer_p90_tokens = fmax(whole.p90 - drawn, 1),
        .objective = call->asked.objective,
    };
    if (call->first_us)
        predict_begun(&is, call->first_us - call->arrived_us, drawn,
                      (double)(cluster->figures.now_us - call->first_us));
    return is;
}

/* Enters the facts that predictions of others need. */
static void track_times(struct virtual_cluster *cluster, struct virtual_call *call,
                        struct placement_use *use)
{
    const struct virtual_request *asked = &call->asked;
    const struct slo_objective *objective = &asked->objective;
    const struct predict_request is = predictable(cluster, call);
    uint64_t now_us = cluster->figures.now_us, first_us = call->first_us;
    double sigma = (is.answer_p90_tokens - is.answer_tokens) / P90_SIGMAS;
    bool late = objective->ttft_us &&
                (first_us ? first_us : now_us) - call->arrived_us > objective->ttft_us;
    use->priority = asked->priority;
    use->drawing = call->life.from_decode || (!call->life.prefill && call->prefilled);
    use->cached_tokens = call->placing.cached_tokens;
    use->expected_tokens = use->prompt_tokens + (uint64_t)ceil(is.answer_tokens);
    use->variance = (uint64_t)(sigma * sigma);
    use->slack_us = objective->ttft_us
                        ? (double)objective->ttft_us - call->placing.predicted.ttft_us
                        : (double)INFINITY;
    bool banks = !(cluster->config.placement.goodput.off & GOODPUT_OFF_BANKED);
    use->tolerance_us = predict_tolerance_us(
        objective->tpot_us, call->life.delivered + is.answer_tokens,
        banks ? call->life.delivered : 0, first_us ? (double)(now_us - first_us) : 0);
    if (asked->slo_class != SLO_NONE && !late)
        use->weight = placement_weight(&cluster->placement, VIRTUAL_MODEL, asked->slo_class,
                                       asked->percentile);
}

static void track(struct virtual_cluster *cluster, struct virtual_call *call)
{
    const struct request_life *life = &call->life;
    struct placement_use use = {
        .prefill = life->prefill,
        .decode = life->decode,
        .working = request_life_works(life),
        .prefilled = call->prefilled,
        .confirmed = call->confirmed,
        .reserved = call->reserved,
        .prompt_tokens = prompt_tokens(call),
        .longest_tokens = longest_tokens(call),
        .now_us = cluster->figures.now_us,
    };
    if (use.working)
        track_times(cluster, call, &use);
    placement_track(&cluster->placement, &call->placing, &use);
}

/* Returns the time at which it will have missed its TTFT. UINT64_MAX: it hasn't, or it's noted. */
static uint64_t late_at_us(const struct virtual_call *call)
{
    uint64_t ttft_us = call->asked.objective.ttft_us;
    bool open = ttft_us && !call->first_us && !call->admission.ended;
    return open ? call->arrived_us + ttft_us + 1 : UINT64_MAX;
}

/* Asks for an event when its life wants a tick. */
static void arm_tick(struct virtual_cluster *cluster, struct virtual_call *call)
{
    uint64_t next_us = request_life_next_us(&call->life), late_us = late_at_us(call);
    next_us = late_us < next_us ? late_us : next_us;
    if (next_us >= call->tick_us)
        return;
    call->tick_us = next_us;
    virtual_post(cluster,
                 (struct virtual_event){.at_us = next_us, .kind = EVENT_TICK, .call = call});
}

/* A prompt is to be computed: by the prefill worker, or (NULL) by the decode worker. */
static void begin_run(struct virtual_call *call, const struct life_action *action)
{
    struct virtual_run *run = calloc(1, sizeof *run);
    ASSERT(run);
    run->call = call;
    run->next = call->run;
    run->prompt_tokens = call->asked.prompt_tokens + action->emitted_count;
    run->emitted_tokens = action->emitted_count;
    call->run = run;
    call->reserved = call->prefilled = call->confirmed = false;
}

/* Sets the times by which the prompt must and should be there. */
static void set_due(const struct virtual_cluster *cluster, struct virtual_call *call)
{
    const struct candidate *decode =
        candidates_get(&cluster->placement.candidates, call->life.decode);
    uint64_t now_us = cluster->figures.now_us;
    if (call->deadline_us == UINT64_MAX)
        return;
    const struct deadline_work work = {.answer_tokens = least_tokens(call),
                                       .context = prompt_tokens(call)};
    uint64_t least_us =
        deadline_least_us(NULL, decode ? &decode->is.learnt->steps.figures.cost : NULL, &work);
    call->due = deadline_of_prompt(call->deadline_us > now_us ? call->deadline_us - now_us : 1,
                                   least_us, call->placing.answer_us);
}

static void send(struct virtual_cluster *cluster, struct virtual_call *call,
                 const struct life_action *action)
{
    struct virtual_node *node = &cluster->nodes[action->worker - 1];
    struct virtual_event event = {.at_us = cluster->figures.now_us + cluster->config.message_us,
                                  .kind = EVENT_JOB,
                                  .node = node,
                                  .job = {.attempt = action->attempt}};
    switch (action->kind) {
    case LIFE_SEND_PREFILL:
        begin_run(call, action);
        call->run->prefill = node;
        call->run->prefill_attempt = action->attempt;
        event.job.kind = JOB_PREFILL;
        set_due(cluster, call);
        call->prefill = action->worker;
        break;
    case LIFE_SEND_DECODE:
        if (!action->with_handle)
            begin_run(call, action);
        call->run->decode = node;
        call->run->decode_attempt = action->attempt;
        call->confirmed = false;
        event.job.kind = JOB_DECODE;
        call->decode = action->worker;
        break;
    default: event.job.kind = JOB_RELEASE;
    }
    event.job.run = call->run;
    virtual_post(cluster, event);
}

/* Teaches the router how its request went. */
static void learn_end(struct virtual_cluster *cluster, struct virtual_call *call,
                      struct virtual_outcome *outcome)
{
    struct placement *placement = &cluster->placement;
    const struct virtual_request *asked = &call->asked;
    const struct answer_ask ask = answer_ask(call);
    const struct slo_outcome slo = {.ok = outcome->status == TERMINAL_OK,
                                    .ttft_us = outcome->ttft_us,
                                    .e2e_us = outcome->e2e_us,
                                    .longest_gap_us = outcome->longest_gap_us,
                                    .answer_tokens = outcome->answer_tokens};
    outcome->attained = slo_attained(&asked->objective, &slo);
    answer_lengths_learn(placement->answer_lengths, &ask, &call->course, outcome->answer_tokens,
                         call->life.finish == FINISH_EOS);
    if (call->life.attempt == 1)
        placement_learn_times(placement, &call->placing, call->first_us, call->last_us,
                              call->life.delivered);
    if (asked->slo_class != SLO_NONE && cluster->knows_class[asked->slo_class] &&
        outcome->status != TERMINAL_OVERLOADED)
        admission_ended(&cluster->admissions[asked->slo_class], &call->admission,
                        !outcome->attained);
    if (asked->slo_class != SLO_NONE && call->placing.predicted.ttft_us > 0)
        goodput_ended(&placement->classes[VIRTUAL_MODEL][asked->slo_class],
                      &call->placing.predicted, &slo, outcome->attained);
}

/* The one place where a request ends. */
static void finish(struct virtual_cluster *cluster, struct virtual_call *call)
{
    const struct request_life *life = &call->life;
    const struct admission_request *judged = &call->admission;
    struct virtual_figures *figures = &cluster->figures;
    struct virtual_outcome outcome = {
        .id = call->id,
        .status = life->status,
        .reason = life->reason,
        .arrived_us = call->arrived_us,
        .ttft_us = call->first_us ? call->first_us - call->arrived_us : 0,
        .e2e_us = figures->now_us - call->arrived_us,
        .longest_gap_us = call->longest_gap_us,
        .prompt_tokens = call->asked.prompt_tokens,
        .answer_tokens = life->delivered,
        .cached_tokens = call->cached_tokens,
        .prefill = call->prefill,
        .decode = call->decode,
    };
    for (int stage = 0; stage < ADMISSION_STAGES; stage++) {
        bool known = judged->at[stage].known;
        outcome.miss[stage].raw = known ? judged->at[stage].raw : -1;
        outcome.miss[stage].used = known ? judged->at[stage].used : -1;
    }
    learn_end(cluster, call, &outcome);
    const uint64_t words[] = {figures->hash,          outcome.id,
                              outcome.status,         outcome.arrived_us,
                              outcome.ttft_us,        outcome.e2e_us,
                              outcome.longest_gap_us, outcome.prompt_tokens,
                              outcome.answer_tokens,  outcome.cached_tokens,
                              outcome.prefill,        outcome.decode};
    figures->hash = content_hash(words, sizeof words);
    figures->ended++;
    call->ended = true;
    call->next_ended = cluster->ended;
    cluster->ended = call;
    placement_ended(&cluster->placement, &call->placing);
    cluster->config.clients.ended(cluster->config.clients.context, &outcome);
}

static void execute(struct virtual_cluster *cluster, struct virtual_call *call,
                    const struct life_actions *actions)
{
    enum placement_turn turn;
    uint64_t now_us = cluster->figures.now_us, gap_us;
    for (uint32_t i = 0; i < actions->count && !call->ended; i++) {
        const struct life_action *action = &actions->items[i];
        switch (action->kind) {
        case LIFE_PLACE:
        case LIFE_PLACE_DECODE:
            placement_stop_waiting(&cluster->placement, &call->placing); /* for a reader */
            call->place = *action;
            turn = action->kind == LIFE_PLACE_DECODE ? PLACEMENT_REGIVE
                   : action->again != AGAIN_NOT      ? PLACEMENT_AGAIN
                                                     : PLACEMENT_NEW;
            placement_wait(&cluster->placement, &call->placing, turn, now_us);
            cluster->place_needed = true;
            break;
        case LIFE_SEND_PREFILL:
        case LIFE_SEND_DECODE:
        case LIFE_SEND_RELEASE: send(cluster, call, action); break;
        case LIFE_DELIVER:
            gap_us = now_us - call->last_us;
            if (call->first_us && gap_us > call->longest_gap_us)
                call->longest_gap_us = gap_us;
            call->first_us = call->first_us ? call->first_us : now_us;
            call->last_us = now_us;
            cluster->figures.tokens++;
            break;
        case LIFE_FINISH: finish(cluster, call); break;
        case LIFE_SILENT: break; /* it waits in the worker's queue: none hangs */
        }
    }
    cluster->place_needed |= call->counted_state != call->life.state;
    call->counted_state = call->life.state;
    if (call->ended)
        return;
    track(cluster, call);
    arm_tick(cluster, call);
}

/* ------------------------------------------------------------------------------- workers' words */

void virtual_opened(struct virtual_cluster *cluster, struct virtual_node *node,
                    struct virtual_run *run)
{
    struct virtual_call *call = run->call;
    const struct handle_ref ref = {
        .incarnation = node->key, .id = (uint32_t)call->id, .generation = 1};
    struct life_actions actions;
    if (call->ended)
        return;
    call->reserved |= run->prefill_attempt == call->life.attempt;
    request_life_on_sign(&call->life, cluster->figures.now_us, node->key, run->prefill_attempt);
    request_life_on_opened(&call->life, node->key, run->prefill_attempt, ref, &actions);
    execute(cluster, call, &actions);
}

void virtual_token(struct virtual_cluster *cluster, struct virtual_node *node,
                   struct virtual_call *call, const struct life_token *token)
{
    struct life_actions actions;
    if (call->ended)
        return;
    if (token->attempt == call->life.attempt && !call->prefilled)
        call->prefilled = cluster->place_needed = true;
    request_life_on_sign(&call->life, cluster->figures.now_us, node->key, token->attempt);
    request_life_on_token(&call->life, token, &actions);
    if (call->life.from_decode && !call->confirmed)
        call->confirmed = cluster->place_needed = true;
    execute(cluster, call, &actions);
}

void virtual_pulled(struct virtual_cluster *cluster, struct virtual_run *run)
{
    struct virtual_call *call = run->call;
    cluster->figures.handoffs++;
    if (call->ended || run->decode_attempt != call->life.attempt)
        return;
    call->confirmed = cluster->place_needed = true;
    track(cluster, call);
}

void virtual_refused(struct virtual_cluster *cluster, struct virtual_node *node,
                     struct virtual_call *call, uint32_t attempt, bool retry)
{
    struct life_actions actions;
    if (call->ended)
        return;
    request_life_on_refused(&call->life, node->key, attempt, retry, &actions);
    execute(cluster, call, &actions);
}

void virtual_late(struct virtual_cluster *cluster, struct virtual_call *call, uint32_t attempt)
{
    struct life_actions actions;
    if (call->ended || call->life.attempt != attempt)
        return;
    request_life_on_fail(&call->life, TERMINAL_DEADLINE, "late", &actions);
    execute(cluster, call, &actions);
}

void virtual_reported(struct virtual_cluster *cluster, struct virtual_node *node)
{
    double reported = node->is.reported > 0 ? node->is.reported : 1;
    struct scheduler_load load = scheduler_load(node->scheduler);
    struct prefix_index *index = cluster->placement.prefix_index;
    struct prefix_cache *cache = scheduler_prefix_cache(node->scheduler);
    struct prefix_event events[EVENTS_AT_ONCE];
    uint32_t count;
    cluster->figures.steps++;
    cluster->figures.prompt_rows += node->shape.prefill_rows;
    uint64_t used = load.blocks[KV_BLOCK_USED] + load.blocks[KV_BLOCK_LANDING];
    worker_learnt_step(&node->learnt, &node->shape, reported * (double)node->took_us);
    worker_learnt_kv(&node->learnt, &node->shape, load.unconfirmed_tokens,
                     used * node->is.scheduler.block_tokens);
    placement_worker_load(&cluster->placement, node->key, load.queued_tokens);
    if (index && cache) {
        prefix_index_free_blocks(index, node->key, load.blocks[KV_BLOCK_FREE]);
        while ((count = prefix_cache_read_events(cache, events, EVENTS_AT_ONCE)) > 0)
            if (prefix_index_take(index, node->key, events, count) == PREFIX_TAKE_GAP)
                prefix_cache_restart_events(cache);
    }
    cluster->place_needed = true;
}

/* --------------------------------------------------------------------------------------- places */

/* Returns its class's; NULL: it has none, or nothing may reject it any more. */
static struct admission_class *admission_of(struct virtual_cluster *cluster,
                                            const struct virtual_call *call)
{
    const struct virtual_request *asked = &call->asked;
    if (asked->slo_class == SLO_NONE || call->life.attempt > 1 || call->life.delivered ||
        call->place.kind != LIFE_PLACE || call->place.again != AGAIN_NOT)
        return NULL;
    struct admission_class *of = &cluster->admissions[asked->slo_class];
    const struct slo_objective none = {0};
    if (!cluster->knows_class[asked->slo_class])
        admission_class_init(of, cluster->config.takes_all ? &none : &asked->objective);
    cluster->knows_class[asked->slo_class] = true;
    return of;
}

/* Executes a verdict. Returns true if the request isn't placed: it has ended, or is held. */
static bool is_stopped(struct virtual_cluster *cluster, struct virtual_call *call,
                       enum admission_verdict verdict)
{
    if (verdict == ADMISSION_TAKEN || verdict == ADMISSION_LET_THROUGH)
        return false;
    if (verdict == ADMISSION_HELD) {
        placement_hold(&cluster->placement, &call->placing);
        return true;
    }
    struct life_actions actions;
    request_life_on_fail(&call->life, TERMINAL_OVERLOADED, "slo_unattainable", &actions);
    execute(cluster, call, &actions);
    return true;
}

/* Rejects or holds a request that would wait for too long behind the others. */
static void judge_arrival(struct virtual_cluster *cluster, struct virtual_call *call)
{
    struct placement *placement = &cluster->placement;
    uint64_t ttft_us = call->asked.objective.ttft_us;
    struct admission_class *of = admission_of(cluster, call);
    if (!of || !ttft_us || call->ended || !call->placing.waiting ||
        placement->queues[VIRTUAL_MODEL].count < 2)
        return;
    uint64_t wait_us = placement_wait_us(placement, &call->placing);
    const struct admission_ask ask = {.raw = admission_wait_miss(wait_us, ttft_us),
                                      .wait_us = (double)wait_us,
                                      .hold_full = !placement_may_hold(placement, &call->placing),
                                      .tokens = (double)prompt_tokens(call),
                                      .now_us = cluster->figures.now_us};
    is_stopped(cluster, call,
               admission_judge(of, &call->admission, ADMISSION_ARRIVAL, &ask, &cluster->rng));
}

/* Returns true, and ends or holds it, if by the choice that won it, or others, would miss. */
static bool is_beyond(struct virtual_cluster *cluster, struct virtual_call *call,
                      const struct decision *decision, const struct predict_request *is)
{
    const struct virtual_request *asked = &call->asked;
    const struct placement *placement = &cluster->placement;
    const struct decision_alternative *won = &decision->alternatives[decision->chosen];
    struct admission_class *of = admission_of(cluster, call);
    if (!of)
        return false;
    /* Policies other than goodput, and choices that explore, tell no probability. */
    double raw = decision->considered && won->ttft_us > 0 && won->p_miss >= 0
                     ? won->p_miss
                     : admission_miss(&placement->classes[VIRTUAL_MODEL][asked->slo_class],
                                      &call->placing.predicted, &asked->objective);
    const struct goodput_request request = {
        .is = *is,
        .slo = &placement->classes[VIRTUAL_MODEL][asked->slo_class],
        .weight = (double)placement_weight(placement, VIRTUAL_MODEL, asked->slo_class,
                                           asked->percentile) /
                  BOOKS_WEIGHT_ONE};
    if (raw < 0)
        return false;
    const struct admission_ask ask =
        admission_ask_of(placement, &call->placing, &request, won, raw);
    enum admission_verdict verdict =
        admission_judge(of, &call->admission, ADMISSION_TURN, &ask, &cluster->rng);
    return is_stopped(cluster, call, verdict);
}

static void place(struct virtual_cluster *cluster, struct virtual_call *call,
                  struct route_choice choice)
{
    struct life_actions actions;
    uint64_t reader = choice.prefill && ends_at_prefill(call) ? 0 : choice.decode;
    placement_stop_waiting(&cluster->placement, &call->placing);
    request_life_on_placed(&call->life, cluster->figures.now_us, choice.prefill, reader, &actions);
    execute(cluster, call, &actions);
    placement_placed(&cluster->placement, &call->placing, choice.prefill, reader);
}

static void try_call(struct virtual_cluster *cluster, struct virtual_call *call)
{
    const struct route_handle handle = {.prefill = call->life.prefill,
                                        .model_hash = VIRTUAL_KIND,
                                        .layout_hash = VIRTUAL_KIND,
                                        .numerics_id = VIRTUAL_KIND};
    const struct route_kind kind = {VIRTUAL_KIND, VIRTUAL_KIND};
    const struct answer_ask answers = answer_ask(call);
    struct decision decision;
    decision_begin(&decision, "");
    const struct placement_ask ask = {
        .request = {.kind = call->life.delivered ? &kind : NULL,
                    .prompt_tokens = prompt_tokens(call),
                    .total_tokens = longest_tokens(call),
                    .ends_at_prefill = ends_at_prefill(call),
                    .avoid_prefill = call->place.avoid_prefill,
                    .avoid_decode = call->place.avoid_decode,
                    .decision = &decision},
        .handle = call->place.kind == LIFE_PLACE ? NULL : &handle,
        .prefixes = call->names.kinds,
        .prefix_kind_count = call->names.count,
        .predict = predictable(cluster, call),
        .deadline_us = call->deadline_us,
        .likely_tokens = answer_length_likely(cluster->placement.answer_lengths, &answers,
                                              call->life.delivered, least_tokens(call)),
        .ready_us = call->life.binding ? call->placing.predicted.prefill_us : 0,
        .slo_class = call->asked.slo_class,
        .percentile = call->asked.percentile,
    };
    uint64_t placed_tokens, now_us = cluster->figures.now_us;
    struct route_choice choice =
        placement_choose(&cluster->placement, &call->placing, &ask, &placed_tokens);
    struct life_actions actions;
    switch (choice.outcome) {
    case ROUTE_PLACED:
        if (!is_beyond(cluster, call, &decision, &ask.predict)) {
            place(cluster, call, choice);
            return;
        }
        if (call->ended)
            return;
        request_life_on_no_place(&call->life, now_us, true, UINT64_MAX, &actions);
        break;
    case ROUTE_FULL:
        request_life_on_no_place(&call->life, now_us, true, UINT64_MAX, &actions);
        break;
    case ROUTE_NO_WORKER:
        request_life_on_no_place(&call->life, now_us, false, choice.away_since_us, &actions);
        break;
    case ROUTE_NO_READER:
        placement_stop_waiting(&cluster->placement, &call->placing);
        request_life_on_no_reader(&call->life, &actions);
        break;
    case ROUTE_TOO_LONG:
        request_life_on_fail(&call->life, TERMINAL_INVALID, "too_long", &actions);
        break;
    }
    execute(cluster, call, &actions);
}

void virtual_place(struct virtual_cluster *cluster)
{
    struct placement *placement = &cluster->placement;
    while (cluster->place_needed && placement->waiting) {
        cluster->place_needed = false;
        placement_begin(placement, VIRTUAL_MODEL, cluster->figures.now_us);
        for (struct placement_request *next; (next = placement_next(placement));)
            try_call(cluster, (struct virtual_call *)((char *)next -
                                                      offsetof(struct virtual_call, placing)));
    }
    cluster->place_needed = false;
}

/* --------------------------------------------------------------------------------- come, and go */

/* Names the blocks of its prompt, if the router has an index of them. */
static void name_blocks(struct virtual_cluster *cluster, struct virtual_call *call)
{
    const struct virtual_clients *clients = &cluster->config.clients;
    if (!cluster->placement.prefix_index)
        return;
    uint32_t *tokens = malloc(call->asked.prompt_tokens * sizeof *tokens);
    ASSERT(tokens);
    clients->prompt(clients->context, call->id, tokens);
    const struct prompt_text text = {.tokens = tokens, .count = call->asked.prompt_tokens};
    prompt_names_update(&call->names, &text, &cluster->placement.candidates.pools[VIRTUAL_MODEL]);
    free(tokens);
}

void virtual_arrive(struct virtual_cluster *cluster)
{
    const struct virtual_clients *clients = &cluster->config.clients;
    struct virtual_figures *figures = &cluster->figures;
    struct life_actions actions;
    struct virtual_call *call = calloc(1, sizeof *call);
    ASSERT(call);
    if (figures->arrived == cluster->call_capacity) {
        cluster->call_capacity = 2 * cluster->call_capacity + 1024;
        cluster->calls =
            realloc(cluster->calls, cluster->call_capacity * sizeof(struct virtual_call *));
        ASSERT(cluster->calls);
    }
    call->id = figures->arrived++;
    cluster->calls[call->id] = call;
    call->references = 1;
    call->arrived_us = figures->now_us;
    call->tick_us = UINT64_MAX;
    clients->take(clients->context, call->id, &call->asked);
    ASSERT(call->asked.answer_tokens && call->asked.answer_tokens <= call->asked.max_tokens);
    call->deadline_us =
        call->asked.timeout_us ? figures->now_us + call->asked.timeout_us : UINT64_MAX;
    name_blocks(cluster, call);
    bool refused = cluster->config.max_queue &&
                   cluster->placement.queues[VIRTUAL_MODEL].count >= cluster->config.max_queue;
    request_life_init(&call->life, &cluster->config.limits, call->deadline_us, false, &actions);
    placement_arrived(&cluster->placement, &call->placing, VIRTUAL_MODEL, call->asked.tenant);
    call->placing.priority = call->asked.priority;
    if (call->asked.objective.ttft_us) {
        call->placing.due_us = figures->now_us + call->asked.objective.ttft_us;
        call->placing.has_ttft = true;
    }
    if (refused)
        request_life_on_fail(&call->life, TERMINAL_OVERLOADED, "overloaded", &actions);
    execute(cluster, call, &actions);
    judge_arrival(cluster, call);
}

void virtual_tick(struct virtual_cluster *cluster, struct virtual_call *call)
{
    uint64_t now_us = cluster->figures.now_us;
    struct life_actions actions;
    call->tick_us = UINT64_MAX;
    if (late_at_us(call) <= now_us) {
        if (call->asked.slo_class != SLO_NONE && cluster->knows_class[call->asked.slo_class])
            admission_ended(&cluster->admissions[call->asked.slo_class], &call->admission, true);
        call->admission.ended = true;
    }
    if (request_life_next_us(&call->life) <= now_us) {
        request_life_on_tick(&call->life, now_us, &actions);
        cluster->place_needed |= call->life.local;
        execute(cluster, call, &actions);
    }
    if (!call->ended)
        arm_tick(cluster, call);
}
