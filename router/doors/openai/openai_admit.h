/* Who may ask over HTTP: openai_admit of openai_api.h, what it leaves for those requests that take
 * their time, and the line of the access log of those that don't. The HTTP loop's. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_ADMIT_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_ADMIT_H

#include "router/doors/openai/openai_api.h"
#include "router/ops/access_line.h"

/* Of a request for completions, to be settled; NULL: nobody's key. */
struct access_grant *openai_take_grant(struct http_exchange *exchange);

/* The one line of a request that no dispatcher gets; the peer is filled in, and whose key it is
 * where the line doesn't say. */
void openai_log(const struct openai_api *api, struct http_exchange *exchange,
                const struct access_line_brief *line);
/* openai_log of one that is answered at once: what for, its model (NULL: not known), and what the
 * client is told. */
void openai_log_answer(const struct openai_api *api, struct http_exchange *exchange,
                       const char *method, const char *name, const char *model, enum reason reason);

#endif
