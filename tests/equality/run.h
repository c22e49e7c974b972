/* Runs the same requests in a cell (cells.h), and proves that each value of the cell had its
 * effect. The batch was reached, prompts were found in the cache or not, and sequences were swapped
 * or dropped. Rows were computed once, in the right place, in steps as large as the chunk allows
 * and no larger, by all of the compute threads and no others (watch.h). */
#ifndef BATON_TESTS_RUN_H
#define BATON_TESTS_RUN_H

#include "tests/equality/cells.h"
#include "tests/equality/requests.h"

struct answer {
    uint32_t count;
    uint32_t tokens[ANSWER];
    uint64_t hashes[ANSWER];   /* hashes of the fp32 logits that each was drawn from */
    uint64_t logprobs[ANSWER]; /* hashes of all reported logprobs */
};

/* Damage that a test does in one cell, to prove that a difference would be noticed. */
enum spoil {
    SPOIL_NOTHING,
    SPOIL_CACHED, /* flips a bit of each block, after the beginnings were cached */
    SPOIL_READ,   /* flips a bit of the first block that was read */
    SPOIL_SEED    /* changes the last request's seed */
};

struct counts {
    uint64_t prompt_rows, hit_tokens, swapped, dropped;
};

/* Runs each request alone, its prompt whole, on one thread, with nothing cached. Fills `answers`
 * [REQUESTS]. */
void run_alone(const struct cell *cell, struct answer *answers);
/* Runs the requests of the cell's batch. Fills answers[0..batch). `alone`: what run_alone gave, for
 * drafts. */
struct counts run_cell(const struct cell *cell, enum spoil spoil, const struct answer *alone,
                       struct answer *answers);
/* The same with the long request last: it is preempted in the middle of its prompt. Prefill is
 * local, in small chunks. */
struct counts run_early(const struct cell *cell, struct answer *answers);

#endif
