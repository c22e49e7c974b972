/* Shapes of decode steps that a device records once and runs whole (kernels_pass_begin), and the
 * choice of one for a step. A step of fewer rows is padded up to its bucket's, and the bucket's
 * tables cover its longest context. PURE. */
#ifndef BATON_ENGINE_STEP_BUCKETS_H
#define BATON_ENGINE_STEP_BUCKETS_H

#include "common/base/status.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdint.h>

#define STEP_BUCKETS_NONE  KERNELS_NO_PASS
#define STEP_BUCKETS_SIZES 32 /* numbers of rows */

struct step_bucket {
    uint32_t rows;   /* in the step; each draws a token */
    uint32_t blocks; /* a row's context has at most so many */
    bool ready;      /* it is recorded */
};

struct step_buckets {
    uint32_t count;
    struct step_bucket all[KERNELS_MAX_PASSES]; /* in the order in which they are recorded */
    uint64_t record_us[KERNELS_MAX_PASSES];     /* the time that it took, of those that are ready */
};

/* The numbers of rows that a setting names: "auto" (1, 2, 4, 8, 16, 24 ... 64, then in steps of an
 * eighth to a quarter), "off", or ascending numbers ("1,8,64"). */
struct step_bucket_sizes {
    bool chosen; /* otherwise auto */
    uint32_t count, rows[STEP_BUCKETS_SIZES];
};
/* STATUS_INVALID, with a sentence: another text. */
enum status step_bucket_sizes_parse(const char *text, struct step_bucket_sizes *sizes,
                                    struct error *err) WARN_UNUSED;

/* Makes the buckets, none of them ready: for each number of rows up to most_rows (the last of auto
 * is most_rows itself), contexts of up to 2048 tokens, 4 times as many, and so on up to the whole
 * context. Short contexts come first, and many rows before few: if memory or time ends, what is
 * there serves most steps. The first KERNELS_MAX_PASSES are kept. */
void step_buckets_make(const struct step_bucket_sizes *sizes, uint32_t most_rows,
                       uint32_t context_blocks, uint32_t block_tokens,
                       struct step_buckets *buckets);
/* Predicts the microseconds that it takes to record bucket `next` behind all before it: as many as
 * the last one of as many rows, otherwise the one before it. 0: it is the first. */
uint64_t step_buckets_record_us(const struct step_buckets *buckets, uint32_t next);
/* Returns the ready bucket of fewest rows, of these the one of shortest contexts, that holds `rows`
 * rows of up to `blocks` blocks. STEP_BUCKETS_NONE: none does. */
uint32_t step_buckets_choose(const struct step_buckets *buckets, uint32_t rows, uint32_t blocks);

#endif
