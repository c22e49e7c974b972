/* placement: the order of the queue; what others may expect. test_worker_books.c has the books. */
#include "router/planner/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static unsigned repeats(const char *name, unsigned usual)
{
    const char *set = getenv(name);
    return set ? (unsigned)atoi(set) : usual;
}

static struct route_worker plain(enum worker_role role, uint64_t key)
{
    return (struct route_worker){.key = key,
                                 .role = role,
                                 .ready = true,
                                 .capacity_tokens = 1000,
                                 .unconfirmed_limit_tokens = 500,
                                 .max_requests = 4};
}

/* A model with a prefill and a decode worker, which hold one request each, or as the test sets. */
struct queue {
    struct placement placement;
    struct placement_request requests[32];
    uint64_t prompts[32];
    const struct route_kind *kinds[32]; /* NULL: its answer hasn't begun */
    uint64_t now_us;
    size_t count;
};

static struct route_worker *decode_of(struct queue *q)
{
    return &candidates_get(&q->placement.candidates, 2)->is;
}

static void queue_init(struct queue *q, uint32_t places)
{
    memset(q, 0, sizeof *q);
    const struct placement_config config = {.model_count = 1, .local_us = 1000000};
    assert_int_equal(placement_init(&q->placement, &config), STATUS_OK);
    struct route_worker prefill = plain(ROLE_PREFILL, 1), decode = plain(ROLE_DECODE, 2);
    prefill.max_requests = 0;
    decode.max_requests = places;
    assert_int_equal(placement_worker_set(&q->placement, 0, &prefill), STATUS_OK);
    assert_int_equal(placement_worker_set(&q->placement, 0, &decode), STATUS_OK);
    q->now_us = 10000000;
}

static size_t arrives(struct queue *q, uint64_t tenant, uint64_t prompt_tokens)
{
    size_t i = q->count++;
    q->prompts[i] = prompt_tokens;
    placement_arrived(&q->placement, &q->requests[i], 0, tenant);
    placement_wait(&q->placement, &q->requests[i], PLACEMENT_NEW, q->now_us);
    return i;
}

static void ends(struct queue *q, size_t i)
{
    placement_ended(&q->placement, &q->requests[i]);
}

/* Runs a pass. Returns the requests that were placed, in order, as text: "0 2 ". */
static const char *pass_with(struct queue *q, const struct route_handle *handle)
{
    static char placed[200];
    size_t length = 0;
    placed[0] = 0;
    placement_begin(&q->placement, 0, q->now_us);
    for (struct placement_request *request; (request = placement_next(&q->placement));) {
        size_t i = (size_t)(request - q->requests);
        uint64_t tokens;
        struct placement_ask ask = {.request = {.kind = q->kinds[i],
                                                .prompt_tokens = q->prompts[i],
                                                .total_tokens = q->prompts[i] + 1},
                                    .handle = request->turn == PLACEMENT_REGIVE ? handle : NULL};
        struct route_choice choice = placement_choose(&q->placement, request, &ask, &tokens);
        if (choice.outcome != ROUTE_PLACED)
            continue;
        placement_stop_waiting(&q->placement, request);
        placement_track(&q->placement, request,
                        &(struct placement_use){.prefill = choice.prefill,
                                                .decode = choice.decode,
                                                .working = true,
                                                .prompt_tokens = q->prompts[i],
                                                .longest_tokens = tokens});
        placement_placed(&q->placement, request, choice.prefill, choice.decode);
        length += (size_t)snprintf(placed + length, sizeof placed - length, "%zu ", i);
    }
    return placed;
}

static const char *pass(struct queue *q)
{
    return pass_with(q, NULL);
}

static void queue_end(struct queue *q)
{
    for (size_t i = 0; i < q->count; i++)
        if (q->requests[i].order)
            placement_ended(&q->placement, &q->requests[i]);
    assert_int_equal(q->placement.waiting, 0);
    assert_int_equal(q->placement.queues[0].lacking + q->placement.queues[0].held, 0);
    for (uint32_t rank = 0; rank < PLACEMENT_RANKS; rank++)
        assert_int_equal(q->placement.queues[0].ranks[rank], 0);
    for (uint32_t rank = 0; rank < PRIORITIES; rank++)
        assert_true(TAILQ_EMPTY(&q->placement.queues[0].tenants[rank]));
    assert_true(TAILQ_EMPTY(&q->placement.queues[0].late));
    placement_deinit(&q->placement);
}

