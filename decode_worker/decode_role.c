#include "decode_worker/decode_role.h"

#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/worker/session.h"
#include "common/worker/wire.h"
#include "decode_worker/kv_import.h"
#include "decode_worker/sink_runner.h"

#include <stdio.h>
#include <stdlib.h>

#define MODULE          "decode_role"
#define MAX_READ_BLOCKS 64
#define RECONNECT_US    200000

struct decode_role {
    struct worker *worker;
    struct kv_import *imports;
    struct sink_runner runner;
};

/* ---------------------------------------------------------------- the router's commands */

static void decode_with_spec(struct decode_role *role, const Baton__Worker__V1__Decode *command)
{
    const struct sequence_spec *spec = &role->runner.pending;
    uint32_t max_tokens = spec->sampling.max_tokens, context = role->worker->info.context;
    uint32_t emitted = spec->emitted_count < max_tokens ? spec->emitted_count : max_tokens;
    uint64_t total = (uint64_t)spec->token_count + max_tokens - emitted;
    struct sink_decode decode = {.request = command->request,
                                 .attempt = command->attempt,
                                 .has_handle = command->handle != NULL,
                                 .emitted_count = spec->emitted_count,
                                 .reserve_tokens = total < context ? (uint32_t)total : context};
    if (decode.has_handle) {
        decode.handle = wire_handle(command->handle);
        decode.peer = kv_import_peer(role->imports, command->source_address, command->source_name);
        bool fits = wire_handle_fits(&decode.handle, spec) && *command->source_address;
        if (decode.peer == 0 || !fits) {
            char all_used[100];
            snprintf(all_used, sizeof all_used,
                     "this worker reads from %d prefill workers, and can't from one more now",
                     PREFILL_PEERS_MAX);
            session_send_refused(
                &role->worker->session, (struct sequence_key){command->request, command->attempt},
                fits ? "limit" : "invalid",
                fits ? all_used : "the handle does not fit the prompt, or has no address", true);
            return;
        }
    }
    sink_on_decode(role->runner.sinks, clock_now_us(), &decode, &role->runner.actions);
    sink_runner_run(&role->runner);
}

static void on_decode(struct decode_role *role, const Baton__Worker__V1__Decode *command)
{
    FAILPOINT_OF("decode.taken", command->request_name);
    struct sequence_key key = {command->request, command->attempt};
    struct wire_prompt prompt = {
        command->prompt,   command->emitted,         command->n_prompt,       command->n_emitted,
        command->sampling, command->cache_salt.data, command->cache_salt.len, command->priority,
        command->tenant,   command->deadline_left_us};
    struct error err;
    role->runner.pending =
        (struct sequence_spec){.plan = command->handle ? PLAN_RECEIVE : PLAN_LOCAL};
    if (wire_sequence_spec(&prompt, &role->worker->info, &role->runner.pending, &err) !=
        STATUS_OK) {
        session_send_refused(&role->worker->session, key, "invalid", err.text, false);
        return;
    }
    if (command->handle)
        wire_mark_received(&prompt, &role->worker->info, command->handle->numerics_id,
                           &role->runner.pending);
    role->runner.pending_name = command->request_name;
    /* Requests that were placed before the router heard of the drain come all the same. Some are
     * bound to this worker: of a handle it may be the last reader, of an answer that has begun the
     * last worker with its weights. The others may begin elsewhere. */
    if (atomic_load(&role->worker->draining) && !command->handle && !command->n_emitted)
        session_send_refused(&role->worker->session, key, "draining", "the worker is draining",
                             true);
    else
        decode_with_spec(role, command);
    role->runner.pending_name = NULL;
    sequence_spec_free(&role->runner.pending); /* it owns nothing once it was queued */
    role->runner.pending = (struct sequence_spec){.plan = PLAN_LOCAL};
}

static void on_command(void *context, const Baton__Worker__V1__SessionDown *command)
{
    struct decode_role *role = context;
    switch (command->command_case) {
    case BATON__WORKER__V1__SESSION_DOWN__COMMAND_DECODE: on_decode(role, command->decode); break;
    case BATON__WORKER__V1__SESSION_DOWN__COMMAND_RELEASE:
        sink_on_release(role->runner.sinks, clock_now_us(), command->release->request,
                        command->release->attempt, &role->runner.actions);
        sink_runner_run(&role->runner);
        break;
    default:
        log_warn_limited(MODULE, "command=%d msg=\"not a command for a decode worker\"",
                         (int)command->command_case);
    }
}

