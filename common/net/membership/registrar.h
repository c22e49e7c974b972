/* A worker's side of joining. Calls Registry.RegisterWorker on the router until the router has
 * opened its Session, backs off while the router can't be reached, and starts again when the
 * Session is lost. At the end it reports to the router that the worker leaves.
 *
 * It has a thread of its own. Any thread may call registrar_session_up; start, leave and stop
 * aren't for rpc threads.
 */
#ifndef BATON_NET_MEMBERSHIP_REGISTRAR_H
#define BATON_NET_MEMBERSHIP_REGISTRAR_H

#include "common/base/domain/worker_info.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/rpc/rpc.h"

#include <stdbool.h>
#include <stdint.h>

struct registrar;

struct registrar_config {
    struct rpc_runtime *runtime;
    const char *router_address; /* host:port */
    struct rpc_tls tls;
    struct worker_info info; /* the worker's own description */
    uint64_t heartbeat_us;   /* between accepted registrations while no Session is up; 0: 1 s */
    uint64_t max_backoff_us; /* between failed ones; begins at 100 ms and doubles; 0: 2 s */
};

/* Copies the config. An unreachable router is no failure. */
enum status registrar_start(const struct registrar_config *config, struct registrar **registrar,
                            struct error *err) WARN_UNUSED;
/* `up`: the router's Session is open, and registering rests. Otherwise it was lost, and registering
 * starts again at once. */
void registrar_session_up(struct registrar *registrar, bool up);
/* Stops registering. If the router had accepted this worker, asks it to forget the worker, which
 * ends the Session, and waits for the answer at most REGISTRAR_LEAVE_US. Before that it waits for
 * the end of a registration under way. */
void registrar_leave(struct registrar *registrar);
#define REGISTRAR_LEAVE_US 500000u
/* Joins the thread and frees. NULL is fine. */
void registrar_stop(struct registrar *registrar);

/* --- logging of failed registrations; no action here --- */

/* A router that isn't there for a moment starts or stops, and the worker is about to stop, too. */
#define REGISTRAR_PATIENCE_US       1000000u
#define REGISTRAR_COMPLAIN_EVERY_US 30000000u

/* Zeroed at first. */
struct registrar_complaint {
    uint64_t failing_since_us; /* 0: the last registration was accepted */
    uint64_t complained_us;    /* last warning or error; 0: none yet */
    enum rpc_code complained_of;
};

/* Returns whether to log that a registration ended with `code` at now_us (not 0), and sets the
 * level: an error if it was refused, which a person must mend; otherwise an info, and a warning
 * once registrations have failed for REGISTRAR_PATIENCE_US. Warnings and errors come once in
 * REGISTRAR_COMPLAIN_EVERY_US for each code. RPC_OK ends the complaint. */
bool registrar_complaint_due(struct registrar_complaint *complaint, enum rpc_code code,
                             uint64_t now_us, enum log_level *level);

#endif
