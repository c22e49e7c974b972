#include "tests/fuzz/worker_world.h"

#include "common/base/assert.h"
#include "common/net/membership/worker_message.h"
#include "proto/proto_unpack.h"
#include "proto/worker.pb-c.h"
#include "tests/fuzz/fake_clock.h"

#include <stdlib.h>
#include <string.h>

#define SESSION_PATH   "/baton.worker.v1.Worker/Session"
#define PEER_PATH      "/baton.worker.v1.PrefillPeer/Peer"
#define MAX_JOBS       512
#define MAX_POSTED     4096
#define MAX_END_ROUNDS 200

/* --- the transfer thread's inbox --- */

struct transfer_loop {
    size_t count;
};
static struct transfer_message *posted[MAX_POSTED]; /* [count] */

enum status transfer_loop_post(struct transfer_loop *loop, struct transfer_message *message)
{
    FUZZ_CHECK(loop->count < MAX_POSTED);
    posted[loop->count++] = message;
    return STATUS_OK;
}

void transfer_loop_post_end(struct transfer_loop *loop, struct transfer_message *message)
{
    FUZZ_CHECK(transfer_loop_post(loop, message) == STATUS_OK);
}

/* --- the step thread --- */

struct job {
    enum { JOB_ADD, JOB_ADMIT, JOB_REMOVE } kind;
    struct sequence_key key;
    struct sequence_spec spec;
    uint32_t first_token;
    uint64_t logits_hash;
};

/* The scheduler is the real one; the engine draws tokens from the position. */
struct step_loop {
    struct scheduler *scheduler;
    size_t job_count;
    const struct worker_role_ops *ops;
    void *role;
};
static struct job waiting_jobs[MAX_JOBS], running_jobs[MAX_JOBS]; /* [job_count] of the first */

static void job_add(struct step_loop *loop, const struct job *job)
{
    FUZZ_CHECK(loop->job_count < MAX_JOBS);
    waiting_jobs[loop->job_count++] = *job;
}

enum status step_loop_add(struct step_loop *loop, const struct sequence_spec *spec)
{
    if (loop->job_count >= MAX_JOBS / 4) {
        sequence_spec_free(spec);
        return STATUS_LIMIT;
    }
    struct job job = {.kind = JOB_ADD, .key = spec->key, .spec = *spec};
    free(job.spec.constraint_source); /* nothing compiles it in this world */
    job.spec.constraint_source = NULL;
    job_add(loop, &job);
    return STATUS_OK;
}

void step_loop_admit(struct step_loop *loop, struct sequence_key key, uint32_t first_token,
                     uint64_t logits_hash, const struct token_logprobs *logprobs)
{
    (void)logprobs;
    job_add(loop, &(struct job){.kind = JOB_ADMIT,
                                .key = key,
                                .first_token = first_token,
                                .logits_hash = logits_hash});
}

void step_loop_remove(struct step_loop *loop, struct sequence_key key)
{
    job_add(loop, &(struct job){.kind = JOB_REMOVE, .key = key});
}

static struct step_event *event_new(enum step_event_kind kind, struct sequence_key key)
{
    struct step_event *event = calloc(1, sizeof *event + WORLD_SEQUENCES * sizeof *event->tokens);
    FUZZ_CHECK(event);
    event->kind = kind;
    event->key = key;
    return event;
}

static void event_tell(struct step_loop *loop, struct step_event *event)
{
    loop->ops->handlers.step_event(loop->role, event);
    free(event);
}

static void event_tell_error(struct step_loop *loop, enum step_event_kind kind,
                             struct sequence_key key, enum status status, const struct error *err)
{
    struct step_event *event = event_new(kind, key);
    event->status = status;
    event->err = *err;
    event_tell(loop, event);
}

static void add_token(struct step_event *event, const struct sequence *sequence,
                      enum finish_reason finish)
{
    event->tokens[event->token_count++] =
        (struct step_token){.key = sequence->key,
                            .index = sequence_answer_count(sequence),
                            .token = sequence->tokens[sequence->token_count - 1],
                            .finish = finish,
                            .hand_off = sequence->plan == PLAN_HAND_OFF};
}

