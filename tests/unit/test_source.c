/* source: each rule of the prefill side of the handoff, as events and the actions they cause. */
#include "common/kv/handoff/source.h"

#include "tests/unit/handoff_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define INCARNATION 7
#define PROMPT_HASH 0xfeedu
#define LEASE_US    1000

struct fixture {
    struct source_table *table;
    struct source_actions out;
    uint64_t now_us;
    struct str text;
};

static int setup(void **state)
{
    static struct fixture f;
    struct source_config config = {.incarnation = INCARNATION,
                                   .model_hash = 1,
                                   .layout_hash = 2,
                                   .numerics_id = 3,
                                   .block_tokens = 4,
                                   .max_sources = 3,
                                   .max_blocks = 4,
                                   .memo_count = 2,
                                   .lease_us = LEASE_US};
    struct error err;
    assert_int_equal(source_table_create(&config, &f.table, &err), STATUS_OK);
    assert_int_equal(source_actions_init(&f.out, f.table), STATUS_OK);
    f.now_us = 100;
    str_init(&f.text, 4096);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    str_deinit(&f->text);
    source_actions_deinit(&f->out);
    source_table_destroy(f->table);
    return 0;
}

static void expect(struct fixture *f, const char *text)
{
    str_clear(&f->text);
    text_source_actions(&f->text, &f->out);
    assert_string_equal(f->text.data, text);
}

static void prefill(struct fixture *f, uint64_t request, uint32_t attempt, uint32_t tokens)
{
    source_on_prefill(f->table, f->now_us, request, attempt, tokens, PROMPT_HASH, &f->out);
}

static void reserved(struct fixture *f, uint64_t request, uint32_t attempt, uint32_t block_count)
{
    static const uint32_t blocks[] = {5, 6, 9, 2};
    source_on_reserved(f->table, f->now_us, request, attempt, blocks, block_count, &f->out);
}

static const uint64_t run_sums[] = {50, 60, 90, 20};
static const uint32_t checksums[] = {5, 6, 9, 2};
static const struct source_sums sums = {run_sums, checksums};

static void computed(struct fixture *f, uint64_t request, uint32_t attempt, uint32_t tokens)
{
    source_on_computed(f->table, f->now_us, request, attempt, tokens, sums, &f->out);
}

static void completed(struct fixture *f, uint64_t request, uint32_t attempt, uint32_t block_count,
                      enum finish_reason finish)
{
    struct source_completion completion = {.first_token = 42, .finish = finish};
    if (block_count) /* otherwise the path has none */
        completion.sums = sums;
    source_on_completed(f->table, f->now_us, request, attempt, &completion, &f->out);
}

static void ask_as(struct fixture *f, uint64_t peer, enum peer_down_kind kind, uint64_t request,
                   uint32_t attempt, struct handle_ref ref)
{
    struct peer_down message = {.kind = kind, .request = request, .attempt = attempt, .ref = ref};
    source_on_message(f->table, f->now_us, peer, &message, &f->out);
}

/* From stream 90 + attempt, about slot 0. */
static void ask(struct fixture *f, enum peer_down_kind kind, uint32_t attempt, uint32_t generation)
{
    ask_as(f, 90 + attempt, kind, 1, attempt, (struct handle_ref){INCARNATION, 0, generation});
}

/* Request 1 attempt 1: 6 tokens in 2 blocks. */
static void open_one(struct fixture *f)
{
    prefill(f, 1, 1, 6);
    expect(f, "start 1.1");
    reserved(f, 1, 1, 2);
    expect(f, "opened 1.1 h0.1 blocks 5 6");
}

static void complete_one(struct fixture *f)
{
    open_one(f);
    completed(f, 1, 1, 2, FINISH_NONE);
}

