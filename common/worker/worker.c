#include "common/worker/worker.h"

#include "common/base/clock.h"
#include "common/base/descriptors.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/stop_signals.h"
#include "common/net/http/http_server.h"
#include "common/net/membership/registrar.h"
#include "common/net/rpc/link_tls.h"
#include "proto/descriptors.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MODULE            "worker"
#define RPC_THREADS       2 /* a mock engine's: 1 */
#define MAX_MESSAGE_BYTES (32u << 20)
#define MAX_QUEUED_BYTES  (64u << 20)
#define KEEPALIVE_US      10000000
#define ABSENT_ROUTER_US  2000000 /* many times the time of a redial */
/* Sessions, Peer streams, health checks: one of each worker, and one more while it reconnects. With
 * the streams that this worker dials, they must be fewer than the ends of streams for which the
 * inbox keeps room. */
#define MAX_CALLS (2 * CLUSTER_MAX_PEERS)
/* Descriptors for files, threads' wake-ups, listening sockets, look-ups. */
#define OWN_DESCRIPTORS 64

/* Parts used only while the worker starts and stops. */
struct worker_life {
    struct worker worker;
    struct rpc_server *server;
    struct http_server *http;
    struct registrar *registrar;
    struct stream_service session_service, peer_service;
    bool transferring;                        /* the transfer thread was started */
    size_t rpc_connections, http_connections; /* at most, at its doors */
    struct rpc_method methods[2];
    const char *services[2];
};

/* ---------------------------------------------------------------- on the transfer thread */

/* Asks the step thread for the cache's next events, if there may be any and the session can take
 * them. A draining worker takes no more prompts, and waits until everything it sent has left. */
static void read_cache(struct worker *worker)
{
    struct cache_report *report = &worker->cache_report;
    struct session *session = &worker->session;
    if (report->reading || !session_up(session) || session->draining || !session_flushed(session))
        return;
    bool begins = report->stream != session->streams || report->restarts != session->cache_restarts;
    uint64_t changes = atomic_load(&step_loop_load(worker->steps)->prefix_changes);
    if (!begins && !report->more && changes == report->seen)
        return;
    report->stream = session->streams;
    report->restarts = session->cache_restarts;
    report->seen = changes;
    report->reading = true;
    step_loop_read_cache(worker->steps, begins);
}

static void take_cache_events(struct worker *worker, const struct step_event *event)
{
    struct cache_report *report = &worker->cache_report;
    report->reading = false;
    report->more = event->cache_event_count == STEP_CACHE_EVENTS;
    if (!session_up(&worker->session) || report->stream != worker->session.streams)
        report->stream = 0; /* read for a stream that has ended: the next one begins anew */
    else if (event->cache_event_count)
        session_send_cache(&worker->session, event->cache_events, event->cache_event_count);
    read_cache(worker);
}

static void on_step_event(void *context, const struct step_event *event)
{
    struct worker *worker = context;
    if (event->kind == STEP_CACHE)
        take_cache_events(worker, event);
    else if (event->kind == STEP_DONE)
        session_send_step(&worker->session, event);
    else if (event->kind == STEP_PROMPT_LOGPROBS)
        session_send_prompt_logprobs(&worker->session, event);
    else
        worker->ops->handlers.step_event(worker->role, event);
}

static void on_kv_event(void *context, const struct kv_event *event)
{
    struct worker *worker = context;
    worker->ops->handlers.kv_event(worker->role, event);
}

static bool on_work(void *context)
{
    struct worker *worker = context;
    return worker->ops->handlers.work && worker->ops->handlers.work(worker->role);
}

