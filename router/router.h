/* The whole router in one object: model, membership, dispatcher, gRPC and HTTP servers, in their
 * order of starting and stopping. What main.c runs, and what tests run in their own process. Calls
 * from one thread. */
#ifndef BATON_ROUTER_ROUTER_H
#define BATON_ROUTER_ROUTER_H

#include "common/base/status.h"
#include "router/ops/router_metrics.h"
#include "router/router_config.h"

#include <stdbool.h>

struct router;

enum status router_start(const struct router_config *config, struct router **router,
                         struct error *err) WARN_UNUSED;
const char *router_address(const struct router *router);          /* of gRPC */
const char *router_registry_address(const struct router *router); /* where workers register */
const char *router_http_address(const struct router *router);     /* "": none */
const char *router_metrics_address(const struct router *router);  /* of HTTP */
const struct router_metrics *router_figures(const struct router *router);

/* Whether it writes a file that may be moved away, and then is to be opened again. */
bool router_has_log_file(const struct router *router);
void router_reopen_logs(struct router *router);
/* Health NOT_SERVING, no new requests; router_idle_fd becomes readable when the last one has
 * ended. */
void router_drain(struct router *router);
int router_idle_fd(const struct router *router);
/* Ends what is still running and frees. */
void router_stop(struct router *router);

#endif
