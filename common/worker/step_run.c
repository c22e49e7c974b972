#include "common/worker/step_run.h"

#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"

#include <string.h>

#define MODULE              "step_run"
#define REPORTS_TOGETHER_US 5000

bool step_plan_works(const struct step_plan *plan)
{
    return plan->part_count + plan->swap_out_count + plan->swap_in_count > 0;
}

/* Asks for the logprobs of the prompt rows in this part. `scored` entries of flight->scores are
 * taken. */
static void add_scores(const struct step_flight *flight, const struct planned_rows *part,
                       struct engine_sequence *input, uint32_t *scored)
{
    const struct sequence *sequence = part->sequence;
    input->score_count = sequence_rows_to_score(sequence, part->row_count, &input->score_first);
    if (!input->score_count)
        return;
    input->score_top = sequence->sampling.top_prompt_logprobs;
    input->score_tokens = sequence->tokens + sequence->computed + input->score_first + 1;
    input->scores = flight->scores + *scored;
    *scored += input->score_count;
}

/* Call it before the rows are issued. */
static struct engine_sequence engine_input(const struct planned_rows *part)
{
    const struct sequence *sequence = part->sequence;
    uint32_t answer = sequence_answer_count(sequence) + sequence->pending;
    uint32_t prompt_left = sequence->computed < sequence->prompt_count
                               ? sequence->prompt_count - sequence->computed
                               : 0;
    return (struct engine_sequence){
        .tokens = sequence->tokens + sequence->computed,
        .token_count = part->row_count,
        .position = sequence->computed,
        .blocks = sequence->blocks,
        .block_count = sequence->block_count,
        .prompt_rows = prompt_left < part->row_count ? prompt_left : part->row_count,
        .fed = part->token_from != PLANNED_TOKENS_KNOWN,
        .token_from = part->token_from,
        .sample_count = part->samples ? 1 + part->draft_count : 0,
        .sampling = &sequence->sampling,
        .index = answer,
        .history = sequence->tokens,
        .ban_end = answer < sequence->sampling.min_tokens,
    };
}

void step_run_remove(struct step_run *run, struct sequence *sequence)
{
    if (sequence->constraint)
        step_constraints_remove(run->constraints, sequence->constraint);
    scheduler_remove(run->scheduler, sequence);
}

static void sequence_failed(struct step_run *run, struct sequence *sequence, enum status status,
                            const struct error *err)
{
    scheduler_fail(run->scheduler, sequence);
    step_events_post_error(run->events, STEP_FAILED, sequence->key, status, err);
}

/* Fails closed: a device that fails may have failed before, unseen. A limit that was broken
 * (INVALID) is no sign of that. */
static void distrust(struct step_run *run, enum status status)
{
    if (status != STATUS_INTERNAL)
        return;
    log_warn_limited(MODULE, "msg=\"earlier results may be wrong: the prefix cache forgets them\"");
    scheduler_distrust(run->scheduler);
}

/* Fails the sequence: its own settings rule out every token, here and elsewhere. */
static void banned(struct step_run *run, struct sequence *sequence, uint32_t position)
{
    struct error err;
    error_set(&err, STATUS_INVALID,
              !sequence->constraint ? "at position %u every token is banned by logit_bias"
              : sequence->sampling.bias_count
                  ? "at position %u the constraint allows no token that logit_bias doesn't ban"
                  : "at position %u the model has no token for what the constraint needs next",
              position);
    scheduler_fail(run->scheduler, sequence);
    step_events_post_banned(run->events, sequence->key, &err);
}

/* Fails this sequence alone; the others of the step have their tokens. `position`: the row's. */
static void draw_failed(struct step_run *run, const struct planned_rows *part, uint32_t position,
                        enum status status)
{
    struct sequence *sequence = part->sequence;
    struct error err;
    bool broken =
        sequence->constraint && step_constraints_broken(run->constraints, sequence->constraint);
    if (status == STATUS_INVALID && !broken) {
        banned(run, sequence, position);
        return;
    }
    if (!broken)
        distrust(run, status);
    error_set(&err, STATUS_INTERNAL,
              broken ? "the answer so far breaks its constraint at position %u"
                     : "the model gave a logit that is not a number at position %u",
              position);
    sequence_failed(run, sequence, STATUS_INTERNAL, &err);
}

/* ---------------------------------------------------------------- reports */

static void send_reports(struct step_run *run, struct step_event *event)
{
    memcpy(event->reports, run->reports, run->report_count * sizeof *run->reports);
    event->report_count = run->report_count;
    run->report_count = 0;
    run->reported_us = clock_now_us();
}

void step_run_flush(struct step_run *run)
{
    if (!run->report_count)
        return;
    struct step_event *event = step_events_take(run->events, STEP_DONE, (struct sequence_key){0});
    send_reports(run, event);
    step_events_post(run->events, event);
}

