/* Token ids and their bytes, both ways. Filled while a file is loaded, immutable afterwards and
 * then shared by threads. Ids may have holes; an id without a token has no bytes.
 *
 * Also the alphabet of byte-level BPE, and the hash for tables with keys from outside. */
#ifndef BATON_LANGUAGE_TEXT_VOCABULARY_H
#define BATON_LANGUAGE_TEXT_VOCABULARY_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VOCABULARY_LIMIT_COUNT (1u << 20) /* ids; the largest published vocabularies have 2^18 */
#define VOCABULARY_LIMIT_TOKEN 4096       /* bytes of one token */
#define VOCABULARY_LIMIT_BYTES (64u << 20)

struct token {
    uint32_t offset, length; /* in the pool */
    bool present;
    bool special; /* not text: dropped if special tokens are skipped */
};

struct vocabulary {
    struct token *tokens;
    uint32_t count; /* largest id + 1 */
    char *pool;
    size_t pool_bytes, pool_capacity;
    uint32_t *slots; /* hash table by bytes: id + 1; 0: empty */
    uint32_t slot_mask;
    uint64_t seed;
    uint32_t longest; /* bytes of the longest token that vocabulary_find can find */
};

/* count in 1..VOCABULARY_LIMIT_COUNT. */
void vocabulary_init(struct vocabulary *vocabulary, uint32_t count);
void vocabulary_deinit(struct vocabulary *vocabulary);

/* Gives `id` its bytes. vocabulary_find finds only tokens with `findable`. STATUS_INVALID: the id
 * isn't below `count` or has a token already, or findable bytes are there already. STATUS_LIMIT:
 * the token or all tokens are too long. */
enum status vocabulary_add(struct vocabulary *vocabulary, uint32_t id, const char *bytes,
                           size_t length, bool findable, struct error *err) WARN_UNUSED;

bool vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t length,
                     uint32_t *id);

/* Returns the token's bytes, not NUL-terminated; NULL for an id without a token. */
const char *vocabulary_bytes(const struct vocabulary *vocabulary, uint32_t id, size_t *length);

/* Reads a spelling in the alphabet of byte-level BPE (GPT-2). tokenizer.json spells each byte as
 * one visible character, a space as "Ġ" and a newline as "Ċ". `spelling` is valid UTF-8. Writes at
 * most `length` bytes. Returns false if a character isn't of the alphabet; *count is then
 * unchanged. */
bool byte_level_read(const char *spelling, size_t length, char *bytes, size_t *count);
/* Writes the character that spells the byte, and returns its length: 1 or 2. */
size_t byte_level_put(unsigned char byte, char spelling[4]);

/* Returns the seed of this process's hash tables. It is drawn once, so that no file can be made
 * with keys that all fall into one slot. The hash isn't cryptographic. */
uint64_t text_hash_seed(void);

static inline uint64_t text_hash_mix(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t text_hash_u64(uint64_t value, uint64_t seed)
{
    return text_hash_mix(value ^ seed, 0x9E3779B97F4A7C15u ^ seed >> 1);
}

#endif
