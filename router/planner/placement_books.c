/* The books of placement: each request's share of its workers, and the promises of its prompt. */
#include "router/planner/placement.h"

#include "common/base/assert.h"

#include <string.h>

/* Returns the worker, which most often is the one that the share has already. */
static struct candidate *worker_of(const struct placement *placement,
                                   const struct placement_share *share, uint64_t key)
{
    bool same = share->worker && share->worker->is.key == key;
    return same ? share->worker : candidates_get(&placement->candidates, key);
}

/* The prompt that is computed on a worker. */
static void add_prompt(const struct placement_use *use, struct books_part *part)
{
    uint64_t end = use->prompt_tokens;
    uint64_t first = use->cached_tokens < end ? use->cached_tokens : end - (end > 0);
    part->prefill = true;
    part->rows = end - first;
    part->positions = part->rows * (first + end - 1) / 2; /* first .. end - 1 */
    part->slack_weight = use->slack_us > 0 ? use->weight : 0;
    part->slack = part->slack_weight ? books_time_bucket(use->slack_us) : 0;
}

/* The answer that is drawn, or will be. */
static void add_answer(const struct placement_use *use, struct books_part *part)
{
    uint64_t expected = use->expected_tokens;
    part->drawing = use->drawing;
    part->coming = !use->drawing;
    part->context = part->held_tokens = use->prompt_tokens;
    part->promised_tokens = expected > use->prompt_tokens ? expected : use->prompt_tokens + 1;
    part->variance = use->variance;
    part->left = books_length_bucket(part->promised_tokens - use->prompt_tokens);
    part->tolerance_weight = use->tolerance_us > 0 ? use->weight : 0;
    part->tolerance = part->tolerance_weight ? books_time_bucket(use->tolerance_us) : 0;
}

static struct placement_share prefill_share(const struct placement *placement,
                                            const struct placement_request *request)
{
    const struct placement_use *use = &request->use;
    struct candidate *worker = worker_of(placement, &request->prefill, use->prefill);
    if (!worker)
        return (struct placement_share){0};
    struct placement_share share = {
        .worker = worker,
        .requests = !use->confirmed, /* otherwise its handle is gone there */
        .work_tokens = use->working && !use->prefilled ? use->prompt_tokens : 0,
        .part = {.priority = use->priority},
    };
    if (share.work_tokens)
        add_prompt(use, &share.part);
    if (!use->confirmed)
        share.part.held_tokens = share.part.promised_tokens = use->prompt_tokens;
    return share;
}

static struct placement_share decode_share(const struct placement *placement,
                                           const struct placement_request *request)
{
    const struct placement_use *use = &request->use;
    struct candidate *worker =
        use->working ? worker_of(placement, &request->decode, use->decode) : NULL;
    if (!worker)
        return (struct placement_share){0};
    struct placement_share share = {
        .worker = worker,
        .requests = 1,
        .work_tokens = use->longest_tokens,
        .unconfirmed_tokens = use->confirmed ? 0 : use->prompt_tokens,
        .part = {.priority = use->priority},
    };
    if (!use->prefill && !use->prefilled) /* it computes the prompt too */
        add_prompt(use, &share.part);
    if (use->prefill && !use->confirmed)
        share.part.moving_tokens = use->prompt_tokens;
    add_answer(use, &share.part);
    return share;
}

static void enter(uint64_t tenant, const struct placement_share *share)
{
    struct route_worker *is = &share->worker->is;
    is->requests += share->requests;
    is->work_tokens += share->work_tokens;
    is->unconfirmed_tokens += share->unconfirmed_tokens;
    candidate_count_tenant(share->worker, tenant, share->requests);
}

static void take_out(struct placement *placement, uint64_t tenant,
                     const struct placement_share *share)
{
    struct route_worker *is = &share->worker->is;
    ASSERT(is->requests >= share->requests && is->work_tokens >= share->work_tokens &&
           is->unconfirmed_tokens >= share->unconfirmed_tokens);
    is->requests -= share->requests;
    is->work_tokens -= share->work_tokens;
    is->unconfirmed_tokens -= share->unconfirmed_tokens;
    candidate_count_tenant(share->worker, tenant, -(int64_t)share->requests);
    placement->candidates.version++;
}

