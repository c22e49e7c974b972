#include "router/planner/prefix_index.h"

#include "common/base/map.h"
#include "router/planner/prefix_pairs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define LEVELS      32 /* groups of many equal holders in one match */
#define LEVEL_LEAST 16 /* holders in such a group */

struct indexed_worker {
    uint64_t key;  /* 0: the slot is free */
    uint64_t life; /* differs for each session */
    bool begun;    /* `cleared` has come */
    bool lost;     /* waits for the next `cleared` */
    uint64_t number, stored;
    uint32_t free_blocks; /* UINT32_MAX: not told yet */
    uint64_t due_blocks;  /* promised, and neither stored before nor reserved yet */
    uint64_t match;       /* number of the match that wrote the next two */
    uint32_t blocks, tokens;
};

struct promise {
    uint64_t id, worker, life, until_us;
    bool computed, reserved;
    uint32_t new_blocks, count;
    TAILQ_ENTRY(promise) link;
    uint32_t pairs[]; /* [count] */
};
TAILQ_HEAD(promises, promise);

/* Workers with equal matches: one of them, or a group. */
struct match_group {
    uint32_t blocks, tokens;
    uint32_t slot;
    uint32_t level; /* PAIRS_NONE: one worker */
};

struct prefix_index {
    struct prefix_pairs pairs;
    struct indexed_worker workers[CLUSTER_MAX_WORKERS]; /* by slot */
    struct map *by_key, *by_id;
    struct promises placed, computed; /* each in the order of their ends */
    uint64_t promised_blocks;         /* sum over the promises */
    uint64_t last_id, lives;
    struct prefix_index_figures figures;
    /* The last match. */
    uint64_t match;
    struct match_group groups[CLUSTER_MAX_WORKERS + LEVELS];
    size_t group_count;
    uint64_t levels[LEVELS][PAIRS_WORDS];
    uint32_t level_count;
};

enum status prefix_index_create(uint32_t limit, uint64_t seed, struct prefix_index **out)
{
    struct prefix_index *index = calloc(1, sizeof *index);
    if (!index)
        return STATUS_LIMIT;
    TAILQ_INIT(&index->placed);
    TAILQ_INIT(&index->computed);
    if (prefix_pairs_init(&index->pairs, limit, seed) != STATUS_OK ||
        map_create(CLUSTER_MAX_WORKERS, &index->by_key) != STATUS_OK ||
        map_create(PREFIX_MAX_PROMISES, &index->by_id) != STATUS_OK) {
        prefix_index_destroy(index);
        return STATUS_LIMIT;
    }
    *out = index;
    return STATUS_OK;
}

void prefix_index_destroy(struct prefix_index *index)
{
    if (!index)
        return;
    struct promise *promise;
    for (size_t i = 0; index->by_id && (promise = map_next(index->by_id, &i));)
        free(promise);
    prefix_pairs_deinit(&index->pairs);
    map_destroy(index->by_key);
    map_destroy(index->by_id);
    free(index);
}

static struct indexed_worker *worker_of(const struct prefix_index *index, uint64_t key)
{
    return map_get(index->by_key, key);
}

static uint32_t slot_of(const struct prefix_index *index, const struct indexed_worker *worker)
{
    return (uint32_t)(worker - index->workers);
}

/* --------------------------------------------------------------------------------------- events */

/* Returns a new worker, of which nothing is known; NULL: no slot, or no memory. */
static struct indexed_worker *add_worker(struct prefix_index *index, uint64_t key)
{
    uint32_t slot = 0;
    while (slot < CLUSTER_MAX_WORKERS && index->workers[slot].key)
        slot++;
    if (slot == CLUSTER_MAX_WORKERS ||
        map_put(index->by_key, key, &index->workers[slot]) != STATUS_OK)
        return NULL;
    index->workers[slot] =
        (struct indexed_worker){.key = key, .life = ++index->lives, .free_blocks = UINT32_MAX};
    prefix_pairs_join(&index->pairs, slot);
    return &index->workers[slot];
}