static void over(struct queue *q, size_t i)
{
    ends(q, i);
    q->requests[i].order = 0;
}

static void test_tenants_are_served_in_turns(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 3);
    for (int i = 0; i < 6; i++)
        arrives(&q, 100, 1);                 /* 0 to 5: a flood */
    size_t other = arrives(&q, 200, 1);      /* 6 */
    size_t third = arrives(&q, 300, 1);      /* 7 */
    arrives(&q, 200, 1);                     /* 8 */
    assert_string_equal(pass(&q), "0 6 7 "); /* each one of its own */
    over(&q, 0);
    assert_string_equal(pass(&q), "1 "); /* 300 has nothing more: 100 was served longest ago */
    over(&q, other);
    assert_string_equal(pass(&q), "8 ");
    over(&q, third);
    assert_string_equal(pass(&q), "2 "); /* within a tenant by arrival */
    queue_end(&q);
}

/* A flood leaves other tenants an eighth of a worker's places, while they are here or were so
 * lately, and waits for its own share without holding them up. */
static void test_a_worker_keeps_places_for_other_tenants(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 16);
    for (int i = 0; i < 18; i++)
        arrives(&q, 100, 1); /* 0 to 17: it is alone */
    assert_string_equal(pass(&q), "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 ");
    size_t other = arrives(&q, 200, 1); /* 18 */
    assert_string_equal(pass(&q), "");  /* there is no place at all */
    over(&q, 0);
    assert_string_equal(pass(&q), "18 "); /* not for the flood, which has more than its share */
    over(&q, 1);
    over(&q, 2);
    q.now_us += 2 * PLACEMENT_OVERTAKE_US; /* 16 has waited for long */
    assert_string_equal(pass(&q), "16 ");  /* its share is 14 */
    arrives(&q, 200, 1);                   /* 19 */
    assert_string_equal(pass(&q), "19 ");  /* it isn't held up by 17 */
    over(&q, other);
    over(&q, 19);
    assert_string_equal(pass(&q), ""); /* 200 may come back */
    q.now_us += PLACEMENT_SHARE_US;
    assert_string_equal(pass(&q), "17 ");
    assert_true(placement_recount(&q.placement));
    queue_end(&q);
}

static void test_new_tenants_do_not_wait_behind_a_flood(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 1);
    for (int i = 0; i < 20; i++)
        arrives(&q, 100, 1);
    assert_string_equal(pass(&q), "0 ");
    size_t small = arrives(&q, 200, 1);
    over(&q, 0);
    assert_string_equal(pass(&q), "1 "); /* at most one before it */
    over(&q, 1);
    char expected[8];
    snprintf(expected, sizeof expected, "%zu ", small);
    assert_string_equal(pass(&q), expected);
    queue_end(&q);
}

/* Smaller ones pass a large prompt for a while, then nothing does. */
static void test_overtaking_is_bounded(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 0);
    decode_of(&q)->unconfirmed_tokens = 400; /* others', 500 at most */
    size_t large = arrives(&q, 100, 200);
    arrives(&q, 100, 60);
    arrives(&q, 200, 70);
    arrives(&q, 200, 50);
    assert_string_equal(pass(&q), "1 ");
    over(&q, 1);
    q.now_us += PLACEMENT_OVERTAKE_US - 1;
    assert_string_equal(pass(&q), "2 ");
    over(&q, 2);
    q.now_us++;
    arrives(&q, 300, 10);
    assert_string_equal(pass(&q), ""); /* its place is held, for other tenants' too */
    decode_of(&q)->unconfirmed_tokens = 300;
    q.placement.candidates.version++;
    assert_string_equal(pass(&q), "0 ");
    over(&q, large);
    assert_string_equal(pass(&q), "3 4 ");
    queue_end(&q);
}

/* --- the ranks of SLO classes --- */

/* Arrives with a TTFT objective; 0: none. */
static size_t arrives_in(struct queue *q, uint64_t tenant, enum priority priority, uint64_t ttft_us)
{
    size_t i = q->count++;
    struct placement_request *request = &q->requests[i];
    q->prompts[i] = 1;
    placement_arrived(&q->placement, request, 0, tenant);
    request->priority = priority;
    request->has_ttft = ttft_us > 0;
    request->due_us = ttft_us ? q->now_us + ttft_us : UINT64_MAX;
    placement_wait(&q->placement, request, PLACEMENT_NEW, q->now_us);
    return i;
}

