/* workers: how long one has been away counts over its lives, until it is ready. */
#include "router/dispatch/workers.h"

#include "common/base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct served_models models = {.count = 2,
                                            .items = {{.name = "tested"}, {.name = "other"}}};

struct world {
    struct inbox inbox;
    struct workers workers;
};

static void setup(struct world *world)
{
    struct error err;
    *world = (struct world){0};
    assert_int_equal(inbox_init(&world->inbox, 16, 64), STATUS_OK);
    struct membership_config config = {.ttl_us = 1000, .limit = ROUTER_MAX_WORKERS};
    world->workers = (struct workers){.inbox = &world->inbox, .models = &models};
    assert_int_equal(membership_create(&config, &world->workers.membership), STATUS_OK);
    assert_int_equal(rpc_runtime_create(1, &world->workers.runtime, &err), STATUS_OK);
}

/* Until the streams that were dialled are closed. */
static void teardown(struct world *world)
{
    workers_stop(&world->workers);
    while (world->workers.count) {
        struct inbox_message *message = ring_wait(world->inbox.ring, 20000000);
        assert_true(message && message->kind == INBOX_LINK_CLOSED);
        workers_link_closed(&world->workers, (struct worker_link *)message, false, 0);
    }
    membership_destroy(world->workers.membership);
    rpc_runtime_destroy(world->workers.runtime);
    inbox_deinit(&world->inbox);
}

/* No worker is at that address: no life of it gets a session. */
static void comes(struct world *world, const char *name, uint64_t incarnation, uint64_t now_us)
{
    struct error err;
    struct worker_info info = {.role = ROLE_PREFILL,
                               .incarnation = incarnation,
                               .address = "127.0.0.1:1",
                               .model = "tested"};
    snprintf(info.name, sizeof info.name, "%s", name);
    assert_int_equal(membership_join(world->workers.membership, &info, now_us, &err), STATUS_OK);
    workers_sync(&world->workers, now_us);
}

static struct worker *living(const struct world *world, const char *name)
{
    for (size_t i = 0; i < world->workers.count; i++)
        if (world->workers.items[i]->state != WORKER_LEAVING &&
            !strcmp(world->workers.items[i]->info.name, name))
            return world->workers.items[i];
    fail_msg("%s is not there", name);
    return NULL;
}

static void test_away_counts_over_lives_that_are_never_ready(void **state)
{
    (void)state;
    struct world world;
    setup(&world);
    comes(&world, "prefill-0", 1, 1000);
    assert_int_equal(living(&world, "prefill-0")->away_since_us, 1000);
    comes(&world, "prefill-0", 2, 1500); /* in the last one's place */
    assert_int_equal(living(&world, "prefill-0")->away_since_us, 1000);
    comes(&world, "prefill-1", 3, 1600); /* another one was not here before */
    assert_int_equal(living(&world, "prefill-1")->away_since_us, 1600);
    membership_leave(world.workers.membership, "prefill-0", 2);
    workers_sync(&world.workers, 1700);
    comes(&world, "prefill-0", 4, 1800); /* after a time without any */
    assert_int_equal(living(&world, "prefill-0")->away_since_us, 1000);
    teardown(&world);
}

static void test_away_counts_anew_for_one_that_was_ready(void **state)
{
    (void)state;
    struct world world;
    setup(&world);
    comes(&world, "prefill-0", 1, 1000);
    struct worker *worker = living(&world, "prefill-0");
    enum worker_state dialling = worker->state;
    worker->state = WORKER_UP;
    worker_changed(&world.workers, worker, 1200);
    assert_int_equal(worker->away_since_us, 0);
    worker->state = dialling;
    comes(&world, "prefill-0", 2, 1500);
    assert_int_equal(living(&world, "prefill-0")->away_since_us, 1500);
    comes(&world, "prefill-0", 3, 1600);
    assert_int_equal(living(&world, "prefill-0")->away_since_us, 1500);
    teardown(&world);
}

/* As many names as there may be are known; beyond that the oldest counts anew. */
static void test_names_that_left_are_bounded(void **state)
{
    (void)state;
    struct world world;
    char name[32];
    setup(&world);
    for (uint64_t i = 0; i <= WORKERS_MAX_GONE; i++) {
        snprintf(name, sizeof name, "prefill-%llu", (unsigned long long)i);
        comes(&world, name, i + 1, 1000 + i);
        membership_leave(world.workers.membership, name, i + 1);
        workers_sync(&world.workers, 2000);
        struct inbox_message *message = ring_wait(world.inbox.ring, 20000000);
        assert_true(message && message->kind == INBOX_LINK_CLOSED);
        workers_link_closed(&world.workers, (struct worker_link *)message, false, 2000);
    }
    comes(&world, "prefill-1", 1000, 3000);
    assert_int_equal(living(&world, "prefill-1")->away_since_us, 1001);
    comes(&world, "prefill-0", 1001, 3000);
    assert_int_equal(living(&world, "prefill-0")->away_since_us, 3000);
    teardown(&world);
}