/* Nothing is known that the worker holds. Its promises stay. */
static void forget_held(struct prefix_index *index, uint32_t slot)
{
    struct prefix_pairs *pairs = &index->pairs;
    for (uint32_t id = pairs->owners[slot].first, next; id != PAIRS_NONE; id = next) {
        next = pairs->items[id].after;
        prefix_pairs_hold(pairs, id, false);
    }
}

static void store(struct prefix_index *index, uint32_t slot, const struct prefix_event *event)
{
    struct prefix_pairs *pairs = &index->pairs;
    uint32_t id = prefix_pairs_find(pairs, slot, event->hash);
    if (id == PAIRS_NONE) {
        uint32_t parent = prefix_pairs_find(pairs, slot, event->parent);
        if (parent == PAIRS_NONE && event->position && pairs->count == pairs->limit)
            return; /* a run that it is part of has no beginning here */
        id = prefix_pairs_add(pairs, slot, event->hash, parent);
    }
    if (id == PAIRS_NONE)
        return;
    prefix_pairs_hold(pairs, id, true);
    pairs->items[id].promises = 0; /* they are settled */
    pairs->items[id].since = index->last_id;
}

static void apply(struct prefix_index *index, struct indexed_worker *worker,
                  const struct prefix_event *event)
{
    uint32_t slot = slot_of(index, worker), id;
    index->figures.changes[event->kind]++;
    switch (event->kind) {
    case PREFIX_CLEARED:
        worker->begun = true;
        worker->lost = false;
        worker->stored = 0;
        forget_held(index, slot);
        break;
    case PREFIX_STORED:
        worker->stored++;
        store(index, slot, event);
        break;
    case PREFIX_REMOVED:
        worker->stored--;
        id = prefix_pairs_find(&index->pairs, slot, event->hash);
        if (id != PAIRS_NONE)
            prefix_pairs_hold(&index->pairs, id, false);
    }
}

static bool is_honest(const struct indexed_worker *worker, const struct prefix_event *event)
{
    if (event->number <= worker->number)
        return false;
    switch (event->kind) {
    case PREFIX_CLEARED: return true;
    case PREFIX_STORED: return event->token_count > 0;
    case PREFIX_REMOVED: return worker->lost || worker->stored > 0;
    }
    return false;
}

enum prefix_take prefix_index_take(struct prefix_index *index, uint64_t key,
                                   const struct prefix_event *events, size_t count)
{
    struct indexed_worker *worker = worker_of(index, key);
    enum prefix_take result = PREFIX_TAKE_OK;
    if (!worker)
        worker = add_worker(index, key);
    for (size_t i = 0; worker && i < count; i++) {
        const struct prefix_event *event = &events[i];
        bool follows = worker->begun && event->number == worker->number + 1;
        bool repeats = event->number <= worker->number;
        if (event->kind != PREFIX_CLEARED && !worker->lost && !follows && !repeats) {
            worker->lost = true;
            forget_held(index, slot_of(index, worker));
            index->figures.gaps++;
            result = PREFIX_TAKE_GAP;
        }
        if (!is_honest(worker, event))
            return PREFIX_TAKE_BAD;
        worker->number = event->number;
        if (event->kind == PREFIX_CLEARED || !worker->lost)
            apply(index, worker, event);
    }
    return result;
}

void prefix_index_drop(struct prefix_index *index, uint64_t key)
{
    struct indexed_worker *worker = map_take(index->by_key, key);
    if (!worker)
        return;
    prefix_pairs_leave(&index->pairs, slot_of(index, worker));
    worker->key = 0;
}

void prefix_index_free_blocks(struct prefix_index *index, uint64_t key, uint32_t free_blocks)
{
    struct indexed_worker *worker = worker_of(index, key);
    if (worker)
        worker->free_blocks = free_blocks;
}

/* ------------------------------------------------------------------------------------- promises */