static void run_job(struct step_loop *loop, const struct job *job)
{
    struct sequence *sequence = scheduler_find(loop->scheduler, job->key);
    struct error err;
    enum status status;
    switch (job->kind) {
    case JOB_ADD:
        status = scheduler_add(loop->scheduler, &job->spec, &err);
        if (status == STATUS_OK)
            break;
        sequence_spec_free(&job->spec);
        fuzz_check_sentence(err.text);
        event_tell_error(loop, STEP_REFUSED, job->key, status, &err);
        break;
    case JOB_ADMIT: {
        FUZZ_CHECK(sequence); /* only its owner removes it, and its owner admits it */
        struct step_event *event = event_new(STEP_TOKENS, (struct sequence_key){0});
        enum finish_reason finish = scheduler_admit(loop->scheduler, sequence, job->first_token);
        add_token(event, sequence, finish);
        if (finish != FINISH_NONE)
            scheduler_remove(loop->scheduler, sequence);
        event_tell(loop, event);
        break;
    }
    case JOB_REMOVE:
        if (sequence)
            scheduler_remove(loop->scheduler, sequence);
        event_tell(loop, event_new(STEP_REMOVED, job->key));
        break;
    }
}

static void compute(struct step_loop *loop, const struct step_plan *plan, bool fails)
{
    struct step_event *drawn = NULL;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct planned_rows *part = &plan->parts[i];
        struct sequence *sequence = part->sequence;
        bool prefill = sequence->state == SEQUENCE_PREFILL;
        if (fails) {
            struct error err;
            error_set(&err, STATUS_INTERNAL, "the engine failed");
            sequence->state = SEQUENCE_HELD;
            event_tell_error(loop, STEP_FAILED, sequence->key, STATUS_INTERNAL, &err);
            continue;
        }
        enum finish_reason finish =
            scheduler_rows_done(loop->scheduler, part, (sequence->computed * 7 + 11) % WORLD_VOCAB);
        if (prefill && sequence->plan == PLAN_HAND_OFF) {
            struct step_event *ready = event_new(STEP_READY, sequence->key);
            ready->ready_tokens = sequence->computed;
            event_tell(loop, ready);
        }
        if (!part->samples)
            continue;
        if (!drawn)
            drawn = event_new(STEP_TOKENS, (struct sequence_key){0});
        add_token(drawn, sequence, finish);
        if (finish != FINISH_NONE && sequence->plan != PLAN_HAND_OFF)
            scheduler_remove(loop->scheduler, sequence);
    }
    if (drawn)
        event_tell(loop, drawn);
}

/* Does the step thread's work between two looks at its jobs. Jobs that its events cause wait for
 * the next step. */
static void step(struct step_loop *loop, bool fails)
{
    size_t count = loop->job_count;
    memcpy(running_jobs, waiting_jobs, count * sizeof *waiting_jobs);
    loop->job_count = 0;
    for (size_t i = 0; i < count; i++)
        run_job(loop, &running_jobs[i]);
    for (struct sequence *sequence; (sequence = scheduler_reserve(loop->scheduler, 0));) {
        struct step_event *event = event_new(STEP_RESERVED, sequence->key);
        event->plan = sequence->plan;
        event->cached_tokens = sequence->computed;
        if (sequence->plan != PLAN_LOCAL) {
            event->blocks = sequence->blocks;
            event->block_count = sequence->block_count;
        }
        event_tell(loop, event);
    }
    compute(loop, scheduler_plan(loop->scheduler, 0), fails);
}

/* --- the worker --- */

struct world {
    struct worker worker;
    struct transfer_loop inbox;
    struct step_loop steps;
    struct stream_service session_service, peer_service;
    struct rpc_method session_method, peer_method;
    struct rpc_call *session;   /* the newest stream, open or not; NULL: none yet */
    struct kv_transport *other; /* a valid Welcome names its pool */
};

