#include "decode_worker/decode_role.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/worker/request_names.h"
#include "common/worker/wire.h"
#include "decode_worker/kv_import.h"
#include "decode_worker/prefill_peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MODULE          "decode_role"
#define MAX_READ_BLOCKS 64
#define RECONNECT_US    200000

/* What an action brought about at once. It is told to the sinks after the list of actions is done. */
enum outcome_kind {
    OUTCOME_RESERVE_FAILED,
    OUTCOME_CONNECT_FAILED,
    OUTCOME_PAIR_UP,
    OUTCOME_PAIR_REFUSED,
    OUTCOME_READ_FAILED,
    OUTCOME_VERIFIED
};
struct outcome {
    enum outcome_kind kind;
    struct sequence_key key;
    uint64_t peer, cookie;
    enum status status;
    bool good;
};

struct decode_role {
    struct worker *worker;
    struct sink_table *sinks;
    struct sink_actions actions;
    struct kv_import *imports;
    struct sequence_spec pending; /* of the Decode command under way: what SINK_RESERVE queues */
    const char *pending_name;     /* likewise, what its client calls it */
    struct request_names names;
    struct outcome *outcomes; /* [actions.capacity] */
    uint32_t outcome_count;
    enum kv_failure read_failure; /* of the read whose end is told now */
    const char *sentence;         /* of the failure under way, for a SEND_REFUSED; NULL: none */
};

/* ---------------------------------------------------------------- actions */

static void note(struct decode_role *role, struct outcome outcome)
{
    ASSERT(role->outcome_count < role->actions.capacity); /* one an action at most */
    role->outcomes[role->outcome_count++] = outcome;
}

static void reserve(struct decode_role *role, struct sequence_key key)
{
    ASSERT(role->pending.tokens); /* a sink reserves as an answer to its Decode, once */
    role->pending.key = key;
    request_names_put(&role->names, key, role->pending_name);
    log_debug(MODULE,
              "req=%s id=%016" PRIx64 " attempt=%u tokens=%u plan=%s msg=\"sequence begins\"",
              request_names_get(&role->names, key), key.request, key.attempt,
              role->pending.token_count, role->pending.plan == PLAN_LOCAL ? "local" : "pull");
    if (step_loop_add(role->worker->steps, &role->pending) != STATUS_OK)
        note(role, (struct outcome){.kind = OUTCOME_RESERVE_FAILED, .key = key});
    role->pending.tokens = NULL;
}

static void pair(struct decode_role *role, uint64_t peer)
{
    struct error err;
    enum status status = kv_import_pair(role->imports, peer, &err);
    if (status != STATUS_OK) {
        char quoted[600];
        log_error_limited(MODULE, "peer=%s status=%s why=%s msg=\"can't pair\"",
                          kv_import_name(role->imports, peer), status_name(status),
                          log_quote(err.text, quoted, sizeof quoted));
    }
    note(role,
         (struct outcome){.kind = status == STATUS_OK ? OUTCOME_PAIR_UP : OUTCOME_PAIR_REFUSED,
                          .peer = peer});
}

static void read_blocks(struct decode_role *role, const struct sink_action *action)
{
    FAILPOINT("decode.reading");
    enum status status = kv_import_read(role->imports, action->peer, action->remote, action->local,
                                        action->block_count, action->cookie);
    if (status == STATUS_OK && FAILPOINT_FAILS("decode.lane_lose"))
        kv_import_unpair(role->imports, action->peer);
    if (status != STATUS_OK)
        note(role, (struct outcome){
                       .kind = OUTCOME_READ_FAILED, .cookie = action->cookie, .status = status});
}

static void verify(struct decode_role *role, const struct sink_action *action)
{
    bool good =
        kv_import_verify(role->imports, action->local, action->checksums, action->block_count);
    note(role, (struct outcome){.kind = OUTCOME_VERIFIED, .cookie = action->cookie, .good = good});
}

static void send_token(struct decode_role *role, const struct sink_action *action)
{
    struct step_token token = {.key = {action->request, action->attempt},
                               .index = action->index,
                               .token = action->first_token,
                               .logits_hash = action->logits_hash,
                               .finish = action->finish};
    session_send_tokens(&role->worker->session, &token, 1);
}