static void on_tick(void *context, uint64_t now_us)
{
    struct worker *worker = context;
    worker->ops->handlers.tick(worker->role, now_us);
    uint32_t failed = kv_transport_failed_copies(worker->transport);
    if (worker->config.failed_steps && failed >= worker->config.failed_steps) {
        log_error_limited(MODULE, "failed_copies=%u msg=\"the device copies no KV blocks\"",
                          failed);
        eventfd_write(worker->broken_fd, 1);
    }
    struct kv_transport_counters counters = kv_transport_counters(worker->transport);
    worker_metrics_transport(&worker->metrics, &counters);
    worker->session.draining = atomic_load(&worker->draining);
    if (!worker->session.draining || session_up(&worker->session))
        worker->absent_since_us = 0;
    else if (!worker->absent_since_us)
        worker->absent_since_us = now_us;
    else if (now_us - worker->absent_since_us >= ABSENT_ROUTER_US)
        /* A router that stays away won't come back for its requests: no lease is waited for. */
        worker->ops->session.router_changed(worker->role);
    read_cache(worker);
    uint32_t busy = worker->ops->busy_count(worker->role);
    atomic_store(&worker->busy, busy);
    /* A worker that is done says so once, and then nothing. Otherwise it would wait for that Load
     * to leave, and at the next tick for the next one. */
    bool done = worker->session.draining && !busy && session_sent_draining(&worker->session);
    struct device_health device;
    bool watched = worker_device_read(&worker->device, &device);
    if (!done)
        session_send_load(&worker->session, step_loop_load(worker->steps), watched ? &device : NULL,
                          now_us);
    else if (session_dismissed(&worker->session) && session_flushed(&worker->session))
        eventfd_write(worker->idle_fd, 1);
}

static void on_session_changed(void *context, bool up)
{
    struct worker_life *life = context;
    atomic_store(&life->worker.session_is_up, up);
    if (!atomic_load(&life->worker.draining)) /* a draining worker does not register again */
        registrar_session_up(life->registrar, up);
}

/* ---------------------------------------------------------------- on the HTTP thread */

static void on_metrics(void *context, struct http_exchange *exchange)
{
    struct worker *worker = context;
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    reply.status = 200;
    reply.content_type = METRICS_CONTENT_TYPE;
    worker_metrics_update(&worker->metrics, step_loop_load(worker->steps),
                          atomic_load(&worker->session_is_up));
    metrics_render(worker->metrics.metrics, &reply.body);
    (void)http_exchange_reply(exchange, &reply);
    http_reply_deinit(&reply);
}

static void on_health(void *context, struct http_exchange *exchange)
{
    struct worker *worker = context;
    uint64_t busy_us = step_load_busy_us(step_loop_load(worker->steps), clock_now_us());
    uint64_t limit_us = worker->config.step_stall_us;
    const char *text = "ok\n";
    char stalled[120];
    if (limit_us && busy_us > limit_us) {
        snprintf(stalled, sizeof stalled,
                 "stalled: a step has taken %" PRIu64 " s, and --step-stall allows %" PRIu64 "\n",
                 busy_us / 1000000, limit_us / 1000000);
        text = stalled;
    } else if (atomic_load(&worker->draining)) {
        text = "draining\n";
    }
    http_exchange_reply_text(exchange, *text == 'o' ? 200 : 503, text);
}

static const struct http_route http_routes[] = {
    {"/metrics", HTTP_GET, on_metrics},
    {"/healthz", HTTP_GET, on_health},
};

/* ---------------------------------------------------------------- coming up */

static void on_late_hello(void *context)
{
    counter_add(((struct worker *)context)->metrics.late_hellos, 1);
}

static enum status start_server(struct worker_life *life, struct error *err)
{
    struct worker *worker = &life->worker;
    life->session_service =
        (struct stream_service){worker->loop, &session_stream_kind, &worker->session};
    life->peer_service =
        (struct stream_service){worker->loop, worker->ops->peer_kind, worker->peer_role};
    life->methods[0] = (struct rpc_method){.path = "/baton.worker.v1.Worker/Session",
                                           .handlers = stream_server_handlers,
                                           .service = &life->session_service,
                                           .client_streams = true};
    life->services[0] = "baton.worker.v1.Worker";
    size_t count = 1;
    if (worker->ops->peer_path) {
        life->methods[count] = (struct rpc_method){.path = worker->ops->peer_path,
                                                   .handlers = stream_server_handlers,
                                                   .service = &life->peer_service,
                                                   .client_streams = true};
        life->services[count++] = worker->ops->peer_service;
    }
    struct rpc_bytes descriptors = {worker_descriptors, worker_descriptors_size};
    struct rpc_server_config config = {
        .listen = worker->config.listen,
        .tls = worker->tls,
        .max_message_bytes = MAX_MESSAGE_BYTES,
        .max_queued_bytes = MAX_QUEUED_BYTES,
        .keepalive_us = KEEPALIVE_US,
        .max_calls = MAX_CALLS,
        .max_connections = life->rpc_connections,
        .first_message_us = worker->config.hello_timeout_us,
        .late = on_late_hello,
        .late_context = worker,
        .methods = life->methods,
        .method_count = count,
        .services = life->services,
        .service_count = count,
        .descriptors = &descriptors,
        .descriptor_count = 1,
    };
    TRY(rpc_server_start(worker->runtime, &config, &life->server, err));
    if (advertise_address(&worker->config.advertised, rpc_server_address(life->server),
                          worker->info.address, sizeof worker->info.address))
        return STATUS_OK;
    return error_set(err, STATUS_LIMIT, "the address to advertise is too long");
}