/* Places one after the other on a single place. Returns their order. */
static const char *order_of(struct queue *q, int count)
{
    static char order[200];
    order[0] = 0;
    for (int i = 0; i < count; i++) {
        const char *placed = pass(q);
        strncat(order, placed, sizeof order - strlen(order) - 1);
        if (*placed)
            over(q, (size_t)atoi(placed));
    }
    return order;
}

static void test_priorities_come_first_and_tenants_in_turns(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 1);
    arrives_in(&q, 100, PRIORITY_OFFLINE, 0);      /* 0 */
    arrives_in(&q, 100, PRIORITY_NORMAL, 9000000); /* 1 */
    arrives_in(&q, 100, PRIORITY_NORMAL, 9000000); /* 2 */
    arrives_in(&q, 200, PRIORITY_NORMAL, 1000000); /* 3: its own tenant's turn, not before 1 */
    arrives_in(&q, 200, PRIORITY_HIGH, 9000000);   /* 4 */
    assert_string_equal(order_of(&q, 5), "4 1 3 2 0 ");
    queue_end(&q);
}

static void test_the_least_slack_comes_first_in_a_tenant(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 1);
    arrives_in(&q, 100, PRIORITY_NORMAL, 5000000); /* 0 */
    arrives_in(&q, 100, PRIORITY_NORMAL, 0);       /* 1: no objective */
    arrives_in(&q, 100, PRIORITY_NORMAL, 2000000); /* 2 */
    arrives_in(&q, 100, PRIORITY_NORMAL, 5000000); /* 3: as 0, and later */
    arrives_in(&q, 100, PRIORITY_NORMAL, 0);       /* 4 */
    assert_string_equal(order_of(&q, 5), "2 0 3 1 4 ");
    queue_end(&q);
}

static void test_late_ones_wait_behind_all_in_time(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 1);
    arrives_in(&q, 100, PRIORITY_NORMAL, 1000); /* 0: late soon */
    arrives_in(&q, 200, PRIORITY_HIGH, 1000);   /* 1: too */
    q.now_us += 1001;
    arrives_in(&q, 100, PRIORITY_OFFLINE, 0);               /* 2 */
    arrives_in(&q, 100, PRIORITY_NORMAL, 1000);             /* 3 */
    size_t never = arrives_in(&q, 300, PRIORITY_NORMAL, 1); /* 4: only an order, no objective */
    q.requests[never].has_ttft = false;
    q.now_us += 1000;                                   /* 3 is just in time */
    assert_string_equal(order_of(&q, 5), "3 4 2 0 1 "); /* the oldest late one first */
    queue_end(&q);
}

/* One of PLACEMENT_FLOOR_EVERY goes to each rank that waits, and the oldest late one is first. */
static void test_no_rank_starves(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 1);
    size_t late[2], low;
    late[0] = arrives_in(&q, 100, PRIORITY_HIGH, 1);
    late[1] = arrives_in(&q, 200, PRIORITY_NORMAL, 1);
    q.now_us += 2;
    low = arrives_in(&q, 100, PRIORITY_OFFLINE, 0);
    int at[3] = {-1, -1, -1}; /* when these were placed */
    for (int i = 0; i < 3 * PLACEMENT_FLOOR_EVERY; i++) {
        q.count = 3; /* one of the flood is there at any time */
        size_t flood = arrives_in(&q, 300, PRIORITY_HIGH, 1000000);
        const char *placed = pass(&q);
        size_t which = (size_t)atoi(placed);
        assert_true(*placed);
        over(&q, which);
        for (size_t k = 0; k < 2; k++)
            at[k] = which == late[k] ? i : at[k];
        at[2] = which == low ? i : at[2];
        if (which != flood)
            over(&q, flood);
    }
    /* the late ones' rank is owed a place first, as it is the last one */
    assert_int_equal(at[0], PLACEMENT_FLOOR_EVERY - 1);
    assert_int_equal(at[2], PLACEMENT_FLOOR_EVERY);
    assert_in_range(at[1], 2 * PLACEMENT_FLOOR_EVERY - 1, 2 * PLACEMENT_FLOOR_EVERY);
    q.count = 3;
    queue_end(&q);
}

/* A request that is held waits behind all others, and the ones behind it aren't looked at. While
 * none is placed for long the first one has its turn all the same. */
