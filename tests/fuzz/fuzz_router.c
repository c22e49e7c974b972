/* A router's life: registrations, Session messages of workers, requests and departures of clients,
 * lost streams and time, in any order and of any bytes, through the code that receives them and the
 * real dispatcher, on this thread. Every admitted request ends with one status, every stream is
 * closed, nothing leaks, and the router's messages can be parsed. Input: pairs of a byte (what
 * happens) and a piece. */
#include "proto/baton.pb-c.h"
#include "proto/proto_unpack.h"
#include "proto/worker.pb-c.h"
#include "router/dispatch/dispatch_internal.h"
#include "router/doors/grpc/grpc_api.h"
#include "router/doors/grpc/registry_service.h"
#include "tests/fuzz/fake_clock.h"
#include "tests/fuzz/fake_rpc.h"

#include <string.h>

#define CONTEXT    256
#define VOCAB      600
#define MAX_EVENTS 64
#define TTL_US     10000000
#define MAX_TURNS  1000

struct world {
    struct membership *membership;
    struct dispatch *dispatch;
    struct grpc_api api;
    struct registry_service registry;
    struct rpc_method methods[GRPC_API_METHODS + 1]; /* the last is RegisterWorker */
};

/* Two models, the second without a tokenizer and with fewer ids: workers and requests of both. */
static struct served_models served = {
    .count = 2,
    .items = {
        {.name = "tested",
         .limits = {.name = "tested", .context = CONTEXT, .vocab = VOCAB, .has_tokenizer = true}},
        {.name = "other", .limits = {.name = "other", .context = CONTEXT, .vocab = VOCAB - 1}}}};
static struct router_metrics metrics;
static struct status_board board;

static void open_once(void)
{
    fuzz_quiet();
    struct error err;
    FUZZ_CHECK(tokenizer_open("tests/golden/tokenizers/llama3.json", &served.items[0].tokenizer,
                              &err) == STATUS_OK);
    FUZZ_CHECK(router_metrics_create(&metrics, &served) == STATUS_OK);
    status_board_init(&board);
}

static void check_ids(size_t count, const uint32_t *ids)
{
    for (size_t i = 0; i < count; i++)
        FUZZ_CHECK(ids[i] < VOCAB);
}

static void check_command(const Baton__Worker__V1__SessionDown *down)
{
    if (down->command_case == BATON__WORKER__V1__SESSION_DOWN__COMMAND_PREFILL) {
        FUZZ_CHECK(down->prefill->n_prompt && down->prefill->attempt);
        check_ids(down->prefill->n_emitted, down->prefill->emitted);
    } else if (down->command_case == BATON__WORKER__V1__SESSION_DOWN__COMMAND_DECODE) {
        FUZZ_CHECK(down->decode->n_prompt && down->decode->attempt);
        check_ids(down->decode->n_emitted, down->decode->emitted);
    }
}

static void check_sent(void *observer, struct rpc_call *call, struct rpc_bytes bytes)
{
    (void)observer;
    const ProtobufCMessageDescriptor *type = &baton__worker__v1__register_response__descriptor;
    bool delta = fake_call_is_to(call, "/baton.v1.Baton/Generate");
    if (fake_call_is_client(call))
        type = &baton__worker__v1__session_down__descriptor;
    else if (delta)
        type = &baton__v1__generate_response__descriptor;
    else if (fake_call_is_to(call, "/baton.v1.Baton/GenerateOnce"))
        type = &baton__v1__generate_result__descriptor;
    struct arena arena;
    struct error err;
    ProtobufCMessage *message;
    arena_init(&arena, proto_arena_bytes(bytes.size));
    FUZZ_CHECK(proto_unpack(type, bytes.data, bytes.size, &arena, &message, &err) == STATUS_OK);
    if (fake_call_is_client(call))
        check_command((const Baton__Worker__V1__SessionDown *)message);
    const Baton__V1__GenerateResponse *response = (const Baton__V1__GenerateResponse *)message;
    if (delta && response->event_case == BATON__V1__GENERATE_RESPONSE__EVENT_DELTA)
        check_ids(response->delta->n_token_ids, response->delta->token_ids);
    arena_deinit(&arena);
}

static void on_membership_changed(void *context)
{
    dispatch_membership_changed(((struct world *)context)->dispatch);
}