/* A read that failed says how, too. */
static void send_lost(struct decode_role *role, struct sequence_key key, enum sink_reason reason)
{
    char why[64];
    bool how = reason == SINK_REASON_READ && role->read_failure;
    snprintf(why, sizeof why, "%s%s%s", sink_reason_name(reason), how ? ": " : "",
             how ? kv_failure_name(role->read_failure) : "");
    counter_add(role->worker->metrics.handoffs_failed, 1);
    session_send_lost(&role->worker->session, key, why, "");
}

static void send_refused(struct decode_role *role, const struct sink_action *action)
{
    const char *sentence = role->sentence;
    if (!sentence)
        sentence = action->reason == SINK_REASON_LIMIT
                       ? "the worker holds as many requests as --max-sequences allows"
                       : "the handle can't be used by this worker";
    session_send_refused(&role->worker->session,
                         (struct sequence_key){action->request, action->attempt},
                         sink_reason_name(action->reason), sentence, action->retry);
}

static void send_pulled(struct decode_role *role, const struct sink_action *action)
{
    Baton__Worker__V1__Pulled pulled = BATON__WORKER__V1__PULLED__INIT;
    pulled.request = action->request;
    pulled.attempt = action->attempt;
    pulled.lane = (char *)kv_import_lane(role->imports, action->peer); /* packing only reads */
    pulled.lane_bytes_per_second = kv_import_lane_speed(role->imports, action->peer);
    pulled.bytes = action->pulled_bytes;
    pulled.bytes_before_complete = action->early_bytes;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_PULLED;
    up.pulled = &pulled;
    if (!FAILPOINT_FAILS("decode.send_pulled"))
        session_send(&role->worker->session, &up);
    counter_add(role->worker->metrics.handoffs_ok, 1);
}

static void log_end(struct decode_role *role, struct sequence_key key, const char *how)
{
    if (!request_names_has(&role->names, key))
        return; /* told already: the step thread was not the first to end it */
    log_debug(MODULE, "req=%s id=%016" PRIx64 " attempt=%u end=%s msg=\"sequence ended\"",
              request_names_get(&role->names, key), key.request, key.attempt, how);
    request_names_drop(&role->names, key);
}

static void run_action(struct decode_role *role, const struct sink_action *action)
{
    struct sequence_key key = {action->request, action->attempt};
    switch (action->kind) {
    case SINK_RESERVE: reserve(role, key); break;
    case SINK_UNRESERVE:
        step_loop_remove(role->worker->steps, key);
        log_end(role, key,
                action->reason == SINK_REASON_NONE ? "released" : sink_reason_name(action->reason));
        break;
    case SINK_ADMIT:
        if (!action->compute_prompt) /* else it computes since it was reserved */
            step_loop_admit(role->worker->steps, key, action->first_token, action->logits_hash);
        break;
    case SINK_CONNECT:
        if (kv_import_connect(role->imports, action->peer) != STATUS_OK)
            note(role, (struct outcome){.kind = OUTCOME_CONNECT_FAILED, .peer = action->peer});
        break;
    case SINK_CLOSE: kv_import_disconnect(role->imports, action->peer); break;
    case SINK_PAIR: pair(role, action->peer); break;
    case SINK_UNPAIR: kv_import_unpair(role->imports, action->peer); break;
    case SINK_SEND_PEER:
        if (action->message.kind == PEER_CONFIRM)
            FAILPOINT("decode.before_confirm");
        kv_import_send(role->imports, action->peer, &action->message);
        if (action->message.kind == PEER_CONFIRM)
            FAILPOINT("decode.after_confirm");
        break;
    case SINK_READ: read_blocks(role, action); break;
    case SINK_VERIFY: verify(role, action); break;
    case SINK_SEND_TOKEN: /* the first and the last */
        send_token(role, action);
        log_end(role, key, "finished");
        break;
    case SINK_SEND_LOST: send_lost(role, key, action->reason); break;
    case SINK_SEND_REFUSED: send_refused(role, action); break;
    case SINK_SEND_PULLED: send_pulled(role, action); break;
    }
}