/* Promises the beginning of the prompt, as much of it as there is room for. */
static void promise_blocks(struct prefix_index *index, struct indexed_worker *worker,
                           const struct prefix_names *names, struct promise *promise)
{
    struct prefix_pairs *pairs = &index->pairs;
    uint32_t slot = slot_of(index, worker), parent = PAIRS_NONE;
    for (uint32_t i = 0; i < names->count; i++) {
        uint32_t id = prefix_pairs_find(pairs, slot, names->names[i]);
        bool is_new = id == PAIRS_NONE;
        if (is_new)
            id = prefix_pairs_add(pairs, slot, names->names[i], parent);
        if (id == PAIRS_NONE || pairs->items[id].promises == PAIRS_MAX_PROMISES)
            return;
        if (is_new)
            pairs->items[id].since = index->last_id;
        parent = id;
        pairs->items[id].promises++;
        pairs->items[id].used = true;
        promise->new_blocks += is_new;
        promise->pairs[promise->count++] = id;
    }
}

uint64_t prefix_index_promise(struct prefix_index *index, uint64_t key,
                              const struct prefix_names *names, uint64_t now_us)
{
    struct indexed_worker *worker = worker_of(index, key);
    if (!worker || !worker->begun || !names->count ||
        names->count > index->pairs.limit - index->promised_blocks)
        return 0;
    struct promise *promise = malloc(sizeof *promise + names->count * sizeof *promise->pairs);
    if (!promise || map_put(index->by_id, index->last_id + 1, promise) != STATUS_OK) {
        free(promise);
        return 0;
    }
    *promise = (struct promise){.id = index->last_id + 1,
                                .worker = key,
                                .life = worker->life,
                                .until_us = now_us + PREFIX_PROMISE_US};
    promise_blocks(index, worker, names, promise);
    if (!promise->count) {
        free(map_take(index->by_id, promise->id));
        return 0;
    }
    index->last_id++;
    worker->due_blocks += promise->new_blocks;
    index->promised_blocks += promise->count;
    index->figures.promised++;
    TAILQ_INSERT_TAIL(&index->placed, promise, link);
    return promise->id;
}

static void reserve(struct prefix_index *index, struct promise *promise)
{
    struct indexed_worker *worker = worker_of(index, promise->worker);
    bool same_session = worker && worker->life == promise->life;
    if (same_session && !promise->reserved)
        worker->due_blocks -= promise->new_blocks;
    promise->reserved = true;
}

void prefix_index_reserved(struct prefix_index *index, uint64_t id)
{
    struct promise *promise = map_get(index->by_id, id);
    if (promise)
        reserve(index, promise);
}

void prefix_index_computed(struct prefix_index *index, uint64_t id, uint64_t now_us)
{
    struct promise *promise = map_get(index->by_id, id);
    if (!promise || promise->computed)
        return;
    reserve(index, promise);
    TAILQ_REMOVE(&index->placed, promise, link);
    promise->computed = true;
    promise->until_us = now_us + PREFIX_COMPUTED_US;
    TAILQ_INSERT_TAIL(&index->computed, promise, link);
}

void prefix_index_take_back(struct prefix_index *index, uint64_t id)
{
    struct promise *promise = map_take(index->by_id, id);
    if (!promise)
        return;
    reserve(index, promise);
    TAILQ_REMOVE(promise->computed ? &index->computed : &index->placed, promise, link);
    for (uint32_t i = 0; i < promise->count; i++) {
        const struct prefix_pair *pair = &index->pairs.items[promise->pairs[i]];
        if (pair->since < promise->id) /* not settled, and still this pair */
            prefix_pairs_unpromise(&index->pairs, promise->pairs[i]);
    }
    index->promised_blocks -= promise->count;
    index->figures.ended++;
    free(promise);
}

void prefix_index_expire(struct prefix_index *index, uint64_t now_us)
{
    struct promises *lists[] = {&index->placed, &index->computed};
    for (int i = 0; i < 2; i++)
        for (struct promise *first; (first = TAILQ_FIRST(lists[i])) && first->until_us <= now_us;)
            prefix_index_take_back(index, first->id);
}

/* ---------------------------------------------------------------------------------------- match */

/* The workers that hold all blocks so far. */
struct run {
    uint32_t count, words; /* words > 0: bits */
    uint16_t few[PAIRS_FEW];
    uint64_t bits[PAIRS_WORDS];
};