static struct kv_transport *open_pool(uint32_t blocks)
{
    struct kv_transport *transport;
    struct error err;
    static const struct kv_layout layout = {.layers = 1,
                                            .kv_heads = 1,
                                            .head_dim = WORLD_BLOCK_BYTES / WORLD_BLOCK_TOKENS / 4,
                                            .block_tokens = WORLD_BLOCK_TOKENS,
                                            .type = KV_BF16,
                                            .layer_end = 1,
                                            .head_end = 1};
    struct kv_transport_config config = {.kind = KV_TRANSPORT_LOCAL,
                                         .pool_bytes = (size_t)blocks * WORLD_BLOCK_BYTES,
                                         .layout = &layout,
                                         .max_reads = WORLD_SEQUENCES + 2};
    FUZZ_CHECK(kv_transport_open(&config, &transport, &err) == STATUS_OK);
    return transport;
}

static void check_sent(void *observer, struct rpc_call *call, struct rpc_bytes bytes)
{
    (void)observer;
    const ProtobufCMessageDescriptor *type = &baton__worker__v1__session_up__descriptor;
    if (fake_call_is_client(call))
        type = &baton__worker__v1__peer_down__descriptor;
    else if (fake_call_is_to(call, PEER_PATH))
        type = &baton__worker__v1__peer_up__descriptor;
    struct arena arena;
    struct error err;
    ProtobufCMessage *message;
    arena_init(&arena, proto_arena_bytes(bytes.size));
    FUZZ_CHECK(proto_unpack(type, bytes.data, bytes.size, &arena, &message, &err) == STATUS_OK);
    arena_deinit(&arena);
}

static void fill_worker(struct worker *worker, const struct worker_role_ops *ops)
{
    worker->ops = ops;
    worker->block_count = WORLD_BLOCK_COUNT;
    worker->block_bytes = WORLD_BLOCK_BYTES;
    worker->config.max_sequences = WORLD_SEQUENCES;
    worker->config.lease_us = 10000000;
    worker->config.heartbeat_us = 1000000;
    worker->config.read_timeout_us = 5000000;
    worker->config.peer_timeout_us = 5000000;
    worker->info = (struct worker_info){.name = "worker-0",
                                        .role = ops->role,
                                        .incarnation = 7,
                                        .address = "127.0.0.1:4001",
                                        .model = "tested",
                                        .model_hash = 1,
                                        .layout_hash = 2,
                                        .numerics_id = 3,
                                        .block_tokens = WORLD_BLOCK_TOKENS,
                                        .block_count = WORLD_BLOCK_COUNT,
                                        .context = WORLD_CONTEXT,
                                        .vocab = WORLD_VOCAB,
                                        .max_sequences = WORLD_SEQUENCES};
}

static void world_open(struct world *world, const struct worker_role_ops *ops)
{
    static struct worker_metrics metrics;
    if (!metrics.metrics)
        worker_metrics_init(&metrics, ops->role);
    struct error err;
    struct worker *worker = &world->worker;
    fill_worker(worker, ops);
    worker->metrics = metrics;
    worker->transport = open_pool(WORLD_BLOCK_COUNT);
    world->other = open_pool(WORLD_BLOCK_COUNT);
    worker->loop = &world->inbox;
    worker->steps = &world->steps;
    static const uint32_t end_ids[] = {2};
    struct scheduler_config schedule = {.block_tokens = WORLD_BLOCK_TOKENS,
                                        .block_count = WORLD_BLOCK_COUNT,
                                        .max_sequences = WORLD_SEQUENCES,
                                        .chunk_tokens = 32,
                                        .context = WORLD_CONTEXT,
                                        .end_ids = end_ids,
                                        .end_id_count = 1,
                                        .grow = true,
                                        .prefix_cache = true,
                                        .table_seed = 1};
    FUZZ_CHECK(scheduler_create(&schedule, &world->steps.scheduler) == STATUS_OK);
    FUZZ_CHECK(ops->create(worker, &worker->role, &err) == STATUS_OK);
    world->steps.ops = ops;
    world->steps.role = worker->role;
    worker->session =
        (struct session){.info = &worker->info, .handlers = &ops->session, .role = worker->role};
    world->session_service =
        (struct stream_service){&world->inbox, &session_stream_kind, &worker->session};
    world->session_method = (struct rpc_method){.path = SESSION_PATH,
                                                .handlers = stream_server_handlers,
                                                .service = &world->session_service,
                                                .client_streams = true};
    world->peer_service = (struct stream_service){&world->inbox, ops->peer_kind, worker->peer_role};
    world->peer_method = (struct rpc_method){.path = PEER_PATH,
                                             .handlers = stream_server_handlers,
                                             .service = &world->peer_service,
                                             .client_streams = true};
    fake_rpc.sent = check_sent;
    fake_rpc.full = false;
}

