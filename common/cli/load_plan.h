/* The requests that `baton bench serve` makes, the time at which each is due, and their order.
 *
 * A prompt is a list of segments: names and numbers of tokens. Segments of one name hold the same
 * words, so that prompts share a prefix if they begin with the same names. Time is in nanoseconds
 * since the start, which the caller takes from a monotonic clock.
 *
 * Pure except for load_plan_read_*, which read files. Owner: one thread. Equal settings and seeds
 * make equal plans. Plans beyond the limits are STATUS_LIMIT, settings that can't be are
 * STATUS_INVALID, both with a sentence. */
#ifndef BATON_CLI_LOAD_PLAN_H
#define BATON_CLI_LOAD_PLAN_H

#include "common/base/rng.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define LOAD_MAX_REQUESTS (1u << 22)
#define LOAD_MAX_TOKENS   (1u << 22) /* one prompt's or answer's */
#define LOAD_NONE         UINT32_MAX

struct load_segment {
    uint64_t name;
    uint32_t tokens;
};

struct load_request {
    uint32_t first_segment, segment_count; /* its own, behind those of its parent and its answer */
    uint32_t text;                         /* index of a text that is its prompt; LOAD_NONE */
    uint32_t input_tokens;                 /* its own segments or text */
    uint32_t output_tokens;
    uint32_t parent;   /* an earlier request that it goes on from; LOAD_NONE */
    uint64_t at_ns;    /* due, without a parent */
    uint64_t think_ns; /* due after its parent's end */
};

struct load_plan {
    struct load_request *requests;
    struct load_segment *segments;
    char **texts;
    uint32_t request_count, segment_count, text_count;
    uint32_t request_capacity, segment_capacity, text_capacity;
    uint64_t next_name;
    uint32_t left_out; /* lines or entries of a file that don't fit */
};

void load_plan_init(struct load_plan *plan);
void load_plan_deinit(struct load_plan *plan);

/* --- datasets: each adds `count` requests, due at 0 --- */

struct load_lengths {
    uint32_t input, output;
    uint32_t prefix;    /* tokens that all prompts begin with */
    double range_ratio; /* lengths are uniform in [n (1 - r), n (1 + r)]; in [0, 1) */
};
/* Prompts of random words. */
enum status load_plan_add_random(struct load_plan *plan, const struct load_lengths *lengths,
                                 uint32_t count, uint64_t seed, struct error *err) WARN_UNUSED;

/* Lengths as people chat: log-normal, with means of 161 and 338 tokens (ShareGPT's in Kwon et al.,
 * SOSP'23, figure 11) and a sigma of 1, drawn again until they are in 4 .. 1024 and together at
 * most 2048: vLLM's cuts of ShareGPT. */
enum status load_plan_add_chats(struct load_plan *plan, uint32_t count, uint64_t seed,
                                struct error *err) WARN_UNUSED;

struct load_prefixes {
    uint32_t prefix, suffix, output; /* tokens */
    uint32_t prefixes;               /* different ones, each of count / prefixes prompts */
};
/* Prompts that begin with one of a few prefixes, in random order. */
enum status load_plan_add_prefixes(struct load_plan *plan, const struct load_prefixes *prefixes,
                                   uint32_t count, uint64_t seed, struct error *err) WARN_UNUSED;

struct load_turns {
    uint32_t system, input, output; /* tokens: of the prefix of all, and of each turn */
    uint32_t turns;
    uint32_t branches; /* after the first answer, each of the remaining turns - 1 */
    double think_s;    /* mean, exponential */
};
/* Conversations of 1 + branches * (turns - 1) requests, the last one maybe shorter. A branch goes
 * on from the first answer beside the others, as agents do. */
enum status load_plan_add_turns(struct load_plan *plan, const struct load_turns *turns,
                                uint32_t count, uint64_t seed, struct error *err) WARN_UNUSED;

/* Adds one request with `count` segments of its own; those without tokens are left out. Sets
 * first_segment and segment_count, and adds to input_tokens. */
enum status load_plan_add(struct load_plan *plan, struct load_request request,
                          const struct load_segment *segments, uint32_t count,
                          struct error *err) WARN_UNUSED;
/* Makes room for `need` items of `size` bytes in all. Grows by doubling. */
enum status load_plan_reserve(void **items, size_t size, uint32_t *capacity, uint32_t need,
                              struct error *err) WARN_UNUSED;

