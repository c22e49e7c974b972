/* For test_router*: a worker that the test controls. Its received messages come as events in a
 * ring, in order; nothing waits by the clock. */
#ifndef BATON_TESTS_ROUTER_FAKE_H
#define BATON_TESTS_ROUTER_FAKE_H

#include "common/base/ring.h"
#include "common/net/membership/registrar.h"
#include "common/net/membership/worker_message.h"
#include "common/net/rpc/message.h"
#include "proto/proto_unpack.h"
#include "proto/worker.pb-c.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORLD_LIMIT_US 20000000u /* a later event counts as missing */
#define WORLD_MODEL    "tests/golden/models/llama"
#define WORLD_VOCAB    384
#define WORLD_RING     65536

enum seen_kind {
    SEEN_SESSION,
    SEEN_PREFILL,
    SEEN_DECODE,
    SEEN_RELEASE,
    SEEN_CACHE_RESTART,
    SEEN_DISMISS,
    SEEN_CLOSED
};

struct seen {
    enum seen_kind kind;
    uint64_t request;
    uint32_t attempt;
    uint32_t prompt_count, emitted_count, emitted[16];
    bool has_handle;
    uint32_t handle_id, handle_blocks;
    char source_address[128], source_name[64], request_name[160];
    uint64_t seed;
    uint32_t max_tokens, priority;
    uint64_t tenant, deadline_left_us, due_left_us;
    bool logprobs, prompt_logprobs, logits_hash; /* requested outputs */
    uint32_t scores_from, choice;
};

struct fake {
    struct worker_info info;
    struct rpc_runtime *runtime;
    const char *router_address;
    struct rpc_server *server;
    struct registrar *registrar;
    struct ring *seen;
    struct rpc_method method;
    pthread_mutex_t mutex;
    struct rpc_call *session; /* the newest, with a reference */
};

static inline void fake_note(struct fake *fake, const struct seen *what)
{
    struct seen *copy = malloc(sizeof *copy);
    assert_non_null(copy);
    *copy = *what;
    assert_int_equal(ring_push(fake->seen, copy), STATUS_OK);
}

static inline void fake_say_to(struct rpc_call *session, const Baton__Worker__V1__SessionUp *up)
{
    enum status status = rpc_call_send_message(session, &up->base);
    assert_true(status == STATUS_OK || status == STATUS_CANCELLED);
}

static inline void fake_on_open(struct rpc_call *call, void *service)
{
    struct fake *fake = service;
    rpc_call_set_context(call, fake);
    rpc_call_ref(call);
    pthread_mutex_lock(&fake->mutex);
    struct rpc_call *old = fake->session;
    fake->session = call;
    pthread_mutex_unlock(&fake->mutex);
    if (old)
        rpc_call_unref(old);
    Baton__Worker__V1__WorkerInfo info = worker_message_of(&fake->info);
    Baton__Worker__V1__Hello hello = BATON__WORKER__V1__HELLO__INIT;
    hello.info = &info;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_HELLO;
    up.hello = &hello;
    fake_say_to(call, &up);
    fake_note(fake, &(struct seen){.kind = SEEN_SESSION});
}

static inline void fake_copy_emitted(struct seen *seen, size_t count, const uint32_t *emitted)
{
    seen->emitted_count = (uint32_t)count;
    for (size_t i = 0; i < count && i < 16; i++)
        seen->emitted[i] = emitted[i];
}

static inline void fake_copy_sampling(struct seen *seen,
                                      const Baton__Worker__V1__Sampling *sampling)
{
    seen->seed = sampling->seed;
    seen->max_tokens = sampling->max_tokens;
    seen->logprobs = sampling->logprobs;
    seen->prompt_logprobs = sampling->prompt_logprobs;
    seen->logits_hash = sampling->logits_hash;
    seen->scores_from = sampling->prompt_logprobs_from;
    seen->choice = sampling->choice;
}

