/* The parts of reading a request. Each passes what fails on to fields->refusal. Internal to
 * openai_request*.c. PURE. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_REQUEST_PARTS_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_REQUEST_PARTS_H

#include "router/doors/openai/openai_fields.h"
#include "router/doors/openai/openai_request.h"

/* openai_prompt.c: a text, texts, ids, or lists of ids. */
void openai_read_prompt(const struct openai_fields *fields, struct openai_request *request);
/* openai_sampling.c: sampling, stop, output, n. */
void openai_read_sampling(const struct openai_fields *fields, struct openai_request *request);
/* openai_chat.c: messages, tools, what the template gets. */
void openai_read_chat(const struct openai_fields *fields, struct openai_request *request);
/* openai_format.c: what the answer must look like, by OpenAI's names and by vLLM's. */
void openai_read_format(const struct openai_fields *fields, struct openai_request *request);
/* openai_refused.c: what isn't offered, by name. */
void openai_read_refused(const struct openai_fields *fields, enum openai_kind kind);

#endif
