#include "router/dispatch/workers.h"

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/str.h"
#include "common/net/membership/worker_message.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BACKOFF_US  50000u
#define MAX_BACKOFF_US    2000000u
#define COMPLAIN_EVERY_US 30000000u
/* Bounds of what a worker reports: tokens and microseconds, rows, steps in one message. */
#define MOST           (UINT64_C(1) << 50)
#define REPORTED_ROWS  (1u << 20)
#define REPORTED_STEPS 16

_Static_assert(LOG_LIFECYCLE_LINES >= 2 * CLUSTER_MAX_PEERS, "each worker that joins has a line");

struct worker *workers_get(const struct workers *workers, uint64_t key)
{
    struct worker *worker = workers->slots[key % WORKERS_MAX_SLOTS];
    return worker && worker->key == key ? worker : NULL;
}

uint64_t worker_capacity_tokens(const struct worker_info *info)
{
    uint64_t pool_tokens = (uint64_t)info->block_count * info->block_tokens;
    return pool_tokens < info->context ? pool_tokens : info->context;
}

bool worker_is_ready(const struct worker *worker)
{
    return worker->state == WORKER_UP && !worker->load.draining && !worker->watch.hangs;
}

/* Tells placement all that it may know of the worker. */
static void tell_placement(const struct workers *workers, const struct worker *worker)
{
    const struct worker_info *info = &worker->info;
    uint64_t pool_tokens = (uint64_t)info->block_count * info->block_tokens;
    uint64_t limit_tokens = workers->unconfirmed_tokens;
    bool ready = worker_is_ready(worker);
    const struct route_worker facts = {
        .key = worker->key,
        .role = info->role,
        .ready = ready,
        .draining = worker->state == WORKER_UP && worker->load.draining,
        .leaving = worker->state == WORKER_LEAVING,
        .away_since_us = worker->away_since_us,
        .model_hash = info->model_hash,
        .layout_hash = info->layout_hash,
        .numerics_id = workers->mixed_numerics ? 0 : info->numerics_id,
        .own_numerics_id = info->numerics_id,
        .block_tokens = info->block_tokens,
        .capacity_tokens = worker_capacity_tokens(info),
        .unconfirmed_limit_tokens = limit_tokens ? limit_tokens : pool_tokens / 2,
        .pool_tokens = pool_tokens,
        .max_requests = info->max_sequences,
        .learnt = &worker->learnt,
    };
    if (placement_worker_set(workers->placement, worker->model, &facts) != STATUS_OK)
        log_error_limited("workers", "worker=%s msg=\"no memory: it gets no requests\"",
                          info->name);
    placement_worker_load(workers->placement, worker->key, worker->load.queued_tokens);
}

void worker_changed(struct workers *workers, struct worker *worker, uint64_t now_us)
{
    workers->changes++;
    if (worker_is_ready(worker))
        worker->away_since_us = 0;
    else if (!worker->away_since_us)
        worker->away_since_us = now_us;
    if (workers->placement)
        tell_placement(workers, worker);
}

static struct worker_gone *gone_find(struct workers *workers, const char *name)
{
    for (size_t i = 0; i < workers->gone_count; i++)
        if (!strcmp(workers->gone[i].name, name))
            return &workers->gone[i];
    return NULL;
}

static void gone_note(struct workers *workers, const struct worker *worker)
{
    if (!worker->away_since_us)
        return; /* it was ready: its next life counts anew */
    struct worker_gone *gone = gone_find(workers, worker->info.name);
    if (!gone) {
        gone = &workers->gone[workers->next_gone];
        workers->next_gone = (workers->next_gone + 1) % WORKERS_MAX_GONE;
        workers->gone_count += workers->gone_count < WORKERS_MAX_GONE;
    }
    str_copy(gone->name, sizeof gone->name, worker->info.name);
    gone->away_since_us = worker->away_since_us;
}

static void workers_remove(struct workers *workers, struct worker *worker)
{
    if (workers->breakers)
        breakers_forget(workers->breakers, worker->key);
    for (size_t i = 0; i < workers->count; i++) {
        if (workers->items[i] != worker)
            continue;
        workers->items[i] = workers->items[--workers->count];
        workers->slots[worker->key % WORKERS_MAX_SLOTS] = NULL;
        free(worker);
        return;
    }
    ASSERT(false);
}

