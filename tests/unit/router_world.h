/* For test_router: a real router in this process, fake workers that register with it over loopback, and a real client. What a fake
 * worker is told and what a client is sent come as events in a ring, in order; nothing waits by the clock. */
#ifndef BATON_TESTS_ROUTER_WORLD_H
#define BATON_TESTS_ROUTER_WORLD_H

#include "common/base/clock.h"
#include "common/base/ring.h"
#include "common/membership/registrar.h"
#include "common/membership/worker_message.h"
#include "common/rpc/message.h"
#include "proto/baton.pb-c.h"
#include "proto/proto_unpack.h"
#include "proto/worker.pb-c.h"
#include "router/router.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORLD_LIMIT_US 20000000u /* an event that doesn't come by then never comes */
#define WORLD_MODEL    "tests/golden/models/llama"
#define WORLD_VOCAB    384
#define WORLD_RING     65536

/* ------------------------------------------------------------------------------- fake workers */

enum seen_kind { SEEN_SESSION, SEEN_PREFILL, SEEN_DECODE, SEEN_RELEASE, SEEN_CLOSED };

struct seen {
    enum seen_kind kind;
    uint64_t request;
    uint32_t attempt;
    uint32_t prompt_count, emitted_count, emitted[16];
    bool has_handle;
    uint32_t handle_id, handle_blocks;
    char source_address[128], source_name[64], request_name[160];
    uint64_t seed;
    uint32_t max_tokens;
};

struct fake {
    struct worker_info info;
    struct rpc_server *server;
    struct registrar *registrar;
    struct ring *seen;
    struct rpc_method method;
    pthread_mutex_t mutex;
    struct rpc_call *session; /* the newest, with a reference */
};

struct world {
    struct router *router;
    struct rpc_runtime *runtime; /* of the fakes and the client */
    struct rpc_channel *channel;
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
                             .seed = prefill->sampling->seed,
                             .max_tokens = prefill->sampling->max_tokens};
        fake_copy_emitted(&seen, prefill->n_emitted, prefill->emitted);
        snprintf(seen.request_name, sizeof seen.request_name, "%s", prefill->request_name);
    } else if (down->command_case == BATON__WORKER__V1__SESSION_DOWN__COMMAND_DECODE) {
        const Baton__Worker__V1__Decode *decode = down->decode;
        seen = (struct seen){.kind = SEEN_DECODE,
                             .request = decode->request,
                             .attempt = decode->attempt,
                             .prompt_count = (uint32_t)decode->n_prompt,
                             .seed = decode->sampling->seed,
                             .max_tokens = decode->sampling->max_tokens,
                             .has_handle = decode->handle != NULL};
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
    }
    fake_note(fake, &seen);
    arena_deinit(&arena);
}

static inline void fake_on_closed(struct rpc_call *call, const struct rpc_end *end)
{
    (void)end;
    fake_note(rpc_call_context(call), &(struct seen){.kind = SEEN_CLOSED});
}

static inline void fake_register(struct world *world, struct fake *fake)
{
    struct registrar_config config = {.runtime = world->runtime,
                                      .router_address = router_address(world->router),
                                      .info = fake->info,
                                      .heartbeat_us = 50000};
    struct error err;
    assert_int_equal(registrar_start(&config, &fake->registrar, &err), STATUS_OK);
}

/* The next thing it was told; fails the test if it is another one. */
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

/* Name, role, what its pool and context hold, and its model's ids. */
struct fake_plan {
    const char *name;
    enum worker_role role;
    uint32_t context, vocab; /* 0: 2048, WORLD_VOCAB */
};

static inline void fake_start_as(struct world *world, struct fake *fake,
                                 const struct fake_plan *plan)
{
    static uint64_t incarnations = 100;
    memset(fake, 0, sizeof *fake);
    fake->info = (struct worker_info){.role = plan->role,
                                      .incarnation = ++incarnations,
                                      .model_hash = 1,
                                      .layout_hash = 2,
                                      .numerics_id = 3,
                                      .block_tokens = 32,
                                      .block_count = 100,
                                      .context = plan->context ? plan->context : 2048,
                                      .vocab = plan->vocab ? plan->vocab : WORLD_VOCAB,
                                      .model = "tested"};
    snprintf(fake->info.name, sizeof fake->info.name, "%s", plan->name);
    pthread_mutex_init(&fake->mutex, NULL);
    assert_int_equal(ring_create(WORLD_RING, &fake->seen), STATUS_OK);
    fake->method = (struct rpc_method){
        .path = "/baton.worker.v1.Worker/Session",
        .handlers = {.open = fake_on_open, .message = fake_on_message, .closed = fake_on_closed},
        .service = fake,
        .client_streams = true};
    struct rpc_server_config server = {
        .listen = "127.0.0.1:0", .methods = &fake->method, .method_count = 1};
    struct error err;
    assert_int_equal(rpc_server_start(world->runtime, &server, &fake->server, &err), STATUS_OK);
    snprintf(fake->info.address, sizeof fake->info.address, "%s", rpc_server_address(fake->server));
    fake_register(world, fake);
    fake_expect(fake, SEEN_SESSION);
    registrar_session_up(fake->registrar, true);
}

