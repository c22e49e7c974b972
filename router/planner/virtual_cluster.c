#include "router/planner/virtual_cluster.h"

#include "common/base/assert.h"
#include "router/planner/virtual_state.h"

#include <stdlib.h>

#define BLOCK_TOKENS 32
#define MOST_LOOKS   100000 /* in vain, one after another: then a request waits for ever */

/* ------------------------------------------------------------------------------------- settings */

struct virtual_worker virtual_worker_default(enum worker_role role,
                                             const struct step_profile *profile, uint32_t context,
                                             uint32_t chunk_tokens)
{
    uint32_t blocks = (uint32_t)(profile->kv_tokens / BLOCK_TOKENS);
    bool decodes = role == ROLE_DECODE;
    return (struct virtual_worker){
        .role = role,
        .profile = *profile,
        .scheduler = {.block_tokens = BLOCK_TOKENS,
                      .block_count = blocks,
                      .max_sequences = 256,
                      .chunk_tokens = chunk_tokens,
                      .context = context,
                      .chunk_us = 200000,
                      .policy = POLICY_FCFS,
                      .starve_us = POLICY_STARVE_US,
                      .overtake_us = POLICY_STARVE_US,
                      .grow = decodes,
                      .host_slots = decodes ? blocks / 4 : 0,
                      .prefix_cache = true},
    };
}

uint32_t virtual_answer_token(uint64_t seed, uint64_t id, uint32_t index)
{
    struct rng rng = {seed ^ (id + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)index << 40};
    return 1 + (uint32_t)(rng_next(&rng) >> 33);
}

/* --------------------------------------------------------------------------------------- events */

void *virtual_grow(void *items, size_t count, size_t size, uint32_t *capacity)
{
    if (count < *capacity)
        return items;
    *capacity = *capacity ? 2 * *capacity : 16;
    items = realloc(items, *capacity * size);
    ASSERT(items);
    return items;
}

static bool earlier(const struct virtual_event *a, const struct virtual_event *b)
{
    return a->at_us < b->at_us || (a->at_us == b->at_us && a->order < b->order);
}

void virtual_post(struct virtual_cluster *cluster, struct virtual_event event)
{
    cluster->events =
        virtual_grow(cluster->events, cluster->event_count, sizeof event, &cluster->event_capacity);
    event.order = cluster->event_order++;
    if (event.kind == EVENT_JOB)
        event.job.run->call->references++;
    else if (event.kind == EVENT_TICK)
        event.call->references++;
    uint32_t at = cluster->event_count++;
    for (; at && earlier(&event, &cluster->events[(at - 1) / 2]); at = (at - 1) / 2)
        cluster->events[at] = cluster->events[(at - 1) / 2];
    cluster->events[at] = event;
}

static struct virtual_event take_event(struct virtual_cluster *cluster)
{
    struct virtual_event *heap = cluster->events, first = heap[0],
                         moved = heap[--cluster->event_count];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < cluster->event_count; at = child) {
        if (child + 1 < cluster->event_count && earlier(&heap[child + 1], &heap[child]))
            child++;
        if (!earlier(&heap[child], &moved))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
    return first;
}

void virtual_call_unref(struct virtual_cluster *cluster, struct virtual_call *call)
{
    if (--call->references)
        return;
    cluster->calls[call->id] = NULL;
    for (struct virtual_run *run = call->run, *next; run; run = next) {
        next = run->next;
        free(run);
    }
    prompt_names_deinit(&call->names);
    free(call);
}

/* ----------------------------------------------------------------------------------------- life */

static void run_event(struct virtual_cluster *cluster, struct virtual_event event)
{
    switch (event.kind) {
    case EVENT_JOB:
        virtual_node_job(cluster, event.node, event.job);
        virtual_call_unref(cluster, event.job.run->call);
        break;
    case EVENT_STEP: virtual_node_step_done(cluster, event.node); break;
    case EVENT_LINK: virtual_node_link(cluster, event.node); break;
    case EVENT_WAKE: virtual_node_wake(cluster, event.node); break;
    case EVENT_TICK:
        virtual_tick(cluster, event.call);
        virtual_call_unref(cluster, event.call);
        break;
    }
}

/* Returns the time of the next event; UINT64_MAX: none. Ticks that mean nothing any more leave. */
static uint64_t next_event_us(struct virtual_cluster *cluster)
{
    while (cluster->event_count) {
        const struct virtual_event *first = &cluster->events[0];
        if (first->kind != EVENT_TICK ||
            (!first->call->ended && first->call->tick_us == first->at_us))
            return first->at_us;
        virtual_call_unref(cluster, take_event(cluster).call);
    }
    return UINT64_MAX;
}

/* Returns when the router looks at the requests that wait, if nothing happens before. UINT64_MAX:
 * none waits, or all that do have waited in vain for long. */
static uint64_t next_look_us(const struct virtual_cluster *cluster)
{
    bool waits = cluster->placement.waiting && cluster->looks < MOST_LOOKS;
    return waits ? cluster->placement.pass.now_us + VIRTUAL_REPORT_US : UINT64_MAX;
}

