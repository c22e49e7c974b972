#include "router/ops/quota.h"

#define RUNNING_RETRY_US 1000000    /* at least; before the first end it is a guess */
#define LONGEST_US       3600000000 /* a choice that runs longer counts as if it ran so long */
#define LASTED_WEIGHT    8          /* an end has one 8th of the average's weight */

/* The use that is left after a refill of `elapsed_us`, which is one minute at most. */
static int64_t less(int64_t used, uint64_t per_minute, uint64_t elapsed_us)
{
    int64_t filled = (int64_t)(elapsed_us * per_minute);
    return used > filled ? used - filled : 0;
}

static void fill(struct quota *quota, const struct quota_limits *limits, uint64_t now_us)
{
    uint64_t elapsed_us = now_us > quota->filled_us ? now_us - quota->filled_us : 0;
    if (elapsed_us > QUOTA_MINUTE_US)
        elapsed_us = QUOTA_MINUTE_US;
    quota->requests_used = less(quota->requests_used, limits->requests_per_minute, elapsed_us);
    quota->tokens_used = less(quota->tokens_used, limits->tokens_per_minute, elapsed_us);
    if (now_us > quota->filled_us)
        quota->filled_us = now_us;
}

/* The time until `amount` more fits; 0: now. `per_minute` 0: no limit. */
static uint64_t wait_us(int64_t used, uint64_t per_minute, uint64_t amount)
{
    if (!per_minute)
        return 0;
    int64_t room = (int64_t)(per_minute * QUOTA_MINUTE_US) - used;
    int64_t wanted = (int64_t)(amount * QUOTA_MINUTE_US);
    if (wanted <= room)
        return 0;
    uint64_t us = ((uint64_t)(wanted - room) + per_minute - 1) / per_minute;
    return us < QUOTA_MINUTE_US ? us : QUOTA_MINUTE_US;
}

/* RUNNING: *retry_us is the time until as many have ended as must, at the pace of late. */
static enum quota_verdict run(struct quota *quota, const struct quota_limits *limits,
                              uint32_t choices, uint64_t *retry_us)
{
    uint64_t running = (uint64_t)quota->running + choices;
    *retry_us = 0;
    if (!limits->running || running <= limits->running)
        return QUOTA_GRANTED;
    uint64_t us = quota->lasted_us * (running - limits->running) / quota->running;
    us = us < RUNNING_RETRY_US ? RUNNING_RETRY_US : us;
    *retry_us = us < QUOTA_MINUTE_US ? us : QUOTA_MINUTE_US;
    return QUOTA_RUNNING;
}

enum quota_verdict quota_begin(struct quota *quota, const struct quota_limits *limits,
                               uint64_t now_us, uint64_t *retry_us)
{
    fill(quota, limits, now_us);
    if (run(quota, limits, 1, retry_us) != QUOTA_GRANTED)
        return QUOTA_RUNNING;
    *retry_us = wait_us(quota->requests_used, limits->requests_per_minute, 1);
    if (*retry_us)
        return QUOTA_REQUESTS;
    if (limits->requests_per_minute)
        quota->requests_used += QUOTA_MINUTE_US;
    quota->running++;
    return QUOTA_GRANTED;
}

enum quota_verdict quota_run(struct quota *quota, const struct quota_limits *limits, uint32_t more,
                             uint64_t *retry_us)
{
    *retry_us = 0;
    if (limits->running && more >= limits->running)
        return QUOTA_TOO_MANY;
    enum quota_verdict verdict = run(quota, limits, more, retry_us);
    if (verdict == QUOTA_GRANTED)
        quota->running += more;
    return verdict;
}

void quota_choice_ended(struct quota *quota, uint64_t lasted_us)
{
    uint64_t us = lasted_us < LONGEST_US ? lasted_us : LONGEST_US;
    quota->lasted_us =
        quota->lasted_us ? (quota->lasted_us * (LASTED_WEIGHT - 1) + us) / LASTED_WEIGHT : us;
    if (quota->running)
        quota->running--;
}

enum quota_verdict quota_reserve(struct quota *quota, const struct quota_limits *limits,
                                 uint64_t tokens, uint64_t now_us, uint64_t *retry_us)
{
    *retry_us = 0;
    if (!limits->tokens_per_minute)
        return QUOTA_GRANTED;
    if (tokens > limits->tokens_per_minute)
        return QUOTA_NEVER;
    fill(quota, limits, now_us);
    *retry_us = wait_us(quota->tokens_used, limits->tokens_per_minute, tokens);
    if (*retry_us)
        return QUOTA_TOKENS;
    quota->tokens_used += (int64_t)(tokens * QUOTA_MINUTE_US);
    return QUOTA_GRANTED;
}

void quota_end(struct quota *quota, const struct quota_limits *limits, uint64_t reserved,
               uint64_t used, uint64_t now_us)
{
    fill(quota, limits, now_us);
    uint64_t unused = used < reserved ? reserved - used : 0;
    if (limits->tokens_per_minute && unused) {
        int64_t back = unused < limits->tokens_per_minute
                           ? (int64_t)(unused * QUOTA_MINUTE_US)
                           : (int64_t)(limits->tokens_per_minute * QUOTA_MINUTE_US);
        quota->tokens_used = quota->tokens_used > back ? quota->tokens_used - back : 0;
    }
}
