/* Shared by the tests of the prefix index: blocks by number, and sessions that store them. */
#ifndef BATON_TESTS_PREFIX_INDEX_FIXTURE_H
#define BATON_TESTS_PREFIX_INDEX_FIXTURE_H

#include "router/planner/prefix_index.h"
#include "tests/unit/prefix_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static inline struct prefix_hash name_of(uint32_t number)
{
    const uint32_t tokens[] = {number};
    return prefix_hash_block(root_of(0), tokens, 1);
}

static inline struct prefix_index *index_of(uint32_t limit)
{
    struct prefix_index *index;
    assert_int_equal(prefix_index_create(limit, 7, &index), STATUS_OK);
    return index;
}

static inline void begin(struct prefix_index *index, uint64_t worker)
{
    const struct prefix_event cleared = {.number = 1, .kind = PREFIX_CLEARED};
    assert_int_equal(prefix_index_take(index, worker, &cleared, 1), PREFIX_TAKE_OK);
}

/* Stores blocks first .. first + count, with the numbers from `number` on. */
static inline enum prefix_take stores(struct prefix_index *index, uint64_t worker, uint64_t number,
                                      uint32_t first, uint32_t count)
{
    enum prefix_take taken = PREFIX_TAKE_OK;
    for (uint32_t i = 0; i < count && taken == PREFIX_TAKE_OK; i++) {
        const struct prefix_event event = {.number = number + i,
                                           .kind = PREFIX_STORED,
                                           .hash = name_of(first + i),
                                           .token_count = 32};
        taken = prefix_index_take(index, worker, &event, 1);
    }
    return taken;
}

static inline uint32_t credited(const struct prefix_index *index, uint64_t worker)
{
    uint32_t held, all;
    prefix_index_count(index, worker, &held, &all);
    return all;
}

static inline struct prefix_names names_to(struct prefix_hash *hashes, uint32_t first,
                                           uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        hashes[i] = name_of(first + i);
    return (struct prefix_names){
        .block_tokens = 32, .match_count = count, .count = count, .names = hashes};
}

#endif