static inline void fake_on_message(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct fake *fake = rpc_call_context(call);
    struct arena arena;
    struct error err;
    ProtobufCMessage *message;
    arena_init(&arena, proto_arena_bytes(bytes.size));
    assert_int_equal(proto_unpack(&baton__worker__v1__session_down__descriptor, bytes.data,
                                  bytes.size, &arena, &message, &err),
                     STATUS_OK);
    const Baton__Worker__V1__SessionDown *down = (const Baton__Worker__V1__SessionDown *)message;
    struct seen seen = {0};
    if (down->command_case == BATON__WORKER__V1__SESSION_DOWN__COMMAND_PREFILL) {
        const Baton__Worker__V1__Prefill *prefill = down->prefill;
        seen = (struct seen){.kind = SEEN_PREFILL,
                             .request = prefill->request,
                             .attempt = prefill->attempt,
                             .prompt_count = (uint32_t)prefill->n_prompt,
                             .priority = (uint32_t)prefill->priority,
                             .tenant = prefill->tenant,
                             .deadline_left_us = prefill->deadline_left_us,
                             .due_left_us = prefill->due_left_us};
        fake_copy_sampling(&seen, prefill->sampling);
        fake_copy_emitted(&seen, prefill->n_emitted, prefill->emitted);
        snprintf(seen.request_name, sizeof seen.request_name, "%s", prefill->request_name);
    } else if (down->command_case == BATON__WORKER__V1__SESSION_DOWN__COMMAND_DECODE) {
        const Baton__Worker__V1__Decode *decode = down->decode;
        seen = (struct seen){.kind = SEEN_DECODE,
                             .request = decode->request,
                             .attempt = decode->attempt,
                             .prompt_count = (uint32_t)decode->n_prompt,
                             .priority = (uint32_t)decode->priority,
                             .tenant = decode->tenant,
                             .deadline_left_us = decode->deadline_left_us,
                             .has_handle = decode->handle != NULL};
        fake_copy_sampling(&seen, decode->sampling);
        if (decode->handle) {
            seen.handle_id = decode->handle->id;
            seen.handle_blocks = (uint32_t)decode->handle->n_blocks;
        }
        fake_copy_emitted(&seen, decode->n_emitted, decode->emitted);
        snprintf(seen.source_address, sizeof seen.source_address, "%s", decode->source_address);
        snprintf(seen.source_name, sizeof seen.source_name, "%s", decode->source_name);
    } else if (down->command_case == BATON__WORKER__V1__SESSION_DOWN__COMMAND_RELEASE) {
        seen = (struct seen){.kind = SEEN_RELEASE,
                             .request = down->release->request,
                             .attempt = down->release->attempt};
    } else if (down->command_case == BATON__WORKER__V1__SESSION_DOWN__COMMAND_CACHE_RESTART) {
        seen.kind = SEEN_CACHE_RESTART;
    } else if (down->command_case == BATON__WORKER__V1__SESSION_DOWN__COMMAND_DISMISS) {
        seen.kind = SEEN_DISMISS;
    }
    if (down->command_case != BATON__WORKER__V1__SESSION_DOWN__COMMAND_HELLO)
        fake_note(fake, &seen);
    arena_deinit(&arena);
}

static inline void fake_on_closed(struct rpc_call *call, const struct rpc_end *end)
{
    (void)end;
    fake_note(rpc_call_context(call), &(struct seen){.kind = SEEN_CLOSED});
}

static inline void fake_register(struct fake *fake)
{
    struct registrar_config config = {.runtime = fake->runtime,
                                      .router_address = fake->router_address,
                                      .info = fake->info,
                                      .heartbeat_us = 50000};
    struct error err;
    assert_int_equal(registrar_start(&config, &fake->registrar, &err), STATUS_OK);
}

/* Returns the next received message; fails the test if it is of another kind. */
static inline struct seen fake_expect(struct fake *fake, enum seen_kind kind)
{
    struct seen *seen = ring_wait(fake->seen, WORLD_LIMIT_US);
    if (!seen)
        fail_msg("%s: waited in vain for %d", fake->info.name, (int)kind);
    struct seen copy = *seen;
    free(seen);
    if (copy.kind != kind)
        fail_msg("%s: expected %d, saw %d", fake->info.name, (int)kind, (int)copy.kind);
    return copy;
}

struct fake_plan {
    const char *name;
    enum worker_role role;
    uint32_t context, vocab, block_count; /* 0: 2048, WORLD_VOCAB, 100 */
    const char *model;                    /* NULL: "tested" */
    uint64_t model_hash;                  /* 0: 1 */
    uint32_t protocol;                    /* the newest that it speaks; 0: this build's */
    struct rpc_runtime *runtime;
    const char *router_address;
};

