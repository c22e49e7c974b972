/* The whole router in one object: models, membership, dispatcher, gRPC and HTTP servers. It starts
 * and stops them in order. main.c runs it, and tests run it in their own process. Calls from one
 * thread. */
#ifndef BATON_ROUTER_ROUTER_H
#define BATON_ROUTER_ROUTER_H

#include "common/base/status.h"
#include "router/ops/router_metrics.h"
#include "router/router_config.h"

#include <stdbool.h>

struct router;

/* On failure *err says why, and nothing is left to stop. */
enum status router_start(const struct router_config *config, struct router **router,
                         struct error *err) WARN_UNUSED;
/* The listeners' addresses, "HOST:PORT". */
const char *router_address(const struct router *router);          /* gRPC */
const char *router_registry_address(const struct router *router); /* registrations of workers */
const char *router_http_address(const struct router *router);     /* HTTP for clients; "": none */
const char *router_metrics_address(const struct router *router);  /* /metrics and /status */
const struct router_metrics *router_figures(const struct router *router);

/* The access log is a file, which router_reopen_logs opens again after it was moved away. */
bool router_has_log_file(const struct router *router);
void router_reopen_logs(struct router *router);
/* Sets health to NOT_SERVING and refuses new requests. router_idle_fd becomes readable when the
 * last request has ended. */
void router_drain(struct router *router);
int router_idle_fd(const struct router *router);
/* Ends running requests, and frees the router. */
void router_stop(struct router *router);

#endif
