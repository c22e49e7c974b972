/* prefix_cache: random lives against a dictionary of token prefixes, also where names collide all
 * the time. */
#include "common/base/rng.h"
#include "common/engine/sched/prefix_cache.h"
#include "tests/unit/prefix_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MAX_BLOCKS     40
#define MAX_LENGTH     8 /* blocks of a sequence */
#define SEQUENCES      5
#define EVENT_CAPACITY 8
#define MAX_NAMES      (2 * MAX_BLOCKS)

static const struct eviction_cost cost = {.even_blocks = 3};

/* Eight names for everything: roots of their own, and yet nearly every name is another prefix's,
 * too. */
static struct prefix_hash weak_hash(struct prefix_hash parent, const uint32_t *tokens,
                                    uint32_t count)
{
    struct prefix_hash hash = prefix_hash_block(parent, tokens, count);
    return (struct prefix_hash){.low = hash.low % 8, .high = 0};
}

/* --- the model: a list of prefixes, always scanned --- */

struct naive_entry {
    bool stored;
    int root;
    uint32_t tokens[MAX_LENGTH * B], length; /* the whole prefix; blocks */
    struct prefix_hash name;
    uint64_t serial, asked;
    uint32_t frequency;
    double priority;
};

struct sequence {
    bool live;
    int root;
    uint32_t tokens[MAX_LENGTH * B + 1], length; /* blocks it will compute */
    uint32_t blocks[MAX_LENGTH];
    struct prefix_chain chain;
    uint64_t last_serial; /* serial of the entry that ends its chain */
    bool cut;
};

struct world {
    struct rng rng;
    struct kv_blocks *blocks;
    struct prefix_cache *cache;
    enum eviction_policy policy;
    struct prefix_hash (*hash_block)(struct prefix_hash, const uint32_t *, uint32_t);
    uint32_t block_count;
    struct naive_entry entries[MAX_BLOCKS]; /* entry of the block with that id */
    uint32_t holds[MAX_BLOCKS];
    uint64_t serial, tick;
    double age;
    struct sequence sequences[SEQUENCES];
    struct prefix_hash told[MAX_NAMES]; /* names that a reader of the events knows */
    uint32_t told_count;
    uint64_t last_number;
};

static uint32_t naive_find(const struct world *w, int root, const uint32_t *tokens, uint32_t length)
{
    for (uint32_t id = 0; id < w->block_count; id++) {
        const struct naive_entry *entry = &w->entries[id];
        if (entry->stored && entry->root == root && entry->length == length &&
            !memcmp(entry->tokens, tokens, (size_t)length * B * sizeof *tokens))
            return id;
    }
    return EVICTION_NONE;
}

static bool naive_continued(const struct world *w, uint32_t id)
{
    const struct naive_entry *parent = &w->entries[id];
    for (uint32_t other = 0; other < w->block_count; other++) {
        const struct naive_entry *entry = &w->entries[other];
        if (entry->stored && entry->root == parent->root && entry->length == parent->length + 1 &&
            !memcmp(entry->tokens, parent->tokens, (size_t)parent->length * B * sizeof(uint32_t)))
            return true;
    }
    return false;
}

/* Returns true if the block has no holds, but a cached block that continues it has some. */
static bool naive_stuck(const struct world *w, uint32_t id)
{
    const struct naive_entry *before = &w->entries[id];
    if (!before->stored || w->holds[id])
        return false;
    for (uint32_t other = 0; other < w->block_count; other++) {
        const struct naive_entry *entry = &w->entries[other];
        if (entry->stored && w->holds[other] && entry->root == before->root &&
            entry->length > before->length &&
            !memcmp(entry->tokens, before->tokens, (size_t)before->length * B * sizeof(uint32_t)))
            return true;
    }
    return false;
}

static uint32_t naive_count_stuck(const struct world *w)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < w->block_count; id++)
        count += naive_stuck(w, id);
    return count;
}

static void naive_ask(struct world *w, uint32_t id)
{
    struct naive_entry *entry = &w->entries[id];
    entry->asked = ++w->tick;
    entry->frequency++;
    entry->priority = w->policy == EVICTION_LRU
                          ? (double)w->tick
                          : w->age + entry->frequency * sqrt(1 + (entry->length - 1 + 0.5) / 3);
}