void virtual_cluster_run(struct virtual_cluster *cluster, uint64_t until_us)
{
    const struct virtual_clients *clients = &cluster->config.clients;
    struct virtual_figures *figures = &cluster->figures;
    for (;;) {
        uint64_t event_us = next_event_us(cluster), client_us = clients->next_us(clients->context);
        uint64_t look_us = next_look_us(cluster);
        uint64_t at_us = event_us < client_us ? event_us : client_us;
        bool looks = look_us < at_us;
        at_us = looks ? look_us : at_us;
        if (at_us == UINT64_MAX || at_us > until_us)
            break;
        if (at_us > figures->now_us)
            figures->now_us = at_us;
        cluster->looks = looks ? cluster->looks + 1 : 0;
        if (looks) {
            cluster->place_needed = true;
        } else if (client_us <= event_us) {
            virtual_arrive(cluster);
        } else {
            run_event(cluster, take_event(cluster));
        }
        figures->events += !looks;
        virtual_place(cluster);
        for (struct virtual_call *call; (call = cluster->ended);) {
            cluster->ended = call->next_ended;
            virtual_call_unref(cluster, call);
        }
    }
    if (until_us != UINT64_MAX && until_us > figures->now_us)
        figures->now_us = until_us;
}

void virtual_cluster_slow(struct virtual_cluster *cluster, uint32_t worker, double slowness)
{
    cluster->nodes[worker].is.slowness = slowness;
}

void virtual_cluster_wipe(struct virtual_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->config.worker_count; i++)
        scheduler_distrust(cluster->nodes[i].scheduler);
}

struct virtual_figures virtual_cluster_figures(const struct virtual_cluster *cluster)
{
    return cluster->figures;
}

const struct worker_learnt *virtual_cluster_learnt(const struct virtual_cluster *cluster,
                                                   uint32_t worker)
{
    return &cluster->nodes[worker].learnt;
}

bool virtual_cluster_is_consistent(const struct virtual_cluster *cluster)
{
    bool idle = cluster->figures.ended == cluster->figures.arrived && !cluster->event_count;
    bool fine = placement_recount(&cluster->placement);
    for (uint32_t i = 0; idle && i < cluster->config.worker_count; i++) {
        const struct virtual_node *node = &cluster->nodes[i];
        const struct candidate *books = candidates_get(&cluster->placement.candidates, node->key);
        const struct kv_blocks *blocks = scheduler_blocks(node->scheduler);
        uint32_t unused =
            kv_blocks_count(blocks, KV_BLOCK_FREE) + kv_blocks_count(blocks, KV_BLOCK_CACHED);
        fine &= !books->is.requests && !books->is.work_tokens && !books->is.unconfirmed_tokens &&
                !scheduler_load(node->scheduler).sequences && !node->read_count &&
                unused == kv_blocks_total(blocks);
    }
    for (uint64_t id = 0; idle && id < cluster->figures.arrived; id++)
        fine &= !cluster->calls[id];
    return fine;
}

/* ------------------------------------------------------------------------------ create, destroy */

static enum status open_node(struct virtual_cluster *cluster, uint32_t i, struct error *err)
{
    struct virtual_node *node = &cluster->nodes[i];
    *node = (struct virtual_node){.is = cluster->config.workers[i], .key = i + 1};
    TRY(virtual_node_open(cluster, node, err));
    const struct scheduler_config *config = &node->is.scheduler;
    uint64_t pool_tokens = (uint64_t)config->block_count * config->block_tokens;
    const struct route_worker facts = {
        .key = node->key,
        .role = node->is.role,
        .ready = true,
        .model_hash = VIRTUAL_KIND,
        .layout_hash = VIRTUAL_KIND,
        .numerics_id = VIRTUAL_KIND,
        .block_tokens = config->block_tokens,
        .pool_tokens = pool_tokens,
        .learnt = &node->learnt,
        .capacity_tokens = pool_tokens < config->context ? pool_tokens : config->context,
        .unconfirmed_limit_tokens = pool_tokens / 2,
        .max_requests = config->max_sequences,
    };
    return placement_worker_set(&cluster->placement, VIRTUAL_MODEL, &facts);
}

enum status virtual_cluster_create(const struct virtual_config *config,
                                   struct virtual_cluster **out, struct error *err)
{
    struct virtual_cluster *cluster = calloc(1, sizeof *cluster);
    ASSERT(cluster && config->placement.model_count == 1);
    cluster->config = *config;
    cluster->config.placement.held_limit = config->max_queue / 2;
    cluster->end_id = VIRTUAL_END;
    cluster->rng = rng_seeded(config->seed);
    cluster->root = prefix_hash_root(VIRTUAL_KIND, VIRTUAL_KIND, NULL, 0);
    cluster->nodes = calloc(config->worker_count, sizeof *cluster->nodes);
    ASSERT(cluster->nodes || !config->worker_count);
    enum status status = placement_init(&cluster->placement, &cluster->config.placement);
    ASSERT(status == STATUS_OK);
    for (uint32_t i = 0; status == STATUS_OK && i < config->worker_count; i++)
        status = open_node(cluster, i, err);
    if (status == STATUS_OK)
        *out = cluster;
    else
        virtual_cluster_destroy(cluster);
    return status;
}

void virtual_cluster_destroy(struct virtual_cluster *cluster)
{
    struct placement_request *placing;
    if (!cluster)
        return;
    while ((placing = TAILQ_FIRST(&cluster->placement.all)))
        placement_ended(&cluster->placement, placing);
    for (uint64_t id = 0; id < cluster->figures.arrived; id++) {
        struct virtual_call *call = cluster->calls[id];
        for (struct virtual_run *run = call ? call->run : NULL, *next; run; run = next) {
            next = run->next;
            free(run);
        }
        if (call)
            prompt_names_deinit(&call->names);
        free(call);
    }
    for (uint32_t i = 0; i < cluster->config.worker_count; i++)
        virtual_node_close(&cluster->nodes[i]);
    placement_deinit(&cluster->placement);
    free(cluster->calls);
    free(cluster->events);
    free(cluster->nodes);
    free(cluster);
}