/* Counts the rows of a part. */
static void add_rows(struct step_shape *shape, const struct planned_rows *part)
{
    uint64_t rows = part->row_count, first = part->first;
    uint64_t before = rows * first + rows * (rows - 1) / 2;
    if (part->decodes) {
        shape->decode_rows += part->row_count;
        shape->decode_context += before;
    } else {
        shape->prefill_rows += part->row_count;
        shape->prefill_positions += before;
    }
}

/* Counts a step that the device could not do. A draw that fails is none: a token of the request may
 * be at fault, so that a client could end workers. A device that is lost fails all later steps.
 * Returns the status that sequences have of it: another worker can serve them. */
static enum status step_failed(struct step_run *run, enum status status)
{
    bool lost = status == STATUS_UNAVAILABLE;
    atomic_fetch_add(&run->load->steps_failed, 1);
    if ((++run->failed_in_row == run->failed_limit || lost) && run->broken)
        run->broken(run->broken_context, lost);
    return lost ? STATUS_INTERNAL : status;
}

/* The same for a step that isn't in flight yet. If the device failed, the step in flight fails,
 * too, and is the same failure. */
static enum status hand_over_failed(struct step_run *run, enum status status)
{
    if (run->in_flight && status != STATUS_INVALID)
        run->flights[run->oldest].counted = true;
    return step_failed(run, status);
}

/* ---------------------------------------------------------------- results */

/* Sends the tokens of the step so far; more may follow. */
static void send_tokens(struct step_run *run, struct step_event **drawn)
{
    step_load_publish(run->load, run->engine, run->scheduler);
    step_events_post(run->events, *drawn);
    *drawn = NULL;
}

/* Adds the sequence's last token to `*drawn`: the tokens of the step. logprobs: NULL for a
 * draft: its row gives none. */
static struct step_token *tell_token(struct step_run *run, const struct sequence *sequence,
                                     const struct engine_draw *draw,
                                     const struct token_logprobs *logprobs,
                                     struct step_event **drawn)
{
    if (*drawn && !step_event_has_room(*drawn, logprobs && logprobs->given))
        send_tokens(run, drawn);
    if (!*drawn)
        *drawn = step_events_take(run->events, STEP_TOKENS, (struct sequence_key){0});
    struct step_token *token = step_event_add_token(*drawn, sequence);
    token->logits_hash = draw->logits_hash;
    if (logprobs)
        step_event_add_logprobs(*drawn, token, logprobs);
    return token;
}

/* Takes the part's rows: its first token, and those of the drafts that hold. */
static void take_rows(struct step_run *run, const struct planned_rows *part,
                      const struct engine_sequence *input, struct step_event **drawn)
{
    struct sequence *sequence = part->sequence;
    if (part->samples && sequence->constraint)
        sequence->complete = step_constraints_take(run->constraints, sequence, input->drawn.token);
    enum finish_reason finish = scheduler_rows_done(run->scheduler, part, input->drawn.token);
    if (!part->decodes && sequence->plan == PLAN_HAND_OFF) {
        struct step_event *ready = step_events_take(run->events, STEP_READY, sequence->key);
        ready->ready_tokens = part->first + part->row_count;
        step_events_post(run->events, ready);
    }
    if (!part->samples)
        return;
    tell_token(run, sequence, &input->drawn, &input->logprobs, drawn)->finish = finish;
    atomic_fetch_add(&run->load->drafts, part->draft_count);
    for (uint32_t i = 0; finish == FINISH_NONE && scheduler_draft_holds(part); i++) {
        atomic_fetch_add(&run->load->drafts_accepted, 1);
        if (input->more[i].status != STATUS_OK) {
            send_tokens(run, drawn); /* before the failure */
            draw_failed(run, part, part->first + 1 + i, input->more[i].status);
            return;
        }
        finish = scheduler_draft_done(run->scheduler, part, input->more[i].token);
        tell_token(run, sequence, &input->more[i], NULL, drawn)->finish = finish;
    }
    if (finish != FINISH_NONE && sequence->plan != PLAN_HAND_OFF)
        step_run_remove(run, sequence);
}

static void step_results(struct step_run *run, const struct step_flight *flight)
{
    const struct step_plan *plan = flight->plan;
    struct step_event *drawn = NULL;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct planned_rows *part = &plan->parts[i];
        const struct engine_sequence *input = &flight->inputs[i];
        if (!scheduler_wants(part))
            continue;
        if ((part->samples || input->score_count) && input->drawn.status != STATUS_OK) {
            draw_failed(run, part, part->first, input->drawn.status);
            continue;
        }
        if (input->score_count)
            step_events_post_scores(run->events, part->sequence->key,
                                    input->position + input->score_first + 1, input->scores,
                                    input->score_count);
        take_rows(run, part, input, &drawn);
    }
    if (run->runs_ahead && plan->part_count)
        scheduler_step_ended(run->scheduler, plan);
    step_load_publish(run->load, run->engine, run->scheduler);
    if (drawn) {
        send_reports(run, drawn);
        step_events_post(run->events, drawn);
    } else if (run->report_count == STEP_EVENT_REPORTS ||
               clock_now_us() - run->reported_us >= REPORTS_TOGETHER_US) {
        step_run_flush(run);
    }
}

