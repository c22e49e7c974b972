#include "router/planner/breaker.h"

#include <stdlib.h>
#include <string.h>

const char *breaker_state_name(enum breaker_state state)
{
    static const char *const names[] = {"closed", "open", "half_open"};
    return (size_t)state < sizeof names / sizeof *names ? names[state] : "unknown";
}

struct breaker_limits breaker_limits_default(void)
{
    return (struct breaker_limits){.failures = 3,
                                   .percent = 50,
                                   .least_outcomes = 20,
                                   .window_us = 10000000,
                                   .together_us = 10000,
                                   .backoff_us = 1000000,
                                   .max_backoff_us = 60000000,
                                   .probe_us = 10000000};
}

bool breaker_admits(const struct breaker *breaker, const struct breaker_limits *limits,
                    uint64_t now_us)
{
    switch (breaker->state) {
    case BREAKER_OPEN: return now_us >= breaker->probe_us;
    case BREAKER_HALF_OPEN: return now_us >= breaker->probe_us + limits->probe_us;
    default: return true;
    }
}

uint64_t breaker_next_us(const struct breaker *breaker, const struct breaker_limits *limits)
{
    switch (breaker->state) {
    case BREAKER_OPEN: return breaker->probe_us;
    case BREAKER_HALF_OPEN: return breaker->probe_us + limits->probe_us;
    default: return UINT64_MAX;
    }
}

void breaker_placed(struct breaker *breaker, const struct breaker_limits *limits, uint64_t now_us)
{
    bool probed = breaker->state == BREAKER_HALF_OPEN && !breaker_admits(breaker, limits, now_us);
    if (breaker->state == BREAKER_CLOSED || probed)
        return;
    if (breaker->state == BREAKER_OPEN) /* the outcome of an earlier probe counts, too */
        breaker->changed_us = now_us;
    breaker->state = BREAKER_HALF_OPEN;
    breaker->probe_us = now_us;
}

/* Counts one outcome in the window, which moves on by halves. */
static void count(struct breaker *breaker, const struct breaker_limits *limits, bool good,
                  uint64_t now_us)
{
    uint64_t half_us = limits->window_us / 2;
    if (now_us - breaker->halves[0].begun_us >= half_us) {
        bool adjoins = now_us - breaker->halves[0].begun_us < 2 * half_us;
        breaker->halves[1] = breaker->halves[0];
        if (!adjoins)
            memset(&breaker->halves[1], 0, sizeof breaker->halves[1]);
        memset(&breaker->halves[0], 0, sizeof breaker->halves[0]);
        breaker->halves[0].begun_us = now_us;
    }
    breaker->halves[0].good += good;
    breaker->halves[0].failed += !good;
}

static void change(struct breaker *breaker, enum breaker_state state, uint64_t now_us)
{
    breaker->state = state;
    breaker->changed_us = now_us;
    breaker->failures = 0;
    memset(breaker->halves, 0, sizeof breaker->halves);
}

bool breaker_good(struct breaker *breaker, const struct breaker_limits *limits, uint64_t placed_us,
                  uint64_t now_us)
{
    if (placed_us < breaker->changed_us || breaker->state == BREAKER_OPEN)
        return false;
    breaker->failures = 0;
    count(breaker, limits, true, now_us);
    if (breaker->state != BREAKER_HALF_OPEN)
        return false;
    change(breaker, BREAKER_CLOSED, now_us);
    breaker->backoff_us = 0;
    return true;
}

bool breaker_failed(struct breaker *breaker, const struct breaker_limits *limits,
                    uint64_t placed_us, uint64_t now_us)
{
    bool together = breaker->failed_us && now_us - breaker->failed_us < limits->together_us;
    if (!limits->failures || breaker->state == BREAKER_OPEN || placed_us < breaker->changed_us ||
        (together && breaker->state == BREAKER_CLOSED))
        return false;
    breaker->failed_us = now_us;
    breaker->failures++;
    count(breaker, limits, false, now_us);
    uint64_t failed = (uint64_t)breaker->halves[0].failed + breaker->halves[1].failed;
    uint64_t all = failed + breaker->halves[0].good + breaker->halves[1].good;
    bool too_often = all >= limits->least_outcomes && failed * 100 >= all * limits->percent;
    if (breaker->state == BREAKER_CLOSED && breaker->failures < limits->failures && !too_often)
        return false;
    uint64_t twice_us = 2 * breaker->backoff_us;
    breaker->backoff_us = !twice_us                           ? limits->backoff_us
                          : twice_us > limits->max_backoff_us ? limits->max_backoff_us
                                                              : twice_us;
    change(breaker, BREAKER_OPEN, now_us);
    breaker->probe_us = now_us + breaker->backoff_us;
    breaker->opened_count++;
    return true;
}