/* Returns the block to evict first, by a scan over all; EVICTION_NONE: none may be evicted. */
static uint32_t naive_victim(const struct world *w)
{
    uint32_t least = EVICTION_NONE;
    for (uint32_t id = 0; id < w->block_count; id++) {
        const struct naive_entry *entry = &w->entries[id];
        if (!entry->stored || w->holds[id] || naive_continued(w, id))
            continue;
        if (least == EVICTION_NONE || entry->priority < w->entries[least].priority ||
            (entry->priority == w->entries[least].priority &&
             entry->asked < w->entries[least].asked))
            least = id;
    }
    return least;
}

static bool naive_name_taken(const struct world *w, struct prefix_hash name)
{
    for (uint32_t id = 0; id < w->block_count; id++)
        if (w->entries[id].stored && prefix_hash_equal(w->entries[id].name, name))
            return true;
    return false;
}

static uint32_t naive_count(const struct world *w, bool only_idle)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < w->block_count; id++)
        count += w->entries[id].stored && !(only_idle && w->holds[id]);
    return count;
}

/* --- operations, in both --- */

static void evict_in_both(struct world *w, uint32_t count)
{
    uint32_t expected = 0;
    for (; expected < count; expected++) {
        uint32_t id = naive_victim(w);
        if (id == EVICTION_NONE)
            break;
        if (w->entries[id].priority > w->age)
            w->age = w->entries[id].priority;
        w->entries[id].stored = false;
    }
    assert_int_equal(prefix_cache_evict(w->cache, count), expected);
}

static void hold_in_model(struct world *w, const uint32_t *ids, uint32_t count, int change)
{
    for (uint32_t i = 0; i < count; i++)
        w->holds[ids[i]] += (uint32_t)change;
}

static uint32_t lookup_in_both(struct world *w, struct sequence *s, uint32_t token_count)
{
    uint32_t expected[MAX_LENGTH], found = 0, idle = 0;
    while (found < (token_count - 1) / B) {
        uint32_t id = naive_find(w, s->root, s->tokens, found + 1);
        if (id == EVICTION_NONE)
            break;
        idle += !w->holds[id] && !naive_stuck(w, id);
        expected[found++] = id;
    }
    struct prefix_match match =
        prefix_cache_match(w->cache, root_of(s->root), s->tokens, token_count);
    assert_int_equal(match.blocks, found);
    assert_int_equal(match.idle, idle);
    assert_int_equal(prefix_cache_stuck(w->cache), naive_count_stuck(w));
    assert_int_equal(
        prefix_cache_lookup(w->cache, &s->chain, s->tokens, token_count, KV_HOLD_USED, s->blocks),
        found);
    assert_memory_equal(s->blocks, expected, found * sizeof *expected);
    assert_int_equal(s->chain.length, found);
    for (uint32_t i = 0; i < found; i++)
        naive_ask(w, expected[i]);
    s->last_serial = found ? w->entries[expected[found - 1]].serial : 0;
    hold_in_model(w, expected, found, 1);
    return found;
}

static void start(struct world *w, struct sequence *s)
{
    *s = (struct sequence){.live = true,
                           .root = (int)rng_below(&w->rng, ROOTS),
                           .length = 1 + (uint32_t)rng_below(&w->rng, MAX_LENGTH)};
    s->chain = prefix_chain_start(root_of(s->root));
    for (uint32_t i = 0; i <= s->length * B; i++) /* mostly zeros: beginnings are often equal */
        s->tokens[i] = rng_below(&w->rng, 12) == 0;
    uint32_t tokens = s->length * B + (uint32_t)rng_below(&w->rng, 2); /* a row behind, or not */
    uint32_t found = lookup_in_both(w, s, tokens), need = s->length - found;
    uint32_t free_count = kv_blocks_count(w->blocks, KV_BLOCK_FREE);
    if (free_count < need)
        evict_in_both(w, need - free_count);
    if (kv_blocks_take(w->blocks, need, KV_HOLD_USED, s->blocks + found) == STATUS_OK) {
        hold_in_model(w, s->blocks + found, need, 1);
        return;
    }
    kv_blocks_give(w->blocks, s->blocks, found, KV_HOLD_USED);
    hold_in_model(w, s->blocks, found, -1);
    s->live = false;
}