static void test_the_whole_life(void **state)
{
    struct fixture *f = *state;
    open_one(f);
    const struct handle *handle = &f->out.items[0].handle;
    assert_int_equal(handle->ref.incarnation, INCARNATION);
    assert_int_equal(handle->token_count, 6);
    assert_true(handle->prompt_hash == PROMPT_HASH);
    assert_int_equal(handle->model_hash, 1);
    assert_int_equal(handle->layout_hash, 2);
    assert_int_equal(handle->numerics_id, 3);
    assert_int_equal(source_table_pinned_blocks(f->table), 2);
    ask(f, PEER_SUBSCRIBE, 1, 1);
    expect(f, ">91 extended 1.1 1000");
    computed(f, 1, 1, 3);
    expect(f, ""); /* no whole block yet */
    computed(f, 1, 1, 5);
    expect(f, ">91 ready 1.1 4 sums 0+1");
    computed(f, 1, 1, 6);
    expect(f, ""); /* the tail comes with Complete */
    completed(f, 1, 1, 2, FINISH_NONE);
    expect(f, ">91 complete 1.1 token 42 none sums 50 60");
    ask(f, PEER_CONFIRM, 1, 1);
    expect(f, "free 1.1 confirmed; >91 held 1.1");
    assert_int_equal(source_table_count(f->table), 0);
    assert_int_equal(source_table_pinned_blocks(f->table), 0);
    assert_int_equal(source_table_next_us(f->table), UINT64_MAX);
    struct source_counters counters = source_table_counters(f->table);
    assert_int_equal(counters.opened, 1);
    assert_int_equal(counters.completed, 1);
    assert_int_equal(counters.held, 1);
    assert_int_equal(counters.ended[SOURCE_CONFIRMED], 1);
}

static void test_a_late_subscriber_is_told_all(void **state)
{
    struct fixture *f = *state;
    open_one(f);
    computed(f, 1, 1, 4);
    expect(f, "");
    ask(f, PEER_SUBSCRIBE, 1, 1);
    expect(f, ">91 extended 1.1 1000; >91 ready 1.1 4 sums 0+1");
    ask(f, PEER_SUBSCRIBE, 1, 1);
    expect(f, ">91 extended 1.1 1000; >91 ready 1.1 4 sums 0+1");
    completed(f, 1, 1, 2, FINISH_NONE);
    ask(f, PEER_SUBSCRIBE, 1, 1);
    expect(f, ">91 extended 1.1 1000; >91 complete 1.1 token 42 none sums 50 60");
}

static void test_a_path_without_sums(void **state)
{
    struct fixture *f = *state;
    open_one(f);
    ask(f, PEER_SUBSCRIBE, 1, 1);
    source_on_computed(f->table, f->now_us, 1, 1, 4, (struct source_sums){0}, &f->out);
    expect(f, ">91 ready 1.1 4");
    completed(f, 1, 1, 0, FINISH_NONE);
    expect(f, ">91 complete 1.1 token 42 none sums");
}

/* Each Ready has the sums that are new to its reader. */
static void test_sums_travel_once(void **state)
{
    struct fixture *f = *state;
    prefill(f, 1, 1, 13);
    reserved(f, 1, 1, 4);
    computed(f, 1, 1, 4);
    ask(f, PEER_SUBSCRIBE, 1, 1);
    expect(f, ">91 extended 1.1 1000; >91 ready 1.1 4 sums 0+1");
    assert_int_equal(f->out.items[1].message.sums[0], 50);
    computed(f, 1, 1, 13);
    expect(f, ">91 ready 1.1 12 sums 1+2");
    assert_int_equal(f->out.items[0].message.sums[1], 90);
    completed(f, 1, 1, 4, FINISH_NONE);
    expect(f, ">91 complete 1.1 token 42 none sums 50 60 90 20");
    assert_int_equal(f->out.items[0].message.checksum_count, 4);
    assert_memory_equal(f->out.items[0].message.checksums, checksums, sizeof checksums);
}

static void test_an_answer_that_ends_with_its_first_token_is_kept(void **state)
{
    struct fixture *f = *state;
    open_one(f);
    completed(f, 1, 1, 2, FINISH_EOS);
    expect(f, "");
    assert_int_equal(source_table_count(f->table), 1);
    ask(f, PEER_SUBSCRIBE, 1, 1);
    expect(f, ">91 extended 1.1 1000; >91 complete 1.1 token 42 eos sums 50 60");
    source_on_release(f->table, f->now_us, 1, 1, &f->out);
    expect(f, "free 1.1 released");
}