/* Starts a worker and waits for the router's session. */
static inline void fake_start(struct world *world, struct fake *fake, const char *name,
                              enum worker_role role)
{
    fake_start_as(world, fake, &(struct fake_plan){.name = name, .role = role});
}

/* As a killed process: its listener and its streams are gone at once. */
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

/* Tokens first .. first + count - 1 of the answer, in one batch; id = 100 + index; the last one ends it if `finish` is given. */
static inline void fake_tokens(struct fake *fake, const struct seen *job, uint32_t first,
                               uint32_t count, enum finish_reason finish)
{
    Baton__Worker__V1__Token *tokens = calloc(count, sizeof *tokens);
    Baton__Worker__V1__Token **list = calloc(count, sizeof *list);
    assert_true(tokens && list);
    for (uint32_t i = 0; i < count; i++) {
        baton__worker__v1__token__init(&tokens[i]);
        tokens[i].request = job->request;
        tokens[i].attempt = job->attempt;
        tokens[i].index = first + i;
        tokens[i].id = 100 + (first + i) % 200;
        tokens[i].logits_hash = 7000 + first + i;
        tokens[i].finish = i == count - 1 ? finish : FINISH_NONE;
        list[i] = &tokens[i];
    }
    Baton__Worker__V1__Tokens batch = BATON__WORKER__V1__TOKENS__INIT;
    batch.n_tokens = count;
    batch.tokens = list;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_TOKENS;
    up.tokens = &batch;
    fake_say(fake, &up);
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

static inline void fake_refused(struct fake *fake, const struct seen *job, bool retry)
{
    Baton__Worker__V1__Refused refused = BATON__WORKER__V1__REFUSED__INIT;
    refused.request = job->request;
    refused.attempt = job->attempt;
    refused.reason = "limit";
    refused.message = "needs 9 blocks, the pool has 8";
    refused.retry = retry;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_REFUSED;
    up.refused = &refused;
    fake_say(fake, &up);
}

static inline void fake_load(struct fake *fake, uint32_t blocks_free)
{
    Baton__Worker__V1__Load load = BATON__WORKER__V1__LOAD__INIT;
    load.blocks_free = blocks_free;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_LOAD;
    up.load = &load;
    fake_say(fake, &up);
}

/* ------------------------------------------------------------------------------------ clients */

struct client {
    struct rpc_call *call;
    struct ring *events; /* struct client_event */
    /* What came so far. */
    uint32_t ids[4096];
    uint32_t id_count, hash_count, deltas, finished, usages, timings;
    char text[4096];
    Baton__V1__FinishReason reason;
    char stop_string[64], lane[16], prefill_worker[64], decode_worker[64];
    uint32_t prompt_tokens, completion_tokens, prefills;
    uint64_t seed, kv_bytes;
    /* The end. */
    bool closed;
    enum rpc_code code;
    char why[64], sentence[600];
};

struct client_event {
    bool closed;
    enum rpc_code code;
    char why[64], sentence[600];
    size_t size;
    uint8_t bytes[]; /* of a message */
};

static inline void client_on_message(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct client *client = rpc_call_context(call);
    struct client_event *event = calloc(1, sizeof *event + bytes.size);
    assert_non_null(event);
    event->size = bytes.size;
    if (bytes.size)
        memcpy(event->bytes, bytes.data, bytes.size);
    assert_int_equal(ring_push(client->events, event), STATUS_OK);
}

static inline void client_on_closed(struct rpc_call *call, const struct rpc_end *end)
{
    struct client *client = rpc_call_context(call);
    struct client_event *event = calloc(1, sizeof *event);
    assert_non_null(event);
    event->closed = true;
    event->code = end->code;
    snprintf(event->why, sizeof event->why, "%s", end->reason);
    snprintf(event->sentence, sizeof event->sentence, "%s", end->message);
    assert_int_equal(ring_push(client->events, event), STATUS_OK);
}

static const struct rpc_handlers client_handlers = {.message = client_on_message,
                                                    .closed = client_on_closed};

/* What a request says; fields left 0 take the defaults below. */
struct ask {
    uint32_t prompt_tokens; /* 8 */
    uint32_t max_tokens;    /* 4 */
    uint64_t deadline_us;   /* none */
    const char *request_id, *text, *stop;
    bool ids_with_hashes;
};

static inline void client_send(struct rpc_call *call, const struct ask *ask)
{
    uint32_t ids[2048];
    for (uint32_t i = 0; i < 2048; i++)
        ids[i] = i % WORLD_VOCAB;
    Baton__V1__GenerateRequest request = BATON__V1__GENERATE_REQUEST__INIT;
    Baton__V1__TokenIds prompt = BATON__V1__TOKEN_IDS__INIT;
    Baton__V1__Sampling sampling = BATON__V1__SAMPLING__INIT;
    Baton__V1__Output output = BATON__V1__OUTPUT__INIT;
    Baton__V1__Stop stop = BATON__V1__STOP__INIT;
    prompt.ids = ids;
    prompt.n_ids = ask->prompt_tokens ? ask->prompt_tokens : 8;
    request.request_id = (char *)(ask->request_id ? ask->request_id : "");
    if (ask->text) {
        request.input_case = BATON__V1__GENERATE_REQUEST__INPUT_TEXT;
        request.text = (char *)ask->text;
    } else {
        request.input_case = BATON__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS;
        request.token_ids = &prompt;
    }
    sampling.max_tokens_presence_case = BATON__V1__SAMPLING__MAX_TOKENS_PRESENCE_MAX_TOKENS;
    sampling.max_tokens = ask->max_tokens ? ask->max_tokens : 4;
    sampling.seed_presence_case = BATON__V1__SAMPLING__SEED_PRESENCE_SEED;
    sampling.seed = 42;
    request.sampling = &sampling;
    output.return_timing_presence_case = BATON__V1__OUTPUT__RETURN_TIMING_PRESENCE_RETURN_TIMING;
    output.return_timing = true;
    output.return_logits_hash_presence_case =
        BATON__V1__OUTPUT__RETURN_LOGITS_HASH_PRESENCE_RETURN_LOGITS_HASH;
    output.return_logits_hash = ask->ids_with_hashes;
    request.output = &output;
    char *stops[] = {(char *)ask->stop};
    stop.n_strings = ask->stop ? 1 : 0;
    stop.strings = stops;
    request.stop = &stop;
    assert_int_equal(rpc_call_send_message(call, &request.base), STATUS_OK);
    rpc_call_half_close(call);
}

static inline void client_start_at(struct world *world, struct client *client, const char *path,
                                   const struct ask *ask)
{
    memset(client, 0, sizeof *client);
    assert_int_equal(ring_create(WORLD_RING, &client->events), STATUS_OK);
    assert_int_equal(rpc_call_start(world->channel, path, &client_handlers, client,
                                    ask->deadline_us, true, &client->call),
                     STATUS_OK);
    client_send(client->call, ask);
}

static inline void client_start(struct world *world, struct client *client, const struct ask *ask)
{
    client_start_at(world, client, "/baton.v1.Baton/Generate", ask);
}

static inline void client_take_delta(struct client *client, const Baton__V1__Delta *delta)
{
    assert_int_equal(delta->first_index, client->id_count);
    for (size_t i = 0; i < delta->n_token_ids; i++)
        client->ids[client->id_count++] = delta->token_ids[i];
    client->hash_count += (uint32_t)delta->n_logits_hashes;
    strncat(client->text, delta->text, sizeof client->text - strlen(client->text) - 1);
    client->deltas++;
}

static inline void client_take_finished(struct client *client, const Baton__V1__Finished *finished)
{
    client->finished++;
    client->reason = finished->reason;
    if (finished->matched_case == BATON__V1__FINISHED__MATCHED_STOP_STRING)
        snprintf(client->stop_string, sizeof client->stop_string, "%s", finished->stop_string);
}

static inline void client_take_timing(struct client *client, const Baton__V1__Timing *timing)
{
    client->timings++;
    snprintf(client->lane, sizeof client->lane, "%s", timing->lane);
    snprintf(client->prefill_worker, sizeof client->prefill_worker, "%s", timing->prefill_worker);
    snprintf(client->decode_worker, sizeof client->decode_worker, "%s", timing->decode_worker);
    client->prefills = timing->prefills;
    client->seed = timing->seed;
    client->kv_bytes = timing->kv_bytes;
    assert_true(timing->ttft_us <= timing->total_us && timing->queue_us <= timing->ttft_us);
}

static inline void client_take(struct client *client, const struct client_event *event)
{
    assert_false(client->closed); /* one terminal status, and nothing after it */
    if (event->closed) {
        client->closed = true;
        client->code = event->code;
        snprintf(client->why, sizeof client->why, "%s", event->why);
        snprintf(client->sentence, sizeof client->sentence, "%s", event->sentence);
        return;
    }
    Baton__V1__GenerateResponse *response =
        baton__v1__generate_response__unpack(NULL, event->size, event->bytes);
    assert_non_null(response);
    switch (response->event_case) {
    case BATON__V1__GENERATE_RESPONSE__EVENT_DELTA:
        assert_int_equal(client->finished, 0);
        client_take_delta(client, response->delta);
        break;
    case BATON__V1__GENERATE_RESPONSE__EVENT_FINISHED:
        client_take_finished(client, response->finished);
        break;
    case BATON__V1__GENERATE_RESPONSE__EVENT_USAGE:
        assert_int_equal(client->finished, 1);
        client->usages++;
        client->prompt_tokens = response->usage->prompt_tokens;
        client->completion_tokens = response->usage->completion_tokens;
        break;
    case BATON__V1__GENERATE_RESPONSE__EVENT_TIMING:
        assert_int_equal(client->usages, 1);
        client_take_timing(client, response->timing);
        break;
    default: fail_msg("an event without content");
    }
    baton__v1__generate_response__free_unpacked(response, NULL);
}

static inline void client_step(struct client *client)
{
    struct client_event *event = ring_wait(client->events, WORLD_LIMIT_US);
    if (!event)
        fail_msg("the client waited in vain; it has %u tokens", client->id_count);
    client_take(client, event);
    free(event);
}

static inline void client_wait_tokens(struct client *client, uint32_t count)
{
    while (client->id_count < count && !client->closed)
        client_step(client);
    if (client->id_count < count)
        fail_msg("ended with %s (%s) at %u tokens", rpc_code_name(client->code), client->sentence,
                 client->id_count);
}

/* To the end, which must be this one. */
static inline void client_wait_end(struct client *client, enum rpc_code code, const char *why)
{
    while (!client->closed)
        client_step(client);
    if (client->code != code || strcmp(client->why, why))
        fail_msg("ended with %s %s (%s) instead of %s %s", rpc_code_name(client->code), client->why,
                 client->sentence, rpc_code_name(code), why);
}

static inline void client_stop(struct client *client)
{
    rpc_call_cancel(client->call); /* nothing, if it has ended */
    while (!client->closed)
        client_step(client);
    rpc_call_unref(client->call);
    for (void *event; (event = ring_pop(client->events));)
        free(event);
    ring_destroy(client->events);
}

/* OK with tokens 1 .. count, each once, in order. */
static inline void client_expect_answer(struct client *client, uint32_t count)
{
    client_wait_end(client, RPC_OK, "");
    assert_int_equal(client->id_count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(client->ids[i], 100 + (i + 1) % 200);
    assert_int_equal(client->finished, 1);
    assert_int_equal(client->usages, 1);
    assert_int_equal(client->timings, 1);
    assert_int_equal(client->completion_tokens, count);
}

/* -------------------------------------------------------------------------------------- world */

static inline struct router_config world_config(void)
{
    struct router_config config = router_config_default();
    snprintf(config.model_dir, sizeof config.model_dir, "%s", WORLD_MODEL);
    snprintf(config.model_name, sizeof config.model_name, "tested");
    return config;
}

static inline void world_start(struct world *world, const struct router_config *config)
{
    struct error err;
    if (router_start(config, &world->router, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(rpc_runtime_create(2, &world->runtime, &err), STATUS_OK);
    struct rpc_channel_config channel = {.target = router_address(world->router)};
    assert_int_equal(rpc_channel_create(world->runtime, &channel, &world->channel, &err),
                     STATUS_OK);
}

/* Workers and clients were stopped before. */
static inline void world_stop(struct world *world)
{
    if (world->router)
        router_stop(world->router);
    rpc_channel_destroy(world->channel);
    rpc_runtime_destroy(world->runtime);
}

#endif
