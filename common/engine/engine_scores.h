/* Logprobs of tokens that follow rows of a step: of prompts, for those that ask. The head is run
 * once more, on as many rows at a time as llama.logits has room for, so that memory doesn't grow
 * with prompts. Private to the engine. */
#ifndef BATON_ENGINE_ENGINE_SCORES_H
#define BATON_ENGINE_ENGINE_SCORES_H

#include "common/engine/engine_state.h"

bool engine_scores_wanted(const struct engine_sequence *sequences, uint32_t count);
/* After llama_forward with samples.more, before anything else overwrites its rows; llama.logits is
 * overwritten. Sets the status of who scores: STATUS_INTERNAL where a logit is none. */
enum status engine_score_rows(struct engine *engine, struct engine_sequence *sequences,
                              uint32_t count) WARN_UNUSED;

#endif
