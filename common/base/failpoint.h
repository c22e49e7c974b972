/* Named failpoints: places in the code where a test causes a fault, and proof that it happened.
 *
 *      FAILPOINT("prefill.after_chunk");   the name stands in failpoint_names.h
 *      BATON_FAILPOINTS="prefill.after_chunk=kill@3" BATON_FAILPOINT_LOG=/tmp/hits baton ...
 *
 * Specification: [PROCESS:]NAME[/SUBJECT]=ACTION[@N][,...]. With PROCESS ("prefill-0") it holds in
 * that process only. The action happens once, at the N-th hit (default 1), or with '@*' at every
 * hit. With SUBJECT only hits about it count, where the place has a subject. A subject is a
 * request's name without a comma, or at a place about a peer, the peer's name.
 *
 *      kill   SIGKILL to the own process
 *      stop   SIGSTOP to the own process
 *      pause  waits until the file BATON_FAILPOINT_LOG.NAME.go exists (at most 60 s)
 *      hang   holds up this thread alone, until that file exists: "step.computing=hang" is a step
 *             that never ends, in a process with other threads that answer
 *      fail   makes FAILPOINT_FAILS(name) true
 *      log    only records the hit
 *
 * A specification "@PATH" is read from that file. Every hit looks at the file first. A running
 * process takes over a file that was renamed there, and counts hits from 0 again. In a file a line
 * end is as good as a comma.
 *
 * Before the action a line "NAME ACTION N pid PROCESS" is appended to BATON_FAILPOINT_LOG, so that
 * a test can assert the hit. Release builds ignore failpoints unless BATON_FAILPOINTS_ALLOW=1 is
 * set too. Without a specification a failpoint costs one load. */
#ifndef BATON_BASE_FAILPOINT_H
#define BATON_BASE_FAILPOINT_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Reads the environment. Call before threads start. `process`: the own name. STATUS_INVALID with a
 * sentence: a bad specification, an unknown name, or failpoints are off in this build. */
enum status failpoint_init(const char *process, struct error *err) WARN_UNUSED;

/* Returns whether tests may cause faults at all: always in debug builds, in release builds only
 * with BATON_FAILPOINTS_ALLOW=1. */
bool failpoint_allowed(void);
/* Appends "NAME ACTION N pid PROCESS" to BATON_FAILPOINT_LOG, if that is set. It serves faults that
 * are injected by other means than failpoints. */
void failpoint_note(const char *name, const char *action, uint64_t hit);

extern bool failpoint_armed; /* set once by failpoint_init */
bool failpoint_hit(const char *name, const char *subject);

#define FAILPOINT(name)                   ((void)(failpoint_armed && failpoint_hit(name, "")))
#define FAILPOINT_OF(name, subject)       ((void)(failpoint_armed && failpoint_hit(name, subject)))
#define FAILPOINT_FAILS(name)             (failpoint_armed && failpoint_hit(name, ""))
#define FAILPOINT_FAILS_OF(name, subject) (failpoint_armed && failpoint_hit(name, subject))

#endif