/* The run of the worker, or of the group of workers, ends after `blocks`. */
static void note_one(struct prefix_index *index, uint32_t slot, struct match_group group)
{
    struct indexed_worker *worker = &index->workers[slot];
    if (worker->match == index->match)
        return; /* names of two kinds collide */
    worker->match = index->match;
    worker->blocks = group.blocks;
    worker->tokens = group.tokens;
    group.slot = slot;
    group.level = PAIRS_NONE;
    index->groups[index->group_count++] = group;
}

static void note_many(struct prefix_index *index, const uint64_t *bits, uint32_t words,
                      struct match_group group)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < words; i++)
        count += (uint32_t)__builtin_popcountll(bits[i]);
    if (count >= LEVEL_LEAST && index->level_count < LEVELS) {
        uint64_t *level = index->levels[index->level_count];
        memcpy(level, bits, words * sizeof *bits);
        memset(level + words, 0, (PAIRS_WORDS - words) * sizeof *bits);
        group.level = index->level_count++;
        index->groups[index->group_count++] = group;
        return;
    }
    for (uint32_t i = 0; i < words; i++)
        for (uint64_t word = bits[i]; word; word &= word - 1)
            note_one(index, i * 64 + (uint32_t)__builtin_ctzll(word), group);
}

/* Keeps the workers of a run of few that hold the next block. */
static void narrow_few(struct prefix_index *index, struct run *run, const struct pair_entry *entry,
                       struct match_group group)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < run->count; i++) {
        if (pair_entry_has(entry, run->few[i]))
            run->few[kept++] = run->few[i];
        else
            note_one(index, run->few[i], group);
    }
    run->count = kept;
}

/* Keeps the workers of a run of many that hold the next block. */
static void narrow_many(struct prefix_index *index, struct run *run, const struct pair_entry *entry,
                        struct match_group group)
{
    uint64_t ended[PAIRS_WORDS], any = 0, left = 0;
    uint16_t few[PAIRS_FEW] = {0};
    uint32_t count = 0;
    memcpy(ended, run->bits, run->words * sizeof *ended);
    for (uint32_t i = 0; !entry->words && i < entry->count; i++) {
        uint32_t slot = entry->set.few[i];
        if (slot / 64 >= run->words || !(run->bits[slot / 64] >> slot % 64 & 1))
            continue;
        ended[slot / 64] &= ~(UINT64_C(1) << slot % 64);
        few[count++] = (uint16_t)slot;
    }
    for (uint32_t i = 0; i < run->words; i++) {
        if (i < entry->words)
            ended[i] &= ~entry->set.bits[i];
        any |= ended[i];
        run->bits[i] &= ~ended[i];
        left |= run->bits[i];
    }
    if (any)
        note_many(index, ended, run->words, group);
    if (entry->words && left)
        return;
    memcpy(run->few, few, sizeof few);
    run->count = count;
    run->words = 0;
}

static void match_kind(struct prefix_index *index, const struct prefix_names *names)
{
    const struct prefix_pairs *pairs = &index->pairs;
    const struct pair_entry *entry =
        names->match_count ? prefix_pairs_entry(pairs, names->names[0]) : NULL;
    if (!entry)
        return;
    struct run run = {.count = entry->count, .words = entry->words};
    if (run.words)
        memcpy(run.bits, entry->set.bits, run.words * sizeof *run.bits);
    else
        memcpy(run.few, entry->set.few, sizeof run.few);
    struct match_group group = {.blocks = 1, .tokens = names->block_tokens};
    while (group.blocks < names->match_count &&
           (entry = prefix_pairs_entry(pairs, names->names[group.blocks]))) {
        if (run.words)
            narrow_many(index, &run, entry, group);
        else
            narrow_few(index, &run, entry, group);
        if (!run.words && !run.count)
            return;
        group.blocks++;
        group.tokens += names->block_tokens;
    }
    if (run.words)
        note_many(index, run.bits, run.words, group);
    for (uint32_t i = 0; !run.words && i < run.count; i++)
        note_one(index, run.few[i], group);
}

