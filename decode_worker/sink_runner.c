#include "decode_worker/sink_runner.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/worker/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULE "decode_role" /* the role that it acts for */

/* The outcome of an action that had one at once. The sinks hear of it after the list of actions is
 * done. */
enum outcome_kind {
    OUTCOME_RESERVE_FAILED,
    OUTCOME_CONNECT_FAILED,
    OUTCOME_PAIR_UP,
    OUTCOME_PAIR_REFUSED,
    OUTCOME_READ_FAILED
};
struct sink_outcome {
    enum outcome_kind kind;
    struct sequence_key key;
    uint64_t peer, cookie;
    enum status status;
};

/* A SINK_VERIFY that is not answered yet. Its arrays are the sink's. */
struct verification {
    uint64_t cookie;
    const uint32_t *local; /* [block_count] left */
    const uint64_t *sums;  /* the same */
    bool crc;
    uint32_t block_count;
};

enum status sink_runner_init(struct sink_runner *runner, struct worker *worker,
                             const struct sink_config *config, struct error *err)
{
    *runner = (struct sink_runner){.worker = worker};
    TRY(sink_table_create(config, &runner->sinks, err));
    enum status status = sink_actions_init(&runner->actions, runner->sinks);
    if (status == STATUS_OK)
        status = request_notes_init(&runner->notes, config->max_sinks);
    if (status == STATUS_OK)
        runner->outcomes = calloc(runner->actions.capacity, sizeof *runner->outcomes);
    runner->verification_limit = 2 * config->max_sinks;
    runner->verifications = calloc(runner->verification_limit, sizeof *runner->verifications);
    if (runner->outcomes && runner->verifications)
        return STATUS_OK;
    sink_runner_deinit(runner);
    return error_set(err, STATUS_LIMIT, "out of memory for the decode role");
}

void sink_runner_deinit(struct sink_runner *runner)
{
    request_notes_deinit(&runner->notes);
    free(runner->outcomes);
    free(runner->verifications);
    sink_actions_deinit(&runner->actions);
    sink_table_destroy(runner->sinks);
    *runner = (struct sink_runner){0};
}

void sink_runner_log_end(struct sink_runner *runner, struct sequence_key key, const char *how)
{
    if (!request_notes_has(&runner->notes, key))
        return; /* it was logged already */
    log_debug(MODULE, "req=%s id=%016" PRIx64 " attempt=%u end=%s msg=\"sequence ended\"",
              request_notes_name(&runner->notes, key), key.request, key.attempt, how);
    request_notes_drop(&runner->notes, key);
}

static void note(struct sink_runner *runner, struct sink_outcome outcome)
{
    ASSERT(runner->outcome_count < runner->actions.capacity); /* an action has one at most */
    runner->outcomes[runner->outcome_count++] = outcome;
}

static void reserve(struct sink_runner *runner, struct sequence_key key)
{
    ASSERT(runner->pending.tokens); /* a sink reserves once, when its Decode comes */
    runner->pending.key = key;
    request_notes_begin(&runner->notes, key, runner->pending_name,
                        runner->pending.plan == PLAN_LOCAL, clock_now_us());
    log_debug(MODULE,
              "req=%s id=%016" PRIx64 " attempt=%u tokens=%u plan=%s msg=\"sequence begins\"",
              request_notes_name(&runner->notes, key), key.request, key.attempt,
              runner->pending.token_count, runner->pending.plan == PLAN_LOCAL ? "local" : "pull");
    if (step_loop_add(runner->worker->steps, &runner->pending) != STATUS_OK)
        note(runner, (struct sink_outcome){.kind = OUTCOME_RESERVE_FAILED, .key = key});
    runner->pending = (struct sequence_spec){.plan = PLAN_LOCAL};
}

static void pair(struct sink_runner *runner, uint64_t peer)
{
    struct error err;
    bool ready = false;
    enum status status = kv_import_pair(runner->imports, peer, &ready, &err);
    if (status == STATUS_OK && !ready)
        return; /* kv_import_handlers.pair_up comes */
    if (status != STATUS_OK) {
        char quoted[600];
        log_error_limited(MODULE, "peer=%s status=%s why=%s msg=\"can't pair\"",
                          kv_import_name(runner->imports, peer), status_name(status),
                          log_quote(err.text, quoted, sizeof quoted));
    }
    note(runner,
         (struct sink_outcome){.kind = status == STATUS_OK ? OUTCOME_PAIR_UP : OUTCOME_PAIR_REFUSED,
                               .peer = peer});
}