static void test_a_held_request_waits_with_the_late_ones(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 1);
    for (int i = 0; i < 3; i++)
        arrives_in(&q, 100, PRIORITY_NORMAL, 60000000);
    uint64_t placed_tokens;
    placement_begin(&q.placement, 0, q.now_us);
    q.placement.config.held_limit = 3;
    for (int i = 0; i < 3; i++) { /* each in its turn */
        assert_true(placement_may_hold(&q.placement, &q.requests[i]));
        placement_hold(&q.placement, placement_next(&q.placement));
    }
    assert_int_equal(q.placement.queues[0].ranks[PLACEMENT_RANKS - 1], 3);
    assert_true(placement_may_hold(&q.placement, &q.requests[0])); /* it is, already */
    struct placement_request *first = placement_next(&q.placement);
    assert_ptr_equal(first, &q.requests[0]);
    assert_false(placement_is_owed(&q.placement));
    const struct placement_ask ask = {.request = {.prompt_tokens = 1, .total_tokens = 2}};
    assert_int_equal(placement_choose(&q.placement, first, &ask, &placed_tokens).outcome,
                     ROUTE_PLACED);
    placement_hold(&q.placement, first);
    for (int i = 1; i < 3; i++) { /* these hear that there are workers, and wait */
        struct placement_request *next = placement_next(&q.placement);
        assert_ptr_equal(next, &q.requests[i]);
        assert_int_equal(placement_choose(&q.placement, next, &ask, &placed_tokens).outcome,
                         ROUTE_FULL);
    }
    assert_null(placement_next(&q.placement));
    q.now_us += PLACEMENT_OVERTAKE_US - 1;
    placement_begin(&q.placement, 0, q.now_us);
    assert_ptr_equal(placement_next(&q.placement), first);
    assert_false(placement_is_owed(&q.placement));
    placement_hold(&q.placement, first);
    assert_null(placement_next(&q.placement));
    size_t in_time = arrives_in(&q, 200, PRIORITY_NORMAL, 60000000);
    assert_false(placement_may_hold(&q.placement, &q.requests[in_time]));
    placement_begin(&q.placement, 0, q.now_us);
    assert_ptr_equal(placement_next(&q.placement), &q.requests[in_time]);
    placement_stop_waiting(&q.placement, &q.requests[2]);
    assert_true(placement_may_hold(&q.placement, &q.requests[in_time]));
    placement_stop_waiting(&q.placement, &q.requests[in_time]);
    q.now_us++;
    placement_begin(&q.placement, 0, q.now_us);
    assert_ptr_equal(placement_next(&q.placement), first);
    assert_true(placement_is_owed(&q.placement));
    queue_end(&q);
}

/* A rank that nothing waited in has saved up no share. */
static void test_a_share_is_not_saved_up(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 1);
    for (int i = 0; i < 2 * PLACEMENT_FLOOR_EVERY; i++) {
        q.count = 0;
        arrives_in(&q, 100, PRIORITY_HIGH, 0);
        assert_string_equal(pass(&q), "0 ");
        over(&q, 0);
    }
    q.count = 0;
    arrives_in(&q, 100, PRIORITY_OFFLINE, 0);
    arrives_in(&q, 100, PRIORITY_HIGH, 0);
    assert_string_equal(order_of(&q, 2), "1 0 ");
    queue_end(&q);
}

/* A late request that none has room for holds its place when its share is due. */
static void test_the_floor_holds_a_place(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 1);
    decode_of(&q)->unconfirmed_tokens = 400; /* others', 500 at most */
    size_t large = arrives_in(&q, 100, PRIORITY_NORMAL, 1);
    q.prompts[large] = 200;
    q.now_us += PLACEMENT_OVERTAKE_US;
    for (int i = 0; i < PLACEMENT_FLOOR_EVERY - 1; i++) {
        q.count = 1;
        size_t small = arrives_in(&q, 200, PRIORITY_NORMAL, 1000000);
        assert_string_equal(pass(&q), "1 ");
        over(&q, small);
    }
    q.count = 1;
    arrives_in(&q, 200, PRIORITY_NORMAL, 1000000);
    assert_string_equal(pass(&q), "");
    decode_of(&q)->unconfirmed_tokens = 300;
    q.placement.candidates.version++;
    assert_string_equal(pass(&q), "0 ");
    over(&q, large);
    assert_string_equal(pass(&q), "1 ");
    queue_end(&q);
}