/* Only a handle of this incarnation, slot, generation and request is answered well. */
static void test_the_fence(void **state)
{
    struct fixture *f = *state;
    complete_one(f);
    static const struct {
        uint64_t request;
        struct handle_ref ref;
    } wrong[] = {
        {1, {INCARNATION + 1, 0, 1}},      {1, {INCARNATION, 1, 1}}, {1, {INCARNATION, 3, 1}},
        {1, {INCARNATION, UINT32_MAX, 1}}, {1, {INCARNATION, 0, 0}}, {1, {INCARNATION, 0, 2}},
        {2, {INCARNATION, 0, 1}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        static const enum peer_down_kind kinds[] = {PEER_SUBSCRIBE, PEER_EXTEND, PEER_CONFIRM};
        for (size_t k = 0; k < 3; k++) {
            ask_as(f, 9, kinds[k], wrong[i].request, 1, wrong[i].ref);
            expect(f, wrong[i].request == 1 ? ">9 gone 1.1" : ">9 gone 2.1");
        }
        ask_as(f, 9, PEER_RELEASE, wrong[i].request, 1, wrong[i].ref);
        expect(f, "");
    }
    assert_int_equal(source_table_count(f->table), 1);
    ask(f, PEER_CONFIRM, 1, 1);
    expect(f, "free 1.1 confirmed; >91 held 1.1");
}

static void test_confirm_before_complete_is_gone(void **state)
{
    struct fixture *f = *state;
    open_one(f);
    ask(f, PEER_CONFIRM, 1, 1);
    expect(f, ">91 gone 1.1");
    assert_int_equal(source_table_count(f->table), 1);
}

static void test_the_newest_subscriber_is_the_only_reader(void **state)
{
    struct fixture *f = *state;
    complete_one(f);
    ask(f, PEER_SUBSCRIBE, 1, 1);
    ask(f, PEER_EXTEND, 2,
        1); /* the next reader waits for room: it extends, but does not take over */
    expect(f, ">92 extended 1.2 1000");
    ask(f, PEER_EXTEND, 1, 1);
    expect(f, ">91 extended 1.1 1000");
    ask(f, PEER_SUBSCRIBE, 2, 1);
    expect(f, ">92 extended 1.2 1000; >92 complete 1.2 token 42 none sums 50 60");
    static const enum peer_down_kind kinds[] = {PEER_SUBSCRIBE, PEER_EXTEND, PEER_CONFIRM};
    for (size_t i = 0; i < 3; i++) {
        ask(f, kinds[i], 1, 1);
        expect(f, ">91 gone 1.1");
    }
    ask(f, PEER_RELEASE, 1, 1);
    expect(f, "");
    ask(f, PEER_CONFIRM, 2, 1);
    expect(f, "free 1.1 confirmed; >92 held 1.2");
}

static void test_held_is_remembered_for_its_reader(void **state)
{
    struct fixture *f = *state;
    complete_one(f);
    ask(f, PEER_CONFIRM, 1, 1);
    ask(f, PEER_CONFIRM, 1, 1); /* repeated after a lost stream */
    expect(f, ">91 held 1.1");
    ask(f, PEER_CONFIRM, 2, 1); /* not for another reader */
    expect(f, ">92 gone 1.2");
    ask(f, PEER_SUBSCRIBE, 1, 1);
    expect(f, ">91 gone 1.1");
    ask_as(f, 9, PEER_CONFIRM, 1, 1, (struct handle_ref){INCARNATION + 1, 0, 1});
    expect(f, ">9 gone 1.1");
}

static void test_memory_of_answers_is_bounded_and_fails_closed(void **state)
{
    struct fixture *f = *state; /* memo_count 2 */
    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        prefill(f, 1, attempt, 6);
        reserved(f, 1, attempt, 2);
        completed(f, 1, attempt, 2, FINISH_NONE);
        ask(f, PEER_CONFIRM, attempt, attempt);
    }
    ask(f, PEER_CONFIRM, 3, 3);
    expect(f, ">93 held 1.3");
    ask(f, PEER_CONFIRM, 2, 2);
    expect(f, ">92 held 1.2");
    ask(f, PEER_CONFIRM, 1, 1);
    expect(f, ">91 gone 1.1");
}

static void test_attempts_of_prefill_and_release(void **state)
{
    struct fixture *f = *state;
    prefill(f, 1, 2, 6);
    prefill(f, 1, 2, 6);
    expect(f, "");
    prefill(f, 1, 1, 6);
    expect(f, "");
    assert_int_equal(source_table_counters(f->table).dropped, 2);
    source_on_release(f->table, f->now_us, 1, 1, &f->out);
    expect(f, ""); /* an older attempt's Release */
    prefill(f, 1, 3, 6);
    expect(f, "free 1.2 superseded; start 1.3");
    reserved(f, 1, 2, 2); /* for the ended attempt: its Free is on the way */
    expect(f, "");
    reserved(f, 1, 3, 2);
    expect(f, "opened 1.3 h0.1 blocks 5 6");
    source_on_release(f->table, f->now_us, 1, 5, &f->out);
    expect(f, "free 1.3 released");
    source_on_release(f->table, f->now_us, 1, 5, &f->out);
    expect(f, "");
    computed(f, 1, 3, 6);
    completed(f, 1, 3, 2, FINISH_NONE);
    expect(f, "");
    assert_int_equal(source_table_counters(f->table).dropped, 5);
}

