/* Under what a request may be computed: one value of each axis is a cell, and no cell may change a
 * byte of its answer.
 *
 * All cells together are too many for every run of the tests. A covering array is a choice of them
 * in which every two values of two axes meet in some cell: most defects that need company at all
 * need no more than that. */
#ifndef BATON_TESTS_CELLS_H
#define BATON_TESTS_CELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum axis {
    AXIS_BATCH,     /* requests in one step */
    AXIS_CHUNK,     /* prompt rows of one step at most */
    AXIS_PREFIX,    /* 1: all beginnings of blocks are cached */
    AXIS_PREEMPTED, /* enum preempted */
    AXIS_PREFILL,   /* 1: computed by another engine, whose KV blocks are read */
    AXIS_THREADS,
    AXIS_WEIGHTS, /* enum weight_choice */
    AXIS_KV,      /* enum kv_choice */
    AXES
};
enum preempted { PREEMPTED_NEVER, PREEMPTED_SWAP, PREEMPTED_RECOMPUTE };

#define AXIS_MAX_VALUES 4
#define CELLS_MAX       4096

struct cell {
    uint8_t value[AXES]; /* which one of the axis */
};

uint32_t cell_number(const struct cell *cell, enum axis axis); /* as the enum says */
void cell_name(const struct cell *cell, char *text, size_t size);

/* How many there are; `cells`: [CELLS_MAX]. */
uint32_t cells_whole(struct cell *cells);
/* A covering array, by a seed; `cells`: [CELLS_MAX]. */
uint32_t cells_pairwise(uint64_t seed, struct cell *cells);
/* Two values that meet in none of these cells, in words. */
bool cells_miss_a_pair(const struct cell *cells, uint32_t count, char *text, size_t size);

#endif
