#include "tests/bench/router_load/worker.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/domain/sampling.h"
#include "common/base/str.h"
#include "common/net/membership/registrar.h"
#include "common/net/membership/worker_message.h"
#include "common/net/rpc/message.h"
#include "proto/proto_unpack.h"
#include "tests/bench/router_load/stamps.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_QUEUED_BYTES (1u << 30) /* whole answers of many: all there before the first leaves */

/* A worker of one role. Both roles of a process share only the runtime. */
enum { MAX_JOBS = 8192, MAX_TOKENS_MESSAGE = 1024, BLOCK_TOKENS = 32 };

struct job {
    uint64_t request;
    uint32_t attempt, number, sent, tokens;
    uint32_t stamped; /* tokens that a prefill worker has sent before */
};

struct baton_worker {
    struct worker_info info;
    uint32_t token;
    struct registrar *registrar;
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t begun; /* there is a job */
    struct rpc_call *session;
    struct job jobs[MAX_JOBS];
    size_t job_count;
};

static void send_up(struct rpc_call *session, Baton__Worker__V1__SessionUp *up)
{
    enum status status = rpc_call_send_message(session, &up->base);
    ASSERT(status == STATUS_OK || status == STATUS_CANCELLED);
}

/* Tokens on their way out, in one message. */
struct batch {
    Baton__Worker__V1__Token items[MAX_TOKENS_MESSAGE], *pointers[MAX_TOKENS_MESSAGE];
    size_t count;
};

static void send_batch(struct rpc_call *session, struct batch *batch)
{
    Baton__Worker__V1__Tokens tokens = BATON__WORKER__V1__TOKENS__INIT;
    tokens.n_tokens = batch->count;
    tokens.tokens = batch->pointers;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_TOKENS;
    up.tokens = &tokens;
    if (batch->count)
        send_up(session, &up);
    batch->count = 0;
}

/* False: that was the last one. */
static bool add_token(const struct baton_worker *worker, struct rpc_call *session,
                      struct batch *batch, struct job *job)
{
    Baton__Worker__V1__Token *token = &batch->items[batch->count];
    baton__worker__v1__token__init(token);
    token->request = job->request;
    token->attempt = job->attempt;
    token->index = ++job->sent;
    token->id = worker->token;
    token->finish = job->sent == job->tokens ? FINISH_MAX_TOKENS : FINISH_NONE;
    batch->pointers[batch->count++] = token;
    if (job->sent > job->stamped)
        stamps_set(job->number, job->sent);
    if (batch->count == MAX_TOKENS_MESSAGE)
        send_batch(session, batch);
    return job->sent < job->tokens;
}

/* The first tokens at once, and all where there are no steps. */
static void begin_job(struct baton_worker *worker, struct rpc_call *session, struct job job)
{
    struct batch batch;
    batch.count = 0;
    bool more = job.sent < job.tokens;
    while (more) {
        more = add_token(worker, session, &batch, &job);
        if (worker_step_us())
            break;
    }
    send_batch(session, &batch);
    if (!more)
        return;
    pthread_mutex_lock(&worker->lock);
    ASSERT(worker->job_count < MAX_JOBS);
    worker->jobs[worker->job_count++] = job;
    pthread_cond_signal(&worker->begun);
    pthread_mutex_unlock(&worker->lock);
}

static void end_job(struct baton_worker *worker, uint64_t request)
{
    pthread_mutex_lock(&worker->lock);
    for (size_t i = 0; i < worker->job_count; i++)
        if (worker->jobs[i].request == request)
            worker->jobs[i--] = worker->jobs[--worker->job_count];
    pthread_mutex_unlock(&worker->lock);
}

static void on_hello(struct baton_worker *worker, struct rpc_call *session)
{
    Baton__Worker__V1__WorkerInfo info = worker_message_of(&worker->info);
    Baton__Worker__V1__Hello hello = BATON__WORKER__V1__HELLO__INIT;
    hello.info = &info;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_HELLO;
    up.hello = &hello;
    rpc_call_ref(session);
    pthread_mutex_lock(&worker->lock);
    worker->session = session;
    worker->job_count = 0;
    registrar_session_up(worker->registrar, true);
    pthread_mutex_unlock(&worker->lock);
    send_up(session, &up);
}

static void on_prefill(struct baton_worker *worker, struct rpc_call *session,
                       const Baton__Worker__V1__Prefill *prefill)
{
    static atomic_uint handles;
    uint32_t blocks[1] = {0};
    Baton__Worker__V1__Handle handle = BATON__WORKER__V1__HANDLE__INIT;
    handle.incarnation = worker->info.incarnation;
    handle.id = ++handles;
    handle.generation = 1;
    handle.model_hash = worker->info.model_hash;
    handle.layout_hash = worker->info.layout_hash;
    handle.numerics_id = worker->info.numerics_id;
    handle.token_count = (uint32_t)prefill->n_prompt;
    handle.blocks = blocks;
    handle.n_blocks = 1;
    Baton__Worker__V1__Opened opened = BATON__WORKER__V1__OPENED__INIT;
    opened.request = prefill->request;
    opened.attempt = prefill->attempt;
    opened.handle = &handle;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_OPENED;
    up.opened = &opened;
    send_up(session, &up);
    struct batch batch;
    batch.count = 0;
    struct job first = {.request = prefill->request,
                        .attempt = prefill->attempt,
                        .number =
                            stamps_number(prefill->request_name, strlen(prefill->request_name)),
                        .tokens = prefill->sampling->max_tokens};
    (void)add_token(worker, session, &batch, &first);
    send_batch(session, &batch);
}