/* Late ones that end, or leave for another reason, are in no list. */
static void test_late_ones_may_leave_in_a_pass(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 1);
    for (int i = 0; i < 4; i++)
        arrives_in(&q, 100 + (uint64_t)i % 2, PRIORITY_NORMAL, 1);
    q.now_us += 2;
    placement_begin(&q.placement, 0, q.now_us);
    struct placement_request *first = placement_next(&q.placement);
    assert_ptr_equal(first, &q.requests[0]);
    over(&q, 1); /* the next one */
    assert_ptr_equal(placement_next(&q.placement), &q.requests[2]);
    over(&q, 2);
    assert_ptr_equal(placement_next(&q.placement), &q.requests[3]);
    assert_null(placement_next(&q.placement));
    queue_end(&q);
}

static void test_the_wait_for_a_turn(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 1);
    for (int i = 0; i < 6; i++)
        arrives_in(&q, 100, PRIORITY_NORMAL, 90000000);
    assert_int_equal(placement_wait_us(&q.placement, &q.requests[5]), 0); /* no pace yet */
    for (size_t i = 0; i < 3; i++) {
        assert_true(*pass(&q));
        over(&q, i);
        q.now_us += 100000;
    }
    /* 3, 4 and 5 wait, and one is placed in 100 ms. */
    assert_int_equal(placement_wait_us(&q.placement, &q.requests[5]), 300000);
    size_t other = arrives_in(&q, 200, PRIORITY_NORMAL, 90000000);
    assert_int_equal(placement_wait_us(&q.placement, &q.requests[other]), 200000); /* in turns */
    size_t high = arrives_in(&q, 100, PRIORITY_HIGH, 90000000);
    assert_int_equal(placement_wait_us(&q.placement, &q.requests[high]), 100000);
    assert_int_equal(placement_wait_us(&q.placement, &q.requests[other]), 300000);
    size_t low = arrives_in(&q, 300, PRIORITY_OFFLINE, 0);
    assert_int_equal(placement_wait_us(&q.placement, &q.requests[low]), 600000);
    assert_string_equal(order_of(&q, 6), "7 3 6 4 5 8 ");
    q.now_us += 60000000; /* an idle time is no pace */
    arrives_in(&q, 100, PRIORITY_NORMAL, 90000000);
    arrives_in(&q, 100, PRIORITY_NORMAL, 90000000);
    assert_string_equal(order_of(&q, 1), "9 ");
    over(&q, 10); /* nor is the time after the last one has left without a place */
    q.now_us += 60000000;
    arrives_in(&q, 100, PRIORITY_NORMAL, 90000000);
    assert_string_equal(pass(&q), "11 ");
    assert_true(q.placement.queues[0].pace_us <= 100000);
    queue_end(&q);
}

/* Admission rejects the one that was chosen: its tenant has had nothing. A reader is no pace. */
static void test_turns_and_pace_are_of_places(void **state)
{
    (void)state;
    static struct queue q;
    static const struct route_handle handle = {.prefill = 1};
    const struct placement_ask ask = {.request = {.prompt_tokens = 1, .total_tokens = 2}};
    uint64_t tokens;
    queue_init(&q, 1);
    for (uint64_t i = 0; i < 4; i++)
        arrives(&q, 100 + i / 3, 1);
    placement_begin(&q.placement, 0, q.now_us);
    struct placement_request *first = placement_next(&q.placement);
    assert_int_equal(placement_choose(&q.placement, first, &ask, &tokens).outcome, ROUTE_PLACED);
    over(&q, 0);
    assert_ptr_equal(placement_next(&q.placement), &q.requests[1]);
    assert_string_equal(pass(&q), "1 ");
    q.now_us += 50000;
    placement_track(&q.placement, &q.requests[1], &(struct placement_use){.prefill = 1});
    placement_wait(&q.placement, &q.requests[1], PLACEMENT_REGIVE, q.now_us);
    assert_string_equal(pass_with(&q, &handle), "1 ");
    over(&q, 1);
    assert_string_equal(pass(&q), "3 ");
    assert_int_equal(placement_wait_us(&q.placement, &q.requests[2]), 50000);
    queue_end(&q);
}

