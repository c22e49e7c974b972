#include "router/planner/candidates.h"

#include "common/base/assert.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ITEMS 8
#define KNOWN_STEPS 32  /* steps before a fit tells how long a step's prompt rows took */
#define RECENT_US   4e6 /* steps that worker_learnt_prompts remembers, twice as much at most */
#define MOST_PART   0.9
#define KV_STEPS    64 /* steps that worker_learnt_kv_part remembers */
#define LEAST_KV    0.05
#define TENANTS     65536 /* on one worker: at most as many as the router has requests */

enum status candidates_init(struct candidates *candidates, size_t model_count)
{
    ASSERT(model_count <= CANDIDATES_MAX_MODELS);
    *candidates = (struct candidates){.model_count = model_count, .facts_version = 1};
    return map_create(CANDIDATES_MAX, &candidates->by_key);
}

static void free_candidate(struct candidate *candidate)
{
    free(candidate->misfits);
    map_destroy(candidate->tenants);
    free(candidate);
}

static void free_kind(struct candidate_kind *kind)
{
    free(kind->of[ROLE_PREFILL].items);
    free(kind->of[ROLE_DECODE].items);
    free(kind);
}

void candidates_deinit(struct candidates *candidates)
{
    struct candidate *candidate;
    for (size_t i = 0; candidates->by_key && (candidate = map_next(candidates->by_key, &i));)
        free_candidate(candidate);
    map_destroy(candidates->by_key);
    free(candidates->blocked_pairs);
    for (size_t i = 0; i < candidates->model_count; i++) {
        for (size_t k = 0; k < candidates->pools[i].kind_count; k++)
            free_kind(candidates->pools[i].kinds[k]);
        free(candidates->pools[i].kinds);
    }
    *candidates = (struct candidates){0};
}

struct candidate *candidates_get(const struct candidates *candidates, uint64_t key)
{
    return key ? map_get(candidates->by_key, key) : NULL;
}

/* ---------------------------------------------------------------------------------------- kinds */

/* Returns `items` with room for one more, or NULL: no memory. */
static void *grown(void *items, size_t count, size_t *capacity, size_t item_bytes)
{
    if (count < *capacity)
        return items;
    size_t more = *capacity ? 2 * *capacity : FIRST_ITEMS;
    void *moved = realloc(items, more * item_bytes);
    if (moved)
        *capacity = more;
    return moved;
}

/* Returns the kind of the worker, a new one if need be. NULL: no memory. */
static struct candidate_kind *kind_of(struct candidate_pool *pool, const struct route_worker *is)
{
    for (size_t i = 0; i < pool->kind_count; i++) {
        struct candidate_kind *kind = pool->kinds[i];
        if (kind->model_hash == is->model_hash && kind->layout_hash == is->layout_hash &&
            kind->numerics_id == is->numerics_id)
            return kind;
    }
    struct candidate_kind **kinds =
        grown(pool->kinds, pool->kind_count, &pool->kind_capacity, sizeof *kinds);
    if (!kinds)
        return NULL;
    pool->kinds = kinds;
    struct candidate_kind *kind = calloc(1, sizeof *kind);
    if (!kind)
        return NULL;
    kind->model_hash = is->model_hash;
    kind->layout_hash = is->layout_hash;
    kind->numerics_id = is->numerics_id;
    kind->block_tokens = is->block_tokens;
    kinds[pool->kind_count++] = kind;
    return kind;
}

static void drop_empty_kind(struct candidate_pool *pool, struct candidate_kind *kind)
{
    if (kind->of[ROLE_PREFILL].count || kind->of[ROLE_DECODE].count)
        return;
    size_t i = 0;
    while (pool->kinds[i] != kind)
        i++;
    pool->kinds[i] = pool->kinds[--pool->kind_count];
    free_kind(kind);
}

/* Adds the numerics by which a worker of the kind names blocks, if there is room for one more. */
static void add_numerics(struct candidate_kind *kind, const struct route_worker *is)
{
    uint32_t own = 0;
    while (own < kind->own_count && kind->own_numerics[own] != route_worker_names(is))
        own++;
    if (own == kind->own_count && own < CANDIDATE_OWN_NUMERICS)
        kind->own_numerics[kind->own_count++] = route_worker_names(is);
}