static void worker_wait(struct workers *workers, struct worker *worker, uint64_t now_us)
{
    worker->state = WORKER_WAITING;
    worker->redial_us = now_us + worker->backoff_us;
    if (!workers->next_us || worker->redial_us < workers->next_us)
        workers->next_us = worker->redial_us;
    worker->backoff_us *= 2;
    if (worker->backoff_us > MAX_BACKOFF_US)
        worker->backoff_us = MAX_BACKOFF_US;
    worker_changed(workers, worker, now_us);
}

static void worker_dial(struct workers *workers, struct worker *worker, uint64_t now_us)
{
    struct worker_link_config config = {.runtime = workers->runtime,
                                        .inbox = workers->inbox,
                                        .address = worker->info.address,
                                        .worker = worker->key,
                                        .tls = workers->tls,
                                        .keepalive_us = workers->keepalive_us,
                                        .router_incarnation = workers->router_incarnation,
                                        .worker_name = worker->info.name,
                                        .worker_incarnation = worker->info.incarnation};
    struct error err;
    if (worker_link_open(&config, &worker->link, &err) == STATUS_OK) {
        worker->state = WORKER_DIALLING;
        worker_changed(workers, worker, now_us);
        return;
    }
    char quoted[300];
    log_warn_limited("workers", "worker=%s address=%s why=%s msg=\"can't dial\"", worker->info.name,
                     worker->info.address, log_quote(err.text, quoted, sizeof quoted));
    worker_wait(workers, worker, now_us);
}

static void worker_leave(struct workers *workers, struct worker *worker)
{
    if (worker->state == WORKER_LEAVING)
        return;
    log_info_lifecycle("workers", "worker=%s incarnation=%016" PRIx64 " msg=\"left\"",
                       worker->info.name, worker->info.incarnation);
    gone_note(workers, worker);
    if (worker->link) {
        worker->state = WORKER_LEAVING;
        worker_changed(workers, worker, 0);
        worker_link_close(worker->link);
    } else {
        if (workers->placement)
            placement_worker_remove(workers->placement, worker->key);
        workers_remove(workers, worker);
    }
}

/* Sets known[i] for each member that is a worker here already, and marks that worker as seen in
 * this sync. One life of each name isn't leaving. False: no memory. */
static bool find_members(struct workers *workers, const struct membership_snapshot *snapshot,
                         bool *known)
{
    struct map *by_name;
    if (map_create(WORKERS_MAX_SLOTS, &by_name) != STATUS_OK)
        return false;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < workers->count && status == STATUS_OK; i++)
        if (workers->items[i]->state != WORKER_LEAVING)
            status = map_put_str(by_name, workers->items[i]->info.name, workers->items[i]);
    workers->syncs++;
    for (size_t i = 0; i < snapshot->count && status == STATUS_OK; i++) {
        const struct worker_info *info = &snapshot->members[i].info;
        struct worker *worker = map_get_str(by_name, info->name);
        known[i] = worker && worker->info.incarnation == info->incarnation;
        if (known[i])
            worker->seen = workers->syncs;
    }
    map_destroy(by_name);
    return status == STATUS_OK;
}

/* Writes why two workers can't hand KV over; "": they can. */
static void say_differences(const struct worker_info *a, const struct worker_info *b, bool mixed,
                            char *text, size_t size)
{
    char model[64] = "", layout[64] = "", numerics[160] = "";
    if (a->model_hash != b->model_hash)
        snprintf(model, sizeof model, "; model %016" PRIx64 ", not %016" PRIx64, a->model_hash,
                 b->model_hash);
    if (a->block_tokens != b->block_tokens)
        snprintf(layout, sizeof layout, "; block-tokens %u, not %u", a->block_tokens,
                 b->block_tokens);
    else if (a->layout_hash != b->layout_hash)
        snprintf(layout, sizeof layout, "; KV layout %016" PRIx64 ", not %016" PRIx64,
                 a->layout_hash, b->layout_hash);
    if (a->numerics_id != b->numerics_id && !mixed)
        snprintf(numerics, sizeof numerics, "; numerics %s, not %s", a->numerics_name,
                 b->numerics_name);
    snprintf(text, size, "%s%s%s", model, layout, numerics);
    if (*text)
        memmove(text, text + 2, strlen(text + 2) + 1);
}

/* Warns where another worker serves other weights under the same name. Each answer comes from one
 * of them alone: right during an update, otherwise most likely a mistake. */