/* Starts a worker and waits for the router's session. */
static inline void fake_start_as(struct fake *fake, const struct fake_plan *plan)
{
    static uint64_t incarnations = 100;
    memset(fake, 0, sizeof *fake);
    fake->runtime = plan->runtime;
    fake->router_address = plan->router_address;
    fake->info = (struct worker_info){.role = plan->role,
                                      .incarnation = ++incarnations,
                                      .model_hash = plan->model_hash ? plan->model_hash : 1,
                                      .layout_hash = 2,
                                      .numerics_id = 3,
                                      .block_tokens = 32,
                                      .block_count = plan->block_count ? plan->block_count : 100,
                                      .context = plan->context ? plan->context : 2048,
                                      .vocab = plan->vocab ? plan->vocab : WORLD_VOCAB,
                                      .model = "tested",
                                      .protocol_least = plan->protocol ? WORKER_PROTOCOL_LEAST : 0,
                                      .protocol_newest = plan->protocol};
    snprintf(fake->info.name, sizeof fake->info.name, "%s", plan->name);
    if (plan->model)
        snprintf(fake->info.model, sizeof fake->info.model, "%s", plan->model);
    pthread_mutex_init(&fake->mutex, NULL);
    assert_int_equal(ring_create(WORLD_RING, &fake->seen), STATUS_OK);
    fake->method = (struct rpc_method){
        .path = "/baton.worker.v1.Worker/Session",
        .handlers = {.open = fake_on_open, .message = fake_on_message, .closed = fake_on_closed},
        .service = fake,
        .client_streams = true};
    struct rpc_server_config server = {.listen = "127.0.0.1:0",
                                       .max_queued_bytes = 64u << 20,
                                       .methods = &fake->method,
                                       .method_count = 1};
    struct error err;
    assert_int_equal(rpc_server_start(fake->runtime, &server, &fake->server, &err), STATUS_OK);
    snprintf(fake->info.address, sizeof fake->info.address, "%s", rpc_server_address(fake->server));
    fake_register(fake);
    fake_expect(fake, SEEN_SESSION);
    registrar_session_up(fake->registrar, true);
}

/* Ends like a killed process: its listener and its streams are gone at once. */
static inline void fake_die(struct fake *fake)
{
    registrar_stop(fake->registrar);
    fake->registrar = NULL;
    rpc_server_stop(fake->server, 0);
    fake->server = NULL;
}

static inline void fake_stop(struct fake *fake)
{
    if (fake->server)
        fake_die(fake);
    if (fake->session)
        rpc_call_unref(fake->session);
    for (void *seen; (seen = ring_pop(fake->seen));)
        free(seen);
    ring_destroy(fake->seen);
    pthread_mutex_destroy(&fake->mutex);
}

static inline void fake_say(struct fake *fake, const Baton__Worker__V1__SessionUp *up)
{
    pthread_mutex_lock(&fake->mutex);
    struct rpc_call *session = fake->session;
    rpc_call_ref(session);
    pthread_mutex_unlock(&fake->mutex);
    fake_say_to(session, up);
    rpc_call_unref(session);
}

static inline void fake_opened(struct fake *fake, const struct seen *prefill, uint32_t handle_id)
{
    uint32_t blocks[] = {5, 6, 9};
    Baton__Worker__V1__Handle handle = BATON__WORKER__V1__HANDLE__INIT;
    handle.incarnation = fake->info.incarnation;
    handle.id = handle_id;
    handle.generation = 1;
    handle.model_hash = fake->info.model_hash;
    handle.layout_hash = fake->info.layout_hash;
    handle.numerics_id = fake->info.numerics_id;
    handle.token_count = prefill->prompt_count + prefill->emitted_count;
    handle.n_blocks = 3;
    handle.blocks = blocks;
    Baton__Worker__V1__Opened opened = BATON__WORKER__V1__OPENED__INIT;
    opened.request = prefill->request;
    opened.attempt = prefill->attempt;
    opened.handle = &handle;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_OPENED;
    up.opened = &opened;
    fake_say(fake, &up);
}

/* -number / 8 of the token, and of the two likeliest. */
struct fake_logprobs {
    Baton__Worker__V1__Logprobs message;
    uint32_t ids[2];
    float top[2];
};

static inline Baton__Worker__V1__Logprobs *fake_logprobs(struct fake_logprobs *room,
                                                         uint32_t number)
{
    baton__worker__v1__logprobs__init(&room->message);
    room->message.drawn = -(float)number / 8;
    room->ids[0] = 7;
    room->ids[1] = number % WORLD_VOCAB;
    room->top[0] = 0;
    room->top[1] = room->message.drawn;
    room->message.n_top_ids = room->message.n_top = 2;
    room->message.top_ids = room->ids;
    room->message.top = room->top;
    return &room->message;
}

/* Logprobs of the prompt's tokens first .. first + count - 1. */
static inline void fake_scores(struct fake *fake, const struct seen *job, uint32_t first,
                               uint32_t count)
{
    struct fake_logprobs rooms[64];
    Baton__Worker__V1__Logprobs *list[64];
    assert_true(count <= 64);
    for (uint32_t i = 0; i < count; i++)
        list[i] = fake_logprobs(&rooms[i], first + i);
    Baton__Worker__V1__PromptLogprobs scores = BATON__WORKER__V1__PROMPT_LOGPROBS__INIT;
    scores.request = job->request;
    scores.attempt = job->attempt;
    scores.first_token = first;
    scores.n_logprobs = count;
    scores.logprobs = list;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_PROMPT_LOGPROBS;
    up.prompt_logprobs = &scores;
    fake_say(fake, &up);
}