static void read_blocks(struct sink_runner *runner, const struct sink_action *action)
{
    FAILPOINT("decode.reading");
    request_notes_read(&runner->notes, (struct sequence_key){action->request, action->attempt},
                       clock_now_us());
    enum status status = kv_import_read(runner->imports, action);
    const char *source = kv_import_name(runner->imports, action->peer);
    if (status == STATUS_OK && FAILPOINT_FAILS_OF("decode.lane_lose", source))
        kv_import_unpair(runner->imports, action->peer);
    if (status != STATUS_OK)
        note(runner, (struct sink_outcome){
                         .kind = OUTCOME_READ_FAILED, .cookie = action->cookie, .status = status});
}

/* Queues the comparison. Half of the places are enough for the sinks that there are: the others
 * may be of sinks that have ended, and are given up when they are needed. */
static void verify_later(struct sink_runner *runner, const struct sink_action *action)
{
    if (runner->verification_count == runner->verification_limit) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < runner->verification_count; i++)
            if (sink_is_verifying(runner->sinks, runner->verifications[i].cookie))
                runner->verifications[kept++] = runner->verifications[i];
        runner->verification_count = kept;
    }
    ASSERT(runner->verification_count < runner->verification_limit);
    runner->verifications[runner->verification_count++] =
        (struct verification){.cookie = action->cookie,
                              .local = action->local,
                              .sums = action->sums,
                              .crc = action->crc,
                              .block_count = action->block_count};
}

static void send_refused(struct sink_runner *runner, const struct sink_action *action)
{
    const char *sentence = runner->sentence;
    if (!sentence)
        sentence = action->reason == SINK_REASON_LIMIT
                       ? "the worker holds as many requests as --max-sequences allows"
                       : "the handle can't be used by this worker";
    session_send_refused(&runner->worker->session,
                         (struct sequence_key){action->request, action->attempt},
                         runner->refused_by ? runner->refused_by : sink_reason_name(action->reason),
                         sentence, action->retry);
}

static void send_pulled(struct sink_runner *runner, const struct sink_action *action)
{
    Baton__Worker__V1__Pulled pulled = BATON__WORKER__V1__PULLED__INIT;
    pulled.request = action->request;
    pulled.attempt = action->attempt;
    pulled.lane = (char *)kv_import_lane(runner->imports, action->peer); /* packing only reads it */
    pulled.lane_reason = (char *)kv_import_lane_reason(runner->imports, action->peer);
    pulled.lane_bytes_per_second = kv_import_lane_speed(runner->imports, action->peer);
    pulled.link_bytes_per_second = kv_import_link_speed(runner->imports);
    pulled.bytes = action->pulled_bytes;
    pulled.bytes_before_complete = action->early_bytes;
    request_notes_pulled(&runner->notes, (struct sequence_key){action->request, action->attempt},
                         clock_now_us(), &pulled);
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_PULLED;
    up.pulled = &pulled;
    if (!FAILPOINT_FAILS("decode.send_pulled"))
        session_send(&runner->worker->session, &up);
    counter_add(runner->worker->metrics.handoffs_ok, 1);
}

