/* Decisions about requests of SLO classes: their rank in the queue, early rejection, and the log of
 * what was decided and what came of it. admission.h has the rules. */
#include "common/base/str.h"
#include "router/dispatch/dispatch_internal.h"
#include "router/planner/calibration.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A request without a TTFT objective is served as if it had this one, and is never late. */
#define PATIENCE_US 10000000

static const char *const stages[ADMISSION_STAGES] = {
    [ADMISSION_ARRIVAL] = "arrival", [ADMISSION_TURN] = "turn"};

static const struct slo_classes *classes_of(const struct dispatch *dispatch)
{
    return dispatch->config.models->items[0].limits.slo; /* the same for all models */
}

/* NULL: the request has no class. */
static struct class_decisions *decisions_of(const struct dispatch *dispatch,
                                            const struct call *call)
{
    if (!dispatch->decisions || call->slo_class == SLO_NONE)
        return NULL;
    return &dispatch->decisions[call->model * classes_of(dispatch)->count + call->slo_class];
}

static void create_class(const struct dispatch *dispatch, size_t model, uint32_t class,
                         struct class_decisions *of)
{
    const struct slo_class *slo = &classes_of(dispatch)->items[class];
    struct metrics *metrics = dispatch->config.metrics->metrics;
    char labels[288], more[320];
    int length = snprintf(labels, sizeof labels, "model_name=\"%s\",slo_class=\"%s\"",
                          dispatch->config.models->items[model].name, slo->name);
    admission_class_init(&of->admission, &slo->objective);
    for (int stage = 0; stage < ADMISSION_STAGES; stage++) {
        snprintf(more, sizeof more, "%.*s,stage=\"%s\"", length, labels, stages[stage]);
        of->error[stage] =
            metrics_gauge(metrics, "baton_router_slo_calibration_error",
                          "Expected calibration error of predicted misses, 0 to 1", more);
        of->calibrated[stage] =
            metrics_gauge(metrics, "baton_router_slo_calibrated",
                          "1: requests may be rejected by predicted misses", more);
    }
    of->share = metrics_gauge(metrics, "baton_router_slo_rejected_share",
                              "Share of the requests expected to miss that is rejected", labels);
    static const char
        let_through[] = "baton_router_slo_let_through_total",
        help[] = "Requests expected to miss that were held or let through, by how they ended";
    snprintf(more, sizeof more, "%.*s,outcome=\"missed\"", length, labels);
    of->missed = metrics_counter(metrics, let_through, help, more);
    snprintf(more, sizeof more, "%.*s,outcome=\"attained\"", length, labels);
    of->attained = metrics_counter(metrics, let_through, help, more);
}

static void show_class(const struct class_decisions *of)
{
    for (int stage = 0; stage < ADMISSION_STAGES; stage++) {
        const struct calibration *calibration = &of->admission.calibrations[stage];
        gauge_set(of->error[stage], calibration_error(calibration));
        gauge_set(of->calibrated[stage], calibration_is_good(calibration));
    }
    gauge_set(of->share, of->admission.share);
}

enum status decisions_init(struct dispatch *dispatch)
{
    const struct slo_classes *classes = classes_of(dispatch);
    dispatch->decision_rng = rng_seeded(rng_entropy());
    if (!classes || !classes->count)
        return STATUS_OK;
    size_t models = dispatch->config.models->count;
    dispatch->decisions = calloc(models * classes->count, sizeof *dispatch->decisions);
    if (!dispatch->decisions)
        return STATUS_LIMIT;
    dispatch->regret = metrics_gauge(
        dispatch->config.metrics->metrics, "baton_router_decision_regret",
        "Misses of a sampled request, less those of its best choice as predicted", NULL);
    for (size_t model = 0; model < models; model++)
        for (uint32_t class = 0; class < classes->count; class ++) {
            struct class_decisions *of = &dispatch->decisions[model * classes->count + class];
            create_class(dispatch, model, class, of);
            show_class(of);
        }
    return STATUS_OK;
}

