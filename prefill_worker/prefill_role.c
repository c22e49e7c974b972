#include "prefill_worker/prefill_role.h"

#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/kv/handoff/source.h"
#include "common/worker/request_notes.h"
#include "common/worker/session.h"
#include "common/worker/wire.h"
#include "prefill_worker/kv_export.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MODULE     "prefill_role"
#define MEMO_COUNT 4096

struct prefill_role {
    struct worker *worker;
    struct source_table *sources;
    struct source_actions actions;
    struct kv_export *exports;
    struct sequence_spec pending; /* the Prefill command under way; SOURCE_START starts it */
    const char *pending_name;     /* the client's name for it */
    struct request_notes notes;
    const char *sentence; /* why it failed, for a SEND_REFUSED or SEND_LOST; NULL: unknown */
    const char *lost_by;  /* the word for a SEND_LOST */
};

/* ---------------------------------------------------------------- actions */

static void send_opened(struct prefill_role *role, const struct source_action *action)
{
    Baton__Worker__V1__Handle handle;
    wire_handle_pack(&action->handle, &handle);
    Baton__Worker__V1__Opened opened = BATON__WORKER__V1__OPENED__INIT;
    opened.request = action->request;
    opened.attempt = action->attempt;
    opened.handle = &handle;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_OPENED;
    up.opened = &opened;
    if (!FAILPOINT_FAILS("prefill.send_opened"))
        session_send(&role->worker->session, &up);
}

static void send_refused(struct prefill_role *role, const struct source_action *action)
{
    const char *sentence = role->sentence;
    if (!sentence && !strcmp(action->reason, "gone"))
        sentence = "this attempt has ended here already";
    if (!sentence)
        sentence = action->retry ? "the worker holds as many requests as --max-sequences allows"
                                 : "the prompt is empty, or longer than the worker's context";
    session_send_refused(&role->worker->session,
                         (struct sequence_key){action->request, action->attempt}, action->reason,
                         sentence, action->retry);
}

static void run_actions(struct prefill_role *role)
{
    const struct worker_metrics *metrics = &role->worker->metrics;
    bool start_failed = false;
    struct sequence_key failed_key = {0};
    for (uint32_t i = 0; i < role->actions.count; i++) {
        const struct source_action *action = &role->actions.items[i];
        struct sequence_key key = {action->request, action->attempt};
        Baton__Worker__V1__Prefilled prefilled;
        switch (action->kind) {
        case SOURCE_START:
            role->pending.key = key;
            request_notes_begin(&role->notes, key, role->pending_name, true, clock_now_us());
            log_debug(MODULE,
                      "req=%s id=%016" PRIx64 " attempt=%u tokens=%u msg=\"prefill begins\"",
                      request_notes_name(&role->notes, key), key.request, key.attempt,
                      role->pending.token_count);
            start_failed = step_loop_add(role->worker->steps, &role->pending) != STATUS_OK;
            failed_key = key;
            role->pending = (struct sequence_spec){.plan = PLAN_HAND_OFF};
            break;
        case SOURCE_FREE:
            log_debug(MODULE, "req=%s id=%016" PRIx64 " attempt=%u end=%s msg=\"prefill ended\"",
                      request_notes_name(&role->notes, key), key.request, key.attempt,
                      source_end_name(action->end));
            request_notes_drop(&role->notes, key);
            kv_export_remove(role->exports, key);
            step_loop_remove(role->worker->steps, key);
            counter_add(action->end == SOURCE_CONFIRMED ? metrics->handoffs_ok
                        : action->end == SOURCE_EXPIRED || action->end == SOURCE_FAILED
                            ? metrics->handoffs_failed
                            : metrics->released,
                        1);
            break;
        case SOURCE_SEND_OPENED: send_opened(role, action); break;
        case SOURCE_SEND_REFUSED: send_refused(role, action); break;
        case SOURCE_SEND_LOST:
            session_send_lost(&role->worker->session, key, role->lost_by,
                              role->sentence ? role->sentence : "");
            break;
        case SOURCE_SEND_PEER:
            kv_export_send(role->exports, action->peer, &action->message,
                           request_notes_times(&role->notes, key, &prefilled) ? &prefilled : NULL);
            break;
        }
    }
    if (start_failed) {
        source_on_failed(role->sources, clock_now_us(), failed_key.request, failed_key.attempt,
                         "limit", true, &role->actions);
        run_actions(role);
    }
}

/* ---------------------------------------------------------------- the router's commands */

