#include "common/worker/session.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/u32.h"
#include "common/net/membership/worker_message.h"
#include "common/worker/wire.h"

#include <inttypes.h>
#include <string.h>

#define MODULE             "session"
#define LOAD_INTERVAL_US   100000
#define MAX_TOKENS_MESSAGE 1024

static void lose_stream(struct session *session, enum log_level level, const char *why)
{
    session->stream = NULL;
    char quoted[100];
    /* While it drains the loss is expected: the router lets it go, or is going too. */
    log_limited(session->draining ? LOG_INFO : level, MODULE,
                "why=%s msg=\"the router's session ended\"", log_quote(why, quoted, sizeof quoted));
    session->handlers->lost(session->role);
}

static void take_stream(struct session *session, struct stream *stream)
{
    if (session->stream) {
        struct stream *old = session->stream;
        lose_stream(session, LOG_WARN, "a newer session was opened");
        stream_cancel(old);
    }
    session->stream = stream;
    session->streams++;
    session->last_load_us = 0;
    session->sent_draining = session->dismissed = false;
    log_info_limited(MODULE, "peer=%s msg=\"the router's session is up\"", stream_peer(stream));
}

static void note_router(struct session *session, uint64_t router)
{
    bool changed = session->router && session->router != router;
    session->router = router;
    if (!changed)
        return;
    log_info_limited(MODULE,
                     "router=%016" PRIx64 " msg=\"another router: requests of the last one end\"",
                     router);
    session->handlers->router_changed(session->role);
}

static void on_hello(struct session *session, struct stream *stream,
                     const Baton__Worker__V1__RouterHello *hello)
{
    const struct worker_info *info = session->info;
    stream_set_context(stream, session); /* marks a stream that has said hello */
    if (!worker_message_names(info, hello->worker, hello->worker_incarnation)) {
        /* The router means an earlier life, or another worker, at this address: the session that
         * there is stays. A stranger learns nothing about this worker. */
        log_info_limited(MODULE,
                         "peer=%s msg=\"refused a session for another worker, or for an earlier "
                         "life of this one\"",
                         stream_peer(stream));
        stream_finish(stream, RPC_NOT_FOUND, WORKER_OTHER, WORKER_OTHER_TEXT);
        return;
    }
    struct error err;
    uint32_t version = worker_message_agree(
        worker_message_protocol(info), worker_message_router_protocol(hello), "the router", &err);
    if (!version) {
        char quoted[400];
        log_error_limited(MODULE, "peer=%s why=%s msg=\"refused a session\"", stream_peer(stream),
                          log_quote(err.text, quoted, sizeof quoted));
        stream_finish(stream, RPC_FAILED_PRECONDITION, "wrong_version", err.text);
        return;
    }
    Baton__Worker__V1__WorkerInfo message = worker_message_of(info);
    Baton__Worker__V1__Hello answer = BATON__WORKER__V1__HELLO__INIT;
    answer.info = &message;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_HELLO;
    up.hello = &answer;
    stream_send(stream, &up.base);
    take_stream(session, stream);
    session->version = version;
    note_router(session, hello->incarnation);
    if (session->up_changed)
        session->up_changed(session->up_context, true);
}

/* Does nothing: a stream counts once the router's hello names this worker. (The server ends one
 * that says nothing.) */
static void on_opened(struct stream *stream)
{
    (void)stream;
}

static void on_message(struct stream *stream, const ProtobufCMessage *message)
{
    struct session *session = stream_role(stream);
    const Baton__Worker__V1__SessionDown *down = (const Baton__Worker__V1__SessionDown *)message;
    bool hello = down->command_case == BATON__WORKER__V1__SESSION_DOWN__COMMAND_HELLO;
    bool restart = down->command_case == BATON__WORKER__V1__SESSION_DOWN__COMMAND_CACHE_RESTART;
    if (!hello && FAILPOINT_FAILS("worker.session_lose"))
        stream_cancel(stream);
    else if (hello && stream != session->stream)
        on_hello(session, stream, down->hello);
    else if (restart && stream == session->stream)
        session->cache_restarts++;
    else if (down->command_case == BATON__WORKER__V1__SESSION_DOWN__COMMAND_DISMISS &&
             stream == session->stream)
        session->dismissed = true;
    else if (!hello && stream == session->stream)
        session->handlers->command(session->role, down);
    else if (!hello && !stream_context(stream))
        stream_finish(stream, RPC_FAILED_PRECONDITION, "no_hello",
                      "the first message must be a hello");
}