static bool shares_equal(const struct placement_share *a, const struct placement_share *b)
{
    return a->worker == b->worker && a->requests == b->requests &&
           a->work_tokens == b->work_tokens && a->unconfirmed_tokens == b->unconfirmed_tokens;
}

/* Returns how many of the reported rows are those of prompts before this one. It is taken away:
 * the worker computes prompts of a priority in the order in which they came. */
static uint64_t computed_before(const struct candidate *worker, const struct placement_share *share)
{
    enum priority priority = share->part.priority;
    uint64_t rows = 0, computed = worker->computed_rows[priority];
    const struct placement_request *request;
    for (request = TAILQ_FIRST(&worker->requests); request && rows < computed;
         request = placement_next_of(request, worker->is.key)) {
        const struct placement_share *other =
            request->prefill.worker == worker ? &request->prefill : &request->decode;
        if (other == share)
            break;
        rows += other->part.prefill && other->part.priority == priority ? other->part.rows : 0;
    }
    return rows < computed ? rows : computed;
}

/* Brings the part up to date that predictions read. A token moves it, and frees no place. The rows
 * of a prompt that is computed were among the ones that were reported. So were those of one that is
 * taken away, as far as it was computed. */
static void change_part(struct placement_share *share, const struct placement_share *next)
{
    struct candidate *worker = share->worker;
    bool was = worker && share->part.prefill,
         stays = was && worker == next->worker && next->part.prefill;
    if (worker == next->worker && books_parts_equal(&share->part, &next->part))
        return;
    uint64_t before = was && worker != next->worker ? computed_before(worker, share) : 0;
    if (worker)
        worker_books_take(&worker->books, &share->part);
    if (next->worker)
        worker_books_add(&next->worker->books, &next->part);
    if (was) {
        uint64_t *computed = &worker->computed_rows[share->part.priority];
        uint64_t gone = stays ? 0 : share->part.rows, theirs = *computed - before;
        uint64_t rows = worker->books.prefill[share->part.priority].rows;
        *computed -= gone < theirs ? gone : theirs;
        *computed = *computed < rows ? *computed : rows;
    }
    share->part = next->part;
}

/* Brings the share up to date in the books of its worker. Returns the worker that it had. */
static struct candidate *change_share(struct placement *placement, uint64_t tenant,
                                      struct placement_share *share,
                                      const struct placement_share *next)
{
    struct candidate *before = share->worker;
    change_part(share, next);
    if (shares_equal(share, next))
        return before;
    if (before)
        take_out(placement, tenant, share);
    if (next->worker)
        enter(tenant, next);
    *share = *next;
    return before;
}

static void set_prefill(struct placement *placement, struct placement_request *request,
                        struct placement_share next)
{
    struct candidate *before = change_share(placement, request->tenant, &request->prefill, &next);
    if (before == next.worker)
        return;
    if (before)
        TAILQ_REMOVE(&before->requests, request, prefill_link);
    if (next.worker)
        TAILQ_INSERT_TAIL(&next.worker->requests, request, prefill_link);
}

static void set_decode(struct placement *placement, struct placement_request *request,
                       struct placement_share next)
{
    struct candidate *before = change_share(placement, request->tenant, &request->decode, &next);
    if (before == next.worker)
        return;
    if (before)
        TAILQ_REMOVE(&before->requests, request, decode_link);
    if (next.worker)
        TAILQ_INSERT_TAIL(&next.worker->requests, request, decode_link);
}

/* Promises the prompt to the worker that computes it now: siblings that come there wait for its
 * rows. Takes back what another one was promised for nothing. The reader of a handle is promised
 * nothing: before the handoff it has no rows. */
static void keep_promise(struct placement *placement, struct placement_request *request)
{
    const struct placement_use *use = &request->use;
    const struct candidate *worker =
        use->prefill ? request->prefill.worker : request->decode.worker;
    struct placement_promise *promise = &request->promise;
    struct prefix_index *index = placement->prefix_index;
    uint64_t key = worker ? worker->is.key : 0;
    uint64_t now_us = use->now_us > placement->pass.now_us ? use->now_us : placement->pass.now_us;
    if (!index)
        return;
    if (use->reserved)
        prefix_index_reserved(index, promise->id);
    if (use->confirmed || use->prefilled) {
        prefix_index_computed(index, promise->id, now_us);
        promise->computed = true;
    }
    if (promise->worker == key)
        return;
    if (!promise->computed)
        prefix_index_take_back(index, promise->id);
    *promise = (struct placement_promise){.worker = key};
    const struct prefix_names *names =
        worker ? prefix_names_for(request->prefixes, request->prefix_kind_count, &worker->is)
               : NULL;
    if (names)
        promise->id = prefix_index_promise(index, key, names, now_us);
}

