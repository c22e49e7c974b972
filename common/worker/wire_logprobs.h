/* Between the Logprobs of proto/worker.proto and struct token_logprobs. */
#ifndef BATON_WORKER_WIRE_LOGPROBS_H
#define BATON_WORKER_WIRE_LOGPROBS_H

#include "common/base/domain/logprobs.h"
#include "proto/worker.pb-c.h"

/* NULL: none were given. False: what comes is none that a worker sends; that the model has the ids
 * is still to check. */
bool wire_logprobs(const Baton__Worker__V1__Logprobs *message, struct token_logprobs *out);
/* The message points into `logprobs`. Returns it, or NULL where none are given. */
Baton__Worker__V1__Logprobs *wire_logprobs_pack(const struct token_logprobs *logprobs,
                                                Baton__Worker__V1__Logprobs *message);

#endif