static void moves_failed(struct step_run *run, const struct block_move *moves, uint32_t count,
                         enum status status, const struct error *err)
{
    for (uint32_t i = 0; i < count; i++)
        if (moves[i].sequence->state != SEQUENCE_HELD && /* a sequence may have several moves */
            !moves[i].sequence->removed)
            sequence_failed(run, moves[i].sequence, status, err);
}

static enum status move_blocks(struct engine *engine, enum engine_move kind,
                               const struct block_move *moves, uint32_t count, struct error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        if (FAILPOINT_FAILS("step.move_fails"))
            return error_set(err, STATUS_INTERNAL, "the failpoint step.move_fails");
        TRY(engine_move_block(engine, kind, moves[i].from, moves[i].to, err));
    }
    return STATUS_OK;
}

static void count_engine_time(struct step_run *run, uint64_t begun_ns)
{
    atomic_fetch_add(&run->load->time_ns[STEP_IN_ENGINE], clock_now_ns() - begun_ns);
}

/* The rows of the plan could not be computed. Blocks that are swapped in beside them may be empty,
 * too: if the engine runs ahead, that comes to light with the rows. */
static void rows_failed(struct step_run *run, const struct step_plan *plan, enum status status,
                        const struct error *err)
{
    distrust(run, status);
    for (uint32_t i = 0; i < plan->part_count; i++)
        if (scheduler_wants(&plan->parts[i]))
            sequence_failed(run, plan->parts[i].sequence, status, err);
    if (!run->runs_ahead)
        return;
    struct error ignored;
    (void)!engine_moves_done(run->engine, &ignored); /* nothing may be under way into free blocks */
    moves_failed(run, plan->swap_ins, plan->swap_in_count, status, err);
}

/* Returns false if a move failed: no rows may be computed. Blocks that are swapped out are in their
 * slots when the call returns. Swap-ins may be under way, if the engine runs ahead. swap_us: the
 * time of the moves; 0: some are under way. */
static bool run_moves(struct step_run *run, const struct step_plan *plan, uint64_t *swap_us)
{
    *swap_us = 0;
    if (plan->swap_out_count + plan->swap_in_count == 0)
        return true;
    struct error err;
    uint64_t begun_ns = clock_now_ns();
    bool waits = !run->runs_ahead || !plan->part_count;
    enum status status =
        move_blocks(run->engine, ENGINE_SWAP_OUT, plan->swap_outs, plan->swap_out_count, &err);
    if (status == STATUS_OK && plan->swap_out_count && !waits)
        status = engine_moves_done(run->engine, &err);
    if (status == STATUS_OK)
        status =
            move_blocks(run->engine, ENGINE_SWAP_IN, plan->swap_ins, plan->swap_in_count, &err);
    if (status == STATUS_OK && waits)
        status = engine_moves_done(run->engine, &err);
    count_engine_time(run, begun_ns);
    if (waits || !plan->swap_in_count)
        *swap_us = (clock_now_ns() - begun_ns) / 1000;
    if (status == STATUS_OK)
        return true;
    status = hand_over_failed(run, status);
    rows_failed(run, plan, status, &err);
    moves_failed(run, plan->swap_outs, plan->swap_out_count, status, &err);
    moves_failed(run, plan->swap_ins, plan->swap_in_count, status, &err);
    return false;
}

/* Fills the flight's inputs with the rows of its plan. */
static void fill_inputs(struct step_run *run, struct step_flight *flight)
{
    const struct step_plan *plan = flight->plan;
    uint32_t scored = 0, drafted = 0;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct planned_rows *part = &plan->parts[i];
        struct engine_sequence *input = &flight->inputs[i];
        *input = engine_input(part);
        input->more = flight->draws + drafted;
        drafted += part->draft_count;
        if (i && input->block_count <= input[-1].block_count && FAILPOINT_FAILS("step.misdirected"))
            input->blocks = input[-1].blocks;
        add_rows(&flight->report.shape, part);
        add_scores(flight, part, input, &scored);
        if (part->samples && part->sequence->constraint) {
            struct step_allowed allowed = step_constraints_find(run->constraints, part->sequence);
            input->allowed = allowed.bits;
            input->ban_end &= !allowed.end_only;
        }
        flight->prompt_rows |= input->prompt_rows > 0;
    }
}

