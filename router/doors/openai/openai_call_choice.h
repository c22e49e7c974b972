/* What a choice of a call says: of a stream in chunks, which go into the call's frames, otherwise
 * into its part of the whole object. Sends nothing; frames that got too long are `truncated`. The
 * dispatch thread's. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_CALL_CHOICE_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_CALL_CHOICE_H

#include "router/doors/openai/openai_call.h"

/* Of the parsers, whose context is the choice. */
void openai_call_choice_event(void *context, const struct tool_event *event);
/* Of a stream: logprobs of prompt tokens from `first` on; what came of the answer. */
void openai_call_choice_prompt_logprobs(struct openai_call_choice *choice, struct request *request,
                                        uint32_t first, const struct token_logprobs *logprobs,
                                        uint32_t count);
void openai_call_choice_delta(struct openai_call_choice *choice, struct request *request,
                              const struct stream_delta *taken);
/* The last of a stream's answer, or all of one that is told whole. STATUS_LIMIT: the latter is too
 * large, or there is no memory. */
enum status openai_call_choice_end(struct openai_call_choice *choice, struct request *request,
                                   const struct stream_delta *taken,
                                   enum finish_reason finish) WARN_UNUSED;

#endif
