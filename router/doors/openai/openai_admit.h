/* Admission over HTTP: openai_admit and openai_owner of openai_api.h, the grant that is left for
 * completions, and the line in the access log of requests that are answered at once. Runs on the
 * HTTP loop. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_ADMIT_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_ADMIT_H

#include "router/doors/openai/openai_api.h"
#include "router/ops/access_line.h"

/* Takes the grant of a request for completions, to be settled. NULL: it has no key. */
struct access_grant *openai_take_grant(struct http_exchange *exchange);

/* Writes the one line of a request that the dispatcher doesn't get. Fills in the peer, and the key
 * where the line has none. */
void openai_log(const struct openai_api *api, struct http_exchange *exchange,
                const struct access_line_brief *line);
/* Writes the line of a request that is answered at once: its method, its model (NULL: not
 * known), and the reason that the client is told. */
void openai_log_answer(const struct openai_api *api, struct http_exchange *exchange,
                       const char *method, const char *name, const char *model, enum reason reason);

#endif