static void store_in_model(struct world *w, struct sequence *s, uint32_t id,
                           struct prefix_hash name)
{
    struct naive_entry *entry = &w->entries[id];
    *entry = (struct naive_entry){.stored = true,
                                  .root = s->root,
                                  .length = s->chain.length,
                                  .name = name,
                                  .serial = ++w->serial};
    memcpy(entry->tokens, s->tokens, (size_t)entry->length * B * sizeof *s->tokens);
    naive_ask(w, id);
}

static bool naive_whole(const struct world *w, const struct sequence *s)
{
    bool there = s->chain.length == 0;
    for (uint32_t id = 0; id < w->block_count; id++)
        there |= w->entries[id].stored && w->entries[id].serial == s->last_serial;
    return there && !s->cut;
}

/* The next block of the sequence is computed. */
static void compute(struct world *w, struct sequence *s)
{
    uint32_t at = s->chain.length, known = EVICTION_NONE;
    const uint32_t *tokens = s->tokens + (size_t)at * B;
    struct prefix_hash name = w->hash_block(s->chain.hash, tokens, B);
    uint32_t same = naive_find(w, s->root, s->tokens, at + 1);
    bool whole = naive_whole(w, s), taken = naive_name_taken(w, name);
    enum prefix_insert done =
        prefix_cache_insert(w->cache, &s->chain, tokens, s->blocks[at], &known);
    assert_int_equal(s->chain.length, at + 1);
    if (whole && same != EVICTION_NONE) {
        assert_int_equal(done, PREFIX_KNOWN);
        assert_int_equal(known, same);
        naive_ask(w, same);
        s->last_serial = w->entries[same].serial;
        if (rng_below(&w->rng, 2)) { /* share it instead of one's own */
            kv_blocks_share(w->blocks, &known, 1, KV_HOLD_USED);
            kv_blocks_give(w->blocks, &s->blocks[at], 1, KV_HOLD_USED);
            hold_in_model(w, &known, 1, 1);
            hold_in_model(w, &s->blocks[at], 1, -1);
            s->blocks[at] = known;
        }
    } else if (whole && !taken) {
        assert_int_equal(done, PREFIX_INSERTED);
        store_in_model(w, s, s->blocks[at], name);
        s->last_serial = w->serial;
    } else {
        assert_int_equal(done, PREFIX_PRIVATE);
        s->cut = true;
    }
}

static void finish(struct world *w, struct sequence *s)
{
    kv_blocks_give(w->blocks, s->blocks, s->length, KV_HOLD_USED);
    hold_in_model(w, s->blocks, s->length, -1);
    s->live = false;
}

/* --- the reader of events --- */

static void apply(struct world *w, const struct prefix_event *event)
{
    assert_int_equal(event->number, ++w->last_number);
    uint32_t at = 0;
    while (at < w->told_count && !prefix_hash_equal(w->told[at], event->hash))
        at++;
    if (event->kind == PREFIX_CLEARED) {
        w->told_count = 0;
    } else if (event->kind == PREFIX_STORED) {
        assert_int_equal(at, w->told_count); /* no name twice */
        assert_true(w->told_count < MAX_NAMES && event->token_count == B);
        w->told[w->told_count++] = event->hash;
    } else {
        assert_true(at < w->told_count);
        w->told[at] = w->told[--w->told_count];
    }
}

static void read_events(struct world *w, uint32_t limit)
{
    struct prefix_event events[2 * MAX_BLOCKS];
    uint32_t count = prefix_cache_read_events(w->cache, events, limit);
    assert_true(count <= limit);
    for (uint32_t i = 0; i < count; i++)
        apply(w, &events[i]);
}

static void read_all_events(struct world *w)
{
    read_events(w, 2 * MAX_BLOCKS); /* `cleared`, changes, the list: never more than that wait */
    assert_int_equal(w->told_count, naive_count(w, false));
    for (uint32_t id = 0; id < w->block_count; id++) {
        uint32_t at = 0;
        while (at < w->told_count && !prefix_hash_equal(w->told[at], w->entries[id].name))
            at++;
        assert_true(!w->entries[id].stored || at < w->told_count);
    }
}

/* --- random lives --- */