static void run_action(struct sink_runner *runner, const struct sink_action *action)
{
    struct sequence_key key = {action->request, action->attempt};
    switch (action->kind) {
    case SINK_RESERVE: reserve(runner, key); break;
    case SINK_UNRESERVE:
        step_loop_remove(runner->worker->steps, key);
        sink_runner_log_end(runner, key,
                            action->reason == SINK_REASON_NONE ? "released"
                                                               : sink_reason_name(action->reason));
        break;
    case SINK_ADMIT:
        if (!action->compute_prompt) /* with it, the sequence computes since it was reserved */
            step_loop_admit(runner->worker->steps, key, action->first_token, action->logits_hash,
                            &action->logprobs);
        break;
    case SINK_CONNECT:
        if (kv_import_connect(runner->imports, action->peer, action->incarnation) != STATUS_OK)
            note(runner,
                 (struct sink_outcome){.kind = OUTCOME_CONNECT_FAILED, .peer = action->peer});
        break;
    case SINK_CLOSE: kv_import_disconnect(runner->imports, action->peer); break;
    case SINK_PAIR: pair(runner, action->peer); break;
    case SINK_UNPAIR: kv_import_unpair(runner->imports, action->peer); break;
    case SINK_SEND_PEER:
        if (action->message.kind == PEER_CONFIRM)
            FAILPOINT("decode.before_confirm");
        kv_import_send(runner->imports, action->peer, &action->message);
        if (action->message.kind == PEER_CONFIRM)
            FAILPOINT("decode.after_confirm");
        break;
    case SINK_READ: read_blocks(runner, action); break;
    case SINK_VERIFY: verify_later(runner, action); break;
    case SINK_SEND_TOKEN: /* the answer's only token */
        session_send_tokens(
            &runner->worker->session,
            &(struct step_token){.key = key,
                                 .index = action->index,
                                 .token = action->first_token,
                                 .logits_hash = action->logits_hash,
                                 .finish = action->finish,
                                 .logprobs = action->logprobs.given ? &action->logprobs : NULL},
            1);
        sink_runner_log_end(runner, key, "finished");
        break;
    case SINK_SEND_LOST: {
        char why[64];
        bool read = action->reason == SINK_REASON_READ && runner->read_failure;
        snprintf(why, sizeof why, "%s%s%s", sink_reason_name(action->reason), read ? ": " : "",
                 read ? kv_failure_name(runner->read_failure) : "");
        counter_add(runner->worker->metrics.handoffs_failed, 1);
        session_send_lost(&runner->worker->session, key, why, "");
        break;
    }
    case SINK_SEND_REFUSED: send_refused(runner, action); break;
    case SINK_SEND_PULLED: send_pulled(runner, action); break;
    }
}

static void report_outcome(struct sink_runner *runner, const struct sink_outcome *outcome)
{
    uint64_t now_us = clock_now_us();
    struct sink_actions *out = &runner->actions;
    switch (outcome->kind) {
    case OUTCOME_RESERVE_FAILED:
        sink_on_reserve_failed(runner->sinks, now_us, outcome->key.request, outcome->key.attempt,
                               true, out);
        break;
    case OUTCOME_CONNECT_FAILED:
        sink_on_connect_failed(runner->sinks, now_us, outcome->peer, out);
        break;
    case OUTCOME_PAIR_UP: sink_on_pair_up(runner->sinks, now_us, outcome->peer, out); break;
    case OUTCOME_PAIR_REFUSED:
        sink_on_peer_refused(runner->sinks, now_us, outcome->peer, SINK_REASON_PAIRING, out);
        break;
    case OUTCOME_READ_FAILED:
        sink_on_read_done(runner->sinks, now_us, outcome->cookie, outcome->status, out);
        break;
    }
}

void sink_runner_run(struct sink_runner *runner)
{
    for (;;) {
        for (uint32_t i = 0; i < runner->actions.count; i++)
            run_action(runner, &runner->actions.items[i]);
        runner->actions.count = 0;
        if (runner->outcome_count == 0)
            return;
        struct sink_outcome outcome = runner->outcomes[0];
        runner->outcome_count--;
        for (uint32_t i = 0; i < runner->outcome_count; i++)
            runner->outcomes[i] = runner->outcomes[i + 1];
        report_outcome(runner, &outcome);
    }
}

bool sink_runner_work(struct sink_runner *runner)
{
    if (runner->verification_count == 0)
        return false;
    struct verification next = runner->verifications[0];
    runner->verification_count--;
    memmove(runner->verifications, runner->verifications + 1,
            runner->verification_count * sizeof *runner->verifications);
    if (!sink_is_verifying(runner->sinks, next.cookie))
        return true;
    uint64_t turn = TRANSFER_TURN_BYTES / runner->worker->block_bytes + 1;
    uint32_t count = turn < next.block_count ? (uint32_t)turn : next.block_count;
    bool good = kv_import_verify(runner->imports, next.local, next.sums, next.crc, count);
    if (good && count < next.block_count) {
        next.local += count;
        next.sums += count;
        next.block_count -= count;
        runner->verifications[runner->verification_count++] = next;
        return true;
    }
    sink_on_verified(runner->sinks, clock_now_us(), next.cookie, good, &runner->actions);
    sink_runner_run(runner);
    return true;
}