static void test_pauses_between_dials_double_up_to_their_limit(void **state)
{
    (void)state;
    struct world world;
    setup(&world);
    uint64_t now_us = 1000, pause_us = 0, at_limit = 0;
    comes(&world, "prefill-0", 1, now_us);
    for (int dials = 0; at_limit < 3; dials++) {
        assert_true(dials < 30);
        struct inbox_message *message = ring_wait(world.inbox.ring, 20000000);
        assert_true(message && message->kind == INBOX_LINK_CLOSED);
        workers_link_closed(&world.workers, (struct worker_link *)message, false, now_us);
        uint64_t next_us = workers_next_us(&world.workers) - now_us;
        assert_int_equal(next_us, !pause_us            ? next_us
                                  : pause_us > 1000000 ? 2000000
                                                       : 2 * pause_us);
        at_limit += next_us == 2000000;
        pause_us = next_us;
        now_us += pause_us;
        workers_tick(&world.workers, now_us);
    }
    teardown(&world);
}

/* Another worker listens at its address, and says nothing but that: the registration is an earlier
 * life's. A dial that fails in another way says nothing about it. */
static void test_a_worker_with_another_at_its_address_is_forgotten(void **state)
{
    (void)state;
    struct world world;
    setup(&world);
    comes(&world, "prefill-0", 1, 1000);
    for (int i = 0; i < 2; i++) {
        struct inbox_message *message = ring_wait(world.inbox.ring, 20000000);
        assert_true(message && message->kind == INBOX_LINK_CLOSED);
        struct worker_link *link = (struct worker_link *)message;
        if (i == 1)
            link->code = RPC_NOT_FOUND;
        workers_link_closed(&world.workers, link, false, 1000);
        const struct membership_snapshot *members = membership_snapshot(world.workers.membership);
        assert_int_equal(members->count, 1 - i);
        membership_snapshot_unref(members);
        workers_tick(&world.workers, 1000 + workers_next_us(&world.workers));
    }
    workers_sync(&world.workers, 5000000);
    teardown(&world);
}

static void joins(struct world *world, const char *name, enum worker_role role,
                  uint32_t block_tokens, uint64_t numerics_id, uint64_t model_hash)
{
    struct error err;
    struct worker_info info = {.role = role,
                               .incarnation = 1,
                               .address = "127.0.0.1:1",
                               .model = "tested",
                               .model_hash = model_hash,
                               .block_tokens = block_tokens,
                               .layout_hash = block_tokens,
                               .numerics_id = numerics_id};
    snprintf(info.name, sizeof info.name, "%s", name);
    snprintf(info.numerics_name, sizeof info.numerics_name, "n%d", (int)numerics_id);
    assert_int_equal(membership_join(world->workers.membership, &info, 1000, &err), STATUS_OK);
    workers_sync(&world->workers, 1000);
}

/* The log between the two calls, of level warn or higher. */
struct kept_log {
    char path[32], text[8192];
    int file, before;
};

static void log_keep(struct kept_log *log)
{
    strcpy(log->path, "/tmp/test_workers_XXXXXX");
    log->file = mkstemp(log->path);
    log->before = dup(STDERR_FILENO);
    dup2(log->file, STDERR_FILENO);
    log_init("test", LOG_WARN);
}

static const char *log_give(struct kept_log *log)
{
    dup2(log->before, STDERR_FILENO);
    log_init("test", LOG_ERROR);
    ssize_t length = pread(log->file, log->text, sizeof log->text - 1, 0);
    assert_true(length > 0);
    log->text[length] = 0;
    close(log->file);
    close(log->before);
    unlink(log->path);
    return log->text;
}

/* Workers of another model are no reason to warn; other weights under one name are. */
static void test_other_weights_under_one_name_are_warned_of(void **state)
{
    (void)state;
    struct world world;
    struct kept_log log;
    setup(&world);
    log_keep(&log);
    joins(&world, "decode-0", ROLE_DECODE, 64, 1, 7);
    joins(&world, "decode-1", ROLE_DECODE, 64, 1, 7);
    joins(&world, "decode-2", ROLE_DECODE, 64, 1, 8);
    struct error err;
    struct worker_info other = {.name = "decode-3",
                                .role = ROLE_DECODE,
                                .incarnation = 1,
                                .address = "127.0.0.1:1",
                                .model = "other",
                                .model_hash = 9};
    assert_int_equal(membership_join(world.workers.membership, &other, 1000, &err), STATUS_OK);
    workers_sync(&world.workers, 1500);
    const char *text = log_give(&log);
    const char *first = strstr(text, "worker=decode-2 other=decode-0 model=tested "
                                     "model_hash=0000000000000008 other_hash=0000000000000007");
    assert_non_null(first);
    assert_null(strstr(first + 1, "worker=decode-3 other="));
    assert_null(strstr(text, "worker=decode-1 other="));
    teardown(&world);
}