static void on_prefill(struct prefill_role *role, const Baton__Worker__V1__Prefill *command)
{
    FAILPOINT_OF("prefill.taken", command->request_name);
    struct sequence_key key = {command->request, command->attempt};
    struct wire_prompt prompt = {
        command->prompt,   command->emitted,         command->n_prompt,       command->n_emitted,
        command->sampling, command->cache_salt.data, command->cache_salt.len, command->priority,
        command->tenant,   command->deadline_left_us};
    struct error err;
    role->pending = (struct sequence_spec){.plan = PLAN_HAND_OFF};
    if (wire_sequence_spec(&prompt, &role->worker->info, &role->pending, &err) != STATUS_OK) {
        session_send_refused(&role->worker->session, key, "invalid", err.text, false);
        return;
    }
    role->pending.due_left_us = command->due_left_us;
    /* An answer that has begun may find its weights nowhere else (decode_role.c). */
    if (atomic_load(&role->worker->draining) && !command->n_emitted) {
        sequence_spec_free(&role->pending);
        session_send_refused(&role->worker->session, key, "draining", "the worker is draining",
                             true);
        return;
    }
    role->pending_name = command->request_name;
    source_on_prefill(role->sources, clock_now_us(), key.request, key.attempt,
                      role->pending.token_count, wire_prompt_hash(&role->pending), &role->actions);
    run_actions(role);
    role->pending_name = NULL;
    sequence_spec_free(&role->pending); /* it owns nothing once it was started */
    role->pending = (struct sequence_spec){.plan = PLAN_HAND_OFF};
}

static void on_command(void *context, const Baton__Worker__V1__SessionDown *command)
{
    struct prefill_role *role = context;
    switch (command->command_case) {
    case BATON__WORKER__V1__SESSION_DOWN__COMMAND_PREFILL:
        on_prefill(role, command->prefill);
        break;
    case BATON__WORKER__V1__SESSION_DOWN__COMMAND_RELEASE:
        source_on_release(role->sources, clock_now_us(), command->release->request,
                          command->release->attempt, &role->actions);
        run_actions(role);
        break;
    default:
        log_warn_limited(MODULE, "command=%d msg=\"not a command for a prefill worker\"",
                         (int)command->command_case);
    }
}

static void on_session_lost(void *context)
{
    struct prefill_role *role = context;
    source_on_session_lost(role->sources, clock_now_us(), &role->actions);
    run_actions(role);
}

static void on_router_changed(void *context)
{
    struct prefill_role *role = context;
    source_on_router_changed(role->sources, clock_now_us(), &role->actions);
    run_actions(role);
}

/* ---------------------------------------------------------------- decode workers */

static void on_peer_message(void *context, uint64_t peer, const struct peer_down *message)
{
    struct prefill_role *role = context;
    if (message->kind == PEER_CONFIRM)
        FAILPOINT("prefill.at_confirm");
    source_on_message(role->sources, clock_now_us(), peer, message, &role->actions);
    run_actions(role);
}

static void on_peer_lost(void *context, uint64_t peer)
{
    struct prefill_role *role = context;
    source_on_peer_lost(role->sources, clock_now_us(), peer, &role->actions);
    run_actions(role);
}

static bool may_read(void *context, uint64_t peer, uint64_t grant, uint64_t first_block,
                     uint64_t block_count)
{
    const struct prefill_role *role = context;
    return source_may_read(role->sources, peer, grant, first_block, block_count);
}

static bool peer_used(void *context, uint64_t peer)
{
    return source_table_uses_peer(((struct prefill_role *)context)->sources, peer);
}

/* The blocks of the first `tokens` tokens, or all of them, can be read and compared. */
static void on_summed(void *context, struct sequence_key key, uint32_t tokens,
                      struct source_sums sums, const struct source_completion *completion)
{
    struct prefill_role *role = context;
    if (completion) {
        struct source_completion complete = *completion;
        complete.sums = sums;
        source_on_completed(role->sources, clock_now_us(), key.request, key.attempt, &complete,
                            &role->actions);
    } else {
        source_on_computed(role->sources, clock_now_us(), key.request, key.attempt, tokens, sums,
                           &role->actions);
    }
    run_actions(role);
}

static bool on_work(void *context)
{
    return kv_export_work(((struct prefill_role *)context)->exports);
}

static const struct kv_export_handlers export_handlers = {on_peer_message, on_peer_lost, may_read,
                                                          peer_used, on_summed};

/* ---------------------------------------------------------------- the step thread's events */

static void on_reserved(struct prefill_role *role, const struct step_event *event)
{
    FAILPOINT("prefill.reserved");
    struct sequence_key key = event->key;
    request_notes_reserved(&role->notes, key, event->cached_tokens, event->at_us);
    source_on_reserved(role->sources, clock_now_us(), key.request, key.attempt, event->blocks,
                       event->block_count, &role->actions);
    if (role->actions.count == 0) { /* the source has ended, and its blocks may be away */
        kv_export_forget_sums(role->exports);
        return;
    }
    kv_export_add(role->exports, key, event->blocks, event->block_count,
                  event->cached_tokens / role->worker->info.block_tokens);
    run_actions(role);
    if (event->cached_tokens) /* these can be read before anything is computed */
        kv_export_filled(role->exports, key, event->cached_tokens, NULL);
}

