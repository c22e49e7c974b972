/* Token ids and the bytes that they stand for, both ways. Filled while a file is loaded, immutable
 * afterwards and then shared by threads. Ids may have holes; an id without a token stands for no
 * bytes. */
#ifndef BATON_LANGUAGE_TEXT_VOCABULARY_H
#define BATON_LANGUAGE_TEXT_VOCABULARY_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define VOCABULARY_LIMIT_COUNT (1u << 20) /* ids; the largest published vocabularies have 2^18 */
#define VOCABULARY_LIMIT_TOKEN 4096       /* bytes of one token */
#define VOCABULARY_LIMIT_BYTES (64u << 20)

struct token {
    uint32_t offset, length; /* in the pool */
    bool present;
    bool special; /* not text: dropped where special tokens are skipped */
};

struct vocabulary {
    struct token *tokens;
    uint32_t count; /* largest id + 1 */
    char *pool;
    size_t pool_bytes, pool_capacity;
    uint32_t *slots; /* hash table of ids + 1, by bytes; 0 = empty */
    uint32_t slot_mask;
    uint64_t seed;
    uint32_t longest; /* token that vocabulary_find can find, bytes */
};

/* count in 1..VOCABULARY_LIMIT_COUNT. */
void vocabulary_init(struct vocabulary *vocabulary, uint32_t count);
void vocabulary_deinit(struct vocabulary *vocabulary);

/* Gives `id` (< count, else STATUS_INVALID) its bytes. Only a token with `findable` is found by
 * vocabulary_find. STATUS_INVALID where the id has a token already, or findable bytes are there
 * already; STATUS_LIMIT. */
enum status vocabulary_add(struct vocabulary *vocabulary, uint32_t id, const char *bytes,
                           size_t length, bool findable, struct error *err) WARN_UNUSED;

bool vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t length,
                     uint32_t *id);

/* The token's bytes, or NULL for an id without a token. Not NUL-terminated. */
const char *vocabulary_bytes(const struct vocabulary *vocabulary, uint32_t id, size_t *length);

#endif