static void test_one_that_fits_nobody_is_warned_of(void **state)
{
    (void)state;
    struct world world;
    struct kept_log log;
    setup(&world);
    log_keep(&log);
    joins(&world, "prefill-0", ROLE_PREFILL, 64, 1, 7); /* no worker is there yet */
    joins(&world, "decode-0", ROLE_DECODE, 64, 1, 7);
    joins(&world, "decode-1", ROLE_DECODE, 16, 2, 7);
    joins(&world, "prefill-1", ROLE_PREFILL, 16, 2, 7); /* fits one of them */
    joins(&world, "prefill-2", ROLE_PREFILL, 64, 2, 7);
    workers_sync(&world.workers, 1500);
    const char *text = log_give(&log);
    const char *first = strstr(text, "worker=decode-1 role=decode other=prefill-0 "
                                     "differs=\"block-tokens 16, not 64; numerics n2, not n1\" "
                                     "msg=\"fits no worker of the other role");
    assert_non_null(first);
    const char *second = strstr(first, "worker=prefill-2 role=prefill other=decode-1 "
                                       "differs=\"block-tokens 64, not 16\"");
    assert_non_null(second);
    assert_null(strstr(text, "worker=decode-0"));
    assert_null(strstr(text, "worker=prefill-1"));
    assert_null(strstr(strchr(second, '\n') + 1, "fits no worker")); /* once each */
    teardown(&world);
}

/* A setting lets workers of different numerics fit: placement sees one kind. */
static void test_mixed_numerics(void **state)
{
    (void)state;
    for (int mixed = 0; mixed < 2; mixed++) {
        struct world world;
        struct kept_log log;
        setup(&world);
        world.workers.mixed_numerics = mixed;
        log_keep(&log);
        joins(&world, "prefill-0", ROLE_PREFILL, 64, 1, 7);
        joins(&world, "decode-0", ROLE_DECODE, 64, 2, 7);
        joins(&world, "decode-1", ROLE_DECODE, 16, 2, 7); /* another layout never fits */
        const char *text = log_give(&log);
        assert_int_equal(strstr(text, "worker=decode-0 role=decode other=prefill-0 ") != NULL,
                         !mixed);
        assert_non_null(
            strstr(text, mixed ? "differs=\"block-tokens 16, not 64\"" : "numerics n2, not n1\""));
        teardown(&world);
    }
}

/* Nothing is taken over of a report with a number that no worker sends. */
static void test_what_a_worker_says_of_itself_is_bounded(void **state)
{
    (void)state;
    enum { CONTEXT = 1000 };
    static const struct {
        uint64_t took_us, positions, decode_context, swap_us;
        uint32_t prefill_rows, decode_rows, swapped_blocks;
        bool good;
    } rows[] = {
        {.took_us = 5, .decode_rows = 3, .decode_context = 3 * CONTEXT, .good = true},
        {.took_us = 5, .decode_rows = 3, .decode_context = 3 * CONTEXT + 1},
        {.took_us = 5, .prefill_rows = 2, .positions = 2 * CONTEXT, .good = true},
        {.took_us = 5, .prefill_rows = 2, .positions = 2 * CONTEXT + 1},
        {.took_us = 5, .prefill_rows = 2, .decode_context = 1},
        {.took_us = 5}, /* no rows, no moves */
        {.swap_us = 5, .swapped_blocks = 1, .good = true},
        {.took_us = UINT64_C(1) << 50, .decode_rows = 1, .good = true},
        {.took_us = (UINT64_C(1) << 50) + 1, .decode_rows = 1},
        {.swap_us = UINT64_MAX, .decode_rows = 1},
        {.took_us = 5, .decode_rows = 1 << 20, .good = true},
        {.took_us = 5, .decode_rows = (1 << 20) + 1},
        {.took_us = 5, .prefill_rows = UINT32_MAX},
    };
    static struct worker worker = {.info = {.context = CONTEXT}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Baton__Worker__V1__StepReport good = BATON__WORKER__V1__STEP_REPORT__INIT, last = good;
        good.took_us = good.decode_rows = 1;
        last.took_us = rows[i].took_us;
        last.swap_us = rows[i].swap_us;
        last.prefill_rows = rows[i].prefill_rows;
        last.prefill_positions = rows[i].positions;
        last.decode_rows = rows[i].decode_rows;
        last.decode_context = rows[i].decode_context;
        last.swapped_blocks = rows[i].swapped_blocks;
        Baton__Worker__V1__StepReport *reports[17];
        cost_fit_init(&worker.learnt.steps, NULL, 0);
        for (int j = 0; j < 17; j++)
            reports[j] = j == 15 ? &last : &good;
        assert_int_equal(worker_take_steps(&worker, reports, 16), rows[i].good);
        assert_int_equal(worker.learnt.steps.figures.steps > 0, rows[i].good);
        assert_false(worker_take_steps(&worker, reports, 17)); /* one more than a message has */
    }
    Baton__Worker__V1__Load load = BATON__WORKER__V1__LOAD__INIT;
    load.requests = 7;
    load.busy_us = load.steps_done = load.reserved_tokens = UINT64_C(1) << 50;
    assert_true(worker_take_load(&worker, &load));
    assert_int_equal(worker.load.requests, 7);
    uint64_t *const numbers[] = {&load.queued_tokens, &load.steps_done, &load.reserved_tokens,
                                 &load.unconfirmed_tokens, &load.busy_us};
    load.requests = 8;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        *numbers[i] = (UINT64_C(1) << 50) + 1;
        assert_false(worker_take_load(&worker, &load));
        *numbers[i] = 0;
    }
    load.requests = (1 << 20) + 1;
    assert_false(worker_take_load(&worker, &load));
    assert_int_equal(worker.load.requests, 7);
}

