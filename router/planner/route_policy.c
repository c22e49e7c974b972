#include "router/planner/route_policy.h"

/* The best choice so far. The order: fewest avoided workers, least work, longest unused. */
struct best {
    bool found;
    unsigned avoided;
    uint64_t work_tokens, placed_at;
    uint64_t prefill, decode;
};

static bool better(const struct best *a, const struct best *b)
{
    if (!b->found || a->avoided != b->avoided)
        return !b->found || a->avoided < b->avoided;
    if (a->work_tokens != b->work_tokens)
        return a->work_tokens < b->work_tokens;
    return a->placed_at < b->placed_at;
}

static void best_offer(struct best *best, const struct route_worker *prefill,
                       const struct route_worker *decode, const struct route_request *request)
{
    bool alone = prefill && request->ends_at_prefill;
    struct best offer = {
        .found = true,
        .avoided = (prefill && prefill->key == request->avoid_prefill) +
                   (decode->key == request->avoid_decode),
        .work_tokens = (alone ? 0 : decode->work_tokens) + (prefill ? prefill->work_tokens : 0),
        .placed_at = (alone ? 0 : decode->placed_at) + (prefill ? prefill->placed_at : 0),
        .prefill = prefill ? prefill->key : 0,
        .decode = decode->key,
    };
    if (better(&offer, best))
        *best = offer;
}

void route_misfits_note(struct route_misfits *misfits, struct route_misfit pair)
{
    misfits->items[misfits->next] = pair;
    misfits->next = (misfits->next + 1) % ROUTE_MAX_MISFITS;
    if (misfits->count < ROUTE_MAX_MISFITS)
        misfits->count++;
}

void route_misfits_forget(struct route_misfits *misfits)
{
    misfits->count = misfits->next = 0;
}

static bool misfits(const struct route_request *request, uint64_t prefill, uint64_t decode)
{
    for (size_t i = 0; i < request->misfit_count; i++)
        if (request->misfits[i].prefill == prefill && request->misfits[i].decode == decode)
            return true;
    return false;
}

static bool pairs(const struct route_worker *prefill, const struct route_worker *decode)
{
    return prefill->model_hash == decode->model_hash &&
           prefill->layout_hash == decode->layout_hash &&
           prefill->numerics_id == decode->numerics_id;
}

/* The answer may come from this decode worker, and so from a prefill worker that pairs with it. */
static bool of_kind(const struct route_request *request, const struct route_worker *decode)
{
    const struct route_kind *kind = request->kind;
    return !kind ||
           (kind->model_hash == decode->model_hash && kind->numerics_id == decode->numerics_id);
}

static bool holds_enough(const struct route_worker *worker)
{
    return worker->max_requests && worker->requests >= worker->max_requests;
}

static bool full(const struct route_worker *prefill, const struct route_worker *decode,
                 const struct route_request *request)
{
    if (prefill && holds_enough(prefill))
        return true;
    if (prefill && request->ends_at_prefill)
        return false;
    if (holds_enough(decode))
        return true;
    /* A worker without others takes any request. Otherwise a prompt above the limit would wait for
     * ever. */
    return decode->unconfirmed_tokens &&
           decode->unconfirmed_tokens + request->prompt_tokens > decode->unconfirmed_limit_tokens;
}

/* Facts about the candidates, for the outcome if none takes the request. */
struct seen {
    bool candidate;       /* there is one: its workers match */
    bool fits;            /* one is large enough too */
    bool ready;           /* one is ready too, but full */
    uint64_t most_tokens; /* for one request, on the candidates' decode workers */
};

static struct route_choice choice_of(const struct best *best, const struct seen *seen)
{
    if (best->found)
        return (struct route_choice){
            .outcome = ROUTE_PLACED, .prefill = best->prefill, .decode = best->decode};
    enum route_outcome outcome = ROUTE_NO_WORKER;
    if (seen->ready)
        outcome = ROUTE_FULL;
    else if (seen->candidate && !seen->fits)
        outcome = ROUTE_TOO_LONG;
    return (struct route_choice){.outcome = outcome, .most_tokens = seen->most_tokens};
}