void request_rank(const struct dispatch *dispatch, struct request *request)
{
    const struct call *call = request->call;
    uint64_t ttft_us = call->slo_class == SLO_NONE ? 0 : call->objective.ttft_us;
    /* The other answers of a call begin when the first one has a token. */
    uint64_t from_us = request->choice ? dispatch->now_us : call->arrival_us;
    if (!dispatch->decisions)
        return; /* by arrival */
    request->placing.priority = call->priority;
    request->placing.has_ttft = ttft_us > 0;
    request->placing.due_us = from_us + (ttft_us ? ttft_us : PATIENCE_US);
}

/* ------------------------------------------------------------------------------------ rejection */

/* True: its first place is being decided, and nothing was computed for it. */
static bool may_reject(const struct request *request)
{
    return !request->choice && request->life.attempt <= 1 && !request->emitted_count &&
           request->place.kind == LIFE_PLACE && request->place.again == AGAIN_NOT;
}

static void log_decision(struct dispatch *dispatch, struct request *request,
                         const struct decision *decision, enum admission_verdict verdict,
                         enum admission_stage stage)
{
    struct decision_ring *ring = dispatch->config.views.decisions;
    const struct call *call = request->call;
    if (!ring || (verdict == ADMISSION_TAKEN && !decision_ring_samples(ring, request->id)))
        return;
    struct decision_entry entry = {.choice = request->choice,
                                   .attempt = request->life.attempt,
                                   .prompt_tokens = call->prompt_count + request->emitted_count,
                                   .is = *decision,
                                   .used = -1,
                                   .verdict = verdict,
                                   .retry_after_s = request->retry_after_s};
    const struct class_decisions *of = decisions_of(dispatch, call);
    str_copy(entry.name, sizeof entry.name, call->name);
    str_copy(entry.model, sizeof entry.model, dispatch->config.models->items[call->model].name);
    if (of) {
        str_copy(entry.slo_class, sizeof entry.slo_class,
                 classes_of(dispatch)->items[call->slo_class].name);
        entry.objective = call->objective;
        entry.calibrated = calibration_is_good(&of->admission.calibrations[stage]);
        if (request->admission.at[stage].known)
            entry.used = request->admission.at[stage].used;
    }
    for (uint32_t i = 0; i < decision->count; i++) {
        const struct decision_alternative *choice = &decision->alternatives[i];
        const struct worker *prefill = workers_get(&dispatch->workers, choice->prefill);
        const struct worker *decode = workers_get(&dispatch->workers, choice->decode);
        str_copy(entry.workers[i].prefill, DECISION_WORKER_BYTES,
                 prefill ? prefill->info.name : "");
        str_copy(entry.workers[i].decode, DECISION_WORKER_BYTES, decode ? decode->info.name : "");
    }
    request->decisions[request->decision_count++ % DECISION_RING_MAX_SHOWN] =
        decision_ring_put(ring, &entry);
}

/* Sets the sentence, and when to come back. `over_us`: so much too late its first token would
 * come. */
static void explain_rejection(struct dispatch *dispatch, struct request *request, uint64_t over_us)
{
    const struct call *call = request->call;
    const struct slo_class *class = &classes_of(dispatch)->items[call->slo_class];
    enum admission_stage stage =
        request->admission.at[ADMISSION_TURN].known ? ADMISSION_TURN : ADMISSION_ARRIVAL;
    request->retry_after_s =
        (uint32_t)((admission_retry_us(over_us, &dispatch->decision_rng) + 999999) / 1000000);
    if (request->admission.at[stage].used > ADMISSION_BOUND)
        snprintf(request->refusal, sizeof request->refusal,
                 "it would miss the objectives of its SLO class %s (by a probability of %.0f%%; of "
                 "requests with such a prediction as many missed): try again in %u s",
                 class->name, 100 * request->admission.at[stage].used, request->retry_after_s);
    else
        snprintf(
            request->refusal, sizeof request->refusal,
            "the workers have as much work as the objectives of its SLO class %s allow: it, or "
            "others that it delays, would miss them; try again in %u s",
            class->name, request->retry_after_s);
}