struct blame blame_of(const struct blame_cause *cause)
{
    static const char *const of_pair[] = {"gone",     "peer_down", "silent", "read",
                                          "checksum", "protocol",  "pairing"};
    if (!cause->refused && !strcmp(cause->reason, "step_failed"))
        return (struct blame){.worker = cause->step_failed_before ? 0 : cause->said_by};
    if (cause->said_by != cause->decode || !cause->prefill)
        return (struct blame){.worker = 0};
    size_t length = strcspn(cause->reason, ":"); /* "read: closed" */
    for (size_t i = 0; i < sizeof of_pair / sizeof *of_pair; i++)
        if (length == strlen(of_pair[i]) && !strncmp(cause->reason, of_pair[i], length))
            return (struct blame){.worker = cause->prefill, .reader = cause->decode};
    return (struct blame){.worker = 0};
}

/* ------------------------------------------------------------------------ breakers of a cluster */

enum status breakers_init(struct breakers *breakers, const struct breaker_limits *limits,
                          size_t slots)
{
    *breakers = (struct breakers){.limits = *limits, .slots = slots};
    breakers->workers = calloc(slots, sizeof *breakers->workers);
    breakers->noted = calloc(slots, sizeof *breakers->noted);
    return breakers->workers && breakers->noted ? STATUS_OK : STATUS_LIMIT;
}

void breakers_deinit(struct breakers *breakers)
{
    free(breakers->workers);
    free(breakers->noted);
}

struct breaker *breakers_of(struct breakers *breakers, uint64_t worker)
{
    struct worker_breaker *slot = &breakers->workers[worker % breakers->slots];
    if (slot->worker != worker)
        *slot = (struct worker_breaker){.worker = worker};
    return &slot->breaker;
}

struct pair_breaker *breakers_pair(struct breakers *breakers, uint64_t prefill, uint64_t decode)
{
    for (size_t i = 0; i < breakers->pair_count; i++)
        if (breakers->pairs[i].prefill == prefill && breakers->pairs[i].decode == decode)
            return &breakers->pairs[i];
    return NULL;
}

struct breaker *breakers_of_pair(struct breakers *breakers, uint64_t prefill, uint64_t decode)
{
    struct pair_breaker *pair = breakers_pair(breakers, prefill, decode);
    return pair ? &pair->breaker : NULL;
}

/* Makes one if there is none. */
static struct breaker *take_pair(struct breakers *breakers, uint64_t prefill, uint64_t decode)
{
    struct breaker *found = breakers_of_pair(breakers, prefill, decode);
    if (found)
        return found;
    size_t place = breakers->pair_count;
    if (place < BREAKER_MAX_PAIRS)
        breakers->pair_count++;
    else
        for (size_t i = place = 0; i < BREAKER_MAX_PAIRS; i++)
            if (breakers->pairs[i].breaker.failed_us < breakers->pairs[place].breaker.failed_us)
                place = i;
    breakers->pairs[place] = (struct pair_breaker){.prefill = prefill, .decode = decode};
    breakers->changes++;
    return &breakers->pairs[place].breaker;
}

static void placed_at(struct breakers *breakers, struct breaker *breaker, uint64_t now_us)
{
    if (!breaker || breaker->state == BREAKER_CLOSED)
        return;
    breaker_placed(breaker, &breakers->limits, now_us);
    breakers->changes++;
}

void breakers_placed(struct breakers *breakers, const struct request_life *life, uint64_t now_us)
{
    if (life->prefill && life->state == REQUEST_PREFILL)
        placed_at(breakers, breakers_of(breakers, life->prefill), now_us);
    bool guessed = life->state == REQUEST_PREFILL && life->limits.bind_late;
    if (life->decode && !guessed)
        placed_at(breakers, breakers_of(breakers, life->decode), now_us);
    if (life->prefill && life->decode && !guessed)
        placed_at(breakers, breakers_of_pair(breakers, life->prefill, life->decode), now_us);
}

static void good(struct breakers *breakers, struct breaker *breaker, uint64_t placed_us,
                 uint64_t now_us)
{
    if (breaker)
        breakers->changes += breaker_good(breaker, &breakers->limits, placed_us, now_us);
}

void breakers_token(struct breakers *breakers, const struct request_life *life,
                    const struct life_token *token, uint64_t now_us)
{
    uint32_t first = life->handle_emitted + 1;
    bool handed_over = life->state == REQUEST_DECODE && life->has_handle;
    if (token->attempt != life->attempt || token->index < first || token->index > first + 1)
        return;
    if (token->worker == life->decode && token->index == first + handed_over)
        good(breakers, breakers_of(breakers, token->worker), life->placed_us, now_us);
    else if (token->worker == life->decode && token->index == first)
        good(breakers, breakers_of_pair(breakers, life->prefill, life->decode), life->placed_us,
             now_us);
    else if (token->worker == life->prefill && token->index == first)
        good(breakers, breakers_of(breakers, token->worker), life->placed_us, now_us);
}