/* The worker of this key has computed or taken over the request's prompt, if `now`. */
static void note_proof(const struct placement_share *share, uint64_t key, bool now)
{
    if (now && share->worker && share->worker->is.key == key)
        share->worker->proven++;
}

_Static_assert(sizeof(uintptr_t) == sizeof(uint64_t), "`here` holds two counts in a pointer");

/* Notes that the tenant has so many requests more, or less, and so many of them with workers.
 * Tenants beyond the map's limit, or without memory, aren't seen by others. */
static void count_here(struct placement *placement, const struct placement_request *request, int by,
                       int running)
{
    struct placement_queue *queue = &placement->queues[request->model];
    uint64_t tenant = request->tenant, counts = (uintptr_t)map_get(queue->here, tenant);
    int64_t count = (int64_t)(counts & UINT32_MAX) + by, runs = (int64_t)(counts >> 32) + running;
    if (!counts && !by)
        return;
    if (count > 0) {
        runs = runs < 0 ? 0 : runs > count ? count : runs;
        (void)!map_put(queue->here, tenant, (void *)((uintptr_t)runs << 32 | (uintptr_t)count));
        return;
    }
    map_take(queue->here, tenant);
    if (queue->left[0].tenant != tenant)
        queue->left[1] = queue->left[0];
    queue->left[0].tenant = tenant;
    queue->left[0].at_us = placement->pass.now_us;
}

struct placement_tenants_here placement_tenants_here(const struct placement *placement,
                                                     size_t model)
{
    const struct map *here = placement->queues[model].here;
    struct placement_tenants_here seen = {.known = map_count(here)};
    void *value;
    for (size_t i = 0; seen.known && (value = map_next(here, &i));) {
        uint64_t count = (uintptr_t)value & UINT32_MAX, runs = (uintptr_t)value >> 32;
        seen.waiting += runs < count;
        seen.running += runs;
        seen.most = runs > seen.most ? runs : seen.most;
    }
    return seen;
}

void placement_track(struct placement *placement, struct placement_request *request,
                     const struct placement_use *use)
{
    note_proof(&request->prefill, use->prefill, use->prefilled && !request->use.prefilled);
    note_proof(&request->decode, use->decode, use->confirmed && !request->use.confirmed);
    int running = (use->prefill || use->decode) - (request->use.prefill || request->use.decode);
    if (running)
        count_here(placement, request, 0, running);
    request->use = *use;
    set_prefill(placement, request, prefill_share(placement, request));
    set_decode(placement, request, decode_share(placement, request));
    keep_promise(placement, request);
}

void placement_found_cached(struct placement *placement, struct placement_request *request,
                            uint64_t cached_tokens)
{
    struct placement_use use = request->use;
    request->cached_tokens = use.cached_tokens = cached_tokens;
    if (!request->found) /* a prompt that is computed again finds what it computed before */
        goodput_found(&placement->demands[request->model], use.prompt_tokens, cached_tokens);
    request->found = true;
    placement_track(placement, request, &use);
}

bool placement_has_others(const struct placement *placement,
                          const struct placement_request *request)
{
    const struct placement_queue *queue = &placement->queues[request->model];
    uint64_t now_us = placement->pass.now_us;
    if (map_count(queue->here) > (map_get(queue->here, request->tenant) ? 1 : 0))
        return true;
    for (int i = 0; i < 2; i++)
        if (queue->left[i].at_us && queue->left[i].tenant != request->tenant &&
            now_us - queue->left[i].at_us < PLACEMENT_SHARE_US)
            return true;
    return false;
}