/* Executes a verdict about a request that isn't placed. `over_us`: so much too late its first token
 * would come. */
static void execute_verdict(struct dispatch *dispatch, struct request *request,
                            enum admission_verdict verdict, uint64_t over_us)
{
    if (verdict == ADMISSION_HELD)
        placement_hold(&dispatch->placement, &request->placing);
    if (verdict == ADMISSION_REJECTED)
        explain_rejection(dispatch, request, over_us);
}

void request_judge_arrival(struct dispatch *dispatch, struct request *request)
{
    const struct call *call = request->call;
    struct class_decisions *of = decisions_of(dispatch, call);
    uint64_t ttft_us = call->objective.ttft_us, age_us = dispatch->now_us - call->arrival_us;
    if (!of || !ttft_us || !request->placing.waiting || !may_reject(request))
        return;
    uint64_t wait_us = placement_wait_us(&dispatch->placement, &request->placing);
    uint64_t left_us = ttft_us > age_us ? ttft_us - age_us : 0;
    if (dispatch->placement.queues[call->model].count < 2)
        return; /* it is the only one that waits: its turn comes at once */
    const struct admission_ask ask = {
        .raw = admission_wait_miss(wait_us, left_us),
        .wait_us = (double)wait_us,
        .hold_full = !placement_may_hold(&dispatch->placement, &request->placing),
        .tokens = (double)call->prompt_count,
        .now_us = dispatch->now_us};
    enum admission_verdict verdict = admission_judge(
        &of->admission, &request->admission, ADMISSION_ARRIVAL, &ask, &dispatch->decision_rng);
    execute_verdict(dispatch, request, verdict, wait_us > left_us ? wait_us - left_us : 0);
    if (verdict == ADMISSION_TAKEN || verdict == ADMISSION_LET_THROUGH)
        return;
    struct decision decision;
    decision_begin(&decision, "");
    decision.time_us = dispatch->now_us;
    decision.waited_us = age_us;
    log_decision(dispatch, request, &decision, verdict, ADMISSION_ARRIVAL);
    if (verdict == ADMISSION_REJECTED)
        request_fail(dispatch, request, TERMINAL_OVERLOADED, reason_name(REASON_SLO_UNATTAINABLE));
}

/* Judges a request by the workers that were chosen for it. */
static enum admission_verdict judge_turn(struct dispatch *dispatch, struct request *request,
                                         const struct decision *decision)
{
    const struct call *call = request->call;
    const struct placement *placement = &dispatch->placement;
    struct class_decisions *of = decisions_of(dispatch, call);
    const struct decision_alternative *won = &decision->alternatives[decision->chosen];
    if (!of || !may_reject(request))
        return ADMISSION_TAKEN;
    /* By the policy, otherwise by the predictions for its workers. */
    double raw = won->ttft_us > 0 && won->p_miss >= 0 && won->p_miss <= 1
                     ? won->p_miss
                     : admission_miss(&placement->classes[call->model][call->slo_class],
                                      &request->placing.predicted, &call->objective);
    if (raw < 0)
        return ADMISSION_TAKEN;
    double percentile = classes_of(dispatch)->items[call->slo_class].percentile;
    const struct goodput_request asked = {
        .is = request_predictable(dispatch, request),
        .slo = &placement->classes[call->model][call->slo_class],
        .weight = (double)placement_weight(placement, call->model, call->slo_class, percentile) /
                  BOOKS_WEIGHT_ONE};
    const struct admission_ask ask =
        admission_ask_of(placement, &request->placing, &asked, won, raw);
    return admission_judge(&of->admission, &request->admission, ADMISSION_TURN, &ask,
                           &dispatch->decision_rng);
}

