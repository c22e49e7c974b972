/* Clients that only cost: idle ones, which asked something once and keep their connection; and slow
 * ones, of which a third each sends a head, or a body, of one byte a second, or asks for a long
 * answer and reads 256 bytes of it a second. Whom the server puts out comes again, a little later.
 * The slow ones come within ten seconds, the idle ones within sixty. A thread of its own, to the
 * process's end, which wakes a hundred times a second. */
#ifndef BATON_TESTS_BENCH_CROWD_H
#define BATON_TESTS_BENCH_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct crowd;

struct crowd_config {
    char address[64], model[128];
    uint32_t idle, slow;
    uint32_t tokens; /* of the answers that are read slowly, to each of four prompts */
};

/* Those that are connected now; since the start: those that the server put out, the bytes of heads
 * and bodies that went one by one, those of answers that were read; since they were told last: by
 * how much a turn was late at most. */
struct crowd_figures {
    uint32_t connected;
    uint64_t put_out, refused, sent_bytes, read_bytes, late_us;
};

struct crowd *crowd_start(const struct crowd_config *config); /* NULL: no memory, no thread */
void crowd_figures(struct crowd *crowd, struct crowd_figures *figures);
void crowd_stop(struct crowd *crowd);

#endif