static void tell_outcome(struct decode_role *role, const struct outcome *outcome)
{
    uint64_t now_us = clock_now_us();
    struct sink_actions *out = &role->actions;
    switch (outcome->kind) {
    case OUTCOME_RESERVE_FAILED:
        sink_on_reserve_failed(role->sinks, now_us, outcome->key.request, outcome->key.attempt,
                               true, out);
        break;
    case OUTCOME_CONNECT_FAILED:
        sink_on_connect_failed(role->sinks, now_us, outcome->peer, out);
        break;
    case OUTCOME_PAIR_UP: sink_on_pair_up(role->sinks, now_us, outcome->peer, out); break;
    case OUTCOME_PAIR_REFUSED:
        sink_on_peer_refused(role->sinks, now_us, outcome->peer, SINK_REASON_PAIRING, out);
        break;
    case OUTCOME_READ_FAILED:
        sink_on_read_done(role->sinks, now_us, outcome->cookie, outcome->status, out);
        break;
    case OUTCOME_VERIFIED:
        sink_on_verified(role->sinks, now_us, outcome->cookie, outcome->good, out);
        break;
    }
}

/* Carries out the list that a sink_on_... call has left, then tells the outcomes, which leave lists of their own. */
static void run_actions(struct decode_role *role)
{
    for (;;) {
        for (uint32_t i = 0; i < role->actions.count; i++)
            run_action(role, &role->actions.items[i]);
        role->actions.count = 0;
        if (role->outcome_count == 0)
            return;
        struct outcome outcome = role->outcomes[0];
        role->outcome_count--;
        for (uint32_t i = 0; i < role->outcome_count; i++)
            role->outcomes[i] = role->outcomes[i + 1];
        tell_outcome(role, &outcome);
    }
}

/* ---------------------------------------------------------------- the router's commands */

static uint32_t tokens_to_reserve(const struct decode_role *role, const struct sequence_spec *spec)
{
    uint64_t total = (uint64_t)spec->token_count + spec->sampling.max_tokens -
                     (spec->emitted_count < spec->sampling.max_tokens ? spec->emitted_count
                                                                      : spec->sampling.max_tokens);
    uint32_t context = role->worker->info.context;
    return total < context ? (uint32_t)total : context;
}

static void decode_with_spec(struct decode_role *role, const Baton__Worker__V1__Decode *command)
{
    struct sink_decode decode = {.request = command->request,
                                 .attempt = command->attempt,
                                 .has_handle = command->handle != NULL,
                                 .emitted_count = role->pending.emitted_count,
                                 .reserve_tokens = tokens_to_reserve(role, &role->pending)};
    if (decode.has_handle) {
        decode.handle = wire_handle(command->handle);
        decode.peer = kv_import_peer(role->imports, command->source_address, command->source_name);
        if (decode.peer == 0 || !wire_handle_fits(&decode.handle, &role->pending)) {
            session_send_refused(
                &role->worker->session, (struct sequence_key){command->request, command->attempt},
                "invalid",
                "the handle does not fit the prompt, or too many prefill workers are known", true);
            return;
        }
    }
    sink_on_decode(role->sinks, clock_now_us(), &decode, &role->actions);
    run_actions(role);
}

static void on_decode(struct decode_role *role, const Baton__Worker__V1__Decode *command)
{
    FAILPOINT_OF("decode.taken", command->request_name);
    struct sequence_key key = {command->request, command->attempt};
    struct wire_prompt prompt = {
        command->prompt,   command->emitted,         command->n_prompt,      command->n_emitted,
        command->sampling, command->cache_salt.data, command->cache_salt.len};
    struct error err;
    role->pending = (struct sequence_spec){.plan = command->handle ? PLAN_RECEIVE : PLAN_LOCAL};
    if (wire_sequence_spec(&prompt, &role->worker->info, &role->pending, &err) != STATUS_OK) {
        session_send_refused(&role->worker->session, key, "invalid", err.text, false);
        return;
    }
    role->pending_name = command->request_name;
    if (atomic_load(&role->worker->draining))
        session_send_refused(&role->worker->session, key, "draining", "the worker is draining",
                             true);
    else
        decode_with_spec(role, command);
    role->pending_name = NULL;
    free(role->pending.tokens); /* NULL once queued */
    role->pending.tokens = NULL;
}