static void settle(struct world *world)
{
    struct transfer_loop *inbox = &world->inbox;
    bool worked;
    do {
        fake_rpc_settle();
        for (size_t i = 0; i < inbox->count; i++)
            posted[i]->deliver(posted[i]);
        inbox->count = 0;
        struct kv_event events[8];
        size_t count;
        while ((count = kv_transport_poll(world->worker.transport, fake_time_us, events, 8)))
            for (size_t i = 0; i < count; i++)
                world->worker.ops->handlers.kv_event(world->worker.role, &events[i]);
        worked = false;
        while (world->worker.ops->handlers.work &&
               world->worker.ops->handlers.work(world->worker.role))
            worked = true; /* there may be more to poll */
        fake_rpc_settle();
    } while (inbox->count || worked);
}

static void tick(struct world *world)
{
    world->worker.ops->handlers.tick(world->worker.role, fake_time_us);
    settle(world);
}

/* The `choice`-th open Peer stream, counted around; NULL: there is none. */
static struct rpc_call *pick_peer(size_t choice)
{
    struct rpc_call *open[FAKE_MAX_CALLS];
    size_t count = 0;
    for (size_t i = 0; i < fake_rpc.count; i++)
        if (!fake_call_closed(fake_rpc.calls[i]) && fake_call_is_to(fake_rpc.calls[i], PEER_PATH))
            open[count++] = fake_rpc.calls[i];
    return count ? open[choice % count] : NULL;
}

/* The prefill worker at the other end says hello, with an address that can be paired with. */
static void welcome(struct world *world, struct rpc_call *peer)
{
    struct kv_admission admission;
    struct error err;
    FUZZ_CHECK(kv_transport_admit(world->other, &admission, &err) == STATUS_OK);
    Baton__Worker__V1__PeerWelcome message = BATON__WORKER__V1__PEER_WELCOME__INIT;
    message.version = WORKER_PROTOCOL_VERSION;
    message.incarnation = 7;
    message.transport_address.data = admission.address;
    message.transport_address.len = admission.bytes;
    message.lease_us = 10000000;
    Baton__Worker__V1__PeerUp up = BATON__WORKER__V1__PEER_UP__INIT;
    up.message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_WELCOME;
    up.welcome = &message;
    uint8_t bytes[KV_TRANSPORT_MAX_ADDRESS_BYTES + 64];
    size_t size = baton__worker__v1__peer_up__pack(&up, bytes);
    fake_call_receive(peer, (struct fuzz_bytes){bytes, size});
}

/* Opens a session of one of two routers, which names the worker. The input decides the rest. */
static void open_session(struct world *world, size_t router)
{
    struct rpc_call *call = fake_call_open(&world->session_method);
    if (!call)
        return;
    world->session = call;
    Baton__Worker__V1__RouterHello hello = BATON__WORKER__V1__ROUTER_HELLO__INIT;
    hello.incarnation = 1 + router % 2;
    hello.worker = world->worker.info.name;
    hello.worker_incarnation = world->worker.info.incarnation;
    Baton__Worker__V1__SessionDown down = BATON__WORKER__V1__SESSION_DOWN__INIT;
    down.command_case = BATON__WORKER__V1__SESSION_DOWN__COMMAND_HELLO;
    down.hello = &hello;
    uint8_t bytes[256];
    size_t size = baton__worker__v1__session_down__pack(&down, bytes);
    fake_call_receive(call, (struct fuzz_bytes){bytes, size});
}