/* Tokens first .. first + count - 1 of the answer, in one batch; id = 100 + index; the last one
 * ends it if `finish` is given. */
static inline void fake_tokens(struct fake *fake, const struct seen *job, uint32_t first,
                               uint32_t count, enum finish_reason finish)
{
    Baton__Worker__V1__Token *tokens = calloc(count, sizeof *tokens);
    Baton__Worker__V1__Token **list = calloc(count, sizeof *list);
    struct fake_logprobs *rooms = calloc(count, sizeof *rooms);
    assert_true(tokens && list && rooms);
    for (uint32_t i = 0; i < count; i++) {
        baton__worker__v1__token__init(&tokens[i]);
        tokens[i].request = job->request;
        tokens[i].attempt = job->attempt;
        tokens[i].index = first + i;
        tokens[i].id = 100 + (first + i) % 200;
        tokens[i].logits_hash = job->logits_hash ? 7000 + first + i : 0;
        tokens[i].finish = i == count - 1 ? finish : FINISH_NONE;
        tokens[i].logprobs = job->logprobs ? fake_logprobs(&rooms[i], first + i) : NULL;
        list[i] = &tokens[i];
    }
    Baton__Worker__V1__Tokens batch = BATON__WORKER__V1__TOKENS__INIT;
    batch.n_tokens = count;
    batch.tokens = list;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_TOKENS;
    up.tokens = &batch;
    fake_say(fake, &up);
    free(rooms);
    free(list);
    free(tokens);
}

static inline void fake_token_id(struct fake *fake, const struct seen *job, uint32_t index,
                                 uint32_t id)
{
    Baton__Worker__V1__Token token = BATON__WORKER__V1__TOKEN__INIT;
    token.request = job->request;
    token.attempt = job->attempt;
    token.index = index;
    token.id = id;
    Baton__Worker__V1__Token *list[] = {&token};
    Baton__Worker__V1__Tokens batch = BATON__WORKER__V1__TOKENS__INIT;
    batch.n_tokens = 1;
    batch.tokens = list;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_TOKENS;
    up.tokens = &batch;
    fake_say(fake, &up);
}

static inline void fake_pulled(struct fake *fake, const struct seen *job, const char *lane,
                               uint64_t bytes)
{
    Baton__Worker__V1__Pulled pulled = BATON__WORKER__V1__PULLED__INIT;
    pulled.request = job->request;
    pulled.attempt = job->attempt;
    pulled.lane = (char *)lane;
    pulled.bytes = bytes;
    pulled.bytes_before_complete = bytes / 2;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_PULLED;
    up.pulled = &pulled;
    fake_say(fake, &up);
}

static inline void fake_lost(struct fake *fake, const struct seen *job)
{
    Baton__Worker__V1__Lost lost = BATON__WORKER__V1__LOST__INIT;
    lost.request = job->request;
    lost.attempt = job->attempt;
    lost.reason = "gone";
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_LOST;
    up.lost = &lost;
    fake_say(fake, &up);
}

static inline void fake_lost_by(struct fake *fake, const struct seen *job, const char *reason,
                                const char *how)
{
    Baton__Worker__V1__Lost lost = BATON__WORKER__V1__LOST__INIT;
    lost.request = job->request;
    lost.attempt = job->attempt;
    lost.reason = (char *)reason;
    lost.message = (char *)how;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_LOST;
    up.lost = &lost;
    fake_say(fake, &up);
}

static inline void fake_step_failed(struct fake *fake, const struct seen *job, const char *how)
{
    fake_lost_by(fake, job, "step_failed", how);
}

static inline void fake_refused_by(struct fake *fake, const struct seen *job, const char *reason,
                                   const char *how, bool retry)
{
    Baton__Worker__V1__Refused refused = BATON__WORKER__V1__REFUSED__INIT;
    refused.request = job->request;
    refused.attempt = job->attempt;
    refused.reason = (char *)reason;
    refused.message = (char *)how;
    refused.retry = retry;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_REFUSED;
    up.refused = &refused;
    fake_say(fake, &up);
}

static inline void fake_refused(struct fake *fake, const struct seen *job, bool retry)
{
    fake_refused_by(fake, job, "limit", "needs 9 blocks, the pool has 8", retry);
}

static inline void fake_load(struct fake *fake, uint32_t blocks_free)
{
    Baton__Worker__V1__Load load = BATON__WORKER__V1__LOAD__INIT;
    load.blocks_free = blocks_free;
    load.blocks_cached = blocks_free + 1;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_LOAD;
    up.load = &load;
    fake_say(fake, &up);
}

#endif