/* An answer that has begun can't go to workers of another kind, and holds no place there. */
static void test_one_that_has_begun_stops_none_of_another_kind(void **state)
{
    (void)state;
    static struct queue q;
    static const struct route_kind kind = {.numerics_id = 0};
    queue_init(&q, 0);
    decode_of(&q)->unconfirmed_tokens = 400; /* others', 500 at most */
    q.kinds[arrives(&q, 100, 200)] = &kind;
    q.now_us += PLACEMENT_OVERTAKE_US;
    arrives(&q, 200, 10);
    assert_string_equal(pass(&q), ""); /* there is one kind */
    struct route_worker prefill = plain(ROLE_PREFILL, 3), decode = plain(ROLE_DECODE, 4);
    prefill.numerics_id = decode.numerics_id = 9;
    assert_int_equal(placement_worker_set(&q.placement, 0, &prefill), STATUS_OK);
    assert_int_equal(placement_worker_set(&q.placement, 0, &decode), STATUS_OK);
    assert_string_equal(pass(&q), "1 ");
    queue_end(&q);
}

/* A request isn't searched for again while nothing has changed for one that needs less. */
static void test_what_is_known_to_be_full_is_not_tried(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 1);
    arrives(&q, 1, 10);
    assert_string_equal(pass(&q), "0 ");
    arrives(&q, 2, 20);
    arrives(&q, 2, 30);
    assert_string_equal(pass(&q), "");
    decode_of(&q)->max_requests = 9; /* unknown to the core: no version */
    assert_string_equal(pass(&q), "");
    arrives(&q, 3, 40); /* a new one is tried once: it may be too long for all */
    assert_string_equal(pass(&q), "3 ");
    over(&q, 0);
    assert_string_equal(pass(&q), "1 2 ");
    queue_end(&q);
}

static void test_those_placed_again_come_first_by_arrival(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 0);
    decode_of(&q)->unconfirmed_limit_tokens = 1000000;
    for (int i = 0; i < 5; i++)
        arrives(&q, 100 + (uint64_t)i, 1);
    assert_string_equal(pass(&q), "0 1 2 3 4 ");
    arrives(&q, 900, 1);
    static const int lost[] = {3, 0, 2, 1}; /* their worker is, and they come in any order */
    for (int k = 0; k < 4; k++) {
        int i = lost[k];
        placement_track(&q.placement, &q.requests[i], &(struct placement_use){0});
        placement_wait(&q.placement, &q.requests[i], i == 2 ? PLACEMENT_REGIVE : PLACEMENT_AGAIN,
                       q.now_us);
    }
    const struct route_handle handle = {.prefill = 1};
    assert_string_equal(pass_with(&q, &handle), "2 0 1 3 5 ");
    queue_end(&q);
}

/* The life of a request that lacked a worker hears that there is one, though its turn doesn't
 * come. */
static void test_who_lacked_a_worker_hears_of_one(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 1);
    arrives(&q, 1, 1);
    assert_string_equal(pass(&q), "0 ");
    struct route_worker away = plain(ROLE_DECODE, 2);
    away.ready = false;
    away.max_requests = 1;
    assert_int_equal(placement_worker_set(&q.placement, 0, &away), STATUS_OK);
    arrives(&q, 2, 10);
    arrives(&q, 3, 10);
    assert_string_equal(pass(&q), "");
    assert_int_equal(q.placement.queues[0].lacking, 2);
    away.ready = true;
    assert_int_equal(placement_worker_set(&q.placement, 0, &away), STATUS_OK);
    q.now_us += PLACEMENT_OVERTAKE_US;
    assert_string_equal(pass(&q), ""); /* full */
    assert_int_equal(q.placement.queues[0].lacking, 0);
    queue_end(&q);
}

/* One that lacks a worker hears that, and no other thing, behind one that holds all places. */
static void test_lacks_are_heard_behind_a_stop(void **state)
{
    (void)state;
    static struct queue q;
    const struct route_kind kind = {.numerics_id = 9};
    struct route_worker prefill = plain(ROLE_PREFILL, 3), decode = plain(ROLE_DECODE, 4);
    queue_init(&q, 1);
    prefill.numerics_id = decode.numerics_id = 9;
    prefill.capacity_tokens = decode.capacity_tokens = 50;
    arrives(&q, 1, 1);
    assert_string_equal(pass(&q), "0 ");
    arrives(&q, 2, 100);
    q.now_us += PLACEMENT_OVERTAKE_US;
    assert_string_equal(pass(&q), "");
    size_t begun = arrives(&q, 3, 10);
    q.kinds[begun] = &kind;
    for (int again = 0; again < 2; again++) {
        assert_string_equal(pass(&q), "");
        assert_true(q.requests[begun].lacks && !q.requests[1].lacks);
    }
    assert_int_equal(placement_worker_set(&q.placement, 0, &prefill), STATUS_OK);
    assert_int_equal(placement_worker_set(&q.placement, 0, &decode), STATUS_OK);
    assert_string_equal(pass(&q), ""); /* its turn doesn't come */
    assert_false(q.requests[begun].lacks);
    decode.ready = false;
    assert_int_equal(placement_worker_set(&q.placement, 0, &decode), STATUS_OK);
    assert_string_equal(pass(&q), "");
    assert_true(q.requests[begun].lacks);
    prefill.ready = false;
    decode.ready = true;
    prefill.away_since_us = q.now_us;
    assert_int_equal(placement_worker_set(&q.placement, 0, &prefill), STATUS_OK);
    assert_int_equal(placement_worker_set(&q.placement, 0, &decode), STATUS_OK);
    assert_string_equal(pass(&q), "");
    assert_true(q.requests[begun].lacks);
    q.now_us += q.placement.config.local_us; /* nothing has changed but the time */
    assert_string_equal(pass(&q), "");
    assert_false(q.requests[begun].lacks);
    over(&q, 0);
    assert_string_equal(pass(&q), "1 2 ");
    queue_end(&q);
}

