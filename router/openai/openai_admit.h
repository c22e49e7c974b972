/* Who may ask over HTTP: openai_admit of openai_api.h, and what it leaves for those requests that take their time. The HTTP loop's. */
#ifndef BATON_ROUTER_OPENAI_OPENAI_ADMIT_H
#define BATON_ROUTER_OPENAI_OPENAI_ADMIT_H

#include "router/openai/openai_api.h"

/* Of a request for completions, to be settled; NULL: nobody's key. */
struct access_grant *openai_take_grant(struct http_exchange *exchange);

#endif