static enum status start_http(struct worker_life *life, struct error *err)
{
    struct worker *worker = &life->worker;
    struct http_server_config config = {.listen = worker->config.metrics_listen,
                                        .routes = http_routes,
                                        .route_count = sizeof http_routes / sizeof *http_routes,
                                        .context = worker,
                                        .max_connections = life->http_connections,
                                        .allowed_hosts = worker->config.allowed_hosts,
                                        .certificates = worker->metrics_tls};
    TRY(http_server_start(&config, &life->http, err));
    /* Unlike the gRPC server's address it may be of another interface than the advertised one. */
    const char *bound = http_server_address(life->http);
    struct advertise advertised = worker->config.advertised;
    advertised.port = 0;
    if (!advertise_needed(bound) ||
        !advertise_address(&advertised, bound, worker->info.metrics_address,
                           sizeof worker->info.metrics_address))
        str_copy(worker->info.metrics_address, sizeof worker->info.metrics_address, bound);
    return STATUS_OK;
}

/* Divides the descriptors among the doors and what the worker dials: the routers, and the stream
 * and the KV link to each peer. So strangers at the doors don't keep it from its cluster. */
static void take_room(struct worker_life *life)
{
    struct worker_config *config = &life->worker.config;
    enum { RPC, KV, HTTP, DIALLED, KINDS };
    struct descriptor_use uses[KINDS] = {[RPC] = {.wanted = MAX_CALLS, .each = 1},
                                         [KV] = {.wanted = config->kv_connections, .each = 1},
                                         [HTTP] = {.wanted = HTTP_MAX_CONNECTIONS, .each = 1},
                                         [DIALLED] = {.wanted = CLUSTER_MAX_PEERS, .each = 2}};
    uint64_t needed = descriptors_divide(0, OWN_DESCRIPTORS, uses, KINDS);
    uint64_t open_files = descriptors_raise(needed);
    (void)descriptors_divide(open_files, OWN_DESCRIPTORS, uses, KINDS);
    if (open_files < needed)
        log_warn(MODULE,
                 "open_files=%" PRIu64 " needed=%" PRIu64 " kv_connections=%u kv=%" PRIu64
                 " rpc=%" PRIu64 " peers=%" PRIu64
                 " msg=\"the hard limit of open files is too low for kv-connections and for %d "
                 "workers: the doors let in fewer; raise it to %" PRIu64
                 " (ulimit -Hn, LimitNOFILE=, docker --ulimit nofile)\"",
                 open_files, needed, config->kv_connections, uses[KV].places, uses[RPC].places,
                 uses[DIALLED].places, CLUSTER_MAX_PEERS, needed);
    life->rpc_connections = uses[RPC].places;
    life->http_connections = uses[HTTP].places;
    config->kv_connections = (uint32_t)uses[KV].places;
}

/* Starts the parts in the order in which they need each other. worker_down takes apart the parts
 * that there are. */