void placement_arrived(struct placement *placement, struct placement_request *request, size_t model,
                       uint64_t tenant)
{
    *request = (struct placement_request){.model = model,
                                          .tenant = tenant,
                                          .order = ++placement->arrivals,
                                          .priority = PRIORITY_NORMAL,
                                          .due_us = UINT64_MAX};
    TAILQ_INSERT_TAIL(&placement->all, request, all_link);
    count_here(placement, request, 1, 0);
}

void placement_ended(struct placement *placement, struct placement_request *request)
{
    placement_stop_waiting(placement, request);
    placement_track(placement, request, &(struct placement_use){0});
    TAILQ_REMOVE(&placement->all, request, all_link);
    count_here(placement, request, -1, 0);
}

bool placement_recount(const struct placement *placement)
{
    const struct candidate *worker;
    for (size_t i = 0; (worker = map_next(placement->candidates.by_key, &i));) {
        struct route_worker is = {.requests = 0};
        struct worker_books books;
        const struct placement_request *request;
        memset(&books, 0, sizeof books); /* its padding is compared too */
        TAILQ_FOREACH(request, &placement->all, all_link)
        {
            const struct placement_share shares[] = {prefill_share(placement, request),
                                                     decode_share(placement, request)};
            for (int k = 0; k < 2; k++) {
                if (shares[k].worker != worker)
                    continue;
                is.requests += shares[k].requests;
                is.work_tokens += shares[k].work_tokens;
                is.unconfirmed_tokens += shares[k].unconfirmed_tokens;
                worker_books_add(&books, &shares[k].part);
            }
        }
        if (memcmp(&books, &worker->books, sizeof books) || is.requests != worker->is.requests ||
            is.work_tokens != worker->is.work_tokens ||
            is.unconfirmed_tokens != worker->is.unconfirmed_tokens)
            return false;
    }
    return true;
}

/* -------------------------------------------------------------------------------------- workers */

enum status placement_worker_set(struct placement *placement, size_t model,
                                 const struct route_worker *facts)
{
    return candidates_set(&placement->candidates, model, facts);
}

void placement_worker_remove(struct placement *placement, uint64_t key)
{
    struct candidate *worker = candidates_get(&placement->candidates, key);
    for (struct placement_request *request; worker && (request = TAILQ_FIRST(&worker->requests));) {
        if (request->prefill.worker == worker)
            set_prefill(placement, request, (struct placement_share){0});
        else
            set_decode(placement, request, (struct placement_share){0});
    }
    candidates_remove(&placement->candidates, key);
}

void placement_worker_load(struct placement *placement, uint64_t key, uint64_t reported_tokens)
{
    struct candidate *worker = candidates_get(&placement->candidates, key);
    if (!worker)
        return;
    worker->is.reported_tokens = reported_tokens;
    /* A worker that computes prompts, too, seldom has a step that tells; and beside prompts so many
     * answers would all miss their TPOT. */
    bool told = worker->is.learnt && worker->kind && !candidate_is_alone(worker);
    worker->kv_shared = told ? 1 / worker_learnt_kv_part(worker->is.learnt) - 1 : 0;
}

void placement_worker_stepped(struct placement *placement, uint64_t key, uint64_t prefill_rows)
{
    static const enum priority order[PRIORITIES] = {PRIORITY_HIGH, PRIORITY_NORMAL,
                                                    PRIORITY_OFFLINE};
    struct candidate *worker = candidates_get(&placement->candidates, key);
    for (int i = 0; worker && i < PRIORITIES; i++) {
        uint64_t *computed = &worker->computed_rows[order[i]];
        uint64_t left = worker->books.prefill[order[i]].rows - *computed;
        uint64_t rows = prefill_rows < left ? prefill_rows : left;
        *computed += rows;
        prefill_rows -= rows;
    }
}

struct placement_request *placement_first_of(const struct placement *placement, uint64_t key)
{
    const struct candidate *worker = candidates_get(&placement->candidates, key);
    return worker ? TAILQ_FIRST(&worker->requests) : NULL;
}

struct placement_request *placement_next_of(const struct placement_request *request, uint64_t key)
{
    const struct candidate *prefill = request->prefill.worker;
    return prefill && prefill->is.key == key ? TAILQ_NEXT(request, prefill_link)
                                             : TAILQ_NEXT(request, decode_link);
}
