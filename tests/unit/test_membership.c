/* membership: versions, restarts, names in use, lapsing. */
#include "common/net/membership/membership.h"
#include "common/net/membership/worker_message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int changes;

static void on_changed(void *context)
{
    (void)context;
    changes++;
}

static struct membership *create(size_t limit)
{
    changes = 0;
    struct membership *membership = NULL;
    assert_int_equal(
        membership_create(
            &(struct membership_config){.limit = limit, .ttl_us = 100, .changed = on_changed},
            &membership),
        STATUS_OK);
    return membership;
}

static struct worker_info info(const char *name, uint64_t incarnation, const char *address)
{
    struct worker_info info = {.role = ROLE_DECODE,
                               .incarnation = incarnation,
                               .model = "m",
                               .block_tokens = 32,
                               .block_count = 10,
                               .context = 100,
                               .vocab = 50};
    snprintf(info.name, sizeof info.name, "%s", name);
    snprintf(info.address, sizeof info.address, "%s", address);
    return info;
}

static enum status join(struct membership *membership, const char *name, uint64_t incarnation,
                        const char *address, uint64_t now_us)
{
    struct worker_info worker = info(name, incarnation, address);
    struct error err;
    return membership_join(membership, &worker, now_us, &err);
}

static void test_join_is_versioned_and_bounded(void **state)
{
    (void)state;
    struct membership *membership = create(2);
    const struct membership_snapshot *empty = membership_snapshot(membership);
    assert_int_equal(join(membership, "a", 1, "h:1", 0), STATUS_OK);
    assert_int_equal(join(membership, "a", 1, "h:1", 1), STATUS_OK); /* a heartbeat */
    assert_int_equal(changes, 1);
    assert_int_equal(join(membership, "b", 2, "h:2", 0), STATUS_OK);
    assert_int_equal(join(membership, "c", 3, "h:3", 0), STATUS_LIMIT);
    const struct membership_snapshot *two = membership_snapshot(membership);
    assert_int_equal(empty->count, 0); /* a snapshot never changes */
    assert_int_equal(two->count, 2);
    assert_true(two->version > empty->version);
    assert_string_equal(two->members[1].info.name, "b");
    membership_leave(membership, "a", 9); /* not that incarnation */
    assert_int_equal(changes, 2);
    membership_leave(membership, "a", 1);
    assert_int_equal(changes, 3);
    assert_int_equal(join(membership, "c", 3, "h:3", 0), STATUS_OK);
    membership_snapshot_unref(empty);
    membership_snapshot_unref(two);
    membership_destroy(membership);
}

static void test_a_restart_takes_the_name_over(void **state)
{
    (void)state;
    struct membership *membership = create(4);
    assert_int_equal(join(membership, "a", 1, "h:1", 0), STATUS_OK);
    membership_hold(membership, "a", 1, true, 0);
    assert_int_equal(join(membership, "a", 2, "h:2", 0), STATUS_INVALID); /* another live process */
    assert_int_equal(join(membership, "a", 2, "h:1", 0), STATUS_OK);      /* the same place */
    const struct membership_snapshot *snapshot = membership_snapshot(membership);
    assert_int_equal(snapshot->count, 1);
    assert_int_equal(snapshot->members[0].info.incarnation, 2);
    assert_false(snapshot->members[0].held);
    membership_snapshot_unref(snapshot);
    membership_hold(membership, "a", 1, true, 0); /* too late: that one is gone */
    assert_int_equal(join(membership, "a", 3, "h:3", 0), STATUS_OK); /* moved, not held */
    membership_destroy(membership);
}

static void test_silent_ones_lapse_and_held_ones_stay(void **state)
{
    (void)state;
    struct membership *membership = create(4);
    assert_int_equal(membership_lapse(membership, 0), UINT64_MAX);
    assert_int_equal(join(membership, "a", 1, "h:1", 0), STATUS_OK);
    assert_int_equal(join(membership, "b", 2, "h:2", 50), STATUS_OK);
    assert_int_equal(membership_lapse(membership, 99), 100);
    membership_hold(membership, "a", 1, true, 99);
    assert_int_equal(membership_lapse(membership, 100), 150);
    assert_int_equal(membership_lapse(membership, 150), UINT64_MAX);
    membership_hold(membership, "a", 1, false, 1000); /* counts from the loss */
    assert_int_equal(membership_lapse(membership, 1000), 1100);
    assert_int_equal(membership_lapse(membership, 1100), UINT64_MAX);
    const struct membership_snapshot *snapshot = membership_snapshot(membership);
    assert_int_equal(snapshot->count, 0);
    membership_snapshot_unref(snapshot);
    membership_destroy(membership);
}