static void on_command(void *context, const Baton__Worker__V1__SessionDown *command)
{
    struct decode_role *role = context;
    switch (command->command_case) {
    case BATON__WORKER__V1__SESSION_DOWN__COMMAND_DECODE: on_decode(role, command->decode); break;
    case BATON__WORKER__V1__SESSION_DOWN__COMMAND_RELEASE:
        sink_on_release(role->sinks, clock_now_us(), command->release->request,
                        command->release->attempt, &role->actions);
        run_actions(role);
        break;
    default:
        log_warn_limited(MODULE, "command=%d msg=\"not a command for a decode worker\"",
                         (int)command->command_case);
    }
}

static void on_session_lost(void *context)
{
    struct decode_role *role = context;
    sink_on_session_lost(role->sinks, clock_now_us(), &role->actions);
    run_actions(role);
}

static void on_router_changed(void *context)
{
    (void)context; /* all that it had asked for ended with its session */
}

/* ---------------------------------------------------------------- prefill workers */

static bool peer_used(void *context, uint64_t peer)
{
    return sink_table_uses_peer(((struct decode_role *)context)->sinks, peer);
}

static void on_peer_up(void *context, uint64_t peer, uint64_t incarnation)
{
    struct decode_role *role = context;
    sink_on_peer_up(role->sinks, clock_now_us(), peer, incarnation, &role->actions);
    run_actions(role);
}

static void on_peer_refused(void *context, uint64_t peer, enum sink_reason reason)
{
    struct decode_role *role = context;
    sink_on_peer_refused(role->sinks, clock_now_us(), peer, reason, &role->actions);
    run_actions(role);
}

static void on_peer_lost(void *context, uint64_t peer, bool refused)
{
    struct decode_role *role = context;
    sink_on_peer_lost(role->sinks, clock_now_us(), peer, refused, &role->actions);
    run_actions(role);
}

static void on_pair_closed(void *context, uint64_t peer, bool gone)
{
    struct decode_role *role = context;
    sink_on_pair_closed(role->sinks, clock_now_us(), peer, gone, &role->actions);
    run_actions(role);
}

static void on_peer_message(void *context, uint64_t peer, const struct peer_up *message)
{
    struct decode_role *role = context;
    if (message->kind == PEER_HELD)
        FAILPOINT("decode.held");
    sink_on_message(role->sinks, clock_now_us(), peer, message, &role->actions);
    run_actions(role);
}

static void on_read_done(void *context, uint64_t cookie, enum status status,
                         enum kv_failure failure)
{
    struct decode_role *role = context;
    FAILPOINT("decode.read_done");
    role->read_failure = failure;
    sink_on_read_done(role->sinks, clock_now_us(), cookie, status, &role->actions);
    run_actions(role);
    role->read_failure = KV_FAILURE_NONE;
}

static const struct kv_import_handlers import_handlers = {
    peer_used,      on_peer_up,      on_peer_refused, on_peer_lost,
    on_pair_closed, on_peer_message, on_read_done};

static void on_kv_event(void *context, const struct kv_event *event)
{
    struct decode_role *role = context;
    kv_import_kv_event(role->imports, event);
}

/* ---------------------------------------------------------------- the step thread's events */

static void on_tokens(struct decode_role *role, const struct step_event *event)
{
    session_send_tokens(&role->worker->session, event->tokens, event->token_count);
    FAILPOINT("decode.after_tokens");
    for (uint32_t i = 0; i < event->token_count; i++) {
        const struct step_token *token = &event->tokens[i];
        if (token->finish == FINISH_NONE)
            continue;
        log_end(role, token->key, "finished");
        sink_on_finished(role->sinks, clock_now_us(), token->key.request, token->key.attempt,
                         &role->actions);
        run_actions(role);
    }
}

/* Its rows could not be computed: the router may try elsewhere, with what was emitted so far. */
static void on_failed(struct decode_role *role, const struct step_event *event)
{
    request_names_log_failed(&role->names, MODULE, event);
    log_end(role, event->key, "step_failed");
    session_send_lost(&role->worker->session, event->key, "step_failed", event->err.text);
    step_loop_remove(role->worker->steps, event->key);
    sink_on_finished(role->sinks, clock_now_us(), event->key.request, event->key.attempt,
                     &role->actions);
    run_actions(role);
}