/* Any order of arrivals, passes and ends keeps the queue whole. */
static void test_the_queue_stays_whole(void **state)
{
    (void)state;
    static struct queue q;
    struct rng rng = rng_seeded(5);
    queue_init(&q, 4);
    q.count = COUNT(q.requests);
    for (unsigned event = 0; event < repeats("EVENTS", 100000) / 5; event++) {
        size_t i = rng_below(&rng, q.count);
        q.now_us += rng_below(&rng, 50000);
        if (!q.requests[i].order) {
            q.prompts[i] = 1 + rng_below(&rng, 300);
            placement_arrived(&q.placement, &q.requests[i], 0, rng_below(&rng, 6));
            if (event % 4096 > 2048) { /* as with SLO classes */
                q.requests[i].priority = (enum priority)rng_below(&rng, PRIORITIES);
                q.requests[i].has_ttft = rng_below(&rng, 2);
                q.requests[i].due_us = q.now_us + rng_below(&rng, 400000);
            }
            placement_wait(&q.placement, &q.requests[i], PLACEMENT_NEW, q.now_us);
        } else if (rng_below(&rng, 3) == 0) {
            over(&q, i);
        } else if (!q.requests[i].waiting) {
            placement_track(&q.placement, &q.requests[i], &(struct placement_use){0});
            placement_wait(&q.placement, &q.requests[i], PLACEMENT_AGAIN, q.now_us);
        }
        if (rng_below(&rng, 2))
            (void)pass(&q);
        uint32_t waiting = 0, late = 0;
        for (size_t k = 0; k < q.count; k++) {
            waiting += q.requests[k].order && q.requests[k].waiting;
            late += q.requests[k].order && q.requests[k].waiting && q.requests[k].late;
        }
        assert_int_equal(q.placement.queues[0].ranks[PLACEMENT_RANKS - 1], late);
        assert_int_equal(q.placement.waiting, waiting);
        assert_int_equal(q.placement.queues[0].count, waiting);
        assert_true(decode_of(&q)->requests <= 4);
    }
    queue_end(&q);
}

/* One tenant more than has a turn of its own shares one with the others beyond. */
static void test_tenants_beyond_the_limit_share_a_turn(void **state)
{
    (void)state;
    static struct placement placement;
    const struct placement_config config = {.model_count = 1};
    size_t count = PLACEMENT_MAX_TENANTS + 2;
    struct placement_request *requests = calloc(count, sizeof *requests);
    assert_non_null(requests);
    assert_int_equal(placement_init(&placement, &config), STATUS_OK);
    for (size_t i = 0; i < count; i++) {
        placement_arrived(&placement, &requests[i], 0, i);
        placement_wait(&placement, &requests[i], PLACEMENT_NEW, 1);
    }
    assert_int_equal(placement.queues[0].shared[1].count, 2);
    for (size_t i = 0; i < count; i++)
        placement_ended(&placement, &requests[i]);
    assert_int_equal(placement.queues[0].shared[1].count, 0);
    assert_true(TAILQ_EMPTY(&placement.queues[0].tenants[1]));
    placement_deinit(&placement);
    free(requests);
}

/* ------------------------------------------------------------------------------ expectations */

