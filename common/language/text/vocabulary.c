#include "common/language/text/vocabulary.h"

#include "common/base/assert.h"
#include "common/language/text/text_hash.h"

#include <stdlib.h>
#include <string.h>

void vocabulary_init(struct vocabulary *vocabulary, uint32_t count)
{
    ASSERT(count >= 1 && count <= VOCABULARY_LIMIT_COUNT);
    uint32_t slots = 64;
    while (slots < 2 * count)
        slots *= 2;
    *vocabulary =
        (struct vocabulary){.count = count, .slot_mask = slots - 1, .seed = text_hash_seed()};
    vocabulary->tokens = calloc(count, sizeof *vocabulary->tokens);
    vocabulary->slots = calloc(slots, sizeof *vocabulary->slots);
    ASSERT(vocabulary->tokens && vocabulary->slots);
}

void vocabulary_deinit(struct vocabulary *vocabulary)
{
    free(vocabulary->tokens);
    free(vocabulary->slots);
    free(vocabulary->pool);
    *vocabulary = (struct vocabulary){0};
}

static bool same_bytes(const struct vocabulary *vocabulary, uint32_t id, const char *bytes,
                       size_t length)
{
    const struct token *token = &vocabulary->tokens[id];
    return token->length == length && memcmp(vocabulary->pool + token->offset, bytes, length) == 0;
}

/* The slot that holds these bytes, or the empty one where they belong. At most half of the slots
 * are taken. */
static uint32_t slot_of(const struct vocabulary *vocabulary, const char *bytes, size_t length)
{
    uint32_t slot = (uint32_t)text_hash(bytes, length, vocabulary->seed) & vocabulary->slot_mask;
    while (vocabulary->slots[slot] &&
           !same_bytes(vocabulary, vocabulary->slots[slot] - 1, bytes, length))
        slot = (slot + 1) & vocabulary->slot_mask;
    return slot;
}

static uint32_t pool_add(struct vocabulary *vocabulary, const char *bytes, size_t length)
{
    size_t needed = vocabulary->pool_bytes + length;
    if (needed > vocabulary->pool_capacity || !vocabulary->pool) {
        vocabulary->pool_capacity = 2 * needed + 4096;
        vocabulary->pool = realloc(vocabulary->pool, vocabulary->pool_capacity);
        ASSERT(vocabulary->pool);
    }
    memcpy(vocabulary->pool + vocabulary->pool_bytes, bytes, length);
    uint32_t offset = (uint32_t)vocabulary->pool_bytes;
    vocabulary->pool_bytes = needed;
    return offset;
}

enum status vocabulary_add(struct vocabulary *vocabulary, uint32_t id, const char *bytes,
                           size_t length, bool findable, struct error *err)
{
    if (id >= vocabulary->count)
        return error_set(err, STATUS_INVALID, "token id %u is not below %u", id, vocabulary->count);
    if (vocabulary->tokens[id].present)
        return error_set(err, STATUS_INVALID, "two tokens have id %u", id);
    if (length > VOCABULARY_LIMIT_TOKEN || vocabulary->pool_bytes + length > VOCABULARY_LIMIT_BYTES)
        return error_set(err, STATUS_LIMIT,
                         "token %u of %zu bytes is over the limit of %d for a token or %u for all",
                         id, length, VOCABULARY_LIMIT_TOKEN, VOCABULARY_LIMIT_BYTES);
    if (findable) {
        uint32_t slot = slot_of(vocabulary, bytes, length);
        if (vocabulary->slots[slot])
            return error_set(err, STATUS_INVALID, "tokens %u and %u are the same",
                             vocabulary->slots[slot] - 1, id);
        vocabulary->slots[slot] = id + 1;
        if (length > vocabulary->longest)
            vocabulary->longest = (uint32_t)length;
    }
    vocabulary->tokens[id] = (struct token){
        .offset = pool_add(vocabulary, bytes, length), .length = (uint32_t)length, .present = true};
    return STATUS_OK;
}

bool vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t length,
                     uint32_t *id)
{
    if (length > vocabulary->longest)
        return false;
    uint32_t slot = slot_of(vocabulary, bytes, length);
    if (!vocabulary->slots[slot])
        return false;
    *id = vocabulary->slots[slot] - 1;
    return true;
}

const char *vocabulary_bytes(const struct vocabulary *vocabulary, uint32_t id, size_t *length)
{
    if (id >= vocabulary->count || !vocabulary->tokens[id].present)
        return NULL;
    *length = vocabulary->tokens[id].length;
    return vocabulary->pool + vocabulary->tokens[id].offset;
}