static enum status worker_up(struct worker_life *life, struct error *err)
{
    struct worker *worker = &life->worker;
    TRY(advertise_find(worker->config.advertise, worker->config.listen, worker->config.router,
                       &worker->config.advertised, err));
    TRY(link_tls_open(&worker->config.internal_tls, &worker->tls, err));
    TRY(tls_settings_open(&worker->config.metrics_tls, "metrics-tls", &worker->metrics_tls, err));
    TRY(worker_engine_open(worker, err));
    TRY(rpc_runtime_create(worker->config.engine == ENGINE_MOCK ? 1 : RPC_THREADS, &worker->runtime,
                           err));
    if (transfer_loop_create(&worker->loop) != STATUS_OK)
        return error_set(err, STATUS_LIMIT, "out of memory for the transfer thread's inbox");
    worker_metrics_init(&worker->metrics, worker->ops->role);
    worker_metrics_watch(&worker->metrics, worker->tls.certificates, "for=\"internal-tls\"");
    worker_metrics_watch(&worker->metrics, worker->metrics_tls, "for=\"metrics-tls\"");
    TRY(worker_engine_info(worker, err));
    worker_metrics_describe(&worker->metrics, &worker->info);
    worker->session = (struct session){.info = &worker->info,
                                       .handlers = &worker->ops->session,
                                       .up_changed = on_session_changed,
                                       .up_context = life};
    TRY(worker_engine_start(worker, err));
    worker->session.load = step_loop_load(worker->steps);
    TRY(worker->ops->create(worker, &worker->role, err));
    worker->session.role = worker->role;
    TRY(start_http(life, err));
    TRY(start_server(life, err));
    struct registrar_config registrar = {.runtime = worker->runtime,
                                         .router_address = worker->config.router,
                                         .tls = worker->tls,
                                         .info = worker->info};
    TRY(registrar_start(&registrar, &life->registrar, err));
    struct transfer_loop_config loop = {.transport = worker->transport,
                                        .steps = worker->steps,
                                        .handlers = {on_step_event, on_kv_event, on_tick, on_work},
                                        .role = worker};
    if (transfer_loop_start(worker->loop, &loop) != STATUS_OK)
        return error_set(err, STATUS_IO, "the transfer thread could not be started");
    life->transferring = true;
    rpc_server_set_serving(life->server, true);
    worker_engine_log_sizes(worker);
    return STATUS_OK;
}

/* ---------------------------------------------------------------- going down */

struct close_message {
    struct transfer_message base;
    struct worker *worker;
    sem_t done;
};

static void close_deliver(struct transfer_message *base)
{
    struct close_message *message = (struct close_message *)base;
    message->worker->ops->close(message->worker->role);
    sem_post(&message->done);
}

static void close_drop(struct transfer_message *base)
{
    sem_post(&((struct close_message *)base)->done);
}

static void worker_down(struct worker_life *life)
{
    struct worker *worker = &life->worker;
    http_server_stop(life->http); /* it reads the steps' load */
    if (life->server)
        rpc_server_stop(life->server, 0);
    if (life->transferring) {
        /* The role's streams are closed on the thread that owns them. */
        struct close_message message = {.base = {close_deliver, close_drop}, .worker = worker};
        sem_init(&message.done, 0, 0);
        transfer_loop_post_end(worker->loop, &message.base);
        while (sem_wait(&message.done))
            ; /* a signal came */
        sem_destroy(&message.done);
        transfer_loop_stop(worker->loop);
    }
    registrar_stop(life->registrar);
    constraint_host_stop(worker->constraints); /* its thread posts to the steps */
    if (!worker_device_stop(&worker->device)) {
        log_error(MODULE, "msg=\"the device's driver hangs: the process ends without it\"");
        _exit(EXIT_FAILURE); /* the call uses what would be freed now */
    }
    if (!step_loop_stop(worker->steps)) {
        log_error(MODULE, "msg=\"a step hangs: the process ends without it\" stall_ms=%" PRIu64,
                  worker->config.step_stall_us / 1000);
        _exit(EXIT_FAILURE); /* the step uses what would be freed now */
    }
    constraint_host_destroy(worker->constraints);
    transfer_loop_destroy(worker->loop);
    if (worker->role)
        worker->ops->destroy(worker->role);
    if (worker->metrics.metrics)
        worker_metrics_deinit(&worker->metrics);
    /* The pool is the transport's, or the engine's on a device. */
    bool pool_is_engines = worker->engine && engine_pool_copier(worker->engine);
    if (pool_is_engines)
        kv_transport_close(worker->transport);
    engine_close(worker->engine);
    if (!pool_is_engines)
        kv_transport_close(worker->transport);
    if (worker->runtime)
        rpc_runtime_destroy(worker->runtime);
    link_tls_close(&worker->tls);
    certificates_close(worker->metrics_tls);
    if (worker->idle_fd >= 0)
        close(worker->idle_fd);
    if (worker->broken_fd >= 0)
        close(worker->broken_fd);
}

