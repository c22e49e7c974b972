/* Creates constraint_checks and waits for their messages. */
#ifndef BATON_TESTS_UNIT_CHECKS_FIXTURE_H
#define BATON_TESTS_UNIT_CHECKS_FIXTURE_H

#include "common/base/ring.h"
#include "router/dispatch/constraint_checks.h"

#define TOLD_WAIT_US 30000000

struct told {
    struct ring *ring;
};

static inline void on_told(void *context, struct constraint_checked *checked)
{
    struct told *told = context;
    assert_int_equal(checked->message.kind, INBOX_CONSTRAINT);
    assert_int_equal(ring_push(told->ring, checked), STATUS_OK);
}

static inline void start(struct constraint_checks *checks, struct told *told)
{
    assert_int_equal(ring_create(4096, &told->ring), STATUS_OK);
    assert_int_equal(constraint_checks_start(checks, on_told, told), STATUS_OK);
}

static inline struct constraint_checked *wait_told(struct told *told)
{
    struct constraint_checked *checked = ring_wait(told->ring, TOLD_WAIT_US);
    assert_non_null(checked);
    return checked;
}

static inline void end(struct told *told)
{
    for (struct constraint_checked *checked; (checked = ring_pop(told->ring));)
        constraint_checked_free(checked);
    ring_destroy(told->ring);
}

#endif