static void warn_of_other_weights(const struct workers *workers, const struct worker *joined)
{
    for (size_t i = 0; i < workers->count; i++) {
        const struct worker *worker = workers->items[i];
        if (worker->model != joined->model || worker->state == WORKER_LEAVING ||
            worker->info.model_hash == joined->info.model_hash)
            continue;
        log_warn_lifecycle(
            "workers",
            "worker=%s other=%s model=%s model_hash=%016" PRIx64 " other_hash=%016" PRIx64
            " msg=\"two sets of weights serve under one name: which of them answers a "
            "request is a matter of load\"",
            joined->info.name, worker->info.name, joined->info.model, joined->info.model_hash,
            worker->info.model_hash);
        return;
    }
}

/* Warns where the worker's KV fits no worker of the other role, which then counts as absent. A
 * prefill worker may look healthy, and never gets a request; a decode worker computes prompts
 * itself. */
static void warn_of_misfit(const struct workers *workers, const struct worker *joined)
{
    const struct worker_info *info = &joined->info;
    char differs[320] = "";
    const char *other = NULL;
    for (size_t i = 0; i < workers->count; i++) {
        const struct worker *worker = workers->items[i];
        if (worker->info.role == info->role || worker->model != joined->model ||
            worker->state == WORKER_LEAVING)
            continue;
        say_differences(info, &worker->info, workers->mixed_numerics, differs, sizeof differs);
        other = worker->info.name;
        if (!*differs)
            return;
    }
    if (other)
        log_warn_lifecycle("workers",
                           "worker=%s role=%s other=%s differs=\"%s\" msg=\"fits no worker of the "
                           "other role: gets no request with them%s\"",
                           info->name, worker_role_name(info->role), other, differs,
                           strncmp(differs, "numerics ", 9) ? "" : "; mixed-numerics allows it");
}

static void workers_add(struct workers *workers, const struct worker_info *info, uint64_t now_us)
{
    if (workers->count == WORKERS_MAX_SLOTS) {
        log_warn_limited("workers", "worker=%s msg=\"waits until old streams are closed\"",
                         info->name);
        /* The next change of membership tries again, at the latest when its heartbeat lapses. */
        return;
    }
    size_t model = served_models_index(workers->models, info->model);
    if (model == workers->models->count) { /* the registry refuses such workers */
        log_error_limited("workers", "worker=%s model=%s msg=\"serves no model of this router\"",
                          info->name, info->model);
        return;
    }
    struct worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return;
    size_t slot = 0;
    while (workers->slots[slot])
        slot++;
    workers->slots[slot] = worker;
    worker->key = ++workers->generation * WORKERS_MAX_SLOTS + slot;
    worker->info = *info;
    worker->model = model;
    struct worker_gone *gone = gone_find(workers, info->name);
    if (gone) {
        worker->away_since_us = gone->away_since_us;
        *gone = (struct worker_gone){0};
    }
    worker->backoff_us = FIRST_BACKOFF_US;
    cost_fit_init(&worker->learnt.steps, NULL, 0);
    workers->items[workers->count++] = worker;
    log_info_lifecycle("workers",
                       "worker=%s role=%s address=%s incarnation=%016" PRIx64
                       " model=%s numerics=%s model_hash=%016" PRIx64 " layout_hash=%016" PRIx64
                       " msg=\"joined\"",
                       info->name, worker_role_name(info->role), info->address, info->incarnation,
                       info->model, info->numerics_name, info->model_hash, info->layout_hash);
    warn_of_misfit(workers, worker);
    warn_of_other_weights(workers, worker);
    worker_dial(workers, worker, now_us);
}

void workers_sync(struct workers *workers, uint64_t now_us)
{
    if (workers->stopping)
        return;
    const struct membership_snapshot *snapshot = membership_snapshot(workers->membership);
    bool *known = calloc(snapshot->count + 1, sizeof *known);
    if (!known || !find_members(workers, snapshot, known)) {
        log_error_limited("workers", "msg=\"no memory: waits for the next change of membership\"");
        free(known);
        membership_snapshot_unref(snapshot);
        return;
    }
    for (size_t i = workers->count; i-- > 0;) /* backwards: a removal moves the last one here */
        if (workers->items[i]->seen != workers->syncs)
            worker_leave(workers, workers->items[i]);
    for (size_t i = 0; i < snapshot->count; i++)
        if (!known[i])
            workers_add(workers, &snapshot->members[i].info, now_us);
    free(known);
    membership_snapshot_unref(snapshot);
}