static bool join_kind(struct candidate_pool *pool, struct candidate *candidate)
{
    struct candidate_kind *kind = kind_of(pool, &candidate->is);
    if (!kind)
        return false;
    struct candidate_list *list = &kind->of[candidate->is.role];
    struct candidate **items = grown(list->items, list->count, &list->capacity, sizeof *items);
    if (!items) {
        drop_empty_kind(pool, kind);
        return false;
    }
    list->items = items;
    candidate->kind = kind;
    candidate->index = list->count;
    items[list->count++] = candidate;
    add_numerics(kind, &candidate->is);
    return true;
}

static void drop_misfits_with(struct candidate *decode, uint64_t prefill)
{
    for (size_t i = 0; i < decode->misfit_count; i++)
        if (decode->misfits[i] == prefill) {
            decode->misfit_count--;
            decode->kind->misfit_count--;
            memmove(&decode->misfits[i], &decode->misfits[i + 1],
                    (decode->misfit_count - i) * sizeof *decode->misfits);
            return;
        }
}

static void leave_kind(struct candidate_pool *pool, struct candidate *candidate)
{
    struct candidate_kind *kind = candidate->kind;
    if (!kind)
        return;
    const struct candidate_list *decodes = &kind->of[ROLE_DECODE];
    for (size_t i = 0;
         candidate->is.role == ROLE_PREFILL && kind->misfit_count && i < decodes->count; i++)
        drop_misfits_with(decodes->items[i], candidate->is.key);
    kind->misfit_count -= candidate->misfit_count;
    kind->blocked_pairs -= candidate->blocked_pairs;
    candidate->misfit_count = candidate->blocked_pairs = 0;
    struct candidate_list *list = &kind->of[candidate->is.role];
    list->items[candidate->index] = list->items[--list->count];
    list->items[candidate->index]->index = candidate->index;
    candidate->kind = NULL;
    kind->stale = true;
    if (kind->own_count > 1) { /* its numerics may have no worker any more */
        kind->own_count = 0;
        for (enum worker_role role = ROLE_PREFILL; role <= ROLE_DECODE; role++)
            for (size_t i = 0; i < kind->of[role].count; i++)
                add_numerics(kind, &kind->of[role].items[i]->is);
    }
    drop_empty_kind(pool, kind);
}

void candidate_kind_refresh(struct candidate_kind *kind)
{
    if (!kind->stale)
        return;
    uint64_t known = 0, ready[ROLE_DECODE + 1] = {0};
    for (enum worker_role role = ROLE_PREFILL; role <= ROLE_DECODE; role++)
        for (size_t i = 0; i < kind->of[role].count; i++) {
            const struct route_worker *is = &kind->of[role].items[i]->is;
            uint64_t tokens = is->capacity_tokens;
            if (role == ROLE_PREFILL && tokens > known)
                known = tokens;
            if (is->ready && tokens > ready[role])
                ready[role] = tokens;
        }
    kind->most_prefill_tokens = known;
    kind->most_ready_prefill_tokens = ready[ROLE_PREFILL];
    kind->most_ready_decode_tokens = ready[ROLE_DECODE];
    kind->stale = false;
}

/* -------------------------------------------------------------------------------------- workers */

/* Enters the worker in the counts of its pool, or (`by` -1) takes it out. */
static void count(struct candidate_pool *pool, const struct route_worker *is, int by)
{
    if (is->leaving)
        return;
    pool->roles[is->role].known += (unsigned)by;
    pool->roles[is->role].up += is->ready ? (unsigned)by : 0;
    pool->roles[is->role].draining += is->draining ? (unsigned)by : 0;
}

static struct candidate *add(struct candidates *candidates, size_t model,
                             const struct route_worker *facts)
{
    struct candidate *candidate = calloc(1, sizeof *candidate);
    if (!candidate)
        return NULL;
    candidate->is = (struct route_worker){.key = facts->key,
                                          .role = facts->role,
                                          .leaving = true,
                                          .model_hash = facts->model_hash,
                                          .layout_hash = facts->layout_hash,
                                          .numerics_id = facts->numerics_id,
                                          .own_numerics_id = facts->own_numerics_id,
                                          .block_tokens = facts->block_tokens};
    candidate->model = model;
    TAILQ_INIT(&candidate->requests);
    if (map_create(TENANTS, &candidate->tenants) == STATUS_OK &&
        map_put(candidates->by_key, facts->key, candidate) == STATUS_OK)
        return candidate;
    free_candidate(candidate);
    return NULL;
}

