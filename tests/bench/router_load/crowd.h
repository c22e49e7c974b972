/* Idle and slow clients. Idle ones asked once and keep their connection. A third each of the slow
 * ones sends a head, or a body, of one byte a second, or asks for a long answer and reads 256 bytes
 * of it a second. A client that the server disconnects comes again a little later. The slow ones
 * come within ten seconds, the idle ones within sixty. The crowd has a thread of its own until the
 * process ends, which wakes a hundred times a second. */
#ifndef BATON_TESTS_BENCH_CROWD_H
#define BATON_TESTS_BENCH_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct crowd;

struct crowd_config {
    char address[64], model[128];
    uint32_t idle, slow;
    uint32_t tokens; /* tokens of a slowly read answer, for each of four prompts */
};

/* `connected` counts open connections. Since the start: `put_out` connections that the server
 * closed, `sent_bytes` of slow heads and bodies, `read_bytes` of slowly read answers. `late_us` is
 * the latest turn since the last call of crowd_figures. */
struct crowd_figures {
    uint32_t connected;
    uint64_t put_out, refused, sent_bytes, read_bytes, late_us;
};

struct crowd *crowd_start(const struct crowd_config *config); /* NULL: no memory, no thread */
void crowd_figures(struct crowd *crowd, struct crowd_figures *figures);
void crowd_stop(struct crowd *crowd);

#endif
