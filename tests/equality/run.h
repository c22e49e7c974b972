/* Runs the same requests in a cell (cells.h), and proves that what the cell names has happened: the
 * batch was reached, prompts were found in the cache or not, sequences were swapped or dropped,
 * rows were computed once, where they should be, in steps as large as the chunk lets them be and no
 * larger, by all of the compute threads and no others (watch.h). */
#ifndef BATON_TESTS_RUN_H
#define BATON_TESTS_RUN_H

#include "tests/equality/cells.h"
#include "tests/equality/requests.h"

struct answer {
    uint32_t count;
    uint32_t tokens[ANSWER];
    uint64_t hashes[ANSWER];   /* of the fp32 logits that each was drawn from */
    uint64_t logprobs[ANSWER]; /* hashes of all that is told */
};

/* What else a test does to one cell, to see that equality would be noticed to be gone. */
enum spoil {
    SPOIL_NOTHING,
    SPOIL_CACHED, /* a bit of each block, after the beginnings were cached */
    SPOIL_READ,   /* a bit of the first block that was read */
    SPOIL_SEED    /* the last request's */
};

struct counts {
    uint64_t prompt_rows, hit_tokens, swapped, dropped;
};

/* Each of the requests alone, its prompt whole, on one thread, with nothing cached: `answers`
 * [REQUESTS]. */
void run_alone(const struct cell *cell, struct answer *answers);
/* Those of the cell's batch, into answers[0..batch). */
struct counts run_cell(const struct cell *cell, enum spoil spoil, struct answer *answers);
/* The same with the long request last, which is preempted in the middle of its prompt. Prefill is
 * local, in small chunks. */
struct counts run_early(const struct cell *cell, struct answer *answers);

#endif