static void on_session_lost(void *context)
{
    struct decode_role *role = context;
    sink_on_session_lost(role->runner.sinks, clock_now_us(), &role->runner.actions);
    sink_runner_run(&role->runner);
}

static void on_router_changed(void *context)
{
    (void)context; /* its requests ended with its session */
}

/* ---------------------------------------------------------------- prefill workers */

static bool peer_used(void *context, uint64_t peer)
{
    return sink_table_uses_peer(((struct decode_role *)context)->runner.sinks, peer);
}

static void on_peer_up(void *context, uint64_t peer, uint64_t incarnation)
{
    struct decode_role *role = context;
    sink_on_peer_up(role->runner.sinks, clock_now_us(), peer, incarnation, &role->runner.actions);
    sink_runner_run(&role->runner);
}

static void on_peer_refused(void *context, uint64_t peer, enum sink_reason reason)
{
    struct decode_role *role = context;
    sink_on_peer_refused(role->runner.sinks, clock_now_us(), peer, reason, &role->runner.actions);
    sink_runner_run(&role->runner);
}

static void on_peer_lost(void *context, uint64_t peer, bool refused)
{
    struct decode_role *role = context;
    sink_on_peer_lost(role->runner.sinks, clock_now_us(), peer, refused, &role->runner.actions);
    sink_runner_run(&role->runner);
}

static void on_peer_full(void *context, uint64_t peer)
{
    struct decode_role *role = context;
    sink_on_peer_full(role->runner.sinks, clock_now_us(), peer, &role->runner.actions);
    sink_runner_run(&role->runner);
}

static void on_peer_replaced(void *context, uint64_t peer)
{
    struct decode_role *role = context;
    sink_on_peer_replaced(role->runner.sinks, clock_now_us(), peer, &role->runner.actions);
    sink_runner_run(&role->runner);
}

static void on_pair_up(void *context, uint64_t peer)
{
    struct decode_role *role = context;
    sink_on_pair_up(role->runner.sinks, clock_now_us(), peer, &role->runner.actions);
    sink_runner_run(&role->runner);
}

static void on_pair_closed(void *context, uint64_t peer, bool gone)
{
    struct decode_role *role = context;
    sink_on_pair_closed(role->runner.sinks, clock_now_us(), peer, gone, &role->runner.actions);
    sink_runner_run(&role->runner);
}

static void on_peer_message(void *context, uint64_t peer, const struct peer_up *message)
{
    struct decode_role *role = context;
    if (message->kind == PEER_HELD)
        FAILPOINT("decode.held");
    sink_on_message(role->runner.sinks, clock_now_us(), peer, message, &role->runner.actions);
    sink_runner_run(&role->runner);
}

static void on_read_done(void *context, uint64_t cookie, enum status status,
                         enum kv_failure failure)
{
    struct decode_role *role = context;
    FAILPOINT("decode.read_done");
    role->runner.read_failure = failure;
    sink_on_read_done(role->runner.sinks, clock_now_us(), cookie, status, &role->runner.actions);
    sink_runner_run(&role->runner);
    role->runner.read_failure = KV_FAILURE_NONE;
}

static const struct kv_import_handlers import_handlers = {
    peer_used,        on_peer_up, on_peer_refused, on_peer_lost,    on_peer_full,
    on_peer_replaced, on_pair_up, on_pair_closed,  on_peer_message, on_read_done};

static void on_kv_event(void *context, const struct kv_event *event)
{
    struct decode_role *role = context;
    kv_import_kv_event(role->imports, event);
}

/* ---------------------------------------------------------------- the step thread's events */