static int by_blocks(const void *a, const void *b)
{
    uint32_t x = ((const struct match_group *)a)->blocks;
    uint32_t y = ((const struct match_group *)b)->blocks;
    return (x > y) - (x < y);
}

/* Writes workers of a group, beginning with another word each time. */
static size_t write_level(const struct prefix_index *index, const struct match_group *group,
                          struct prefix_holder *out, size_t most)
{
    const uint64_t *level = index->levels[group->level];
    size_t count = 0;
    for (uint32_t i = 0; i < PAIRS_WORDS && count < most; i++) {
        uint32_t at = (uint32_t)((i + index->match) % PAIRS_WORDS);
        for (uint64_t word = level[at]; word && count < most; word &= word - 1) {
            uint64_t key = index->workers[at * 64 + (uint32_t)__builtin_ctzll(word)].key;
            out[count++] = (struct prefix_holder){key, group->blocks, group->tokens};
        }
    }
    return count;
}

size_t prefix_index_match(struct prefix_index *index, const struct prefix_names *names,
                          size_t kind_count, struct prefix_holder *out, size_t most)
{
    index->match++;
    index->group_count = index->level_count = 0;
    for (size_t i = 0; i < kind_count; i++)
        match_kind(index, &names[i]);
    if (kind_count > 1)
        qsort(index->groups, index->group_count, sizeof *index->groups, by_blocks);
    size_t count = 0;
    for (size_t i = index->group_count; i-- > 0 && count < most;) {
        const struct match_group *group = &index->groups[i];
        if (group->level != PAIRS_NONE)
            count += write_level(index, group, out + count, most - count);
        else
            out[count++] = (struct prefix_holder){index->workers[group->slot].key, group->blocks,
                                                  group->tokens};
    }
    return count;
}

uint32_t prefix_index_tokens(const struct prefix_index *index, uint64_t key)
{
    const struct indexed_worker *worker = worker_of(index, key);
    if (!worker)
        return 0;
    if (worker->match == index->match)
        return worker->tokens;
    uint32_t slot = slot_of(index, worker);
    for (size_t i = index->group_count; index->level_count && i-- > 0;) {
        const struct match_group *group = &index->groups[i];
        if (group->level != PAIRS_NONE && index->levels[group->level][slot / 64] >> slot % 64 & 1)
            return group->tokens;
    }
    return 0;
}

uint32_t prefix_index_blocks(const struct prefix_index *index, uint64_t key,
                             const struct prefix_hash *names, uint32_t count)
{
    const struct indexed_worker *worker = worker_of(index, key);
    uint32_t blocks = 0;
    while (worker && blocks < count &&
           prefix_pairs_find(&index->pairs, slot_of(index, worker), names[blocks]) != PAIRS_NONE)
        blocks++;
    return blocks;
}

uint32_t prefix_index_evicts(const struct prefix_index *index, uint64_t key, uint32_t new_blocks)
{
    const struct indexed_worker *worker = worker_of(index, key);
    if (!worker)
        return 0;
    uint64_t wanted = worker->due_blocks + new_blocks;
    uint64_t missing = wanted > worker->free_blocks ? wanted - worker->free_blocks : 0;
    if (missing > new_blocks)
        missing = new_blocks; /* the others are charged to the promises before */
    uint32_t held = index->pairs.owners[slot_of(index, worker)].held;
    return (uint32_t)(missing < held ? missing : held);
}

struct prefix_index_figures prefix_index_figures(const struct prefix_index *index)
{
    struct prefix_index_figures figures = index->figures;
    figures.pairs = index->pairs.count;
    figures.names = index->pairs.name_count;
    figures.workers = index->pairs.owner_count;
    figures.evicted = index->pairs.evicted;
    figures.promises = (uint32_t)map_count(index->by_id);
    return figures;
}

void prefix_index_count(const struct prefix_index *index, uint64_t key, uint32_t *held,
                        uint32_t *credited)
{
    const struct indexed_worker *worker = worker_of(index, key);
    const struct pair_owner *owner = worker ? &index->pairs.owners[slot_of(index, worker)] : NULL;
    *held = owner ? owner->held : 0;
    *credited = owner ? owner->credited : 0;
}
