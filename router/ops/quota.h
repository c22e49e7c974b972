/* PURE: what one API key has used of what it may: requests and tokens a minute, and requests at
 * once.
 *
 * Rates are token buckets: full at first, a minute's worth deep, filled evenly. A request takes 1
 * from the first when it comes, and from the second, when its length is known, as many tokens as it
 * could use; what it didn't use goes back at its end. So a key that has rested may use a minute's
 * worth at once, and over any longer time no more than its rate.
 *
 * Arithmetic is exact: levels count in millionths of a sixtieth. Times are of one clock that never
 * goes back.
 */
#ifndef BATON_ROUTER_OPS_QUOTA_H
#define BATON_ROUTER_OPS_QUOTA_H

#include <stdint.h>

#define QUOTA_MINUTE_US 60000000

/* 0: no limit. */
struct quota_limits {
    uint64_t requests_per_minute, tokens_per_minute; /* at most 10^9 */
    uint32_t running;
};

/* Zeroed: nothing was used yet. */
struct quota {
    int64_t requests_used,
        tokens_used; /* times QUOTA_MINUTE_US; what has not been filled up since */
    uint64_t filled_us;
    uint32_t running;
};

enum quota_verdict {
    QUOTA_GRANTED,
    QUOTA_REQUESTS, /* too many requests this minute */
    QUOTA_TOKENS,   /* too many tokens this minute */
    QUOTA_RUNNING,  /* too many at once */
    QUOTA_NEVER,    /* more tokens than a whole minute's worth */
};

/* A request comes. GRANTED: it counts, and runs until quota_end. Otherwise *retry_us says how long
 * to wait: a whole minute at most. */
enum quota_verdict quota_begin(struct quota *quota, const struct quota_limits *limits,
                               uint64_t now_us, uint64_t *retry_us);
/* It could use so many tokens. */
enum quota_verdict quota_reserve(struct quota *quota, const struct quota_limits *limits,
                                 uint64_t tokens, uint64_t now_us, uint64_t *retry_us);
/* It ends, having used `used` of the `reserved` tokens (0: none were). */
void quota_end(struct quota *quota, const struct quota_limits *limits, uint64_t reserved,
               uint64_t used, uint64_t now_us);

#endif