/* One name is one piece of work: the step thread's late messages about an ended attempt never meet
 * another attempt of that name. */
static void test_a_repeated_prefill(void **state)
{
    struct fixture *f = *state;
    prefill(f, 1, 2, 6);
    prefill(f, 1, 2, 6);
    expect(f, ""); /* its answer is on the way */
    computed(f, 1, 2, 6);
    expect(f, ""); /* for an attempt that was never reserved: dropped */
    reserved(f, 1, 2, 2);
    expect(f, "opened 1.2 h0.1 blocks 5 6");
    prefill(f, 1, 2, 6);
    expect(f, "opened 1.2 h0.1 blocks 5 6");
    reserved(f, 1, 2, 2);
    expect(f, ""); /* once only */
    prefill(f, 1, 1, 6);
    expect(f, ""); /* an older one */
    source_on_release(f->table, f->now_us, 1, 2, &f->out);
    expect(f, "free 1.2 released");
    prefill(f, 1, 2, 6);
    expect(f, "refused 1.2 gone retry");
    prefill(f, 1, 1, 6);
    expect(f, "refused 1.1 gone retry");
    completed(f, 1, 2, 2, FINISH_NONE);
    expect(f, "");
    prefill(f, 1, 3, 6);
    expect(f, "start 1.3");
}

static void test_generation_counts_the_uses_of_a_slot(void **state)
{
    struct fixture *f = *state;
    complete_one(f);
    ask(f, PEER_RELEASE, 1, 1);
    expect(f, "free 1.1 released");
    prefill(f, 1, 2, 4);
    reserved(f, 1, 2, 1);
    expect(f, "opened 1.2 h0.2 blocks 5");
    ask(f, PEER_CONFIRM, 1, 1);
    expect(f, ">91 gone 1.1");
}

static void test_session_loss_drops_only_what_is_queued(void **state)
{
    struct fixture *f = *state;
    open_one(f);
    prefill(f, 2, 1, 6);
    prefill(f, 3, 1, 6);
    assert_int_equal(source_table_queued(f->table), 2);
    source_on_session_lost(f->table, f->now_us, &f->out);
    expect(f, "free 2.1 session; free 3.1 session");
    assert_int_equal(source_table_count(f->table), 1);
    ask(f, PEER_SUBSCRIBE, 1, 1);
    expect(f, ">91 extended 1.1 1000");
}

static void test_another_router_ends_everything(void **state)
{
    struct fixture *f = *state;
    open_one(f);
    ask(f, PEER_SUBSCRIBE, 1, 1);
    prefill(f, 2, 1, 6);
    source_on_router_changed(f->table, f->now_us, &f->out);
    expect(f, "free 1.1 session; free 2.1 session");
    assert_int_equal(source_table_count(f->table), 0);
    ask(f, PEER_CONFIRM, 1, 1);
    expect(f, ">91 gone 1.1");
    source_on_router_changed(f->table, f->now_us, &f->out);
    expect(f, "");
}

static void test_the_lease(void **state)
{
    struct fixture *f = *state;
    prefill(f, 1, 1, 6);
    assert_int_equal(source_table_next_us(f->table), UINT64_MAX); /* not while it is queued */
    f->now_us = 500;
    reserved(f, 1, 1, 2);
    assert_int_equal(source_table_next_us(f->table), UINT64_MAX); /* nor without a reader */
    f->now_us = 1400;
    ask(f, PEER_EXTEND, 1, 1);
    assert_int_equal(source_table_next_us(f->table), 1400 + LEASE_US);
    f->now_us = 1600;
    ask(f, PEER_SUBSCRIBE, 1, 1);
    ask_as(f, 9, PEER_EXTEND, 1, 1, (struct handle_ref){INCARNATION, 0, 9}); /* another handle's */
    assert_int_equal(source_table_next_us(f->table), 1600 + LEASE_US);
    source_on_tick(f->table, 1600 + LEASE_US, &f->out);
    expect(f, "free 1.1 expired");
    ask(f, PEER_EXTEND, 1, 1);
    expect(f, ">91 gone 1.1");
}

