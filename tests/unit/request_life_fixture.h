/* For test_request_life*: a life under test, its events, and its actions as text. */
#ifndef BATON_TESTS_REQUEST_LIFE_FIXTURE_H
#define BATON_TESTS_REQUEST_LIFE_FIXTURE_H

#include "router/planner/request_life.h"

#include "tests/unit/handoff_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define P1       1
#define P2       2
#define D1       11
#define D2       12
#define DEADLINE 5000

struct fixture {
    struct request_life life;
    struct life_actions out;
    struct str text;
};

static inline void start_as(struct fixture *f, bool prompt_only)
{
    struct request_limits limits = {.runs = 3,
                                    .losses = 9,
                                    .attempts = 6,
                                    .no_worker_us = 1000,
                                    .local_us = 2000}; /* no pauses */
    request_life_init(&f->life, &limits, DEADLINE, prompt_only, &f->out);
}

static inline void start(struct fixture *f)
{
    start_as(f, false);
}

static inline int setup(void **state)
{
    static struct fixture f;
    start(&f);
    str_init(&f.text, 4096);
    *state = &f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    str_deinit(&f->text);
    return 0;
}

static inline void expect(struct fixture *f, const char *text)
{
    str_clear(&f->text);
    text_life_actions(&f->text, &f->out);
    assert_string_equal(f->text.data, text);
}

static inline void placed(struct fixture *f, uint64_t prefill, uint64_t decode)
{
    request_life_on_placed(&f->life, 0, prefill, decode, &f->out);
}

static inline bool opened(struct fixture *f, uint64_t worker, uint32_t attempt)
{
    return request_life_on_opened(&f->life, worker, attempt, (struct handle_ref){7, 0, 1}, &f->out);
}

static inline void token(struct fixture *f, uint64_t worker, uint32_t attempt, uint32_t index,
                         enum finish_reason finish)
{
    struct life_token t = {
        .worker = worker, .attempt = attempt, .index = index, .id = 100 + index, .finish = finish};
    request_life_on_token(&f->life, &t, &f->out);
}

static inline void lost(struct fixture *f, uint64_t worker, uint32_t attempt)
{
    request_life_on_lost(&f->life, worker, attempt, false, &f->out);
}

static inline void step_failed(struct fixture *f, uint64_t worker, uint32_t attempt)
{
    request_life_on_lost(&f->life, worker, attempt, true, &f->out);
}

static inline void session_lost(struct fixture *f, uint64_t worker)
{
    request_life_on_session_lost(&f->life, worker, &f->out);
}

static inline void refused(struct fixture *f, uint64_t worker, uint32_t attempt, bool retry)
{
    request_life_on_refused(&f->life, worker, attempt, retry, &f->out);
}

static inline void decoding(struct fixture *f)
{
    placed(f, P1, D1);
    expect(f, ">1 prefill a1 emitted 0");
    assert_true(opened(f, P1, 1));
    expect(f, ">11 decode a1 emitted 0 handle");
}

static inline void tick(struct fixture *f, uint64_t now_us)
{
    request_life_on_tick(&f->life, now_us, &f->out);
}

#endif