static void on_step_event(void *context, const struct step_event *event)
{
    struct decode_role *role = context;
    switch (event->kind) {
    case STEP_RESERVED:
        FAILPOINT("decode.reserved");
        sink_on_reserved(role->sinks, clock_now_us(), event->key.request, event->key.attempt,
                         event->blocks, event->block_count,
                         event->cached_tokens / role->worker->info.block_tokens, &role->actions);
        run_actions(role);
        break;
    case STEP_REFUSED:
        request_names_log_failed(&role->names, MODULE, event);
        role->sentence = event->err.text;
        sink_on_reserve_failed(role->sinks, clock_now_us(), event->key.request, event->key.attempt,
                               event->status != STATUS_INVALID, &role->actions);
        run_actions(role);
        role->sentence = NULL;
        break;
    case STEP_TOKENS: on_tokens(role, event); break;
    case STEP_FAILED: on_failed(role, event); break;
    case STEP_READY:
    case STEP_REMOVED:
    case STEP_CACHE: break; /* the worker sends those up itself */
    }
}

static void on_tick(void *context, uint64_t now_us)
{
    struct decode_role *role = context;
    sink_on_tick(role->sinks, now_us, &role->actions);
    run_actions(role);
    struct sink_counters counters = sink_table_counters(role->sinks);
    worker_metrics_advance(role->worker->metrics.stale_messages, &role->worker->metrics.seen_stale,
                           counters.dropped);
}

static uint32_t busy_count(void *context)
{
    return sink_table_count(((struct decode_role *)context)->sinks);
}

/* ---------------------------------------------------------------- life */

static void close_streams(void *context)
{
    kv_import_close(((struct decode_role *)context)->imports);
}

static void destroy(void *context)
{
    struct decode_role *role = context;
    kv_import_destroy(role->imports);
    sink_actions_deinit(&role->actions);
    sink_table_destroy(role->sinks);
    free(role->outcomes);
    request_names_deinit(&role->names);
    free(role);
}

static enum status create_parts(struct decode_role *role, struct error *err)
{
    const struct worker *worker = role->worker;
    struct sink_config config = {
        .model_hash = worker->info.model_hash,
        .layout_hash = worker->info.layout_hash,
        .numerics_id = worker->info.numerics_id,
        .vocab = worker->info.vocab,
        .host_path = true,
        .block_tokens = worker->info.block_tokens,
        .block_bytes = worker->block_bytes,
        .max_sinks = worker->config.max_sequences,
        .max_blocks = worker->info.context / worker->info.block_tokens + 1,
        .max_peers = PREFILL_PEERS_MAX,
        .max_read_blocks = MAX_READ_BLOCKS,
        .heartbeat_us = worker->config.heartbeat_us,
        .silence_limit_us = worker->config.lease_us,
        .peer_down_limit_us = worker->config.peer_timeout_us,
        .reconnect_us = RECONNECT_US,
    };
    TRY(sink_table_create(&config, &role->sinks, err));
    TRY(sink_actions_init(&role->actions, role->sinks));
    role->outcomes = calloc(role->actions.capacity, sizeof *role->outcomes);
    if (!role->outcomes ||
        request_names_init(&role->names, worker->config.max_sequences) != STATUS_OK)
        return error_set(err, STATUS_LIMIT, "out of memory for the decode role");
    return kv_import_create(role->worker, &import_handlers, role, &role->imports);
}

static enum status create(struct worker *worker, void **out, struct error *err)
{
    struct decode_role *role = calloc(1, sizeof *role);
    if (!role)
        return error_set(err, STATUS_LIMIT, "out of memory for the decode role");
    role->worker = worker;
    enum status status = create_parts(role, err);
    if (status != STATUS_OK) {
        destroy(role);
        return status;
    }
    *out = role;
    return STATUS_OK;
}

const struct worker_role_ops decode_role_ops = {
    .role = ROLE_DECODE,
    .create = create,
    .close = close_streams,
    .destroy = destroy,
    .handlers = {on_step_event, on_kv_event, on_tick},
    .session = {on_command, on_session_lost, on_router_changed},
    .busy_count = busy_count,
};