/* The lease holds for any length of computing: a prompt alone has no reader, and others get theirs
 * late. */
static void test_the_lease_of_what_nobody_reads(void **state)
{
    struct fixture *f = *state;
    open_one(f);
    f->now_us += 10 * LEASE_US;
    source_on_tick(f->table, f->now_us, &f->out);
    expect(f, "");
    computed(f, 1, 1, 4);
    completed(f, 1, 1, 2, FINISH_NONE);
    assert_int_equal(source_table_next_us(f->table), f->now_us + LEASE_US);
    source_on_tick(f->table, f->now_us + LEASE_US - 1, &f->out);
    expect(f, "");
    source_on_tick(f->table, f->now_us + LEASE_US, &f->out);
    expect(f, "free 1.1 expired");
}

static void test_a_lost_peer_stream_keeps_the_handle(void **state)
{
    struct fixture *f = *state;
    open_one(f);
    ask(f, PEER_SUBSCRIBE, 1, 1);
    source_on_peer_lost(f->table, f->now_us, 91, &f->out);
    expect(f, "");
    computed(f, 1, 1, 4);
    expect(f, ""); /* no reader to notify */
    ask_as(f, 17, PEER_SUBSCRIBE, 1, 1, (struct handle_ref){INCARNATION, 0, 1});
    expect(f, ">17 extended 1.1 1000; >17 ready 1.1 4 sums 0+1");
    source_on_peer_lost(f->table, f->now_us, 91, &f->out); /* the old stream, seen late */
    completed(f, 1, 1, 2, FINISH_NONE);
    expect(f, ">17 complete 1.1 token 42 none sums 50 60");
}

static bool may(const struct fixture *f, uint64_t peer, uint32_t generation, uint64_t first,
                uint64_t count)
{
    uint64_t grant = handle_grant((struct handle_ref){INCARNATION, 0, generation});
    return source_may_read(f->table, peer, grant, first, count);
}

/* The byte plane: only the subscriber reads, only ready blocks, and only while the source lives. */
static void test_only_the_subscriber_may_read(void **state)
{
    struct fixture *f = *state;
    prefill(f, 1, 1, 14);
    assert_false(may(f, 91, 1, 5, 1)); /* it has no blocks yet */
    reserved(f, 1, 1, 4);              /* 5 6 9 2 */
    computed(f, 1, 1, 4);
    assert_false(may(f, 91, 1, 5, 1)); /* no reader so far */
    ask(f, PEER_EXTEND, 1, 1);
    assert_false(may(f, 91, 1, 5, 1)); /* a heartbeat isn't a subscription */
    ask(f, PEER_SUBSCRIBE, 1, 1);
    assert_true(may(f, 91, 1, 5, 1));
    assert_false(may(f, 91, 1, 6, 1)); /* not ready */
    assert_false(may(f, 91, 1, 5, 2));
    assert_false(may(f, 92, 1, 5, 1)); /* another stream */
    assert_false(may(f, 91, 2, 5, 1)); /* another use of the slot */
    assert_false(may(f, 91, 0, 5, 1));
    assert_false(source_may_read(f->table, 91, UINT64_MAX, 5, 1));
    completed(f, 1, 1, 4, FINISH_NONE);
    static const struct {
        uint64_t first, count;
        bool may;
    } claims[] = {{5, 2, true},  {6, 1, true},  {9, 1, true},  {2, 1, true},
                  {6, 2, false}, {9, 2, false}, {2, 2, false}, {5, 3, false},
                  {7, 1, false}, {5, 0, false}, {0, 1, false}, {5, UINT64_MAX, false}};
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
        assert_int_equal(may(f, 91, 1, claims[i].first, claims[i].count), claims[i].may);
    ask(f, PEER_SUBSCRIBE, 2, 1); /* the router gave the handle to another reader */
    assert_false(may(f, 91, 1, 5, 1));
    assert_true(may(f, 92, 1, 5, 1));
    source_on_peer_lost(f->table, f->now_us, 92, &f->out);
    assert_false(may(f, 92, 1, 5, 1));
    ask_as(f, 93, PEER_SUBSCRIBE, 1, 2, (struct handle_ref){INCARNATION, 0, 1});
    assert_true(may(f, 93, 1, 5, 1));
    ask_as(f, 93, PEER_CONFIRM, 1, 2, (struct handle_ref){INCARNATION, 0, 1});
    assert_false(may(f, 93, 1, 5, 1));
    prefill(f, 2, 1, 6); /* the next use of the slot, with the same blocks */
    reserved(f, 2, 1, 2);
    completed(f, 2, 1, 2, FINISH_NONE);
    ask_as(f, 93, PEER_SUBSCRIBE, 2, 1, (struct handle_ref){INCARNATION, 0, 2});
    assert_false(may(f, 93, 1, 5, 1));
    assert_true(may(f, 93, 2, 5, 2));
}

