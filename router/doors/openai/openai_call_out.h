/* What goes out of a call, and how its parts meet. Internal to openai_call*.c.
 */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_CALL_OUT_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_CALL_OUT_H

#include "router/doors/openai/openai_call.h"

/* openai_call.c: the dispatcher has let go of a prompt; lets it let go, in its `status`, unless the
 * client has left. */
void openai_call_gone(struct client_gone *gone);
void openai_call_release(struct openai_call_prompt *prompt);

#endif