static void world_open(struct world *world)
{
    struct error err;
    struct membership_config members = {
        .limit = 8, .ttl_us = TTL_US, .changed = on_membership_changed, .context = world};
    FUZZ_CHECK(membership_create(&members, &world->membership) == STATUS_OK);
    struct dispatch_config config = {.membership = world->membership,
                                     .metrics = &metrics,
                                     .board = &board,
                                     .models = &served,
                                     .max_requests = 16,
                                     .max_queue = 8,
                                     .prefix_limit = 16,
                                     .linger_us = 5000000,
                                     .incarnation = 1,
                                     .limits = request_limits_default()};
    FUZZ_CHECK(dispatch_create(&config, &world->dispatch, &err) == STATUS_OK);
    atomic_store(&world->dispatch->next_id, 1); /* so that inputs can name requests */
    world->api = (struct grpc_api){.dispatch = world->dispatch,
                                   .models = &served,
                                   .board = &board,
                                   .metrics = &metrics,
                                   .client_buffer_bytes = 1u << 20};
    grpc_api_methods(&world->api, world->methods);
    world->registry = (struct registry_service){world->membership, &served, &board, 1};
    world->methods[GRPC_API_METHODS] = registry_service_method(&world->registry);
    fake_rpc.sent = check_sent;
    fake_rpc.full = false;
}

/* Returns the `choice`-th open call (modulo their number) that the router dialled, or that it
 * didn't. */
static struct rpc_call *pick(bool dialled, size_t choice)
{
    struct rpc_call *open[FAKE_MAX_CALLS];
    size_t count = 0;
    for (size_t i = 0; i < fake_rpc.count; i++)
        if (!fake_call_closed(fake_rpc.calls[i]) &&
            fake_call_is_client(fake_rpc.calls[i]) == dialled)
            open[count++] = fake_rpc.calls[i];
    return count ? open[choice % count] : NULL;
}

static void ask(const struct rpc_method *method, struct fuzz_bytes bytes)
{
    struct rpc_call *call = fake_call_open(method);
    if (call)
        fake_call_receive(call, bytes);
}

static void happen(struct world *world, size_t what, struct fuzz_bytes bytes)
{
    struct rpc_call *call;
    switch (what) {
    case 0: ask(&world->methods[GRPC_API_METHODS], bytes); break;
    case 1:
    case 2: ask(&world->methods[what - 1], bytes); break;
    case 3: /* the first byte takes the worker */
        call = pick(true, bytes.size ? bytes.data[0] : 0);
        if (call && bytes.size)
            fake_call_receive(call, (struct fuzz_bytes){bytes.data + 1, bytes.size - 1});
        break;
    case 4:
    case 5:
        call = pick(what == 4, bytes.size);
        if (call)
            fake_call_end(call, what == 4 ? RPC_UNAVAILABLE : RPC_CANCELLED);
        break;
    case 6: fake_time_us += (uint64_t)bytes.size * 10000; break;
    case 7: /* odd: from now on messages are acted on as they come, or no longer */
        if (bytes.size % 2)
            atomic_store(&world->dispatch->helped, !atomic_load(&world->dispatch->helped));
        else
            fake_rpc.full = !fake_rpc.full;
        break;
    }
}

static bool settle(struct world *world)
{
    fake_rpc_settle();
    pthread_mutex_lock(&world->dispatch->turn); /* as its thread does */
    bool more = dispatch_turn(world->dispatch);
    pthread_mutex_unlock(&world->dispatch->turn);
    return more;
}

static void world_close(struct world *world)
{
    fake_rpc.full = false;
    dispatch_stop(world->dispatch);
    int turns = 0;
    while (settle(world))
        FUZZ_CHECK(++turns < MAX_TURNS);
    fake_rpc_settle();
    for (size_t i = 0; i < fake_rpc.count; i++)
        FUZZ_CHECK(fake_call_closed(fake_rpc.calls[i]));
    fake_rpc_forget();
    FUZZ_CHECK(map_count(world->dispatch->requests) == 0);
    dispatch_free(world->dispatch);
    membership_destroy(world->membership);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!served.items[0].tokenizer)
        open_once();
    struct fuzz_input input = {data, data + size};
    struct world world;
    fake_time_us = 1000000;
    world_open(&world);
    for (int i = 0; i < MAX_EVENTS && input.at < input.end; i++) {
        size_t what = fuzz_take_below(&input, 8);
        happen(&world, what, fuzz_take_piece(&input));
        fake_time_us += 1000;
        settle(&world);
    }
    world_close(&world);
    return 0;
}
