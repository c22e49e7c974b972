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
    message.version++;
    assert_int_equal(worker_message_read(&message, &read, &err), STATUS_UNSUPPORTED);

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_is_versioned_and_bounded),
        cmocka_unit_test(test_a_restart_takes_the_name_over),
        cmocka_unit_test(test_silent_ones_lapse_and_held_ones_stay),
        cmocka_unit_test(test_who_is_missing),
        cmocka_unit_test(test_worker_messages_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
