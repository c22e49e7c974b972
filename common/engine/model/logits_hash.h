/* A 64-bit fingerprint of one row of logits, so that "the same bytes" can be checked token by token
 * without moving the row. Not for anything an attacker may choose. PURE. */
#ifndef BATON_ENGINE_MODEL_LOGITS_HASH_H
#define BATON_ENGINE_MODEL_LOGITS_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Over the bytes of logits[0 .. count): equal for two rows only if they are equal bit by bit (0 and
 * -0 differ). */
uint64_t logits_hash(const float *logits, size_t count);

#endif