static void on_message(struct rpc_call *session, struct rpc_bytes bytes)
{
    struct baton_worker *worker = rpc_call_context(session);
    struct arena arena;
    struct error err;
    ProtobufCMessage *message;
    arena_init(&arena, proto_arena_bytes(bytes.size));
    enum status status = proto_unpack(&baton__worker__v1__session_down__descriptor, bytes.data,
                                      bytes.size, &arena, &message, &err);
    ASSERT(status == STATUS_OK);
    const Baton__Worker__V1__SessionDown *down = (const Baton__Worker__V1__SessionDown *)message;
    const Baton__Worker__V1__Decode *decode = down->decode;
    switch (down->command_case) {
    case BATON__WORKER__V1__SESSION_DOWN__COMMAND_HELLO: on_hello(worker, session); break;
    case BATON__WORKER__V1__SESSION_DOWN__COMMAND_PREFILL:
        on_prefill(worker, session, down->prefill);
        break;
    case BATON__WORKER__V1__SESSION_DOWN__COMMAND_DECODE:
        begin_job(worker, session,
                  (struct job){
                      .request = decode->request,
                      .attempt = decode->attempt,
                      .number = stamps_number(decode->request_name, strlen(decode->request_name)),
                      .tokens = decode->sampling->max_tokens,
                      .stamped = decode->handle ? 1 : 0});
        break;
    default: end_job(worker, down->release->request);
    }
    arena_deinit(&arena);
}

static void on_open(struct rpc_call *session, void *service)
{
    rpc_call_set_context(session, service);
}

static void on_closed(struct rpc_call *session, const struct rpc_end *end)
{
    struct baton_worker *worker = rpc_call_context(session);
    (void)end;
    pthread_mutex_lock(&worker->lock);
    bool current = worker->session == session;
    if (current)
        worker->session = NULL;
    worker->job_count = current ? 0 : worker->job_count;
    pthread_mutex_unlock(&worker->lock);
    if (current)
        rpc_call_unref(session);
}

static void sleep_until(uint64_t ns)
{
    struct timespec until = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL))
        ;
}

/* A token for each job. */
static void step(struct baton_worker *worker)
{
    static _Thread_local struct batch batch;
    pthread_mutex_lock(&worker->lock);
    for (size_t i = 0; worker->session && i < worker->job_count; i++)
        if (!add_token(worker, worker->session, &batch, &worker->jobs[i]))
            worker->jobs[i--] = worker->jobs[--worker->job_count];
    if (worker->session)
        send_batch(worker->session, &batch);
    pthread_mutex_unlock(&worker->lock);
}

static void *step_for_ever(void *context)
{
    struct baton_worker *worker = context;
    for (;;) {
        pthread_mutex_lock(&worker->lock);
        while (!worker->job_count)
            pthread_cond_wait(&worker->begun, &worker->lock);
        pthread_mutex_unlock(&worker->lock);
        if (worker_step_us())
            sleep_until(worker_next_step_ns(clock_now_ns()));
        step(worker);
    }
    return NULL;
}

static enum status start(struct rpc_runtime *runtime, const struct baton_worker_config *config,
                         enum worker_role role, uint32_t index, struct error *err)
{
    struct baton_worker *worker = calloc(1, sizeof *worker);
    struct rpc_server *server;
    pthread_t thread;
    ASSERT(worker);
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->begun, NULL);
    worker->token = config->token;
    struct rpc_method *method = calloc(1, sizeof *method);
    ASSERT(method);
    *method = (struct rpc_method){.path = "/baton.worker.v1.Worker/Session",
                                  .handlers = {on_open, on_message, NULL, on_closed},
                                  .service = worker,
                                  .client_streams = true};
    struct rpc_server_config listen = {.listen = "127.0.0.1:0",
                                       .methods = method,
                                       .method_count = 1,
                                       .max_queued_bytes = MAX_QUEUED_BYTES};
    TRY(rpc_server_start(runtime, &listen, &server, err));
    worker->info = (struct worker_info){.role = role,
                                        .incarnation = clock_now_ns(),
                                        .model_hash = 1,
                                        .layout_hash = 2,
                                        .numerics_id = 3,
                                        .block_tokens = BLOCK_TOKENS,
                                        .block_count = 1u << 24,
                                        .context = config->context,
                                        .vocab = config->vocab,
                                        .max_sequences = MAX_JOBS};
    snprintf(worker->info.name, sizeof worker->info.name, "%s-%u",
             role == ROLE_PREFILL ? "prefill" : "decode", index);
    str_copy(worker->info.model, sizeof worker->info.model, config->model);
    str_copy(worker->info.address, sizeof worker->info.address, rpc_server_address(server));
    struct registrar_config join = {
        .runtime = runtime, .router_address = config->router, .info = worker->info};
    ASSERT(!pthread_create(&thread, NULL, step_for_ever, worker));
    pthread_mutex_lock(&worker->lock); /* the router's session needs it */
    enum status status = registrar_start(&join, &worker->registrar, err);
    pthread_mutex_unlock(&worker->lock);
    return status;
}

enum status baton_worker_start(const struct baton_worker_config *config, struct error *err)
{
    struct rpc_runtime *runtime;
    TRY(rpc_runtime_create(1, &runtime, err));
    for (uint32_t i = 0; i < config->count; i++) {
        if (config->prefill)
            TRY(start(runtime, config, ROLE_PREFILL, i, err));
        TRY(start(runtime, config, ROLE_DECODE, i, err));
    }
    return STATUS_OK;
}