static void test_when_to_try_again(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, 0);
    decode_of(&q)->unconfirmed_limit_tokens = 1000000;
    assert_int_equal(placement_retry_us(&q.placement, 0, q.now_us), PLACEMENT_RETRY_LEAST_US);
    for (int i = 0; i < 10; i++) { /* one every 2 s */
        arrives(&q, 1, 1);
        (void)pass(&q);
        q.now_us += 2000000;
    }
    assert_int_equal(placement_retry_us(&q.placement, 0, q.now_us), 2000000);
    decode_of(&q)->ready = false;
    for (int i = 0; i < 4; i++)
        arrives(&q, 1, 1);
    assert_int_equal(placement_retry_us(&q.placement, 0, q.now_us), 10000000);
    q.now_us += 600000000; /* nothing drains */
    assert_int_equal(placement_retry_us(&q.placement, 0, q.now_us), 30000000);
    for (int i = 0; i < 15; i++)
        arrives(&q, 1, 1);
    assert_int_equal(placement_retry_us(&q.placement, 0, q.now_us), PLACEMENT_RETRY_MOST_US);
    queue_end(&q);
}

static void test_ready_is_that_a_request_would_be_served(void **state)
{
    (void)state;
    static struct placement placement;
    const struct placement_config config = {.model_count = 2, .local_us = 1000};
    struct route_worker prefill = plain(ROLE_PREFILL, 1), decode = plain(ROLE_DECODE, 2);
    uint64_t at_us;
    assert_int_equal(placement_init(&placement, &config), STATUS_OK);
    assert_false(placement_serves(&placement, 0, 5000, &at_us));
    assert_true(at_us == UINT64_MAX);
    assert_int_equal(placement_room(&placement, 0), 0);
    assert_int_equal(placement_worker_set(&placement, 0, &decode), STATUS_OK);
    assert_true(placement_serves(&placement, 0, 5000, &at_us));
    assert_int_equal(placement_room(&placement, 0), 1000);
    assert_false(placement_serves(&placement, 1, 5000, &at_us)); /* another model */
    prefill.ready = false;
    prefill.away_since_us = 4500;
    assert_int_equal(placement_worker_set(&placement, 0, &prefill), STATUS_OK);
    assert_false(placement_serves(&placement, 0, 5000, &at_us));
    assert_int_equal(at_us, 5500);
    assert_true(placement_serves(&placement, 0, 5500, &at_us));
    candidates_get(&placement.candidates, 2)->is.requests = 4; /* full: it would wait for room */
    assert_true(placement_serves(&placement, 0, 5500, &at_us));
    placement_worker_remove(&placement, 1);
    prefill.key = 3;
    prefill.ready = true;
    prefill.numerics_id = 9; /* fits none */
    assert_int_equal(placement_worker_set(&placement, 0, &prefill), STATUS_OK);
    assert_true(placement_serves(&placement, 0, 5500, &at_us));
    placement_deinit(&placement);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tenants_are_served_in_turns),
        cmocka_unit_test(test_a_worker_keeps_places_for_other_tenants),
        cmocka_unit_test(test_new_tenants_do_not_wait_behind_a_flood),
        cmocka_unit_test(test_overtaking_is_bounded),
        cmocka_unit_test(test_priorities_come_first_and_tenants_in_turns),
        cmocka_unit_test(test_the_least_slack_comes_first_in_a_tenant),
        cmocka_unit_test(test_late_ones_wait_behind_all_in_time),
        cmocka_unit_test(test_no_rank_starves),
        cmocka_unit_test(test_a_share_is_not_saved_up),
        cmocka_unit_test(test_the_floor_holds_a_place),
        cmocka_unit_test(test_a_held_request_waits_with_the_late_ones),
        cmocka_unit_test(test_late_ones_may_leave_in_a_pass),
        cmocka_unit_test(test_the_wait_for_a_turn),
        cmocka_unit_test(test_turns_and_pace_are_of_places),
        cmocka_unit_test(test_one_that_has_begun_stops_none_of_another_kind),
        cmocka_unit_test(test_what_is_known_to_be_full_is_not_tried),
        cmocka_unit_test(test_those_placed_again_come_first_by_arrival),
        cmocka_unit_test(test_who_lacked_a_worker_hears_of_one),
        cmocka_unit_test(test_lacks_are_heard_behind_a_stop),
        cmocka_unit_test(test_the_queue_stays_whole),
        cmocka_unit_test(test_tenants_beyond_the_limit_share_a_turn),
        cmocka_unit_test(test_when_to_try_again),
        cmocka_unit_test(test_ready_is_that_a_request_would_be_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
