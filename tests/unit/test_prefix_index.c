/* prefix_index: it is exactly what the workers' events and the open promises say, after each of
 * many random events with gaps, restarts and reconnects; a match is the longest run of each worker;
 * a full index knows less, and nothing wrong. */
#include "common/base/rng.h"
#include "tests/unit/prefix_index_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORKERS    10
#define NAMES      48
#define CHAINS     8
#define DEPTH      10
#define PROMISES   24
#define LIMIT      8192
#define FAR_FUTURE UINT64_C(1000000000000)

static uint64_t repeats(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* ---------------------------------------------------------------- random events, and the truth */

/* A worker as it is, and what the router was told of it. */
struct peer {
    uint64_t key; /* 0: no session */
    uint64_t number;
    bool cached[NAMES];      /* its own cache */
    bool told[NAMES];        /* by the events that came */
    uint64_t settled[NAMES]; /* promises with ids up to this are settled */
    bool begun, lost, asked; /* asked: a restart is on its way */
};

struct promised {
    uint64_t id, until_us;
    size_t peer;
    uint64_t key;
    uint32_t chain, count;
    bool computed;
};

struct life {
    struct prefix_index *index;
    struct rng rng;
    struct peer peers[WORKERS];
    uint32_t chains[CHAINS][DEPTH]; /* names, which share beginnings */
    struct prefix_hash names[NAMES], hashes[CHAINS][DEPTH];
    struct promised promises[PROMISES];
    size_t promise_count;
    uint64_t keys, last_id, now_us, gaps;
};

static void life_init(struct life *life, uint64_t seed)
{
    memset(life, 0, sizeof *life);
    life->rng = rng_seeded(seed);
    life->index = index_of(LIMIT);
    for (uint32_t name = 0; name < NAMES; name++)
        life->names[name] = name_of(name);
    for (uint32_t chain = 0; chain < CHAINS; chain++)
        for (uint32_t i = 0; i < DEPTH; i++) { /* groups of four have the same first blocks */
            bool shared = i < 4 + chain % 4;
            uint32_t first = shared ? chain / 4 * 4 : chain;
            life->chains[chain][i] = (first * DEPTH + i) % NAMES;
            life->hashes[chain][i] = life->names[life->chains[chain][i]];
        }
}

/* Writes which blocks the worker is credited with. */
static void credits_of(const struct life *life, size_t at, bool credits[NAMES])
{
    const struct peer *peer = &life->peers[at];
    memcpy(credits, peer->told, sizeof peer->told);
    for (size_t i = 0; i < life->promise_count; i++) {
        const struct promised *promise = &life->promises[i];
        for (uint32_t k = 0; k < promise->count && promise->key == peer->key; k++) {
            uint32_t name = life->chains[promise->chain][k];
            credits[name] |= promise->id > peer->settled[name];
        }
    }
}

static void check_peer(const struct life *life, size_t at, uint64_t event)
{
    const struct peer *peer = &life->peers[at];
    bool credits[NAMES];
    uint32_t held = 0, credited = 0, said_held, said_credited;
    credits_of(life, at, credits);
    for (uint32_t name = 0; name < NAMES; name++) {
        if (prefix_index_blocks(life->index, peer->key, &life->names[name], 1) != credits[name])
            fail_msg("event %d: block %u of worker %zu is %s", (int)event, name, at,
                     credits[name] ? "missing" : "too much");
        held += peer->told[name];
        credited += credits[name];
    }
    prefix_index_count(life->index, peer->key, &said_held, &said_credited);
    assert_int_equal(said_held, held);
    assert_int_equal(said_credited, credited);
}

static void check_match(struct life *life)
{
    struct prefix_holder holders[WORKERS];
    uint32_t chain = (uint32_t)rng_below(&life->rng, CHAINS), expected = 0;
    const struct prefix_names names = {
        .block_tokens = 32, .match_count = DEPTH - 1, .count = DEPTH, .names = life->hashes[chain]};
    size_t count = prefix_index_match(life->index, &names, 1, holders, WORKERS);
    for (size_t at = 0; at < WORKERS; at++) {
        bool credits[NAMES];
        uint32_t run = 0, found = 0;
        credits_of(life, at, credits);
        while (run < DEPTH - 1 && credits[life->chains[chain][run]])
            run++;
        for (size_t i = 0; i < count; i++)
            if (holders[i].worker == life->peers[at].key)
                found += holders[i].blocks;
        assert_int_equal(found, run);
        assert_int_equal(prefix_index_tokens(life->index, life->peers[at].key), run * 32);
        expected += run > 0;
    }
    assert_int_equal(count, expected);
    for (size_t i = 1; i < count; i++)
        assert_true(holders[i].blocks <= holders[i - 1].blocks);
    size_t best = prefix_index_match(life->index, &names, 1, holders, 1);
    assert_int_equal(best, count > 0);
}

/* Tells the index an event, or loses it. */
static void say(struct life *life, size_t at, enum prefix_event_kind kind, uint32_t name,
                bool loses)
{
    struct peer *peer = &life->peers[at];
    const struct prefix_event event = {
        .number = ++peer->number, .kind = kind, .hash = life->names[name], .token_count = 32};
    if (loses)
        return;
    enum prefix_take taken = prefix_index_take(life->index, peer->key, &event, 1);
    bool gap = kind != PREFIX_CLEARED && !peer->lost && (!peer->begun || peer->asked);
    assert_int_equal(taken, gap ? PREFIX_TAKE_GAP : PREFIX_TAKE_OK);
    if (gap) {
        memset(peer->told, 0, sizeof peer->told);
        peer->lost = true;
        life->gaps++;
    } else if (kind == PREFIX_CLEARED) {
        memset(peer->told, 0, sizeof peer->told);
        peer->begun = true;
        peer->lost = peer->asked = false;
    } else if (!peer->lost) {
        peer->told[name] = kind == PREFIX_STORED;
        if (kind == PREFIX_STORED)
            peer->settled[name] = life->last_id;
    }
}

static void list_all(struct life *life, size_t at)
{
    say(life, at, PREFIX_CLEARED, 0, false);
    for (uint32_t name = 0; name < NAMES; name++)
        if (life->peers[at].cached[name])
            say(life, at, PREFIX_STORED, name, false);
}

static void connects(struct life *life, size_t at)
{
    struct peer *peer = &life->peers[at];
    bool again = peer->key && rng_below(&life->rng, 2); /* the same process, a new stream */
    if (peer->key)
        prefix_index_drop(life->index, peer->key);
    uint64_t key = again ? peer->key : ++life->keys;
    if (!again)
        memset(peer->cached, 0, sizeof peer->cached);
    memset(peer->told, 0, sizeof peer->told);
    memset(peer->settled, 0, sizeof peer->settled);
    peer->key = key;
    peer->begun = peer->lost = peer->asked = false;
    for (uint32_t name = 0; name < NAMES; name++) /* a session's end ends its promises */
        peer->settled[name] = life->last_id;
    if (rng_below(&life->rng, 8)) {
        list_all(life, at);
        return;
    }
    say(life, at, PREFIX_CLEARED, 0, true); /* the beginning is lost: also a gap */
    say(life, at, PREFIX_STORED, 0, false);
    peer->cached[0] = true;
}

static void changes(struct life *life, size_t at)
{
    struct peer *peer = &life->peers[at];
    uint32_t name = (uint32_t)rng_below(&life->rng, NAMES);
    bool loses = rng_below(&life->rng, 40) == 0;
    peer->cached[name] = !peer->cached[name];
    say(life, at, peer->cached[name] ? PREFIX_STORED : PREFIX_REMOVED, name, loses);
    if (loses && !peer->lost)
        peer->asked = true; /* the next event shows the gap */
}

static void promises(struct life *life, size_t at)
{
    if (life->promise_count == PROMISES)
        return;
    struct promised *promise = &life->promises[life->promise_count];
    uint32_t chain = (uint32_t)rng_below(&life->rng, CHAINS);
    uint32_t count = 1 + (uint32_t)rng_below(&life->rng, DEPTH);
    const struct prefix_names names = {.count = count, .names = life->hashes[chain]};
    uint64_t id = prefix_index_promise(life->index, life->peers[at].key, &names, life->now_us);
    assert_int_equal(id != 0, life->peers[at].begun);
    if (!id)
        return;
    life->last_id = id;
    *promise = (struct promised){.id = id,
                                 .until_us = life->now_us + PREFIX_PROMISE_US,
                                 .peer = at,
                                 .key = life->peers[at].key,
                                 .chain = chain,
                                 .count = count};
    life->promise_count++;
}

static size_t forget_promise(struct life *life, size_t i)
{
    size_t at = life->promises[i].peer;
    life->promises[i] = life->promises[--life->promise_count];
    return at;
}

static void time_passes(struct life *life)
{
    life->now_us += rng_below(&life->rng, PREFIX_COMPUTED_US);
    prefix_index_expire(life->index, life->now_us);
    for (size_t i = life->promise_count; i-- > 0;)
        if (life->promises[i].until_us <= life->now_us)
            forget_promise(life, i);
}

/* Does something to a promise. Returns its worker. */
static size_t promise_goes_on(struct life *life)
{
    size_t i = rng_below(&life->rng, life->promise_count);
    struct promised *promise = &life->promises[i];
    if (rng_below(&life->rng, 2)) {
        prefix_index_take_back(life->index, promise->id);
        return forget_promise(life, i);
    }
    prefix_index_computed(life->index, promise->id, life->now_us);
    if (!promise->computed)
        promise->until_us = life->now_us + PREFIX_COMPUTED_US;
    promise->computed = true;
    return promise->peer;
}

static void test_the_index_is_the_truth_after_each_event(void **state)
{
    (void)state;
    static struct life life;
    life_init(&life, 11);
    for (size_t at = 0; at < WORKERS; at++)
        connects(&life, at);
    for (uint64_t event = 0, events = repeats("EVENTS", 100000); event < events; event++) {
        size_t at = rng_below(&life.rng, WORKERS);
        uint64_t dice = rng_below(&life.rng, 1000);
        if (dice < 3)
            connects(&life, at);
        else if (life.peers[at].lost && dice < 200)
            list_all(&life, at); /* the restart that was asked for */
        else if (dice < 700)
            changes(&life, at);
        else if (dice < 850)
            promises(&life, at);
        else if (dice < 900)
            time_passes(&life);
        else if (life.promise_count)
            at = promise_goes_on(&life);
        check_peer(&life, at, event);
        if (event % 8 == 0)
            check_match(&life);
        for (size_t i = 0; event % 512 == 0 && i < WORKERS; i++)
            check_peer(&life, i, event);
    }
    assert_int_equal(prefix_index_figures(life.index).gaps, life.gaps);
    assert_true(life.gaps > 20);
    assert_int_equal(prefix_index_figures(life.index).evicted, 0);
    for (size_t at = 0; at < WORKERS; at++) { /* whatever was lost, a listing mends it */
        list_all(&life, at);
        prefix_index_expire(life.index, FAR_FUTURE);
        life.promise_count = 0;
        assert_memory_equal(life.peers[at].told, life.peers[at].cached, sizeof life.peers[at].told);
        check_peer(&life, at, 0);
    }
    assert_int_equal(prefix_index_figures(life.index).promises, 0);
    prefix_index_destroy(life.index);
}

/* --------------------------------------------------------------------------- events, one by one */

static void test_what_no_honest_worker_says(void **state)
{
    (void)state;
    enum { C = PREFIX_CLEARED, S = PREFIX_STORED, R = PREFIX_REMOVED };
    static const struct {
        uint64_t number;
        int kind;
        uint32_t tokens;
        enum prefix_take taken;
    } cases[] = {
        {3, S, 32, PREFIX_TAKE_OK},          {2, S, 32, PREFIX_TAKE_BAD},
        {2, C, 0, PREFIX_TAKE_BAD},          {0, S, 32, PREFIX_TAKE_BAD},
        {3, S, 0, PREFIX_TAKE_BAD},          {3, 3, 32, PREFIX_TAKE_BAD},
        {3, -1, 0, PREFIX_TAKE_BAD},         {4, S, 32, PREFIX_TAKE_GAP},
        {4, R, 0, PREFIX_TAKE_GAP},          {9, C, 0, PREFIX_TAKE_OK},
        {UINT64_MAX, S, 9, PREFIX_TAKE_GAP},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct prefix_index *index = index_of(64);
        begin(index, 5);
        assert_int_equal(stores(index, 5, 2, 0, 1), PREFIX_TAKE_OK);
        const struct prefix_event event = {.number = cases[i].number,
                                           .kind = (enum prefix_event_kind)cases[i].kind,
                                           .hash = name_of(1),
                                           .token_count = cases[i].tokens};
        assert_int_equal(prefix_index_take(index, 5, &event, 1), cases[i].taken);
        prefix_index_destroy(index);
    }
    struct prefix_index *index = index_of(64);
    begin(index, 5);
    const struct prefix_event removed = {.number = 2, .kind = PREFIX_REMOVED, .hash = name_of(0)};
    assert_int_equal(prefix_index_take(index, 5, &removed, 1), PREFIX_TAKE_BAD);
    prefix_index_destroy(index);
}

static void test_a_gap_is_told_once(void **state)
{
    (void)state;
    struct prefix_index *index = index_of(64);
    begin(index, 5);
    assert_int_equal(stores(index, 5, 2, 0, 8), PREFIX_TAKE_OK);
    assert_int_equal(credited(index, 5), 8);
    assert_int_equal(stores(index, 5, 20, 8, 1), PREFIX_TAKE_GAP);
    assert_int_equal(credited(index, 5), 0);
    assert_int_equal(stores(index, 5, 30, 9, 3), PREFIX_TAKE_OK); /* waits for `cleared` */
    assert_int_equal(credited(index, 5), 0);
    const struct prefix_event cleared = {.number = 40, .kind = PREFIX_CLEARED};
    assert_int_equal(prefix_index_take(index, 5, &cleared, 1), PREFIX_TAKE_OK);
    assert_int_equal(stores(index, 5, 41, 0, 4), PREFIX_TAKE_OK);
    assert_int_equal(credited(index, 5), 4);
    assert_int_equal(prefix_index_figures(index).gaps, 1);
    prefix_index_destroy(index);
}

/* ------------------------------------------------------------------------------------- promises */

static void test_promises_end(void **state)
{
    (void)state;
    struct prefix_index *index = index_of(256);
    struct prefix_hash hashes[10];
    struct prefix_names names = names_to(hashes, 0, 10);
    assert_int_equal(prefix_index_promise(index, 5, &names, 0), 0); /* it may have no cache */
    begin(index, 5);
    uint64_t first = prefix_index_promise(index, 5, &names, 0);
    uint64_t sibling = prefix_index_promise(index, 5, &names, 0);
    assert_true(first && sibling > first);
    assert_int_equal(prefix_index_blocks(index, 5, hashes, 10), 10);
    prefix_index_take_back(index, first);
    prefix_index_take_back(index, first);                            /* has ended */
    assert_int_equal(prefix_index_blocks(index, 5, hashes, 10), 10); /* the sibling's */
    assert_int_equal(stores(index, 5, 2, 0, 4), PREFIX_TAKE_OK);
    prefix_index_take_back(index, sibling);
    assert_int_equal(prefix_index_blocks(index, 5, hashes, 10), 4); /* these it holds */
    first = prefix_index_promise(index, 5, &names, 0);
    prefix_index_expire(index, PREFIX_PROMISE_US - 1);
    assert_int_equal(credited(index, 5), 10);
    prefix_index_expire(index, PREFIX_PROMISE_US);
    assert_int_equal(credited(index, 5), 4);
    first = prefix_index_promise(index, 5, &names, 0);
    prefix_index_computed(index, first, 100);
    prefix_index_expire(index, PREFIX_COMPUTED_US + 99);
    assert_int_equal(credited(index, 5), 10); /* the events are on their way */
    prefix_index_expire(index, PREFIX_COMPUTED_US + 100);
    assert_int_equal(credited(index, 5), 4);
    first = prefix_index_promise(index, 5, &names, 0);
    prefix_index_drop(index, 5);
    begin(index, 5);
    sibling = prefix_index_promise(index, 5, &names, 0);
    prefix_index_take_back(index, first); /* another session's */
    assert_int_equal(credited(index, 5), 10);
    assert_int_equal(prefix_index_evicts(index, 5, 3), 0); /* free blocks aren't known yet */
    prefix_index_destroy(index);
}

static void test_promises_have_limits(void **state)
{
    (void)state;
    struct prefix_index *index = index_of(1u << 17);
    struct prefix_hash hashes[1];
    struct prefix_names names = names_to(hashes, 0, 1);
    begin(index, 5);
    begin(index, 6);
    for (uint32_t i = 0; i < 16383; i++)
        assert_true(prefix_index_promise(index, 5, &names, 0));
    uint64_t last = prefix_index_figures(index).promises;
    assert_int_equal(prefix_index_promise(index, 5, &names, 0), 0); /* too many for one block */
    assert_int_equal(prefix_index_figures(index).promises, last);
    for (uint32_t i = 16383; i < PREFIX_MAX_PROMISES; i++) {
        names = names_to(hashes, i, 1);
        assert_true(prefix_index_promise(index, 6, &names, 0));
    }
    assert_int_equal(prefix_index_promise(index, 6, &names, 0), 0);
    prefix_index_expire(index, PREFIX_PROMISE_US);
    assert_int_equal(prefix_index_figures(index).pairs, 0);
    assert_true(prefix_index_promise(index, 6, &names, 0));
    prefix_index_destroy(index);
}

static void test_evictions_are_charged(void **state)
{
    (void)state;
    struct prefix_index *index = index_of(1024);
    struct prefix_hash hashes[40];
    begin(index, 5);
    assert_int_equal(stores(index, 5, 2, 0, 100), PREFIX_TAKE_OK);
    prefix_index_free_blocks(index, 5, 50);
    assert_int_equal(prefix_index_evicts(index, 5, 50), 0);
    assert_int_equal(prefix_index_evicts(index, 5, 60), 10);
    assert_int_equal(prefix_index_evicts(index, 5, 1000), 100); /* it has no more */
    struct prefix_names names = names_to(hashes, 90, 40);       /* 10 are there, 30 are new */
    uint64_t promise = prefix_index_promise(index, 5, &names, 0);
    assert_int_equal(prefix_index_evicts(index, 5, 25), 5); /* the promised ones come first */
    assert_int_equal(prefix_index_evicts(index, 5, 20), 0);
    prefix_index_reserved(index, promise);
    prefix_index_free_blocks(index, 5, 20); /* as the worker says now */
    assert_int_equal(prefix_index_evicts(index, 5, 20), 0);
    assert_int_equal(prefix_index_evicts(index, 5, 21), 1);
    prefix_index_take_back(index, promise);
    promise = prefix_index_promise(index, 5, &names, 0);
    assert_int_equal(prefix_index_evicts(index, 5, 8), 8); /* all are charged to this one */
    prefix_index_take_back(index, promise);
    assert_int_equal(prefix_index_evicts(index, 5, 8), 0);
    assert_int_equal(prefix_index_evicts(index, 6, 8), 0); /* unknown */
    prefix_index_destroy(index);
}

/* ----------------------------------------------------------------------------------- many, full */

/* Worker k of all has the common beginning, and one more block for each time that 4 divides k. */
static void test_thousands_of_workers_with_one_beginning(void **state)
{
    (void)state;
    enum { MANY = CLUSTER_MAX_WORKERS, HEAD = 40, MOST = 8 };
    struct prefix_index *index = index_of(1u << 18);
    struct prefix_hash hashes[HEAD + 8];
    struct prefix_names names = names_to(hashes, 0, HEAD + 8);
    for (uint64_t key = 1; key <= MANY; key++) {
        uint32_t more = 0;
        for (uint64_t k = key; k % 4 == 0; k /= 4)
            more++;
        begin(index, key);
        assert_int_equal(stores(index, key, 2, 0, HEAD + more), PREFIX_TAKE_OK);
    }
    struct prefix_holder holders[MOST], again[MOST];
    assert_int_equal(prefix_index_match(index, &names, 1, holders, MOST), MOST);
    assert_int_equal(holders[0].worker, 4096); /* 4^6 */
    assert_int_equal(holders[0].blocks, HEAD + 6);
    for (uint64_t key = 1; key <= MANY; key++) {
        uint32_t more = 0;
        for (uint64_t k = key; k % 4 == 0; k /= 4)
            more++;
        assert_int_equal(prefix_index_tokens(index, key), (HEAD + more) * 32);
    }
    for (size_t i = 1; i < MOST; i++)
        assert_true(holders[i].blocks <= holders[i - 1].blocks);
    names.match_count = HEAD; /* all are equal: others come first each time */
    assert_int_equal(prefix_index_match(index, &names, 1, holders, MOST), MOST);
    assert_int_equal(prefix_index_match(index, &names, 1, again, MOST), MOST);
    assert_int_not_equal(holders[0].worker, again[0].worker);
    const struct prefix_event more = {.number = 1, .kind = PREFIX_CLEARED};
    assert_int_equal(prefix_index_take(index, MANY + 1, &more, 1), PREFIX_TAKE_OK);
    assert_int_equal(stores(index, MANY + 1, 2, 0, 1), PREFIX_TAKE_OK); /* there is no slot */
    assert_int_equal(credited(index, MANY + 1), 0);
    for (uint64_t key = 1; key <= MANY; key++)
        prefix_index_drop(index, key);
    assert_int_equal(prefix_index_figures(index).names, 0);
    prefix_index_destroy(index);
}

static void test_used_blocks_have_a_second_chance(void **state)
{
    (void)state;
    struct prefix_index *index = index_of(20);
    struct prefix_hash hashes[5];
    begin(index, 1);
    assert_int_equal(stores(index, 1, 2, 0, 20), PREFIX_TAKE_OK);
    struct prefix_names used = names_to(hashes, 0, 5);
    prefix_index_take_back(index, prefix_index_promise(index, 1, &used, 0));
    assert_int_equal(stores(index, 1, 22, 20, 15), PREFIX_TAKE_OK); /* evicts the other 15 */
    assert_int_equal(prefix_index_blocks(index, 1, hashes, 5), 5);
    assert_int_equal(stores(index, 1, 37, 40, 5), PREFIX_TAKE_OK);
    assert_int_equal(prefix_index_blocks(index, 1, hashes, 5), 0);
    prefix_index_destroy(index);
}

static void test_a_prompt_is_evicted_from_its_end(void **state)
{
    (void)state;
    enum { SIZE = 40, LENGTH = 15 };
    struct prefix_index *index = index_of(SIZE);
    struct prefix_hash hashes[LENGTH];
    uint64_t number = 2;
    begin(index, 1);
    for (uint32_t prompt = 0; prompt < 3; prompt++) /* 45 blocks: 5 of the first one go */
        for (uint32_t i = 0; i < LENGTH; i++) {
            const struct prefix_event event = {.number = number++,
                                               .kind = PREFIX_STORED,
                                               .hash = name_of(prompt * 100 + i),
                                               .parent = name_of(prompt * 100 + i - 1),
                                               .position = i,
                                               .token_count = 32};
            assert_int_equal(prefix_index_take(index, 1, &event, 1), PREFIX_TAKE_OK);
        }
    for (uint32_t prompt = 0; prompt < 3; prompt++) {
        names_to(hashes, prompt * 100, LENGTH);
        assert_int_equal(prefix_index_blocks(index, 1, hashes, LENGTH), prompt ? LENGTH : 10);
    }
    const struct prefix_names promised = names_to(hashes, 500, LENGTH);
    uint64_t promise = prefix_index_promise(index, 1, &promised, 0);
    assert_int_equal(prefix_index_blocks(index, 1, hashes, LENGTH), LENGTH);
    names_to(hashes, 0, LENGTH);
    assert_int_equal(prefix_index_blocks(index, 1, hashes, LENGTH), 0);
    names_to(hashes, 100, LENGTH);
    assert_int_equal(prefix_index_blocks(index, 1, hashes, LENGTH), 10);
    prefix_index_take_back(index, promise);
    assert_int_equal(credited(index, 1), SIZE - LENGTH);
    prefix_index_destroy(index);
    index = index_of(4); /* one prompt alone: its beginning stays */
    begin(index, 1);
    for (uint32_t i = 0; i < LENGTH; i++) {
        const struct prefix_event event = {.number = 2 + i,
                                           .kind = PREFIX_STORED,
                                           .hash = name_of(i),
                                           .parent = name_of(i - 1),
                                           .position = i,
                                           .token_count = 32};
        assert_int_equal(prefix_index_take(index, 1, &event, 1), PREFIX_TAKE_OK);
    }
    names_to(hashes, 0, LENGTH);
    assert_int_equal(prefix_index_blocks(index, 1, hashes, LENGTH), 4);
    prefix_index_destroy(index);
}

static void test_a_full_index_knows_less_and_nothing_wrong(void **state)
{
    (void)state;
    enum { SIZE = 100, EACH = 200 };
    struct prefix_index *index = index_of(SIZE);
    struct prefix_hash hashes[EACH];
    begin(index, 1);
    assert_int_equal(stores(index, 1, 2, 0, EACH), PREFIX_TAKE_OK);
    assert_int_equal(credited(index, 1), SIZE); /* the later ones */
    names_to(hashes, EACH - SIZE, SIZE);
    assert_int_equal(prefix_index_blocks(index, 1, hashes, SIZE), SIZE);
    struct prefix_names used = names_to(hashes, EACH - SIZE, 10);
    uint64_t promise = prefix_index_promise(index, 1, &used, 0);
    begin(index, 2); /* takes its fair share from the first */
    assert_int_equal(stores(index, 2, 2, 1000, EACH), PREFIX_TAKE_OK);
    assert_int_equal(credited(index, 1), SIZE / 2);
    assert_int_equal(credited(index, 2), SIZE / 2);
    assert_int_equal(prefix_index_blocks(index, 1, hashes, 10), 10); /* promised: they stay */
    assert_int_equal(stores(index, 1, EACH + 2, 5000, 60), PREFIX_TAKE_OK);
    assert_int_equal(prefix_index_blocks(index, 1, hashes, 10), 10); /* however old they are */
    prefix_index_take_back(index, promise);
    assert_int_equal(stores(index, 1, EACH + 62, 2000, 20), PREFIX_TAKE_OK);
    assert_int_equal(prefix_index_blocks(index, 1, hashes, 10), 10);
    assert_int_equal(stores(index, 1, EACH + 82, 3000, 60), PREFIX_TAKE_OK);
    assert_int_equal(prefix_index_blocks(index, 1, hashes, 10), 0);
    const struct prefix_event removed = {
        .number = EACH + 142, .kind = PREFIX_REMOVED, .hash = name_of(0)};
    assert_int_equal(prefix_index_take(index, 1, &removed, 1), PREFIX_TAKE_OK); /* not known */
    struct prefix_index_figures figures = prefix_index_figures(index);
    assert_int_equal(figures.pairs, SIZE);
    assert_int_equal(figures.names, SIZE);
    assert_int_equal(figures.evicted, 2 * EACH + 140 - SIZE);
    used = names_to(hashes, 4000, 101);
    assert_int_equal(prefix_index_promise(index, 2, &used, 0), 0); /* more than all */
    used = names_to(hashes, 4000, 90);
    assert_true(prefix_index_promise(index, 2, &used, 0)); /* as much as there is room for */
    assert_in_range(prefix_index_blocks(index, 2, hashes, 90), 40, 60);
    prefix_index_destroy(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_index_is_the_truth_after_each_event),
        cmocka_unit_test(test_what_no_honest_worker_says),
        cmocka_unit_test(test_a_gap_is_told_once),
        cmocka_unit_test(test_promises_end),
        cmocka_unit_test(test_promises_have_limits),
        cmocka_unit_test(test_evictions_are_charged),
        cmocka_unit_test(test_thousands_of_workers_with_one_beginning),
        cmocka_unit_test(test_used_blocks_have_a_second_chance),
        cmocka_unit_test(test_a_prompt_is_evicted_from_its_end),
        cmocka_unit_test(test_a_full_index_knows_less_and_nothing_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