void workers_tick(struct workers *workers, uint64_t now_us)
{
    if (workers->next_us > now_us)
        return;
    workers->next_us = UINT64_MAX;
    for (size_t i = 0; i < workers->count; i++) {
        struct worker *worker = workers->items[i];
        if (worker->state == WORKER_WAITING && worker->redial_us <= now_us)
            worker_dial(workers, worker, now_us);
        if (worker->state == WORKER_WAITING && worker->redial_us < workers->next_us)
            workers->next_us = worker->redial_us;
    }
}

uint64_t workers_next_us(const struct workers *workers)
{
    return workers->next_us ? workers->next_us : UINT64_MAX;
}

/* Checks that the worker at this address is the one that registered: name, incarnation, hashes. */
static enum status check_hello(const struct worker_info *expected,
                               const Baton__Worker__V1__SessionUp *up, struct error *err)
{
    if (up->event_case != BATON__WORKER__V1__SESSION_UP__EVENT_HELLO || !up->hello->info)
        return error_set(err, STATUS_INVALID, "the first message is not Hello");
    struct worker_info said;
    TRY(worker_message_read(up->hello->info, &said, err));
    if (strcmp(said.name, expected->name) || said.role != expected->role)
        return error_set(err, STATUS_INVALID, "another worker, %s (%s), answers at this address",
                         said.name, worker_role_name(said.role));
    if (said.incarnation != expected->incarnation)
        return error_set(err, STATUS_NOT_FOUND, "it was restarted: incarnation %016" PRIx64,
                         said.incarnation);
    if (strcmp(said.model, expected->model))
        return error_set(err, STATUS_INVALID, "Hello names model %s, its registration %s",
                         said.model, expected->model);
    if (said.model_hash != expected->model_hash || said.layout_hash != expected->layout_hash ||
        said.numerics_id != expected->numerics_id)
        return error_set(err, STATUS_INVALID,
                         "Hello names other hashes than its registration: model %016" PRIx64
                         ", layout %016" PRIx64 ", numerics %016" PRIx64,
                         said.model_hash, said.layout_hash, said.numerics_id);
    return STATUS_OK;
}

bool workers_hello(struct workers *workers, struct worker *worker,
                   const Baton__Worker__V1__SessionUp *up, uint64_t now_us)
{
    struct error err;
    enum status status = check_hello(&worker->info, up, &err);
    if (status == STATUS_OK) {
        worker->state = WORKER_UP;
        worker->backoff_us = FIRST_BACKOFF_US;
        worker->load = (struct worker_load){.blocks_free = worker->info.block_count};
        worker->link->up = true;
        worker_changed(workers, worker, now_us);
        membership_hold(workers->membership, worker->info.name, worker->info.incarnation, true,
                        now_us);
        log_info_lifecycle("workers", "worker=%s role=%s address=%s msg=\"session is up\"",
                           worker->info.name, worker_role_name(worker->info.role),
                           worker->info.address);
        return true;
    }
    char quoted[400];
    log_error_limited("workers", "worker=%s address=%s why=%s msg=\"session refused\"",
                      worker->info.name, worker->info.address,
                      log_quote(err.text, quoted, sizeof quoted));
    worker->link->refused = true;
    worker_link_close(worker->link);
    if (status == STATUS_NOT_FOUND) /* its next life registers by itself */
        membership_leave(workers->membership, worker->info.name, worker->info.incarnation);
    return false;
}

bool worker_take_load(struct worker *worker, const Baton__Worker__V1__Load *load)
{
    if (load->queued_tokens > MOST || load->steps_done > MOST || load->reserved_tokens > MOST ||
        load->unconfirmed_tokens > MOST || load->busy_us > MOST || load->requests > REPORTED_ROWS)
        return false;
    struct worker_load before = worker->load;
    worker->load = (struct worker_load){.queued_requests = load->queued_requests,
                                        .queued_tokens = load->queued_tokens,
                                        .running = load->running,
                                        .blocks_free = load->blocks_free,
                                        .blocks_cached = load->blocks_cached,
                                        .blocks_pinned = load->blocks_pinned,
                                        .blocks_landing = load->blocks_landing,
                                        /* which no worker takes back */
                                        .draining = before.draining || load->draining,
                                        .requests = load->requests,
                                        .steps_done = load->steps_done,
                                        .reserved_tokens = load->reserved_tokens,
                                        .unconfirmed_tokens = load->unconfirmed_tokens,
                                        .busy_us = load->busy_us,
                                        .has_device = before.has_device || load->device,
                                        .device = before.device};
    const Baton__Worker__V1__DeviceHealth *device = load->device;
    if (device)
        worker->load.device = (struct device_health){
            .numbers = {[DEVICE_MEMORY_USED_BYTES] = (double)device->memory_used_bytes,
                        [DEVICE_MEMORY_TOTAL_BYTES] = (double)device->memory_total_bytes,
                        [DEVICE_CLOCK_HERTZ] = (double)device->clock_hertz,
                        [DEVICE_POWER_WATTS] = (double)device->power_watts,
                        [DEVICE_TEMPERATURE_CELSIUS] = (double)device->temperature_celsius,
                        [DEVICE_ECC_CORRECTED] = (double)device->ecc_corrected,
                        [DEVICE_ECC_UNCORRECTED] = (double)device->ecc_uncorrected,
                        [DEVICE_XIDS] = (double)device->xids},
            .slowdowns = device->slowdowns};
    return true;
}

