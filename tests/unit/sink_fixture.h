/* A sink table and its list of actions as text, for test_sink*.c. */
#ifndef BATON_TESTS_SINK_FIXTURE_H
#define BATON_TESTS_SINK_FIXTURE_H

#include "common/kv/handoff/sink.h"
#include "tests/unit/handoff_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define PEER        9
#define VOCAB       100
#define HEARTBEAT   100
#define SILENCE     1000
#define PEER_DOWN   400
#define RECONNECT   50
#define BLOCK_BYTES 16

static const uint64_t sink_sums[] = {50, 60, 70, 80};

struct fixture {
    struct sink_table *table;
    struct sink_actions out;
    uint64_t now_us;
    struct str text;
    uint64_t cookie; /* from the latest READ or VERIFY */
};

static inline int setup_with(void **state, bool mixed_numerics)
{
    static struct fixture f;
    struct sink_config config = {.mixed_numerics = mixed_numerics,
                                 .vocab = VOCAB,
                                 .model_hash = 1,
                                 .layout_hash = 2,
                                 .numerics_id = 3,
                                 .host_path = true,
                                 .block_tokens = 4,
                                 .block_bytes = BLOCK_BYTES,
                                 .max_sinks = 3,
                                 .max_blocks = 4,
                                 .max_peers = 2,
                                 .max_read_blocks = 2,
                                 .heartbeat_us = HEARTBEAT,
                                 .silence_limit_us = SILENCE,
                                 .peer_down_limit_us = PEER_DOWN,
                                 .reconnect_us = RECONNECT};
    struct error err;
    assert_int_equal(sink_table_create(&config, &f.table, &err), STATUS_OK);
    assert_int_equal(sink_actions_init(&f.out, f.table), STATUS_OK);
    f.now_us = 1000;
    f.cookie = 0;
    str_init(&f.text, 4096);
    *state = &f;
    return 0;
}

static inline int setup(void **state)
{
    return setup_with(state, false);
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    str_deinit(&f->text);
    sink_actions_deinit(&f->out);
    sink_table_destroy(f->table);
    return 0;
}

static inline void expect(struct fixture *f, const char *text)
{
    str_clear(&f->text);
    text_sink_actions(&f->text, &f->out);
    assert_string_equal(f->text.data, text);
    for (uint32_t i = 0; i < f->out.count; i++)
        if (f->out.items[i].kind == SINK_READ || f->out.items[i].kind == SINK_VERIFY)
            f->cookie = f->out.items[i].cookie;
}

static inline struct sink_decode decode_of(uint64_t request, uint32_t attempt, uint32_t tokens)
{
    static const uint32_t blocks[] = {10, 11, 15, 16};
    return (struct sink_decode){.request = request,
                                .attempt = attempt,
                                .has_handle = true,
                                .handle = {.ref = {7, 0, 1},
                                           .model_hash = 1,
                                           .layout_hash = 2,
                                           .numerics_id = 3,
                                           .token_count = tokens,
                                           .block_count = (tokens + 3) / 4,
                                           .blocks = blocks},
                                .peer = PEER,
                                .emitted_count = 2,
                                .reserve_tokens = tokens + 20};
}

static inline void decode(struct fixture *f, uint64_t request, uint32_t attempt, uint32_t tokens)
{
    struct sink_decode command = decode_of(request, attempt, tokens);
    sink_on_decode(f->table, f->now_us, &command, &f->out);
}

/* The first `held` blocks have their bytes already. */
static inline void reserved_with(struct fixture *f, uint64_t request, uint32_t attempt,
                                 uint32_t held)
{
    static const uint32_t blocks[] = {30, 31, 32, 40, 41, 42};
    sink_on_reserved(f->table, f->now_us, request, attempt, blocks, 6, held, &f->out);
}

static inline void reserved(struct fixture *f, uint64_t request, uint32_t attempt)
{
    reserved_with(f, request, attempt, 0);
}

static inline void answer(struct fixture *f, uint64_t request, uint32_t attempt,
                          struct peer_up message)
{
    message.request = request;
    message.attempt = attempt;
    sink_on_message(f->table, f->now_us, PEER, &message, &f->out);
}

static inline void ready(struct fixture *f, uint32_t attempt, uint32_t tokens)
{
    answer(f, 1, attempt, (struct peer_up){.kind = PEER_READY, .ready_tokens = tokens});
}

/* With the sums of blocks `first` .. `first + count - 1`. */
static inline void ready_with(struct fixture *f, uint32_t tokens, uint32_t first, uint32_t count)
{
    answer(f, 1, 1,
           (struct peer_up){.kind = PEER_READY,
                            .ready_tokens = tokens,
                            .sum_first = first,
                            .sum_count = count,
                            .sums = sink_sums + first});
}

static inline void verified(struct fixture *f, bool good)
{
    sink_on_verified(f->table, f->now_us, f->cookie, good, &f->out);
}

static inline void complete(struct fixture *f, uint32_t attempt, uint32_t block_count)
{
    answer(
        f, 1, attempt,
        (struct peer_up){
            .kind = PEER_COMPLETE, .first_token = 42, .sum_count = block_count, .sums = sink_sums});
}

static inline void plain(struct fixture *f, uint32_t attempt, enum peer_up_kind kind)
{
    answer(f, 1, attempt, (struct peer_up){.kind = kind});
}

static inline void read_done(struct fixture *f, enum status status)
{
    sink_on_read_done(f->table, f->now_us, f->cookie, status, &f->out);
}

static inline void tick(struct fixture *f, uint64_t now_us)
{
    f->now_us = now_us;
    sink_on_tick(f->table, now_us, &f->out);
}

/* Stream and pairing with PEER are up, request 1 attempt 1 (10 tokens, 3 blocks) is subscribed. */
static inline void subscribe_one(struct fixture *f)
{
    decode(f, 1, 1, 10);
    expect(f, "reserve 1.1 30; connect 9");
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    expect(f, "pair 9; >9 extend 1.1 h0.1");
    reserved(f, 1, 1);
    expect(f, ">9 subscribe 1.1 h0.1");
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    expect(f, "");
}

/* All is read; the last block is compared. */
static inline void read_one(struct fixture *f)
{
    subscribe_one(f);
    ready(f, 1, 8);
    expect(f, "read 1.1 10>30 11>31");
    read_done(f, STATUS_OK);
    expect(f, "");
    complete(f, 1, 3);
    expect(f, "verify 1.1 30=50 31=60; read 1.1 15>32");
    verified(f, true);
    expect(f, "");
    read_done(f, STATUS_OK);
    expect(f, "verify 1.1 32=70");
    assert_true(sink_is_verifying(f->table, f->cookie));
}

static inline void confirm_one(struct fixture *f)
{
    read_one(f);
    sink_on_verified(f->table, f->now_us, f->cookie, true, &f->out);
    assert_false(sink_is_verifying(f->table, f->cookie));
    expect(f, ">9 confirm 1.1 h0.1");
}

#endif