/* Looks at one candidate. `prefill` NULL: the decode worker computes the prompt. */
static void consider(struct best *best, struct seen *seen, const struct route_worker *prefill,
                     const struct route_worker *decode, const struct route_request *request)
{
    seen->candidate = true;
    if (decode->capacity_tokens > seen->most_tokens)
        seen->most_tokens = decode->capacity_tokens;
    if (request->total_tokens > decode->capacity_tokens ||
        (prefill && request->prompt_tokens > prefill->capacity_tokens))
        return;
    seen->fits = true;
    if (!decode->ready || (prefill && !prefill->ready))
        return;
    seen->ready = true;
    if (!full(prefill, decode, request))
        best_offer(best, prefill, decode, request);
}

static bool any_prefill(const struct route_worker *workers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (workers[i].role == ROLE_PREFILL)
            return true;
    return false;
}

/* The obstacle of a ready decode worker that isn't full. */
static enum route_lack lack_of(const struct route_worker *workers, size_t count,
                               const struct route_worker *decode, bool local,
                               const struct route_request *request)
{
    if (!of_kind(request, decode))
        return ROUTE_LACKS_KIND;
    if (request->total_tokens > decode->capacity_tokens)
        return ROUTE_LACKS_SPACE;
    enum route_lack lack = local ? ROUTE_LACKS_NOTHING : ROUTE_LACKS_FIT;
    for (size_t p = 0; !local && p < count; p++) {
        const struct route_worker *prefill = &workers[p];
        if (prefill->role != ROLE_PREFILL || !pairs(prefill, decode) ||
            misfits(request, prefill->key, decode->key))
            continue;
        if (request->prompt_tokens <= prefill->capacity_tokens)
            return ROUTE_LACKS_PREFILL; /* not ready, or the two would be a pair */
        lack = ROUTE_LACKS_SPACE;
    }
    return lack;
}

static enum route_lack least_lack(const struct route_worker *workers, size_t count, bool local,
                                  const struct route_request *request)
{
    enum route_lack least = ROUTE_LACKS_DECODE;
    for (size_t d = 0; d < count; d++) {
        if (workers[d].role != ROLE_DECODE || !workers[d].ready)
            continue;
        enum route_lack lack = lack_of(workers, count, &workers[d], local, request);
        least = lack > least ? lack : least;
    }
    return least;
}

/* The prefill worker could compute the prompt for this decode worker, once it is ready. */
static bool prefills_for(const struct route_worker *prefill, const struct route_worker *decode,
                         const struct route_request *request)
{
    return prefill->role == ROLE_PREFILL && pairs(prefill, decode) &&
           !misfits(request, prefill->key, decode->key) &&
           request->prompt_tokens <= prefill->capacity_tokens;
}

/* The time since which all matching prefill workers have been away. UINT64_MAX: one is ready, or
 * none exists; such a decode worker may serve other weights under the same name. */
static uint64_t away_since_us(const struct route_worker *workers, size_t count,
                              const struct route_worker *decode,
                              const struct route_request *request)
{
    uint64_t since_us = 0;
    bool exists = false;
    for (size_t p = 0; p < count; p++) {
        const struct route_worker *prefill = &workers[p];
        if (!prefills_for(prefill, decode, request))
            continue;
        if (prefill->ready)
            return UINT64_MAX;
        exists = true;
        if (prefill->away_since_us > since_us)
            since_us = prefill->away_since_us;
    }
    return exists ? since_us : UINT64_MAX;
}

