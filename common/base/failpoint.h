/* Named failpoints: places in the code where a test makes a fault happen, and proof that it
 * happened.
 *
 *     FAILPOINT("prefill.after_chunk");          one call where the fault belongs; the name stands in failpoint_names.h
 *     BATON_FAILPOINTS="prefill.after_chunk=kill@3" BATON_FAILPOINT_LOG=/tmp/hits baton-prefill ...
 *
 * Spec: [PROCESS:]NAME[/SUBJECT]=ACTION[@N][,...]: in that process only ("prefill-0"), or in all;
 * at the N-th hit (default 1) the action is done once, or, with '@*', at every hit. With SUBJECT
 * only hits about it count, where the place has one: the request's name, any of those without a
 * comma. kill   SIGKILL to the own process      stop   SIGSTOP to the own process pause  waits
 * until the file BATON_FAILPOINT_LOG.NAME.go exists (bounded: 60 s) fail   FAILPOINT_FAILS(name) is
 * true   log    only records the hit A spec that is "@PATH" is read from that file, which is looked
 * at before every hit: a running process takes over what was renamed there since, and counts hits
 * from 0 again. In a file a line is as good as a comma. Before the action a line "NAME ACTION N pid
 * PROCESS" is appended to BATON_FAILPOINT_LOG, so a test can assert the hit. They are off in
 * release builds unless BATON_FAILPOINTS_ALLOW=1 is set too; an unset specification costs one
 * load. */
#ifndef BATON_BASE_FAILPOINT_H
#define BATON_BASE_FAILPOINT_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Reads the environment; before threads start. `process`: the own name. STATUS_INVALID with a
 * sentence for a bad specification or an unknown name, or where they are off. */
enum status failpoint_init(const char *process, struct error *err) WARN_UNUSED;

/* Whether faults may be asked for at all: always in debug builds, in release builds with
 * BATON_FAILPOINTS_ALLOW=1 alone. */
bool failpoint_allowed(void);
/* Appends "NAME ACTION N pid PROCESS" to BATON_FAILPOINT_LOG, if that is set: for faults that are
 * injected by other means than failpoints. */
void failpoint_note(const char *name, const char *action, uint64_t hit);

extern bool failpoint_armed; /* set once by failpoint_init */
bool failpoint_hit(const char *name, const char *subject);

#define FAILPOINT(name)             ((void)(failpoint_armed && failpoint_hit(name, "")))
#define FAILPOINT_OF(name, subject) ((void)(failpoint_armed && failpoint_hit(name, subject)))
#define FAILPOINT_FAILS(name)       (failpoint_armed && failpoint_hit(name, ""))

#endif