static void check(const struct world *w)
{
    assert_int_equal(prefix_cache_count(w->cache), naive_count(w, false));
    assert_int_equal(kv_blocks_count(w->blocks, KV_BLOCK_CACHED), naive_count(w, true));
    for (uint32_t id = 0; id < w->block_count; id++) {
        assert_int_equal(kv_blocks_cached(w->blocks, id), w->entries[id].stored);
        assert_int_equal(kv_blocks_held(w->blocks, id), w->holds[id] > 0);
    }
}

static void one_event(struct world *w)
{
    struct sequence *s = &w->sequences[rng_below(&w->rng, SEQUENCES)];
    uint64_t what = rng_below(&w->rng, 100);
    if (what < 2) {
        evict_in_both(w, (uint32_t)rng_below(&w->rng, 6));
    } else if (what < 6) {
        read_events(w, (uint32_t)rng_below(&w->rng, 5));
    } else if (what < 8) {
        read_all_events(w);
    } else if (what == 8 && rng_below(&w->rng, 10) == 0) {
        prefix_cache_clear(w->cache);
        for (uint32_t id = 0; id < w->block_count; id++)
            w->entries[id].stored = false;
    } else if (what == 9) {
        prefix_cache_restart_events(w->cache);
    } else if (!s->live) {
        start(w, s);
    } else if (s->chain.length < s->length && what < 85) {
        compute(w, s);
    } else {
        finish(w, s);
    }
    check(w);
}

static void live(uint64_t seed, enum eviction_policy policy,
                 struct prefix_hash (*hash_block)(struct prefix_hash, const uint32_t *, uint32_t),
                 struct prefix_cache_counters *sum)
{
    static struct world w;
    w = (struct world){.rng = rng_seeded(seed), .policy = policy, .hash_block = hash_block};
    w.block_count = MAX_LENGTH + (uint32_t)rng_below(&w.rng, MAX_BLOCKS - MAX_LENGTH + 1);
    assert_int_equal(kv_blocks_create(w.block_count, &w.blocks), STATUS_OK);
    const struct prefix_cache_config config = {.blocks = w.blocks,
                                               .block_tokens = B,
                                               .policy = policy,
                                               .cost = cost,
                                               .table_seed = rng_next(&w.rng),
                                               .event_capacity = EVENT_CAPACITY,
                                               .hash_block = hash_block};
    assert_int_equal(prefix_cache_create(&config, &w.cache), STATUS_OK);
    for (int i = 0; i < 3000; i++)
        one_event(&w);
    for (int i = 0; i < SEQUENCES; i++)
        if (w.sequences[i].live)
            finish(&w, &w.sequences[i]);
    struct prefix_cache_counters counters = prefix_cache_counters(w.cache);
    sum->hits += counters.hits;
    sum->inserted += counters.inserted;
    sum->known += counters.known;
    sum->evicted += counters.evicted;
    sum->collisions += counters.collisions;
    sum->kept_private += counters.kept_private;
    evict_in_both(&w, w.block_count); /* nothing is held: all of it can go */
    check(&w);
    assert_int_equal(kv_blocks_count(w.blocks, KV_BLOCK_FREE), w.block_count);
    read_all_events(&w);
    prefix_cache_destroy(w.cache);
    kv_blocks_destroy(w.blocks);
}

static void test_random_lives_against_a_dictionary(void **state)
{
    (void)state;
    struct prefix_cache_counters sum = {0};
    for (uint64_t seed = 1; seed <= 20; seed++)
        live(seed, seed % 2 ? EVICTION_LCBFU : EVICTION_LRU, prefix_hash_block, &sum);
    assert_int_equal(sum.collisions, 0);
    assert_true(sum.hits > 10000 && sum.inserted > 5000 && sum.known > 500 && sum.evicted > 4000);
}

static void test_a_collision_is_a_miss(void **state)
{
    (void)state;
    struct prefix_cache_counters sum = {0};
    for (uint64_t seed = 1; seed <= 20; seed++)
        live(seed, seed % 2 ? EVICTION_LCBFU : EVICTION_LRU, weak_hash, &sum);
    assert_true(sum.collisions > 5000 && sum.kept_private > 5000 && sum.hits > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_lives_against_a_dictionary),
        cmocka_unit_test(test_a_collision_is_a_miss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