static void worker_failed(struct breakers *breakers, uint64_t worker, uint64_t placed_us,
                          uint64_t now_us)
{
    struct breaker *breaker = breakers_of(breakers, worker);
    struct worker_breaker *slot = &breakers->workers[worker % breakers->slots];
    breakers->changes += breaker_failed(breaker, &breakers->limits, placed_us, now_us);
    if (breaker->state == BREAKER_CLOSED || slot->noted)
        return;
    if (breakers->noted_count == breakers->slots)
        breakers_tidy(breakers);
    slot->noted = true;
    breakers->noted[breakers->noted_count++] = worker;
}

void breakers_said(struct breakers *breakers, const struct request_life *life,
                   const struct breaker_said *said, uint64_t now_us)
{
    if (!request_life_works(life) || said->attempt != life->attempt)
        return;
    struct blame blame = blame_of(&(struct blame_cause){.said_by = said->worker,
                                                        .prefill = life->prefill,
                                                        .decode = life->decode,
                                                        .reason = said->reason,
                                                        .refused = said->refused,
                                                        .step_failed_before = life->step_failed});
    if (blame.reader)
        breakers->changes += breaker_failed(take_pair(breakers, blame.worker, blame.reader),
                                            &breakers->limits, life->placed_us, now_us);
    else if (blame.worker)
        worker_failed(breakers, blame.worker, life->placed_us, now_us);
}

void breakers_left(struct breakers *breakers, uint64_t worker, uint64_t now_us)
{
    worker_failed(breakers, worker, now_us, now_us);
}

void breakers_forget(struct breakers *breakers, uint64_t worker)
{
    breakers->workers[worker % breakers->slots] = (struct worker_breaker){.worker = 0};
    for (size_t i = 0; i < breakers->noted_count; i++)
        if (breakers->noted[i] == worker)
            breakers->noted[i] = breakers->noted[--breakers->noted_count];
    for (size_t i = 0; i < breakers->pair_count;)
        if (breakers->pairs[i].prefill == worker || breakers->pairs[i].decode == worker)
            breakers->pairs[i] = breakers->pairs[--breakers->pair_count];
        else
            i++;
    breakers->changes++;
}

void breakers_tidy(struct breakers *breakers)
{
    size_t kept = 0;
    for (size_t i = 0; i < breakers->noted_count; i++) {
        uint64_t worker = breakers->noted[i];
        struct worker_breaker *slot = &breakers->workers[worker % breakers->slots];
        slot->noted &= slot->worker != worker || slot->breaker.state != BREAKER_CLOSED;
        if (slot->worker == worker && slot->noted)
            breakers->noted[kept++] = worker;
    }
    breakers->noted_count = kept;
}

static int latest_failure_first(const void *a, const void *b)
{
    const struct breaker_candidate *x = a, *y = b;
    if (x->pool != y->pool)
        return x->pool < y->pool ? -1 : 1;
    return (x->failed_us < y->failed_us) - (x->failed_us > y->failed_us);
}

uint64_t breakers_keep_out(struct breakers *breakers, struct breaker_candidate *candidates,
                           size_t count, const size_t *pool_sizes, uint64_t now_us)
{
    uint64_t next_us = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        struct breaker_candidate *candidate = &candidates[i];
        const struct breaker *breaker =
            candidate->reader ? breakers_of_pair(breakers, candidate->worker, candidate->reader)
                              : breakers_of(breakers, candidate->worker);
        bool admits = !breaker || breaker_admits(breaker, &breakers->limits, now_us);
        candidate->failed_us = breaker ? breaker->failed_us : 0;
        candidate->until_us = admits ? 0 : breaker_next_us(breaker, &breakers->limits);
        if (!admits && candidate->until_us < next_us)
            next_us = candidate->until_us;
    }
    if (count)
        qsort(candidates, count, sizeof *candidates, latest_failure_first);
    for (size_t i = 0, kept_out = 0; i < count; i++) {
        if (i && candidates[i].pool != candidates[i - 1].pool)
            kept_out = 0;
        if (candidates[i].until_us && kept_out == pool_sizes[candidates[i].pool] / 2)
            candidates[i].until_us = 0; /* the ones that failed longest ago may come back */
        kept_out += candidates[i].until_us != 0;
    }
    return next_us;
}