static void report_ready(const struct worker *worker)
{
    log_info(MODULE, "msg=\"ready\" address=%s metrics=%s", worker->info.address,
             worker->info.metrics_address);
    if (worker->config.ready_fd == 0)
        return;
    dprintf((int)worker->config.ready_fd,
            "{\"role\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"address\": \"%s\", \"metrics\": "
            "\"%s\"}\n",
            worker_role_name(worker->ops->role), worker->info.name, (int)getpid(),
            worker->info.address, worker->info.metrics_address);
    close((int)worker->config.ready_fd);
}

static bool steps_fail(const struct worker *worker)
{
    if (atomic_load(&worker->device_lost))
        log_error(MODULE,
                  "requests=%u msg=\"its device is lost: the worker exits, to be started again\" "
                  "code=device_lost",
                  atomic_load(&worker->busy));
    else
        log_error(
            MODULE,
            "failed_steps=%u requests=%u msg=\"its steps keep failing: the worker exits, to be "
            "started again\"",
            worker->config.failed_steps, atomic_load(&worker->busy));
    return false;
}

/* Waits for a stop signal, then for the end of the last request, the drain's deadline or a second
 * signal. Returns false, at once, if its steps keep failing: it can serve no request, and another
 * worker can. */
static bool wait_for_end(struct worker_life *life, struct stop_signals *signals)
{
    struct worker *worker = &life->worker;
    struct pollfd fds[] = {{.fd = signals->fd, .events = POLLIN},
                           {.fd = worker->broken_fd, .events = POLLIN},
                           {.fd = worker->idle_fd, .events = POLLIN}};
    do {
        poll(fds, 2, -1);
        if (fds[1].revents)
            return steps_fail(worker);
    } while (!stop_signals_take(signals, clock_now_us()));
    log_info(MODULE, "msg=\"draining\"");
    rpc_server_set_serving(life->server, false);
    atomic_store(&worker->draining, true);
    uint64_t end_us = clock_now_us() + worker->config.drain_timeout_us;
    for (;;) {
        uint64_t now_us = clock_now_us();
        uint64_t left_ms = now_us < end_us ? (end_us - now_us + 999) / 1000 : 0;
        int ready = poll(fds, 3, left_ms > 60000 ? 60000 : (int)left_ms);
        if (ready > 0 && fds[1].revents)
            return steps_fail(worker);
        if (ready > 0 && fds[2].revents) {
            log_info(MODULE, "msg=\"drained\"");
            return true;
        }
        bool again = ready > 0 && fds[0].revents && stop_signals_take(signals, clock_now_us());
        if (again || clock_now_us() >= end_us) {
            uint32_t busy = atomic_load(&worker->busy);
            log_write(busy ? LOG_WARN : LOG_INFO, MODULE,
                      "requests=%u why=\"%s\" msg=\"stopping%s\"", busy,
                      again ? "asked a second time" : "the drain's time is over",
                      busy ? " with requests still running" : "");
            return true;
        }
    }
}

int worker_main(const struct worker_role_ops *ops, int argc, char **argv)
{
    static struct worker_life life;
    struct worker *worker = &life.worker;
    worker->ops = ops;
    signal(SIGPIPE, SIG_IGN); /* before the first log line */
    worker_config_load(ops->role, argc, argv, &worker->config);
    take_room(&life);
    struct stop_signals signals;
    struct error err;
    enum status status = stop_signals_open(&signals, &err);
    worker->idle_fd = eventfd(0, EFD_CLOEXEC);
    worker->broken_fd = eventfd(0, EFD_CLOEXEC);
    if (status == STATUS_OK && (worker->idle_fd < 0 || worker->broken_fd < 0))
        status = error_set(&err, STATUS_IO, "the worker's end can't be waited for: %s",
                           strerrordesc_np(errno));
    if (status == STATUS_OK)
        status = failpoint_init(worker->config.name, &err);
    if (status == STATUS_OK)
        status = worker_up(&life, &err);
    if (status != STATUS_OK) {
        char quoted[600];
        log_error(MODULE, "status=%s msg=%s", status_name(status),
                  log_quote(err.text, quoted, sizeof quoted));
    } else {
        report_ready(worker);
        if (wait_for_end(&life, &signals))
            registrar_leave(life.registrar);
        else /* it has crashed: its requests are charged, or one of them could end all workers */
            status = STATUS_INTERNAL;
    }
    worker_down(&life);
    stop_signals_close(&signals);
    return status == STATUS_OK ? 0 : 1;
}
