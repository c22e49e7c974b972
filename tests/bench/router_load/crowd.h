/* Clients that only cost: idle ones, which asked something once and keep their connection; and slow ones, of which a third each sends a head, or a body, of one
 * byte a second, or asks for a long answer and reads 256 bytes of it a second. Whom the server puts out comes again, a little later. The slow ones
 * come within ten seconds, the idle ones within sixty. A thread of its own, to the process's end, which wakes a hundred times a second. */
#ifndef BATON_TESTS_BENCH_CROWD_H
#define BATON_TESTS_BENCH_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct crowd;

struct crowd_config {
    char address[64], model[128];
    uint32_t idle, slow;
    uint32_t tokens; /* of the answers that are read slowly */
};

/* Those that are connected now; those that the server put out since the start. */
struct crowd_figures {
    uint32_t connected;
    uint64_t put_out, refused;
};

struct crowd *crowd_start(const struct crowd_config *config); /* NULL: no memory, no thread */
void crowd_figures(const struct crowd *crowd, struct crowd_figures *figures);
void crowd_stop(struct crowd *crowd);

#endif