static void test_failures_of_the_step_thread(void **state)
{
    struct fixture *f = *state;
    prefill(f, 1, 1, 6);
    source_on_failed(f->table, f->now_us, 1, 1, "limit", true, &f->out);
    expect(f, "refused 1.1 limit retry; free 1.1 failed");
    prefill(f, 1, 2, 6);
    reserved(f, 1, 2, 2);
    ask_as(f, 9, PEER_SUBSCRIBE, 1, 2, (struct handle_ref){INCARNATION, 0, 1});
    source_on_failed(f->table, f->now_us, 1, 2, "internal", true, &f->out);
    expect(f, "lost 1.2; >9 gone 1.2; free 1.2 failed");
    source_on_failed(f->table, f->now_us, 1, 2, "internal", true, &f->out);
    expect(f, "");
}

static void test_limits(void **state)
{
    struct fixture *f = *state; /* 3 sources, 4 blocks of 4 tokens */
    prefill(f, 9, 1, 0);
    expect(f, "refused 9.1 invalid");
    prefill(f, 9, 2, 17);
    expect(f, "refused 9.2 invalid");
    prefill(f, 9, 3, UINT32_MAX);
    expect(f, "refused 9.3 invalid");
    prefill(f, 1, 1, 16);
    expect(f, "start 1.1");
    prefill(f, 2, 1, 1);
    prefill(f, 3, 1, 1);
    prefill(f, 4, 1, 1);
    expect(f, "refused 4.1 limit retry");
    prefill(f, 3, 2, 1); /* takes the place of its own older attempt */
    expect(f, "free 3.1 superseded; start 3.2");
    reserved(f, 1, 1, 4);
    reserved(f, 2, 1, 1);
    reserved(f, 3, 2, 1);
    completed(f, 1, 1, 4, FINISH_NONE);
    completed(f, 2, 1, 1, FINISH_NONE);
    completed(f, 3, 2, 1, FINISH_NONE);
    source_on_tick(f->table, f->now_us + LEASE_US, &f->out); /* the longest list */
    assert_int_equal(f->out.count, 3);
    prefill(f, 4, 1, 1);
    expect(f, "refused 4.1 gone retry"); /* a refused attempt has ended */
    prefill(f, 4, 2, 1);
    expect(f, "start 4.2");
}

static void test_a_configuration_without_sizes_is_refused(void **state)
{
    (void)state;
    struct source_table *table = NULL;
    struct error err;
    struct source_config config = {.block_tokens = 4, .max_sources = 1, .max_blocks = 1};
    assert_int_equal(source_table_create(&config, &table, &err), STATUS_INVALID);
    assert_null(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_the_whole_life),
        T(test_a_late_subscriber_is_told_all),
        T(test_a_path_without_sums),
        T(test_sums_travel_once),
        T(test_an_answer_that_ends_with_its_first_token_is_kept),
        T(test_the_fence),
        T(test_confirm_before_complete_is_gone),
        T(test_the_newest_subscriber_is_the_only_reader),
        T(test_held_is_remembered_for_its_reader),
        T(test_memory_of_answers_is_bounded_and_fails_closed),
        T(test_attempts_of_prefill_and_release),
        T(test_a_repeated_prefill),
        T(test_generation_counts_the_uses_of_a_slot),
        T(test_session_loss_drops_only_what_is_queued),
        T(test_another_router_ends_everything),
        T(test_the_lease),
        T(test_the_lease_of_what_nobody_reads),
        T(test_a_lost_peer_stream_keeps_the_handle),
        T(test_only_the_subscriber_may_read),
        T(test_failures_of_the_step_thread),
        T(test_limits),
        cmocka_unit_test(test_a_configuration_without_sizes_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