/* `peer`: the one that the piece's first byte, or its length, takes. */
static void happen_to_peer(struct world *world, size_t what, struct fuzz_bytes bytes)
{
    bool serves = world->worker.ops->peer_kind != NULL;
    struct rpc_call *peer = pick_peer(what == 3 && bytes.size ? bytes.data[0] : bytes.size);
    if (what == 4 && serves)
        (void)fake_call_open(&world->peer_method);
    else if (!peer)
        return;
    else if (what == 3 && bytes.size)
        fake_call_receive(peer, (struct fuzz_bytes){bytes.data + 1, bytes.size - 1});
    else if (what == 4)
        welcome(world, peer);
    else if (what == 5)
        fake_call_end(peer, RPC_UNAVAILABLE);
}

/* 0 a message of the router, 1 a new session, 2 it ends; 3 a message of a peer, 4 a peer dials
 * (prefill) or welcomes (decode), 5 it ends; 6 a step, which fails if the piece is not empty; 7
 * time passes; 8 the router stops reading, or reads again; 9 drain. */
static void happen(struct world *world, size_t what, struct fuzz_bytes bytes)
{
    switch (what) {
    case 0:
        if (!world->session)
            open_session(world, 0);
        settle(world);
        fake_call_receive(world->session, bytes);
        break;
    case 1: open_session(world, bytes.size); break;
    case 2:
        if (world->session)
            fake_call_end(world->session, RPC_UNAVAILABLE);
        break;
    case 3:
    case 4:
    case 5: happen_to_peer(world, what, bytes); break;
    case 6: step(&world->steps, bytes.size > 0); break;
    case 7: fake_time_us += (uint64_t)bytes.size * 10000; break;
    case 8: fake_rpc.full = !fake_rpc.full; break;
    case 9: atomic_store(&world->worker.draining, true); break;
    }
    settle(world);
    tick(world);
}

/* The router and all peers are gone, and time passes: whatever was held is given back. */
static void let_all_end(struct world *world)
{
    const struct worker_role_ops *ops = world->worker.ops;
    fake_rpc.full = false;
    for (size_t i = 0; i < fake_rpc.count; i++)
        fake_call_end(fake_rpc.calls[i], RPC_UNAVAILABLE);
    settle(world);
    for (int round = 0; ops->busy_count(world->worker.role) || world->steps.job_count; round++) {
        FUZZ_CHECK(round < MAX_END_ROUNDS);
        fake_time_us += 1000000;
        step(&world->steps, false);
        settle(world);
        tick(world);
    }
    struct scheduler_load load = scheduler_load(world->steps.scheduler);
    FUZZ_CHECK(load.blocks[KV_BLOCK_FREE] + load.blocks[KV_BLOCK_CACHED] == WORLD_BLOCK_COUNT);
    FUZZ_CHECK(!load.waiting && !load.running);
}

static void world_close(struct world *world)
{
    const struct worker_role_ops *ops = world->worker.ops;
    ops->close(world->worker.role);
    settle(world);
    fake_rpc_forget();
    ops->destroy(world->worker.role);
    scheduler_destroy(world->steps.scheduler);
    kv_transport_close(world->worker.transport);
    kv_transport_close(world->other);
}

void worker_world_play(const struct worker_role_ops *ops, struct fuzz_input *input)
{
    fuzz_quiet();
    struct world *world = calloc(1, sizeof *world);
    FUZZ_CHECK(world);
    fake_time_us = 1000000;
    world_open(world, ops);
    for (int i = 0; i < WORLD_EVENTS && input->at < input->end; i++) {
        size_t what = fuzz_take_below(input, 10);
        happen(world, what, fuzz_take_piece(input));
        fake_time_us += 1000;
    }
    let_all_end(world);
    world_close(world);
    free(world);
}