/* Its blocks in use tell how many tokens share them. A report that can't be says nothing. */
static void test_the_last_step_and_the_load_tell_of_shared_kv(void **state)
{
    (void)state;
    struct worker worker = {.info = {.block_count = 100, .block_tokens = 16}};
    Baton__Worker__V1__StepReport last = BATON__WORKER__V1__STEP_REPORT__INIT;
    Baton__Worker__V1__Load load = BATON__WORKER__V1__LOAD__INIT;
    last.decode_rows = 10;
    last.decode_context = 1990;
    load.running = 10;
    load.blocks_free = 60;
    load.blocks_cached = 41;
    worker_learn_kv(&worker, &last, &load);
    assert_true(worker_learnt_kv_part(&worker.learnt) >= 1);
    load.unconfirmed_tokens = 560;
    load.blocks_cached = 0;
    worker_learn_kv(&worker, &last, &load);
    assert_true(worker_learnt_kv_part(&worker.learnt) * 4 == 1); /* 640 of 2,560 */
    worker.learnt = (struct worker_learnt){.chunk_rows = 0};
    last.decode_rows = 40, last.decode_context = 7960; /* three drafts each */
    worker_learn_kv(&worker, &last, &load);
    assert_true(worker_learnt_kv_part(&worker.learnt) * 4 == 1);
    load.running = 0; /* all ended with it */
    load.blocks_free = 100;
    worker_learn_kv(&worker, &last, &load);
    assert_true(worker_learnt_kv_part(&worker.learnt) * 4 == 1);
}

/* The device's numbers stay when a report leaves them out, as those with tokens do. */
static void test_a_worker_tells_of_its_device(void **state)
{
    (void)state;
    static struct worker worker;
    Baton__Worker__V1__Load load = BATON__WORKER__V1__LOAD__INIT;
    Baton__Worker__V1__DeviceHealth device = BATON__WORKER__V1__DEVICE_HEALTH__INIT;
    assert_true(worker_take_load(&worker, &load));
    assert_false(worker.load.has_device);
    device.temperature_celsius = 61;
    device.xids = UINT64_MAX;
    device.slowdowns = 1u << DEVICE_THERMAL;
    for (int i = 0; i < 2; i++) {
        load.device = i ? NULL : &device;
        assert_true(worker_take_load(&worker, &load));
        assert_true(worker.load.has_device);
        assert_true(worker.load.device.numbers[DEVICE_TEMPERATURE_CELSIUS] == 61);
        assert_true(worker.load.device.numbers[DEVICE_XIDS] >= 1e19);
        assert_int_equal(worker.load.device.slowdowns, 1u << DEVICE_THERMAL);
    }
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_worker_says_of_itself_is_bounded),
        cmocka_unit_test(test_the_last_step_and_the_load_tell_of_shared_kv),
        cmocka_unit_test(test_a_worker_tells_of_its_device),
        cmocka_unit_test(test_away_counts_over_lives_that_are_never_ready),
        cmocka_unit_test(test_pauses_between_dials_double_up_to_their_limit),
        cmocka_unit_test(test_away_counts_anew_for_one_that_was_ready),
        cmocka_unit_test(test_a_worker_with_another_at_its_address_is_forgotten),
        cmocka_unit_test(test_names_that_left_are_bounded),
        cmocka_unit_test(test_one_that_fits_nobody_is_warned_of),
        cmocka_unit_test(test_mixed_numerics),
        cmocka_unit_test(test_other_weights_under_one_name_are_warned_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
