/* The work that one worker holds, as sums over its requests: what predictions read. PURE, plain
 * data.
 *
 * placement_track enters each request's part (struct books_part), and takes exactly that out again,
 * so the books are always the sum of the parts. All numbers are integers: nothing drifts. Entering
 * and taking out cost the same for any number of requests; readers cost O(buckets).
 *
 * A request on a worker first has a prompt to compute (`prefill`), or is coming from another worker
 * (`coming`), and then draws tokens (`drawing`). */
#ifndef BATON_ROUTER_PLANNER_WORKER_BOOKS_H
#define BATON_ROUTER_PLANNER_WORKER_BOOKS_H

#include "common/base/domain/priority.h"

#include <stdbool.h>
#include <stdint.h>

/* Times by powers of two, an eighth of an octave each: from 500 us to 21 s. The first bucket is for
 * what is shorter or over, the last for what is longer. */
#define BOOKS_AN_OCTAVE 8
#define BOOKS_TIMES     125
#define BOOKS_WORDS     ((BOOKS_TIMES + 63) / 64)
/* Tokens by powers of two; the last: 2^19 and more. */
#define BOOKS_LENGTHS 20
/* The weight of a usual miss. */
#define BOOKS_WEIGHT_ONE 256

/* Prompts to compute, of one priority. */
struct books_prefill {
    uint32_t requests;
    uint64_t rows, positions; /* rows to compute, and the sum of their positions */
    /* By slack: how much later each may come and still attain its TTFT. Sums of weights. */
    uint32_t slack[BOOKS_TIMES];
    uint64_t slack_set[BOOKS_WORDS]; /* bits of the buckets that aren't 0: books_next */
};

struct books_rows {
    uint32_t rows;
    uint64_t context; /* tokens before these rows */
};

struct worker_books {
    struct books_prefill prefill[PRIORITIES];
    uint32_t prompts;          /* to compute, of all priorities */
    struct books_rows drawing; /* decode rows of each step */
    struct books_rows coming;  /* placed, and not drawing yet */
    /* Drawing rows by the tokens that they are expected to draw still: the next departures. */
    struct books_rows left[BOOKS_LENGTHS];
    uint32_t left_set; /* bits of the buckets with rows */
    /* Drawing and coming requests with an objective, by the step time that they tolerate: with a
     * longer one for the rest of the answer they miss TPOT. Sums of weights. */
    uint32_t tolerance[BOOKS_TIMES];
    uint64_t tolerance_set[BOOKS_WORDS];
    uint64_t held_tokens;     /* KV in use, and reserved for prompts */
    uint64_t promised_tokens; /* KV when all answers have their expected length */
    uint64_t variance;        /* tokens squared: promised_tokens may err so much */
    uint64_t moving_tokens;   /* decode: prompts of handoffs to it that are not done */
};

/* The work that a worker was given, and the part of it that came late: halved now and then. Not a
 * sum over the requests there. */
struct books_floor {
    double given_us, late_us;
};

/* One request's part of the books of one worker. */
struct books_part {
    enum priority priority;
    bool prefill, drawing, coming;
    uint8_t slack, tolerance, left; /* buckets */
    uint16_t slack_weight, tolerance_weight;
    uint64_t rows, positions; /* prefill */
    uint64_t context;         /* drawing or coming */
    uint64_t held_tokens, promised_tokens, variance, moving_tokens;
};

void worker_books_add(struct worker_books *books, const struct books_part *part);
/* Takes out a part that was added. */
void worker_books_take(struct worker_books *books, const struct books_part *part);
bool books_parts_equal(const struct books_part *a, const struct books_part *b);

/* Returns the bucket of a time in microseconds; not above 0: the first one. */
uint8_t books_time_bucket(double us);
/* Returns the middle of a bucket, in microseconds. */
double books_time_us(unsigned bucket);
/* Returns the first bucket of the set from `bucket` on; BOOKS_TIMES: there is none. So a reader
 * looks at the few buckets that have something. */
unsigned books_next(const uint64_t set[BOOKS_WORDS], unsigned bucket);
/* Returns the bucket of a number of tokens. */
uint8_t books_length_bucket(uint64_t tokens);

/* Returns the drawing rows that are still there after `steps` steps, and their context then. Rows
 * of one bucket leave evenly over its width. *rows and *context are not rounded. */
void worker_books_after(const struct worker_books *books, double steps, double *rows,
                        double *context);
/* Returns the mean of the tokens that drawing rows still have to draw; 0: there are none. */
double worker_books_mean_left(const struct worker_books *books);

#endif