static void on_tokens(struct decode_role *role, const struct step_event *event)
{
    struct request_notes *notes = &role->runner.notes;
    for (uint32_t i = 0; i < event->token_count && notes->unsent; i++) {
        /* The times of a prompt that was computed here leave before its first token. */
        Baton__Worker__V1__Prefilled prefilled;
        request_notes_chunk(notes, event->tokens[i].key, event->at_us);
        if (request_notes_prefilled(notes, event->tokens[i].key, &prefilled))
            session_send_prefilled(&role->worker->session, &prefilled);
    }
    session_send_step(&role->worker->session, event);
    FAILPOINT("decode.after_tokens");
    for (uint32_t i = 0; i < event->token_count; i++) {
        const struct step_token *token = &event->tokens[i];
        if (token->finish == FINISH_NONE)
            continue;
        sink_runner_log_end(&role->runner, token->key, "finished");
        sink_on_finished(role->runner.sinks, clock_now_us(), token->key.request, token->key.attempt,
                         &role->runner.actions);
        sink_runner_run(&role->runner);
    }
}

/* Ends a sequence after its rows or its token could not be computed. The router may try elsewhere
 * with the tokens so far, unless no token may be drawn. */
static void on_failed(struct decode_role *role, const struct step_event *event)
{
    request_notes_log_failed(&role->runner.notes, MODULE, event);
    const char *why = step_event_lost_by(event);
    sink_runner_log_end(&role->runner, event->key, why);
    session_send_lost(&role->worker->session, event->key, why, event->err.text);
    step_loop_remove(role->worker->steps, event->key);
    sink_on_finished(role->runner.sinks, clock_now_us(), event->key.request, event->key.attempt,
                     &role->runner.actions);
    sink_runner_run(&role->runner);
}

static void on_step_event(void *context, const struct step_event *event)
{
    struct decode_role *role = context;
    switch (event->kind) {
    case STEP_RESERVED:
        FAILPOINT("decode.reserved");
        request_notes_reserved(&role->runner.notes, event->key, event->cached_tokens, event->at_us);
        sink_on_reserved(role->runner.sinks, clock_now_us(), event->key.request, event->key.attempt,
                         event->blocks, event->block_count,
                         event->cached_tokens / role->worker->info.block_tokens,
                         &role->runner.actions);
        sink_runner_run(&role->runner);
        break;
    case STEP_REFUSED:
        request_notes_log_failed(&role->runner.notes, MODULE, event);
        role->runner.sentence = event->err.text;
        role->runner.refused_by = step_event_refused_by(event);
        sink_on_reserve_failed(role->runner.sinks, clock_now_us(), event->key.request,
                               event->key.attempt, step_event_may_retry(event),
                               &role->runner.actions);
        sink_runner_run(&role->runner);
        role->runner.sentence = role->runner.refused_by = NULL;
        break;
    case STEP_TOKENS: on_tokens(role, event); break;
    case STEP_FAILED: on_failed(role, event); break;
    case STEP_READY:
    case STEP_REMOVED:
    case STEP_PROMPT_LOGPROBS:
    case STEP_CACHE:
    case STEP_DONE: break; /* worker.c handles the last three */
    }
}

static void on_tick(void *context, uint64_t now_us)
{
    struct decode_role *role = context;
    sink_on_tick(role->runner.sinks, now_us, &role->runner.actions);
    sink_runner_run(&role->runner);
    struct sink_counters counters = sink_table_counters(role->runner.sinks);
    worker_metrics_advance(role->worker->metrics.stale_messages, &role->worker->metrics.seen_stale,
                           counters.dropped);
}

static bool on_work(void *context)
{
    return sink_runner_work(&((struct decode_role *)context)->runner);
}

static uint32_t busy_count(void *context)
{
    return sink_table_count(((struct decode_role *)context)->runner.sinks);
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
    sink_runner_deinit(&role->runner);
    free(role);
}

static enum status create_parts(struct decode_role *role, struct error *err)
{
    const struct worker *worker = role->worker;
    struct sink_config config = {
        .model_hash = worker->info.model_hash,
        .layout_hash = worker->info.layout_hash,
        .numerics_id = worker->info.numerics_id,
        .mixed_numerics = worker->config.mixed_numerics,
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
    TRY(sink_runner_init(&role->runner, role->worker, &config, err));
    if (kv_import_create(role->worker, &import_handlers, role, &role->imports) != STATUS_OK)
        return error_set(err, STATUS_LIMIT, "out of memory for the decode role");
    role->runner.imports = role->imports;
    return STATUS_OK;
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
    .handlers = {on_step_event, on_kv_event, on_tick, on_work},
    .session = {on_command, on_session_lost, on_router_changed},
    .busy_count = busy_count,
};
