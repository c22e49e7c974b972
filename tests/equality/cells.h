/* The conditions under which a request may be computed. One value of each axis is a cell, and no
 * cell may change a byte of an answer.
 *
 * All cells together are too many for every run of the tests. A covering array is a choice of cells
 * in which every two values of two axes meet: most defects that need several values need only
 * two. */
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
    AXIS_PREFILL,   /* 1: another engine computes it, and its KV blocks are read */
    AXIS_THREADS,
    AXIS_WEIGHTS, /* enum weight_choice */
    AXIS_KV,      /* enum kv_choice */
    AXIS_DRAFTS,  /* drafts of one answer in a step at most */
    AXES
};
enum preempted { PREEMPTED_NEVER, PREEMPTED_SWAP, PREEMPTED_RECOMPUTE };

#define AXIS_MAX_VALUES 4
#define CELLS_MAX       4096

struct cell {
    uint8_t value[AXES]; /* index of the axis's value */
};

uint32_t cell_number(const struct cell *cell, enum axis axis); /* as the enum says */
void cell_name(const struct cell *cell, char *text, size_t size);

/* Fills `cells` [CELLS_MAX] with all cells and returns their number. */
uint32_t cells_whole(struct cell *cells);
/* Fills `cells` [CELLS_MAX] with a covering array by a seed and returns their number. */
uint32_t cells_pairwise(uint64_t seed, struct cell *cells);
/* Returns true if two values meet in none of these cells, and names them in `text`. */
bool cells_miss_a_pair(const struct cell *cells, uint32_t count, char *text, size_t size);

#endif
