/* A worker's side of joining: calls Registry.RegisterWorker on the router until the router has
 * opened its Session, backs off while the router can't be reached, and starts again when the
 * Session is lost. In the end it tells the router that it leaves.
 *
 * One thread of its own. registrar_session_up may come from any thread; start, leave and stop not
 * from an rpc thread.
 */
#ifndef BATON_NET_MEMBERSHIP_REGISTRAR_H
#define BATON_NET_MEMBERSHIP_REGISTRAR_H

#include "common/base/domain/worker_info.h"
#include "common/base/status.h"
#include "common/net/rpc/rpc.h"

struct registrar;

struct registrar_config {
    struct rpc_runtime *runtime;
    const char *router_address; /* host:port */
    struct rpc_tls tls;
    struct worker_info info; /* what the worker says of itself */
    uint64_t heartbeat_us;   /* between accepted registrations while no Session is up; 0: 1 s */
    uint64_t max_backoff_us; /* between failed ones, from 100 ms doubling; 0: 2 s */
};

/* Everything is copied. Unreachable routers are no failure. */
enum status registrar_start(const struct registrar_config *config, struct registrar **registrar,
                            struct error *err) WARN_UNUSED;
/* true: the router's Session is open, registering rests. false: it was lost, registering starts
 * again at once. */
void registrar_session_up(struct registrar *registrar, bool up);
/* No more registering. If the router had taken this worker in, it is told to forget it, which ends
 * the Session; waits for the answer REGISTRAR_LEAVE_US at most, and before that for the end of a
 * registration under way. */
void registrar_leave(struct registrar *registrar);
#define REGISTRAR_LEAVE_US 500000u
/* Joins the thread and frees. NULL is fine. */
void registrar_stop(struct registrar *registrar);

#endif