/* Reads requests from files: `count` at most. One with over `max_tokens`, prompt and answer
 * together, is left out (0: no limit). A line that can't belong to the file is refused with its
 * number. */
struct load_file {
    const char *path;
    uint32_t count, max_tokens;
    double second; /* seconds that a unit of the file's times takes */
};
/* "arrived_at,num_prefill_tokens,num_decode_tokens" or "TIMESTAMP,ContextTokens,GeneratedTokens",
 * as Azure published its traces of 2023. Times are numbers, or dates with a time of day. */
enum status load_plan_read_azure(struct load_plan *plan, const struct load_file *file,
                                 struct error *err) WARN_UNUSED;
/* Mooncake's traces (prefix_trace.h): prompts share the words of their hash_ids. */
enum status load_plan_read_mooncake(struct load_plan *plan, const struct load_file *file,
                                    struct error *err) WARN_UNUSED;
/* ShareGPT's JSON: [{"conversations": [{"from": "human", "value": "..."}, ...]}, ...]. The first
 * text is the prompt, the second one's length that of the answer (output: 0), as vLLM reads it,
 * with its cuts: 4 tokens at least, 1024 of a prompt and 2048 in all at most. Drawn in random order
 * unless `in_order`. A text has as many tokens as `count_tokens` says. */
struct load_sharegpt {
    struct load_file file;
    uint32_t output;
    uint64_t seed;
    bool in_order;
    enum status (*count_tokens)(const void *context, const char *text, size_t length,
                                uint32_t *tokens, struct error *err);
    const void *context;
};
enum status load_plan_read_sharegpt(struct load_plan *plan, const struct load_sharegpt *sharegpt,
                                    struct error *err) WARN_UNUSED;
/* Repeats the plan's requests, which have no parents, until there are `count`. */
enum status load_plan_repeat(struct load_plan *plan, uint32_t count, struct error *err) WARN_UNUSED;

/* --- arrivals --- */

enum load_ramp { LOAD_RAMP_NONE, LOAD_RAMP_LINEAR, LOAD_RAMP_EXPONENTIAL };

struct load_arrivals {
    double rate;       /* requests a second; INFINITY: all at once */
    double burstiness; /* shape of the gaps' gamma distribution, 1 / CV^2; INFINITY: equal gaps */
    enum load_ramp ramp;
    double start, end; /* rates of the first and of the last request of a ramp */
};
/* Sets when requests without a parent are due. Gaps are gamma-distributed with the rate of their
 * request. Without a ramp they are then scaled so that the last request is due at count / rate, as
 * in vLLM. */
void load_plan_set_arrivals(struct load_plan *plan, const struct load_arrivals *arrivals,
                            uint64_t seed);
/* Returns a draw of the gamma distribution with mean 1 (Marsaglia and Tsang 2000). shape > 0. */
double load_gamma(struct rng *rng, double shape);

/* --- order --- */

/* Says which request to send next: the one that was due first, if fewer than `limit` run. */
struct load_order {
    const struct load_plan *plan;
    uint32_t limit;         /* 0: none */
    uint32_t running, left; /* requests that run, and those that haven't ended */
    uint32_t *due;          /* a heap of requests by due_ns */
    uint32_t due_count;
    uint64_t *due_ns;       /* [request]; known once it is in the heap */
    uint32_t *child, *next; /* [request]: its first child, and its parent's next one */
    uint64_t slot_ns;       /* the latest end while as many ran as may */
};

void load_order_init(struct load_order *order, const struct load_plan *plan, uint32_t limit);
void load_order_deinit(struct load_order *order);
/* Returns the request that load_order_next gives next, if there is one already, or LOAD_NONE. */
uint32_t load_order_peek(const struct load_order *order);
/* Returns when it may be sent; UINT64_MAX: a request must end first. */
uint64_t load_order_when(const struct load_order *order);
/* Takes the next request if it may be sent now, and counts it as running. *ready_ns: when it could
 * be sent at the earliest, due and within the limit. LOAD_NONE: none. */
uint32_t load_order_next(struct load_order *order, uint64_t now_ns, uint64_t *ready_ns);
/* The request ended. Its children become due, or, after a failure, have ended with it: returns how
 * many, with all of theirs, and calls `lost` for each. */
uint32_t load_order_ended(struct load_order *order, uint32_t request, bool success, uint64_t now_ns,
                          void (*lost)(void *context, uint32_t request), void *context);

#endif