enum status candidates_set(struct candidates *candidates, size_t model,
                           const struct route_worker *facts)
{
    ASSERT(model < candidates->model_count && facts->key);
    struct candidate_pool *pool = &candidates->pools[model];
    struct candidate *candidate = candidates_get(candidates, facts->key);
    bool is_new = !candidate;
    if (is_new && !(candidate = add(candidates, model, facts)))
        return STATUS_LIMIT;
    if (!facts->leaving && !candidate->kind && !join_kind(pool, candidate)) {
        if (is_new)
            free_candidate(map_take(candidates->by_key, facts->key));
        return STATUS_LIMIT;
    }
    struct route_worker *is = &candidate->is, next = *facts;
    ASSERT(candidate->model == model && is->role == facts->role);
    count(pool, is, -1);
    next.work_tokens = is->work_tokens;
    next.reported_tokens = is->reported_tokens;
    next.unconfirmed_tokens = is->unconfirmed_tokens;
    next.requests = is->requests;
    next.placed_at = is->placed_at;
    next.blocked_until_us = is->blocked_until_us;
    *is = next;
    count(pool, is, 1);
    if (is->leaving)
        leave_kind(pool, candidate);
    else
        candidate->kind->stale = true;
    candidates->version++;
    candidates->facts_version++;
    return STATUS_OK;
}

void candidates_remove(struct candidates *candidates, uint64_t key)
{
    struct candidate *candidate = map_take(candidates->by_key, key);
    if (!candidate)
        return;
    ASSERT(TAILQ_EMPTY(&candidate->requests));
    struct candidate_pool *pool = &candidates->pools[candidate->model];
    count(pool, &candidate->is, -1);
    leave_kind(pool, candidate);
    free_candidate(candidate);
    candidates->version++;
    candidates->facts_version++;
}

void candidates_block(struct candidates *candidates, uint64_t key, uint64_t until_us)
{
    struct candidate *candidate = candidates_get(candidates, key);
    if (candidate && until_us > candidates->blocked_until_us)
        candidates->blocked_until_us = until_us;
    if (!candidate || candidate->is.blocked_until_us == until_us)
        return;
    candidate->is.blocked_until_us = until_us;
    candidates->version++;
}

/* Orders pairs by the decode worker, then by the prefill worker. */
static int compare_pairs(const void *a, const void *b)
{
    const struct candidate_pair *x = a, *y = b;
    if (x->decode != y->decode)
        return x->decode < y->decode ? -1 : 1;
    return (x->prefill > y->prefill) - (x->prefill < y->prefill);
}

/* Enters the pairs that are kept apart in the counts of their workers, or (`by` -1) takes them
 * out. */
static void count_pairs(struct candidates *candidates, int by)
{
    for (size_t i = 0; i < candidates->blocked_pair_count; i++) {
        struct candidate *decode = candidates_get(candidates, candidates->blocked_pairs[i].decode);
        if (!decode || !decode->kind || (by < 0 && !decode->blocked_pairs))
            continue; /* it left, or came back as a candidate since */
        decode->blocked_pairs += (size_t)by;
        decode->kind->blocked_pairs += (size_t)by;
    }
}

enum status candidates_block_pairs(struct candidates *candidates,
                                   const struct candidate_pair *pairs, size_t count)
{
    struct candidate_pair *room = candidates->blocked_pairs;
    if (!count && !candidates->blocked_pair_count)
        return STATUS_OK;
    if (count > candidates->blocked_pair_capacity) {
        room = realloc(room, count * sizeof *room);
        if (!room)
            return STATUS_LIMIT;
        candidates->blocked_pairs = room;
        candidates->blocked_pair_capacity = count;
    }
    count_pairs(candidates, -1);
    candidates->blocked_pair_count = count;
    if (count) {
        memcpy(room, pairs, count * sizeof *pairs);
        qsort(room, count, sizeof *pairs, compare_pairs);
    }
    count_pairs(candidates, 1);
    for (size_t i = 0; i < count; i++)
        if (pairs[i].until_us > candidates->blocked_until_us)
            candidates->blocked_until_us = pairs[i].until_us;
    candidates->version++;
    return STATUS_OK;
}

bool candidates_pair_is_blocked(const struct candidates *candidates, const struct candidate *decode,
                                uint64_t prefill, uint64_t now_us)
{
    const struct candidate_pair sought = {.prefill = prefill, .decode = decode->is.key};
    if (!decode->blocked_pairs)
        return false;
    const struct candidate_pair *found =
        bsearch(&sought, candidates->blocked_pairs, candidates->blocked_pair_count, sizeof sought,
                compare_pairs);
    return found && found->until_us > now_us;
}

