/* Inside kernels/cpu: the (query row, head) pairs that attention computes together, and what they
 * see. See attention.c. */
#ifndef BATON_KERNELS_CPU_ATTENTION_SLICE_H
#define BATON_KERNELS_CPU_ATTENTION_SLICE_H

#include "common/base/u32.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kv_view.h"

#define SEGMENT_RUNS (ATTENTION_SEGMENT_TOKENS / RUN_TOKENS)

struct attention_job {
    const struct cpu *cpu;
    const struct step_batch *batch;
    const struct attention_shape *shape;
    struct kv_view kv;
    const float *qkv;
    float *out;
    uint32_t group;     /* query heads per KV head */
    uint32_t item_rows; /* query rows of a work item */
};

/* Consecutive (query row, head) pairs of one sequence and KV head: pair i is row `first_row` +
 * (first_head + i) / group. */
struct slice {
    const struct attention_job *job;
    const struct attention_inner *inner;
    struct attention_scratch *scratch;
    uint32_t sequence, kv_head;
    uint32_t first_row, pairs; /* pairs counted from head `first_head` of first_row */
    uint32_t first_head;       /* inside the group */
    uint32_t context; /* tokens that its last pair sees, or that are in front of its window */
    uint32_t segment; /* the one at hand: its first position */
    struct attention_tokens keys, values; /* of it */
    const char *runs[SEGMENT_RUNS]; /* where its keys lie; values are behind each at one distance */
};

/* A slice over the segment at hand: its partials are merged into those of the segments before it
 * (attention_segment.c). */
void attend_segment(struct slice *slice);

static inline uint32_t position_of(const struct attention_job *job, uint32_t row)
{
    return ((const uint32_t *)job->batch->positions.address)[row];
}

static inline uint32_t sequence_of(const struct attention_job *job, uint32_t row)
{
    return ((const uint32_t *)job->batch->row_sequence.address)[row];
}

static inline uint32_t pair_row(const struct slice *slice, uint32_t pair)
{
    return slice->first_row + (slice->first_head + pair) / slice->job->group;
}

/* Where the pair's query starts in its row of qkv, and its output in its row of out, in units of
 * head_dim. */
static inline uint32_t pair_head(const struct slice *slice, uint32_t pair)
{
    return slice->kv_head * slice->job->group + (slice->first_head + pair) % slice->job->group;
}

/* --- what a pair sees --- */

static inline uint32_t window_begin(const struct slice *slice, uint32_t pair)
{
    uint32_t position = position_of(slice->job, pair_row(slice, pair));
    uint32_t window = slice->job->shape->window;
    return window && position >= window ? position - window + 1 : 0;
}

/* The segment from which on the pair sees anything. */
static inline uint32_t first_segment(const struct slice *slice, uint32_t pair)
{
    return window_begin(slice, pair) / ATTENTION_SEGMENT_TOKENS * ATTENTION_SEGMENT_TOKENS;
}

static inline bool sees_segment(const struct slice *slice, uint32_t pair)
{
    return slice->segment <= position_of(slice->job, pair_row(slice, pair)) &&
           slice->segment >= first_segment(slice, pair);
}

/* Tokens of the segment up to the pair's position. */
static inline uint32_t segment_end(const struct slice *slice, uint32_t pair)
{
    uint32_t position = position_of(slice->job, pair_row(slice, pair));
    return min_u32(position - slice->segment + 1, ATTENTION_SEGMENT_TOKENS);
}

#endif
