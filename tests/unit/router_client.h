/* For test_router*: a real client. Received messages come as events in a ring, and are checked when
 * they are taken: deltas in order, then Finished, Usage, Timing, one status, nothing after it. */
#ifndef BATON_TESTS_ROUTER_CLIENT_H
#define BATON_TESTS_ROUTER_CLIENT_H

#include "proto/baton.pb-c.h"
#include "proto/proto_text.h"
#include "router_fake.h"

#define CLIENT_IDS 4096

struct client {
    struct rpc_call *call;
    struct ring *events; /* struct client_event */
    /* Received so far: */
    uint32_t ids[CLIENT_IDS]; /* the newest */
    uint32_t id_count, hash_count, deltas, finished, usages, timings;
    uint32_t logprobs_count, scores, prompts;
    /* counts of the other choices; all fields above are the first choice's */
    uint32_t tokens_of[16];
    uint32_t finished_of[16];
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
    uint8_t bytes[]; /* a message's bytes */
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

/* The fields of a request; those left 0 take the defaults below. */
struct ask {
    uint32_t prompt_tokens; /* 8 */
    uint32_t max_tokens;    /* 4 */
    uint32_t priority;
    uint64_t deadline_us; /* none */
    uint32_t n;           /* 1 */
    const char *request_id, *text, *stop, *model, *slo_class;
    bool ids_with_hashes, logprobs, prompt_logprobs, echo, no_max_tokens, no_answer;
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
    if (ask->priority) {
        request.priority_presence_case = BATON__V1__GENERATE_REQUEST__PRIORITY_PRESENCE_PRIORITY;
        request.priority = (Baton__V1__Priority)ask->priority;
    }
    request.request_id = (char *)(ask->request_id ? ask->request_id : "");
    request.model = (char *)(ask->model ? ask->model : "");
    request.slo_class = (char *)(ask->slo_class ? ask->slo_class : "");
    if (ask->text) {
        request.input_case = BATON__V1__GENERATE_REQUEST__INPUT_TEXT;
        request.text = proto_bytes(text_from(ask->text));
    } else {
        request.input_case = BATON__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS;
        request.token_ids = &prompt;
    }
    if (!ask->no_max_tokens)
        sampling.max_tokens_presence_case = BATON__V1__SAMPLING__MAX_TOKENS_PRESENCE_MAX_TOKENS;
    sampling.max_tokens = ask->no_answer ? 0 : ask->max_tokens ? ask->max_tokens : 4;
    sampling.seed_presence_case = BATON__V1__SAMPLING__SEED_PRESENCE_SEED;
    sampling.seed = 42;
    sampling.n_presence_case = ask->n ? 13 : 0;
    sampling.n = ask->n;
    request.sampling = &sampling;
    output.return_timing_presence_case = BATON__V1__OUTPUT__RETURN_TIMING_PRESENCE_RETURN_TIMING;
    output.return_timing = true;
    output.return_logits_hash_presence_case =
        BATON__V1__OUTPUT__RETURN_LOGITS_HASH_PRESENCE_RETURN_LOGITS_HASH;
    output.return_logits_hash = ask->ids_with_hashes;
    output.logprobs_presence_case = ask->logprobs ? 5 : 0;
    output.logprobs = output.prompt_logprobs = 2;
    output.prompt_logprobs_presence_case = ask->prompt_logprobs ? 6 : 0;
    output.echo_presence_case = ask->echo ? 7 : 0;
    output.echo = ask->echo;
    request.output = &output;
    ProtobufCBinaryData stops[] = {proto_bytes(text_from(ask->stop ? ask->stop : ""))};
    stop.n_strings = ask->stop ? 1 : 0;
    stop.strings = stops;
    request.stop = &stop;
    assert_int_equal(rpc_call_send_message(call, &request.base), STATUS_OK);
    rpc_call_half_close(call);
}

static inline void client_start_at(struct rpc_channel *channel, struct client *client,
                                   const char *path, const struct ask *ask)
{
    memset(client, 0, sizeof *client);
    assert_int_equal(ring_create(WORLD_RING, &client->events), STATUS_OK);
    assert_int_equal(rpc_call_start(channel, path, &client_handlers, client, ask->deadline_us, true,
                                    &client->call),
                     STATUS_OK);
    client_send(client->call, ask);
}

/* Checks logprobs that fake_logprobs made. */
static inline void client_check_logprobs(const Baton__V1__Logprobs *logprobs, uint32_t number)
{
    assert_true(logprobs->drawn == -(float)number / 8);
    assert_int_equal(logprobs->n_top_ids, 2);
    assert_int_equal(logprobs->n_top, 2);
    assert_true(logprobs->top_ids[0] == 7 && logprobs->top_ids[1] == number % WORLD_VOCAB);
    assert_true(logprobs->top[0] == 0 && logprobs->top[1] == logprobs->drawn);
}

static inline void client_add_text(struct client *client, ProtobufCBinaryData field)
{
    struct text text = proto_text(field);
    assert_true(strlen(client->text) + text.length < sizeof client->text);
    strncat(client->text, text.bytes, text.length);
}

/* Checks the prompt and its logprobs in order; nothing of the answer may come before them. */
static inline void client_take_prompt(struct client *client,
                                      const Baton__V1__GenerateResponse *response)
{
    assert_int_equal(client->deltas, 0);
    if (response->event_case == BATON__V1__GENERATE_RESPONSE__EVENT_PROMPT) {
        assert_int_equal(client->scores, 0);
        client->prompts++;
        client->text[0] = 0;
        client_add_text(client, response->prompt->text);
        return;
    }
    assert_int_equal(response->prompt_logprobs->first_index, client->scores + 1);
    for (size_t i = 0; i < response->prompt_logprobs->n_logprobs; i++)
        client_check_logprobs(response->prompt_logprobs->logprobs[i], ++client->scores);
}

/* Checks another choice than the first: tokens in order. */
static inline void client_take_other(struct client *client, const Baton__V1__Delta *delta)
{
    assert_true(delta->choice < 16);
    assert_int_equal(client->finished_of[delta->choice], 0);
    assert_int_equal(delta->first_index, client->tokens_of[delta->choice]);
    client->tokens_of[delta->choice] += (uint32_t)delta->n_token_ids;
}

static inline void client_take_delta(struct client *client, const Baton__V1__Delta *delta)
{
    if (delta->choice) {
        client_take_other(client, delta);
        return;
    }
    assert_int_equal(client->finished, 0);
    assert_int_equal(delta->first_index, client->id_count);
    for (size_t i = 0; i < delta->n_token_ids; i++)
        client->ids[client->id_count++ % CLIENT_IDS] = delta->token_ids[i];
    client->hash_count += (uint32_t)delta->n_logits_hashes;
    for (size_t i = 0; i < delta->n_logprobs; i++)
        client_check_logprobs(delta->logprobs[i], ++client->logprobs_count);
    client_add_text(client, delta->text);
    client->deltas++;
}

static inline void client_take_finished(struct client *client, const Baton__V1__Finished *finished)
{
    if (finished->choice) {
        assert_true(finished->choice < 16);
        client->finished_of[finished->choice]++;
        return;
    }
    client->finished++;
    client->reason = finished->reason;
    if (finished->matched_case == BATON__V1__FINISHED__MATCHED_STOP_STRING)
        snprintf(client->stop_string, sizeof client->stop_string, "%.*s",
                 (int)finished->stop_string.len, (const char *)finished->stop_string.data);
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
    case BATON__V1__GENERATE_RESPONSE__EVENT_PROMPT:
    case BATON__V1__GENERATE_RESPONSE__EVENT_PROMPT_LOGPROBS:
        client_take_prompt(client, response);
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

/* Reads to the end, which must be this one; why NULL: any reason. */
static inline void client_wait_end(struct client *client, enum rpc_code code, const char *why)
{
    while (!client->closed)
        client_step(client);
    if (client->code != code || (why && strcmp(client->why, why)))
        fail_msg("ended with %s %s (%s) instead of %s %s", rpc_code_name(client->code), client->why,
                 client->sentence, rpc_code_name(code), why ? why : "");
}

static inline void client_stop(struct client *client)
{
    rpc_call_cancel(client->call); /* does nothing after its end */
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

#endif