struct route_choice route_request(const struct route_worker *workers, size_t count,
                                  const struct route_request *request)
{
    struct best best = {0};
    struct seen seen = {0};
    bool local = request->local || !any_prefill(workers, count);
    for (size_t d = 0; d < count; d++) {
        if (workers[d].role != ROLE_DECODE || !of_kind(request, &workers[d]))
            continue;
        if (local) {
            consider(&best, &seen, NULL, &workers[d], request);
            continue;
        }
        for (size_t p = 0; p < count; p++)
            if (workers[p].role == ROLE_PREFILL && pairs(&workers[p], &workers[d]) &&
                !misfits(request, workers[p].key, workers[d].key))
                consider(&best, &seen, &workers[p], &workers[d], request);
    }
    bool alone = !local && !seen.ready;
    uint64_t longest_us = UINT64_MAX;
    for (size_t d = 0; alone && d < count; d++) {
        if (workers[d].role != ROLE_DECODE || !of_kind(request, &workers[d]))
            continue;
        uint64_t since_us = away_since_us(workers, count, &workers[d], request);
        if (workers[d].ready && since_us < longest_us)
            longest_us = since_us;
        if (request->local_away_us && since_us <= request->local_away_us)
            consider(&best, &seen, NULL, &workers[d], request);
    }
    struct route_choice choice = choice_of(&best, &seen);
    choice.away_since_us = longest_us;
    if (choice.outcome == ROUTE_NO_WORKER)
        choice.lack = least_lack(workers, count, local, request);
    return choice;
}

struct route_choice route_handle(const struct route_worker *workers, size_t count,
                                 const struct route_request *request,
                                 const struct route_handle *handle)
{
    struct best best = {0};
    struct seen seen = {0};
    struct route_worker holder = {.model_hash = handle->model_hash,
                                  .layout_hash = handle->layout_hash,
                                  .numerics_id = handle->numerics_id};
    struct route_request urgent = *request;
    urgent.prompt_tokens = 0;
    bool misfit_ready = false, stranger_ready = false, small_ready = false;
    for (size_t d = 0; d < count; d++) {
        struct route_worker decode = workers[d];
        decode.unconfirmed_tokens = 0;
        if (decode.role != ROLE_DECODE)
            continue;
        if (!pairs(&holder, &decode))
            stranger_ready |= decode.ready;
        else if (misfits(request, handle->prefill, decode.key))
            misfit_ready |= decode.ready;
        else {
            small_ready |= decode.ready; /* used only if none takes it and none is full */
            consider(&best, &seen, NULL, &decode, &urgent);
        }
    }
    struct route_choice choice = choice_of(&best, &seen);
    bool none = misfit_ready || (stranger_ready && !seen.candidate);
    if (choice.outcome == ROUTE_NO_WORKER && none)
        choice.outcome = ROUTE_NO_READER;
    if (choice.outcome == ROUTE_NO_WORKER)
        choice.lack = small_ready      ? ROUTE_LACKS_SPACE
                      : stranger_ready ? ROUTE_LACKS_FIT
                                       : ROUTE_LACKS_DECODE;
    return choice;
}

/* How well the request can reach the decode worker. 0: not at all. 1: its matching prefill workers
 * are away. 2: one is ready, or none is needed. */
static unsigned reached(const struct route_worker *workers, size_t count,
                        const struct route_worker *decode, const struct route_request *request,
                        const struct route_handle *handle)
{
    if (handle) {
        bool same = handle->model_hash == decode->model_hash &&
                    handle->layout_hash == decode->layout_hash &&
                    handle->numerics_id == decode->numerics_id;
        return same && !misfits(request, handle->prefill, decode->key) ? 2 : 0;
    }
    unsigned most = request->local || !any_prefill(workers, count) ? 2 : 0;
    for (size_t p = 0; most < 2 && p < count; p++)
        if (prefills_for(&workers[p], decode, request))
            most = workers[p].ready ? 2 : 1;
    return most;
}

uint64_t route_room(const struct route_worker *workers, size_t count,
                    const struct route_request *request, const struct route_handle *handle)
{
    uint64_t rooms[3] = {0};
    for (size_t d = 0; d < count; d++) {
        const struct route_worker *decode = &workers[d];
        if (decode->role != ROLE_DECODE || !decode->ready || !of_kind(request, decode) ||
            request->total_tokens > decode->capacity_tokens)
            continue;
        uint64_t *room = &rooms[reached(workers, count, decode, request, handle)];
        *room = decode->capacity_tokens > *room ? decode->capacity_tokens : *room;
    }
    return rooms[2] ? rooms[2] : rooms[1];
}