bool candidate_is_starting(const struct candidate *worker)
{
    return worker->proven < CANDIDATE_PROVEN &&
           worker->is.requests >= CANDIDATE_FIRST_REQUESTS + worker->proven;
}

/* -------------------------------------------------------------------------------------- misfits */

/* Returns the place of the first misfit that isn't below `prefill`. */
static size_t misfit_place(const struct candidate *decode, uint64_t prefill)
{
    size_t low = 0, high = decode->misfit_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (decode->misfits[middle] < prefill)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool candidate_misfits(const struct candidate *decode, uint64_t prefill)
{
    if (!decode->misfit_count)
        return false;
    size_t place = misfit_place(decode, prefill);
    return place < decode->misfit_count && decode->misfits[place] == prefill;
}

enum status candidates_misfit(struct candidates *candidates, uint64_t prefill, uint64_t decode)
{
    const struct candidate *source = candidates_get(candidates, prefill);
    struct candidate *reader = candidates_get(candidates, decode);
    if (!source || !reader || !source->kind || source->kind != reader->kind ||
        source->is.role != ROLE_PREFILL || reader->is.role != ROLE_DECODE ||
        candidate_misfits(reader, prefill))
        return STATUS_OK;
    uint64_t *misfits =
        grown(reader->misfits, reader->misfit_count, &reader->misfit_capacity, sizeof *misfits);
    if (!misfits)
        return STATUS_LIMIT;
    reader->misfits = misfits;
    size_t place = misfit_place(reader, prefill);
    memmove(&misfits[place + 1], &misfits[place], (reader->misfit_count - place) * sizeof *misfits);
    misfits[place] = prefill;
    reader->misfit_count++;
    reader->kind->misfit_count++;
    candidates->version++; /* the decode worker may compute prompts itself now */
    candidates->facts_version++;
    return STATUS_OK;
}

void candidate_count_tenant(struct candidate *candidate, uint64_t tenant, int64_t by)
{
    int64_t count = (int64_t)candidate_requests_of(candidate, tenant) + by;
    if (count > 0)
        (void)!map_put(candidate->tenants, tenant, (void *)(uintptr_t)count);
    else
        map_take(candidate->tenants, tenant);
}

uint32_t candidate_requests_of(const struct candidate *candidate, uint64_t tenant)
{
    return (uint32_t)(uintptr_t)map_get(candidate->tenants, tenant);
}

void worker_learnt_step(struct worker_learnt *learnt, const struct step_shape *shape,
                        double took_us)
{
    const struct step_cost *cost = &learnt->steps.figures.cost;
    cost_fit_learn(&learnt->steps, shape, took_us);
    if (shape->prefill_rows > learnt->chunk_rows)
        learnt->chunk_rows = shape->prefill_rows;
    if (!shape->decode_rows || learnt->steps.figures.steps < KNOWN_STEPS)
        return;
    double rows_us = shape->prefill_rows * cost->prefill_row_us +
                     (double)shape->prefill_positions * cost->prefill_position_us;
    if (learnt->answers_us > RECENT_US) {
        learnt->answers_us /= 2;
        learnt->prompts_us /= 2;
    }
    learnt->chunk_us = rows_us > learnt->chunk_us ? rows_us : learnt->chunk_us;
    learnt->answers_us += took_us;
    learnt->prompts_us += rows_us < took_us ? rows_us : took_us;
}

double worker_learnt_prompts(const struct worker_learnt *learnt)
{
    double part = learnt->answers_us > 0 ? learnt->prompts_us / learnt->answers_us : 0;
    return part < MOST_PART ? part : MOST_PART;
}

void worker_learnt_kv(struct worker_learnt *learnt, const struct step_shape *shape,
                      uint64_t landing_tokens, uint64_t used_tokens)
{
    if (!shape->decode_rows || shape->prefill_rows)
        return;
    double rows = (double)shape->decode_context + shape->decode_rows + (double)landing_tokens;
    learnt->kv_rows += rows - learnt->kv_rows / KV_STEPS;
    learnt->kv_tokens += (double)used_tokens - learnt->kv_tokens / KV_STEPS;
}

double worker_learnt_kv_part(const struct worker_learnt *learnt)
{
    double part = learnt->kv_rows > 0 ? learnt->kv_tokens / learnt->kv_rows : 1;
    return part < LEAST_KV ? LEAST_KV : part < 1 ? part : 1;
}

bool candidate_is_alone(const struct candidate *decode)
{
    return decode->misfit_count == decode->kind->of[ROLE_PREFILL].count;
}