static void expect_missing(struct membership *membership, const char *names)
{
    struct missing_member missing[MEMBERSHIP_MAX_MISSING];
    char seen[256] = "";
    size_t count = membership_missing(membership, missing);
    for (size_t i = 0; i < count; i++)
        strcat(strcat(seen, missing[i].info.name), " ");
    assert_string_equal(seen, names);
}

/* A worker that lapses is missing until it, or another life of it, joins, or it leaves. One that
 * leaves in order isn't. */
static void test_who_is_missing(void **state)
{
    (void)state;
    struct membership *membership = create(4);
    struct missing_member missing[MEMBERSHIP_MAX_MISSING];
    static const char *const names[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(join(membership, names[i], i + 1, "h:1", 10), STATUS_OK);
    membership_leave(membership, "d", 4);
    expect_missing(membership, "");
    (void)membership_lapse(membership, 110);
    expect_missing(membership, "a b c ");
    assert_int_equal(membership_missing(membership, missing), 3);
    assert_int_equal(missing[2].heard_us, 10);
    assert_int_equal(missing[2].info.incarnation, 3);
    assert_int_equal(join(membership, "b", 9, "h:2", 120), STATUS_OK);
    membership_leave(membership, "c", 3);
    expect_missing(membership, "a ");
    (void)membership_lapse(membership, 220);
    expect_missing(membership, "a b ");
    for (unsigned i = 0; i < MEMBERSHIP_MAX_MISSING; i++) { /* one more than there is room for */
        char name[16];
        snprintf(name, sizeof name, "w%u", i);
        assert_int_equal(join(membership, name, i + 1, "h:1", 1000 * i), STATUS_OK);
        (void)membership_lapse(membership, 1000 * i + 100);
    }
    assert_int_equal(membership_missing(membership, missing), MEMBERSHIP_MAX_MISSING);
    assert_string_equal(missing[0].info.name, "w0");
    membership_destroy(membership);
}

static void test_who_has_left_in_order(void **state)
{
    (void)state;
    struct membership *membership = create(2);
    assert_int_equal(join(membership, "a", 1, "h:1", 0), STATUS_OK);
    assert_int_equal(join(membership, "b", 2, "h:2", 0), STATUS_OK);
    assert_false(membership_left(membership, 0) || membership_left(membership, 1));
    membership_leave(membership, "a", 9); /* not that incarnation */
    membership_leave(membership, "a", 1);
    assert_true(membership_left(membership, 1));
    assert_false(membership_left(membership, 9));
    assert_int_equal(join(membership, "a", 3, "h:1", 0), STATUS_OK); /* its next life */
    assert_int_equal(join(membership, "b", 4, "h:2", 0), STATUS_OK); /* after a crash */
    assert_true(membership_left(membership, 1));
    assert_false(membership_left(membership, 2));
    membership_leave(membership, "a", 3);
    assert_int_equal(join(membership, "a", 1, "h:1", 0), STATUS_OK); /* it is back */
    assert_false(membership_left(membership, 1));
    (void)membership_lapse(membership, 100);
    assert_false(membership_left(membership, 1) || membership_left(membership, 4));
    for (uint64_t life = 10; life < 12; life++) {
        assert_int_equal(join(membership, "a", life, "h:1", 0), STATUS_OK);
        membership_leave(membership, "a", life);
    }
    assert_true(membership_left(membership, 10) && membership_left(membership, 11));
    assert_false(membership_left(membership, 3)); /* one more than there is room for */
    membership_destroy(membership);
}

static void test_worker_messages_are_checked(void **state)
{
    (void)state;
    struct worker_info worker = info("decode-0", 5, "10.0.0.1:50051"), read;
    struct error err;
    Baton__Worker__V1__WorkerInfo message = worker_message_of(&worker);
    assert_int_equal(worker_message_read(&message, &read, &err), STATUS_OK);
    assert_string_equal(read.name, worker.name);
    assert_string_equal(read.address, worker.address);
    assert_string_equal(read.model, worker.model);
    assert_int_equal(read.role, worker.role);
    assert_int_equal(read.incarnation, worker.incarnation);
    assert_int_equal(read.block_count, worker.block_count);
    assert_int_equal(read.context, worker.context);
    assert_int_equal(read.protocol_least, WORKER_PROTOCOL_LEAST);
    assert_int_equal(read.protocol_newest, WORKER_PROTOCOL_VERSION);
    message.version++; /* it speaks ours, too */
    assert_int_equal(worker_message_read(&message, &read, &err), STATUS_OK);
    message.version_min = message.version; /* a worker of another release: it is named, at least */
    assert_int_equal(worker_message_read(&message, &read, &err), STATUS_UNSUPPORTED);
    assert_string_equal(read.name, worker.name);
    assert_string_equal(read.address, worker.address);
    assert_string_equal(read.model, worker.model);
    assert_int_equal(read.block_count, 0);
    message.version = WORKER_PROTOCOL_LEAST; /* one of before ranges */
    message.version_min = 0;
    assert_int_equal(worker_message_read(&message, &read, &err), STATUS_OK);
    assert_int_equal(read.protocol_least, WORKER_PROTOCOL_LEAST);
    assert_int_equal(read.protocol_newest, WORKER_PROTOCOL_LEAST);

    char long_name[80];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    for (int field = 0; field < 8; field++) {
        message = worker_message_of(&worker);
        switch (field) {
        case 0: message.name = ""; break;
        case 1: message.name = long_name; break;
        case 2: message.name = "two words"; break;
        case 3: message.address = "a\"b:1"; break;
        case 4: message.role = 0; break;
        case 5: message.incarnation = 0; break;
        case 6: message.vocab = 0; break;
        case 7: message.block_count = UINT32_MAX; break;
        }
        assert_int_equal(worker_message_read(&message, &read, &err), STATUS_INVALID);
    }
}

static void test_both_ends_use_the_newest_version_that_they_share(void **state)
{
    (void)state;
    static const struct {
        struct protocol_range own, other;
        uint32_t version;
        const char *sentence;
    } rows[] = {
        {{4, 5}, {4, 5}, 5, ""},
        {{4, 5}, {5, 9}, 5, ""},
        {{4, 5}, {1, 4}, 4, ""},
        {{4, 4}, {4, 5}, 4, ""},
        {{4, 5}, {6, 7}, 0, "prefill-0 speaks protocol version 6 to 7, this process 4 to 5: run"},
        {{4, 5}, {3, 3}, 0, "prefill-0 speaks protocol version 3, this process 4 to 5: run"},
        {{7, 7}, {4, 5}, 0, "prefill-0 speaks protocol version 4 to 5, this process 7: run"},
        {{4, 5}, {5, 4}, 0, "speaks protocol version 5 to 4"}, /* no range at all */
        {{0, 5}, {0, 0}, 0, "speaks protocol version 0"},
        {{4, 5}, {0, UINT32_MAX}, 5, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = {""};
        assert_int_equal(worker_message_agree(rows[i].own, rows[i].other, "prefill-0", &err),
                         rows[i].version);
        if (!strstr(err.text, rows[i].sentence))
            fail_msg("%zu: %s", i, err.text);
    }
    Baton__Worker__V1__RouterHello hello = BATON__WORKER__V1__ROUTER_HELLO__INIT;
    struct protocol_range range = worker_message_router_protocol(&hello);
    assert_true(range.least == 4 && range.newest == 4); /* a router of before ranges */
    hello.version = 9;
    range = worker_message_router_protocol(&hello);
    assert_true(range.least == 9 && range.newest == 9);
    hello.version_min = 5;
    range = worker_message_router_protocol(&hello);
    assert_true(range.least == 5 && range.newest == 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_is_versioned_and_bounded),
        cmocka_unit_test(test_a_restart_takes_the_name_over),
        cmocka_unit_test(test_silent_ones_lapse_and_held_ones_stay),
        cmocka_unit_test(test_who_is_missing),
        cmocka_unit_test(test_who_has_left_in_order),
        cmocka_unit_test(test_both_ends_use_the_newest_version_that_they_share),
        cmocka_unit_test(test_worker_messages_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
