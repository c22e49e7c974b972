/* The use of one API key against its limits: requests per minute, tokens per minute, and requests
 * at once. PURE.
 *
 * Both rates are token buckets. They are full at first, hold one minute's worth, and fill evenly. A
 * request takes 1 from the first bucket when it comes. When its length is known, it takes the
 * tokens that it could use from the second; the unused ones go back at its end. So an idle key may
 * use a minute's worth at once, but no more than its rate over any longer time.
 *
 * Each choice of a request runs for itself: a request with n choices counts as n running ones.
 *
 * Arithmetic is exact: levels are in units of 1 / QUOTA_MINUTE_US. Times are from one monotonic
 * clock. */
#ifndef BATON_ROUTER_OPS_QUOTA_H
#define BATON_ROUTER_OPS_QUOTA_H

#include <stdint.h>

#define QUOTA_MINUTE_US 60000000

/* 0: no limit. */
struct quota_limits {
    uint64_t requests_per_minute, tokens_per_minute; /* at most 10^9 */
    uint32_t running;
};

/* All zero at first. */
struct quota {
    int64_t requests_used, tokens_used; /* and not refilled yet, times QUOTA_MINUTE_US */
    uint64_t filled_us;                 /* time of the last refill */
    uint32_t running;                   /* choices */
    uint64_t lasted_us; /* how long a choice runs, a moving average; 0: none has ended yet */
};

enum quota_verdict {
    QUOTA_GRANTED,
    QUOTA_REQUESTS, /* too many requests this minute */
    QUOTA_TOKENS,   /* too many tokens this minute */
    QUOTA_RUNNING,  /* too many at once */
    QUOTA_NEVER,    /* more tokens than a whole minute's worth */
    QUOTA_TOO_MANY, /* more choices than may ever run at once */
};

/* A request comes. GRANTED: its first choice runs until quota_choice_ended. Otherwise *retry_us is
 * the time to wait, one minute at most. It is exact for rates. For choices at once it is when
 * enough of them end at the pace of late (Little's law), at least a second. */
enum quota_verdict quota_begin(struct quota *quota, const struct quota_limits *limits,
                               uint64_t now_us, uint64_t *retry_us);
/* The request has `more` choices beyond the first, which run from now on. RUNNING, TOO_MANY: none
 * of them does. */
enum quota_verdict quota_run(struct quota *quota, const struct quota_limits *limits, uint32_t more,
                             uint64_t *retry_us);
/* Reserves the tokens that the request could use. */
enum quota_verdict quota_reserve(struct quota *quota, const struct quota_limits *limits,
                                 uint64_t tokens, uint64_t now_us, uint64_t *retry_us);
/* A choice that ran for lasted_us has ended. */
void quota_choice_ended(struct quota *quota, uint64_t lasted_us);
/* The request ends, having used `used` of the `reserved` tokens (0: none were reserved). */
void quota_end(struct quota *quota, const struct quota_limits *limits, uint64_t reserved,
               uint64_t used, uint64_t now_us);

#endif