/* Hands the plan's rows to the engine. Returns false if the step failed already. */
static bool take_off(struct step_run *run, struct step_flight *flight)
{
    const struct step_plan *plan = flight->plan;
    FAILPOINT("step.computing");
    struct error err;
    uint64_t begun_ns = clock_now_ns();
    flight->begun_us = begun_ns / 1000;
    enum status status =
        engine_submit(run->engine, flight->inputs, plan->part_count, &flight->ticket, &err);
    count_engine_time(run, begun_ns);
    if (status != STATUS_OK) {
        rows_failed(run, plan, hand_over_failed(run, status), &err);
        return false;
    }
    run->in_flight++;
    if (run->runs_ahead)
        scheduler_rows_issued(run->scheduler, plan);
    return true;
}

/* Waits for the rows of the oldest step in flight. */
static enum status wait_for(struct step_run *run, struct step_flight *flight, struct error *err)
{
    const struct step_plan *plan = flight->plan;
    uint64_t begun_ns = clock_now_ns();
    for (uint32_t i = 0; i < plan->part_count; i++)
        flight->inputs[i].dropped = !scheduler_wants(&plan->parts[i]);
    enum status status =
        engine_wait(run->engine, flight->ticket, flight->inputs, plan->part_count, err);
    count_engine_time(run, begun_ns);
    if (status == STATUS_OK && flight->failed)
        return error_set(err, STATUS_INTERNAL, "the step before it failed");
    if (status == STATUS_OK && FAILPOINT_FAILS("step.fails"))
        return error_set(err, STATUS_INTERNAL, "the failpoint step.fails");
    uint64_t device_us = engine_step_us(run->engine);
    flight->report.took_us = device_us ? device_us : clock_now_us() - flight->begun_us;
    return status;
}

/* Reports a step to the schedule and in events. Its rows, if any, are computed. */
static void report(struct step_run *run, const struct step_flight *flight)
{
    scheduler_step_done(run->scheduler, flight->plan, flight->report.took_us,
                        flight->report.swap_us);
    if (run->sends_reports)
        run->reports[run->report_count++] = flight->report;
    step_results(run, flight);
}

/* Ends the oldest step in flight. A step that fails because its neighbour did isn't counted. */
static void land(struct step_run *run)
{
    struct step_flight *flight = &run->flights[run->oldest];
    struct error err;
    enum status status = wait_for(run, flight, &err);
    run->oldest = run->runs_ahead ? (run->oldest + 1) % ENGINE_TICKETS : 0;
    run->in_flight--;
    if (status != STATUS_OK) {
        status = flight->failed || flight->counted ? STATUS_INTERNAL : step_failed(run, status);
        rows_failed(run, flight->plan, status, &err);
        if (run->in_flight)
            run->flights[run->oldest].failed = true;
        if (run->runs_ahead)
            scheduler_step_ended(run->scheduler, flight->plan);
        return;
    }
    run->failed_in_row = 0;
    report(run, flight);
    if (flight->prompt_rows)
        FAILPOINT("step.after_chunk");
    else
        FAILPOINT("step.after_decode");
}

bool step_run_prepare(struct step_run *run)
{
    uint32_t count = 0;
    size_t cursor = 0;
    for (struct sequence *sequence; (sequence = scheduler_next(run->scheduler, &cursor));) {
        /* a sequence that waits for blocks gets ready meanwhile, and may draw in its first step */
        bool may_run = sequence->state != SEQUENCE_RESERVED && sequence->state != SEQUENCE_HELD;
        if (sequence->constraint && may_run)
            run->constrained[count++] = sequence;
    }
    struct step_budget budget = {STEP_CONSTRAINTS_NODES, STEP_CONSTRAINTS_TOKENS};
    return count && step_constraints_prepare(run->constraints, run->constrained, count, budget);
}

void step_run_plan(struct step_run *run, const struct step_plan *plan)
{
    struct step_flight *flight = &run->flights[(run->oldest + run->in_flight) % ENGINE_TICKETS];
    *flight =
        (struct step_flight){.plan = plan,
                             .inputs = flight->inputs,
                             .scores = flight->scores,
                             .draws = flight->draws,
                             .report.swapped_blocks = plan->swap_out_count + plan->swap_in_count};
    bool flies = false;
    if (step_plan_works(plan) && run_moves(run, plan, &flight->report.swap_us)) {
        if (plan->part_count) {
            fill_inputs(run, flight);
            flies = take_off(run, flight) && run->runs_ahead;
        } else {
            report(run, flight);
        }
    }
    while (run->in_flight > flies || (run->in_flight && run->flights[run->oldest].failed))
        land(run);
}

void step_run_land(struct step_run *run)
{
    while (run->in_flight)
        land(run);
}