enum admission_verdict request_admit(struct dispatch *dispatch, struct request *request,
                                     struct decision *decision, const struct route_choice *choice)
{
    const struct call *call = request->call;
    const struct prediction *predicted = &request->placing.predicted;
    bool again = request->placing.late;
    if (!decision->considered) { /* a policy that tells nothing of what it looked at */
        const struct decision_alternative only = {.prefill = choice->prefill,
                                                  .decode = choice->decode,
                                                  .ttft_us = predicted->ttft_us,
                                                  .tpot_us = predicted->tpot_us,
                                                  .p_miss = -1};
        decision_choose(decision, &only, DECISION_LEAST);
    }
    decision->time_us = dispatch->now_us;
    decision->waited_us = dispatch->now_us - call->arrival_us;
    decision->slo_class = call->slo_class;
    decision->reader_only = request->place.kind != LIFE_PLACE;
    double over_us = predicted->ttft_us - (double)call->objective.ttft_us;
    bool late = call->objective.ttft_us && over_us > 0;
    enum admission_verdict verdict = judge_turn(dispatch, request, decision);
    execute_verdict(dispatch, request, verdict,
                    late ? (uint64_t)over_us
                         : placement_retry_us(&dispatch->placement, call->model, dispatch->now_us));
    if (verdict != ADMISSION_HELD || !again)
        log_decision(dispatch, request, decision, verdict, ADMISSION_TURN);
    if (verdict == ADMISSION_REJECTED)
        request_fail(dispatch, request, TERMINAL_OVERLOADED, reason_name(REASON_SLO_UNATTAINABLE));
    return verdict;
}

/* ------------------------------------------------------------------------------------- outcomes */

uint64_t request_late_us(const struct dispatch *dispatch, const struct request *request)
{
    const struct call *call = request->call;
    bool open = decisions_of(dispatch, call) && call->objective.ttft_us &&
                request->admission.counted && !request->admission.ended &&
                !request->timing.first_us;
    return open ? call->arrival_us + call->objective.ttft_us + 1 : UINT64_MAX;
}

void request_note_late(struct dispatch *dispatch, struct request *request)
{
    if (request_late_us(dispatch, request) <= dispatch->now_us)
        admission_ended(&decisions_of(dispatch, request->call)->admission, &request->admission,
                        true);
}

void request_outcome(struct dispatch *dispatch, struct request *request, enum reason reason)
{
    const struct request_trace *trace = &request->trace;
    struct class_decisions *of = decisions_of(dispatch, request->call);
    bool rejected = reason == REASON_SLO_UNATTAINABLE || reason == REASON_OVERLOADED;
    bool known = trace->slo.counts && !rejected && !request_cut_short(dispatch, request, reason);
    if (of && known) {
        admission_ended(&of->admission, &request->admission, trace->slo.missed != 0);
        if (request->admission.let_through || request->admission.held)
            counter_add(trace->slo.missed ? of->missed : of->attained, 1);
    }
    if (of)
        show_class(of);
    if (!request->decision_count)
        return;
    struct decision_outcome outcome = {
        .known = known,
        .attained = !trace->slo.missed && !reason,
        .ttft_us = trace->first_us ? (double)(trace->first_us - trace->arrival_us) : 0,
        .tpot_us = request_trace_tpot_us(trace),
        .e2e_us =
            (double)((trace->last_us ? trace->last_us : dispatch->now_us) - trace->arrival_us)};
    str_copy(outcome.reason, sizeof outcome.reason, reason ? reason_name(reason) : "ok");
    for (uint32_t i = 0; i < request->decision_count && i < DECISION_RING_MAX_SHOWN; i++)
        decision_ring_ended(dispatch->config.views.decisions, request->decisions[i], &outcome);
    if (dispatch->regret)
        gauge_set(dispatch->regret, decision_ring_regret(dispatch->config.views.decisions).mean);
}