static void on_ended(struct stream *stream, const struct rpc_end *end)
{
    struct session *session = stream_role(stream);
    if (stream != session->stream)
        return;
    /* The router cancelled it, or was lost: rpc can't tell which. The registrar warns if the router
     * stays away. */
    lose_stream(session, end->code == RPC_CANCELLED ? LOG_INFO : LOG_WARN,
                rpc_code_name(end->code));
    if (session->up_changed)
        session->up_changed(session->up_context, false);
}

const struct stream_kind session_stream_kind = {
    .name = "session",
    .incoming = &baton__worker__v1__session_down__descriptor,
    .opened = on_opened,
    .message = on_message,
    .ended = on_ended,
};

bool session_up(const struct session *session)
{
    return session->stream != NULL;
}

bool session_sent_draining(const struct session *session)
{
    return !session->stream || session->sent_draining;
}

bool session_dismissed(const struct session *session)
{
    return !session->stream || session->dismissed || session->version < WORKER_PROTOCOL_DISMISS;
}

bool session_flushed(const struct session *session)
{
    return !session->stream || stream_flushed(session->stream);
}

void session_send(struct session *session, Baton__Worker__V1__SessionUp *up)
{
    if (session->stream)
        stream_send(session->stream, &up->base);
}

static Baton__Worker__V1__StepReport report_of(const struct step_report *report)
{
    Baton__Worker__V1__StepReport message = BATON__WORKER__V1__STEP_REPORT__INIT;
    message.took_us = report->took_us;
    message.prefill_rows = report->shape.prefill_rows;
    message.prefill_positions = report->shape.prefill_positions;
    message.decode_rows = report->shape.decode_rows;
    message.decode_context = report->shape.decode_context;
    message.swapped_blocks = report->swapped_blocks;
    message.swap_us = report->swap_us;
    return message;
}

static Baton__Worker__V1__Load load_of(struct session *session, const struct step_load *load,
                                       uint64_t now_us)
{
    Baton__Worker__V1__Load message = BATON__WORKER__V1__LOAD__INIT;
    message.queued_requests = atomic_load(&load->waiting);
    message.queued_tokens = atomic_load(&load->queued_tokens);
    message.running = atomic_load(&load->running);
    message.blocks_free = atomic_load(&load->blocks[KV_BLOCK_FREE]);
    message.blocks_cached = atomic_load(&load->blocks[KV_BLOCK_CACHED]);
    message.blocks_pinned = atomic_load(&load->blocks[KV_BLOCK_PINNED]);
    message.blocks_landing = atomic_load(&load->blocks[KV_BLOCK_LANDING]);
    message.steps_done = atomic_load(&load->steps);
    message.requests = atomic_load(&load->sequences);
    message.reserved_tokens = atomic_load(&load->reserved_tokens);
    message.unconfirmed_tokens = atomic_load(&load->unconfirmed_tokens);
    message.busy_us = step_load_busy_us(load, now_us);
    message.draining = session->draining;
    session->sent_draining = session->draining;
    if (message.draining)
        FAILPOINT("worker.tells_draining");
    return message;
}

/* Sends the batch, with the load where the router knows that. */
static void send_batch(struct session *session, Baton__Worker__V1__Tokens *batch)
{
    Baton__Worker__V1__Load load;
    if (session->load && session->stream && session->version >= WORKER_PROTOCOL_STEPS) {
        load = load_of(session, session->load, clock_now_us());
        batch->load = &load;
    }
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_TOKENS;
    up.tokens = batch;
    if (!batch->n_tokens || !FAILPOINT_FAILS("worker.send_tokens"))
        session_send(session, &up);
}