bool worker_take_steps(struct worker *worker, Baton__Worker__V1__StepReport *const *reports,
                       size_t count)
{
    uint64_t context = worker->info.context; /* no row has more tokens before it */
    if (count > REPORTED_STEPS)
        return false;
    for (size_t i = 0; i < count; i++) {
        const Baton__Worker__V1__StepReport *report = reports[i];
        bool works = report->prefill_rows || report->decode_rows || report->swapped_blocks;
        if (!works || report->took_us > MOST || report->swap_us > MOST ||
            report->prefill_rows > REPORTED_ROWS || report->decode_rows > REPORTED_ROWS ||
            report->prefill_positions > report->prefill_rows * context ||
            report->decode_context > report->decode_rows * context)
            return false;
    }
    for (size_t i = 0; i < count; i++) {
        const struct step_shape shape = {.prefill_rows = reports[i]->prefill_rows,
                                         .prefill_positions = reports[i]->prefill_positions,
                                         .decode_rows = reports[i]->decode_rows,
                                         .decode_context = reports[i]->decode_context};
        worker_learnt_step(&worker->learnt, &shape, (double)reports[i]->took_us);
    }
    return true;
}

void worker_learn_kv(struct worker *worker, const Baton__Worker__V1__StepReport *last,
                     const Baton__Worker__V1__Load *load)
{
    const struct worker_info *info = &worker->info;
    uint32_t rows = last->decode_rows;
    /* Drafts are rows of the same sequences. Sequences that ended with it have left their KV. */
    uint32_t sequences = load->running < rows ? load->running : rows;
    const struct step_shape shape = {.prefill_rows = last->prefill_rows,
                                     .decode_rows = sequences,
                                     .decode_context =
                                         rows ? last->decode_context / rows * sequences : 0};
    uint64_t unused = (uint64_t)load->blocks_free + load->blocks_cached;
    if (unused <= info->block_count)
        worker_learnt_kv(&worker->learnt, &shape, load->unconfirmed_tokens,
                         (info->block_count - unused) * info->block_tokens);
}

/* Returns LOG_WARN for an end that keeps the worker from its work: a lost session, except where the
 * worker was draining and had no requests, and now and then a dial that fails. */
static enum log_level closed_level(struct worker *worker, const struct worker_link *link, bool busy,
                                   uint64_t now_us)
{
    if (worker->state == WORKER_LEAVING)
        return worker->load.draining ? LOG_INFO : LOG_DEBUG;
    if (!link->up && link->code == RPC_NOT_FOUND)
        return LOG_INFO; /* it is forgotten for this */
    if (worker->load.draining)
        return busy && link->code != RPC_OK ? LOG_WARN : LOG_INFO;
    if (link->up)
        return LOG_WARN;
    if (worker->complained_us && now_us - worker->complained_us < COMPLAIN_EVERY_US)
        return LOG_DEBUG;
    worker->complained_us = now_us;
    return LOG_WARN;
}