static void on_step_event(void *context, const struct step_event *event)
{
    struct prefill_role *role = context;
    Baton__Worker__V1__Prefilled prefilled;
    switch (event->kind) {
    case STEP_RESERVED: on_reserved(role, event); break;
    case STEP_READY:
        FAILPOINT("prefill.after_chunk");
        request_notes_chunk(&role->notes, event->key, event->at_us);
        kv_export_filled(role->exports, event->key, event->ready_tokens, NULL);
        break;
    case STEP_TOKENS:
        for (uint32_t i = 0; i < event->token_count; i++)
            if (request_notes_prefilled(&role->notes, event->tokens[i].key, &prefilled) &&
                !FAILPOINT_FAILS("prefill.send_prefilled"))
                session_send_prefilled(&role->worker->session, &prefilled);
        session_send_step(&role->worker->session, event);
        for (uint32_t i = 0; i < event->token_count; i++) {
            FAILPOINT("prefill.before_complete");
            const struct step_token *token = &event->tokens[i];
            struct source_completion completion = {.first_token = token->token,
                                                   .logits_hash = token->logits_hash,
                                                   .finish = token->finish};
            if (token->logprobs)
                completion.logprobs = *token->logprobs;
            kv_export_filled(role->exports, token->key, 0, &completion);
        }
        break;
    case STEP_REFUSED:
    case STEP_FAILED:
        request_notes_log_failed(&role->notes, MODULE, event);
        role->sentence = event->err.text;
        role->lost_by = step_event_lost_by(event);
        source_on_failed(role->sources, clock_now_us(), event->key.request, event->key.attempt,
                         step_event_refused_by(event), step_event_may_retry(event), &role->actions);
        run_actions(role);
        role->sentence = NULL;
        break;
    case STEP_REMOVED:
    case STEP_PROMPT_LOGPROBS:
    case STEP_CACHE:
    case STEP_DONE: break; /* worker.c handles the last three */
    }
}

/* Nothing to do: the transport of a prefill worker only serves reads. */
static void on_kv_event(void *context, const struct kv_event *event)
{
    (void)context;
    (void)event;
}

static void on_tick(void *context, uint64_t now_us)
{
    struct prefill_role *role = context;
    source_on_tick(role->sources, now_us, &role->actions);
    run_actions(role);
    struct source_counters counters = source_table_counters(role->sources);
    worker_metrics_advance(role->worker->metrics.stale_messages, &role->worker->metrics.seen_stale,
                           counters.dropped);
}

static uint32_t busy_count(void *context)
{
    return source_table_count(((struct prefill_role *)context)->sources);
}

/* ---------------------------------------------------------------- life */

static void destroy(void *context)
{
    struct prefill_role *role = context;
    kv_export_destroy(role->exports);
    source_actions_deinit(&role->actions);
    source_table_destroy(role->sources);
    request_notes_deinit(&role->notes);
    free(role);
}

static void close_streams(void *context)
{
    (void)context; /* nothing to do: decode workers dial, this worker doesn't */
}

static enum status create_parts(struct prefill_role *role, struct error *err)
{
    const struct worker *worker = role->worker;
    struct source_config config = {
        .incarnation = worker->info.incarnation,
        .model_hash = worker->info.model_hash,
        .layout_hash = worker->info.layout_hash,
        .numerics_id = worker->info.numerics_id,
        .block_tokens = worker->info.block_tokens,
        .max_sources = worker->config.max_sequences,
        .max_blocks = worker->info.context / worker->info.block_tokens + 1,
        .memo_count = MEMO_COUNT,
        .lease_us = worker->config.lease_us,
    };
    TRY(source_table_create(&config, &role->sources, err));
    if (source_actions_init(&role->actions, role->sources) == STATUS_OK &&
        request_notes_init(&role->notes, worker->config.max_sequences) == STATUS_OK &&
        kv_export_create(role->worker, &export_handlers, role, &role->exports) == STATUS_OK)
        return STATUS_OK;
    return error_set(err, STATUS_LIMIT, "out of memory for the prefill role");
}

static enum status create(struct worker *worker, void **out, struct error *err)
{
    struct prefill_role *role = calloc(1, sizeof *role);
    if (!role)
        return error_set(err, STATUS_LIMIT, "out of memory for the prefill role");
    role->worker = worker;
    enum status status = create_parts(role, err);
    if (status != STATUS_OK) {
        destroy(role);
        return status;
    }
    worker->peer_role = role->exports;
    *out = role;
    return STATUS_OK;
}

const struct worker_role_ops prefill_role_ops = {
    .role = ROLE_PREFILL,
    .create = create,
    .close = close_streams,
    .destroy = destroy,
    .handlers = {on_step_event, on_kv_event, on_tick, on_work},
    .session = {on_command, on_session_lost, on_router_changed},
    .peer_path = "/baton.worker.v1.PrefillPeer/Peer",
    .peer_kind = &kv_export_stream_kind,
    .peer_service = "baton.worker.v1.PrefillPeer",
    .busy_count = busy_count,
};