/* Sends at most MAX_TOKENS_MESSAGE tokens. */
static void send_some(struct session *session, const struct step_token *tokens, uint32_t count,
                      Baton__Worker__V1__Tokens *batch)
{
    Baton__Worker__V1__Token items[MAX_TOKENS_MESSAGE];
    Baton__Worker__V1__Token *pointers[MAX_TOKENS_MESSAGE];
    Baton__Worker__V1__Logprobs logprobs[STEP_EVENT_LOGPROBS];
    uint32_t logprobs_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        baton__worker__v1__token__init(&items[i]);
        items[i].request = tokens[i].key.request;
        items[i].attempt = tokens[i].key.attempt;
        items[i].index = tokens[i].index;
        items[i].id = tokens[i].token;
        items[i].logits_hash = tokens[i].logits_hash;
        items[i].finish = tokens[i].finish;
        if (tokens[i].logprobs) {
            ASSERT(logprobs_count < STEP_EVENT_LOGPROBS);
            items[i].logprobs = wire_logprobs_pack(tokens[i].logprobs, &logprobs[logprobs_count++]);
        }
        pointers[i] = &items[i];
    }
    batch->n_tokens = count;
    batch->tokens = pointers;
    send_batch(session, batch);
    batch->n_tokens = 0; /* they end here */
    batch->tokens = NULL;
}

/* Sends the tokens in as many messages as they need; what the batch has beside them goes first. */
static void send_tokens(struct session *session, const struct step_token *tokens, uint32_t count,
                        Baton__Worker__V1__Tokens *batch)
{
    do {
        uint32_t some = min_u32(count, MAX_TOKENS_MESSAGE);
        send_some(session, tokens, some, batch);
        batch->n_steps = 0;
        tokens += some;
        count -= some;
    } while (count);
}

void session_send_tokens(struct session *session, const struct step_token *tokens, uint32_t count)
{
    Baton__Worker__V1__Tokens batch = BATON__WORKER__V1__TOKENS__INIT;
    send_tokens(session, tokens, count, &batch);
}

void session_send_step(struct session *session, const struct step_event *event)
{
    Baton__Worker__V1__StepReport reports[STEP_EVENT_REPORTS], *pointers[STEP_EVENT_REPORTS];
    Baton__Worker__V1__Tokens batch = BATON__WORKER__V1__TOKENS__INIT;
    batch.n_steps = session->version >= WORKER_PROTOCOL_STEPS ? event->report_count : 0;
    batch.steps = pointers;
    for (size_t i = 0; i < batch.n_steps; i++) {
        reports[i] = report_of(&event->reports[i]);
        pointers[i] = &reports[i];
    }
    if (event->token_count || batch.n_steps)
        send_tokens(session, event->tokens, event->token_count, &batch);
}

void session_send_prompt_logprobs(struct session *session, const struct step_event *event)
{
    ASSERT(event->logprobs_count <= STEP_EVENT_LOGPROBS);
    Baton__Worker__V1__Logprobs items[STEP_EVENT_LOGPROBS];
    Baton__Worker__V1__Logprobs *pointers[STEP_EVENT_LOGPROBS];
    for (uint32_t i = 0; i < event->logprobs_count; i++)
        pointers[i] = wire_logprobs_pack(&event->logprobs[i], &items[i]);
    Baton__Worker__V1__PromptLogprobs message = BATON__WORKER__V1__PROMPT_LOGPROBS__INIT;
    message.request = event->key.request;
    message.attempt = event->key.attempt;
    message.first_token = event->first_token;
    message.n_logprobs = event->logprobs_count;
    message.logprobs = pointers;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_PROMPT_LOGPROBS;
    up.prompt_logprobs = &message;
    session_send(session, &up);
}

static Baton__Worker__V1__CacheEvent cache_event_of(const struct prefix_event *event)
{
    static const Baton__Worker__V1__CacheEventKind kinds[] = {
        [PREFIX_CLEARED] = BATON__WORKER__V1__CACHE_EVENT_KIND__CACHE_CLEARED,
        [PREFIX_STORED] = BATON__WORKER__V1__CACHE_EVENT_KIND__CACHE_STORED,
        [PREFIX_REMOVED] = BATON__WORKER__V1__CACHE_EVENT_KIND__CACHE_REMOVED};
    Baton__Worker__V1__CacheEvent message = BATON__WORKER__V1__CACHE_EVENT__INIT;
    message.kind = kinds[event->kind];
    message.hash_low = event->hash.low;
    message.hash_high = event->hash.high;
    message.parent_low = event->parent.low;
    message.parent_high = event->parent.high;
    message.position = event->position;
    message.token_count = event->token_count;
    return message;
}