bool workers_link_closed(struct workers *workers, struct worker_link *link, bool busy,
                         uint64_t now_us)
{
    struct worker *worker = workers_get(workers, link->worker);
    ASSERT(worker && worker->link == link);
    bool was_up = link->up, is_elsewhere = !was_up && link->code == RPC_NOT_FOUND;
    char quoted[300];
    log_lifecycle(closed_level(worker, link, busy, now_us), "workers",
                  "worker=%s role=%s address=%s code=%s why=%s msg=\"%s\"", worker->info.name,
                  worker_role_name(worker->info.role), worker->info.address,
                  rpc_code_name(link->code), log_quote(link->message, quoted, sizeof quoted),
                  was_up ? "session is lost" : "can't get a session");
    worker->link = NULL;
    worker->load = (struct worker_load){0}; /* unknown from now on */
    worker->dismissed = false;
    worker_link_destroy(link);
    if (was_up)
        membership_hold(workers->membership, worker->info.name, worker->info.incarnation, false,
                        now_us);
    const struct worker_info info = worker->info;
    if (worker->state == WORKER_LEAVING || workers->stopping)
        workers_remove(workers, worker);
    else
        worker_wait(workers, worker, now_us);
    /* Another process listens there. If the worker lives on, it registers by itself. */
    if (is_elsewhere)
        membership_leave(workers->membership, info.name, info.incarnation);
    return was_up;
}

void workers_stop(struct workers *workers)
{
    workers->stopping = true;
    for (size_t i = workers->count; i-- > 0;)
        worker_leave(workers, workers->items[i]);
}

_Static_assert(STATUS_MAX_MISSING == MEMBERSHIP_MAX_MISSING, "a place for each");

/* The board's lock is held. */
static void show_missing(const struct workers *workers, struct router_status *status)
{
    struct missing_member missing[MEMBERSHIP_MAX_MISSING];
    status->missing_count = membership_missing(workers->membership, missing);
    for (size_t i = 0; i < status->missing_count; i++) {
        const struct worker_info *info = &missing[i].info;
        struct missing_worker *shown = &status->missing[i];
        *shown = (struct missing_worker){.role = info->role, .heard_us = missing[i].heard_us};
        str_copy(shown->name, sizeof shown->name, info->name);
        str_copy(shown->address, sizeof shown->address, info->address);
        str_copy(shown->model, sizeof shown->model, info->model);
    }
}

/* The board's lock is held. */
static void show_pairs(const struct breakers *breakers, struct router_status *status)
{
    status->pair_count = 0;
    if (!breakers)
        return;
    for (size_t i = 0; i < breakers->pair_count; i++) {
        const struct pair_breaker *pair = &breakers->pairs[i];
        if (pair->breaker.state == BREAKER_CLOSED)
            continue;
        status->pairs[status->pair_count++] =
            (struct pair_status){pair->prefill, pair->decode, pair->breaker.state};
    }
}

uint64_t workers_show(const struct workers *workers, struct status_board *board, uint64_t now_us)
{
    struct model_workers models[SERVED_MODELS_MAX] = {0};
    uint64_t due_us = UINT64_MAX;
    for (size_t i = 0; i < workers->count; i++) {
        const struct worker *worker = workers->items[i];
        struct model_workers *taking = &models[worker->model];
        uint64_t tokens = worker_capacity_tokens(&worker->info);
        bool decode = worker->info.role == ROLE_DECODE;
        taking->prefill += !decode && worker_is_ready(worker);
        taking->decode += decode && worker_is_ready(worker);
        if (decode && tokens > taking->request_tokens)
            taking->request_tokens = tokens;
    }
    for (size_t i = 0; workers->placement && i < workers->models->count; i++) {
        uint64_t at_us, room = placement_room(workers->placement, i);
        models[i].serves = placement_serves(workers->placement, i, now_us, &at_us);
        if (room)
            models[i].request_tokens = room;
        due_us = at_us < due_us ? at_us : due_us;
    }
    pthread_mutex_lock(&board->mutex);
    struct router_status *status = &board->status;
    show_missing(workers, status);
    show_pairs(workers->breakers, status);
    status->worker_count = router_status_room(status, workers->count);
    for (size_t i = 0; i < status->worker_count; i++) {
        const struct worker *worker = workers->items[i];
        struct worker_status *shown = &status->workers[i];
        shown->key = worker->key;
        shown->info = worker->info;
        shown->model = worker->model;
        shown->state = worker->state;
        shown->load = worker->load;
        shown->breaker = worker->breaker;
        shown->hangs = worker->watch.hangs;
        shown->steps = worker->learnt.steps.figures;
        shown->lane_bytes_per_second = worker->learnt.lane_bytes_per_second;
        shown->prompt_tokens = worker->prompt_tokens;
        shown->tokens = worker->tokens;
        str_copy(shown->lane, sizeof shown->lane, worker->lane);
        str_copy(shown->lane_reason, sizeof shown->lane_reason, worker->lane_reason);
    }
    memcpy(status->models, models, sizeof status->models);
    pthread_mutex_unlock(&board->mutex);
    return due_us;
}