void session_send_cache(struct session *session, const struct prefix_event *events, uint32_t count)
{
    ASSERT(count > 0 && count <= STEP_CACHE_EVENTS);
    Baton__Worker__V1__CacheEvent items[STEP_CACHE_EVENTS];
    Baton__Worker__V1__CacheEvent *pointers[STEP_CACHE_EVENTS];
    for (uint32_t i = 0; i < count; i++) {
        items[i] = cache_event_of(&events[i]);
        pointers[i] = &items[i];
    }
    Baton__Worker__V1__CacheEvents batch = BATON__WORKER__V1__CACHE_EVENTS__INIT;
    batch.first_number = events[0].number;
    batch.n_events = count;
    batch.events = pointers;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_CACHE;
    up.cache = &batch;
    if (!FAILPOINT_FAILS("worker.send_cache"))
        session_send(session, &up);
}

void session_send_refused(struct session *session, struct sequence_key key, const char *reason,
                          const char *message, bool retry)
{
    Baton__Worker__V1__Refused refused = BATON__WORKER__V1__REFUSED__INIT;
    refused.request = key.request;
    refused.attempt = key.attempt;
    refused.reason = (char *)reason; /* packing only reads it */
    refused.message = (char *)message;
    refused.retry = retry;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_REFUSED;
    up.refused = &refused;
    session_send(session, &up);
}

void session_send_lost(struct session *session, struct sequence_key key, const char *reason,
                       const char *message)
{
    Baton__Worker__V1__Lost lost = BATON__WORKER__V1__LOST__INIT;
    lost.request = key.request;
    lost.attempt = key.attempt;
    lost.reason = (char *)reason;
    lost.message = (char *)message;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_LOST;
    up.lost = &lost;
    session_send(session, &up);
}

void session_send_prefilled(struct session *session, Baton__Worker__V1__Prefilled *prefilled)
{
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_PREFILLED;
    up.prefilled = prefilled;
    session_send(session, &up);
}

void session_relay_prefilled(struct session *session, Baton__Worker__V1__Prefilled *prefilled)
{
    if (session->version >= WORKER_PROTOCOL_READER_PREFILLED)
        session_send_prefilled(session, prefilled);
}

void session_send_load(struct session *session, const struct step_load *load,
                       const struct device_health *device, uint64_t now_us)
{
    if (!session->stream || now_us - session->last_load_us < LOAD_INTERVAL_US)
        return;
    session->last_load_us = now_us;
    Baton__Worker__V1__Load message = load_of(session, load, now_us);
    Baton__Worker__V1__DeviceHealth health = BATON__WORKER__V1__DEVICE_HEALTH__INIT;
    uint64_t *const numbers[DEVICE_NUMBERS] = {
        [DEVICE_MEMORY_USED_BYTES] = &health.memory_used_bytes,
        [DEVICE_MEMORY_TOTAL_BYTES] = &health.memory_total_bytes,
        [DEVICE_CLOCK_HERTZ] = &health.clock_hertz,
        [DEVICE_POWER_WATTS] = &health.power_watts,
        [DEVICE_TEMPERATURE_CELSIUS] = &health.temperature_celsius,
        [DEVICE_ECC_CORRECTED] = &health.ecc_corrected,
        [DEVICE_ECC_UNCORRECTED] = &health.ecc_uncorrected,
        [DEVICE_XIDS] = &health.xids,
    };
    for (int i = 0; device && i < DEVICE_NUMBERS; i++)
        *numbers[i] = device->numbers[i] > 0 ? (uint64_t)device->numbers[i] : 0;
    if (device) {
        health.slowdowns = device->slowdowns;
        message.device = &health;
    }
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_LOAD;
    up.load = &message;
    session_send(session, &up);
}
