#include "common/language/text/vocabulary.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

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

static uint64_t text_hash(const char *bytes, size_t length, uint64_t seed)
{
    uint64_t hash = seed ^ length;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = text_hash_mix(hash ^ word, 0xA0761D6478BD642Fu ^ seed >> 1);
    }
    uint64_t rest = 0;
    for (size_t i = 0; i < length; i++)
        rest |= (uint64_t)(unsigned char)bytes[i] << 8 * i;
    return text_hash_mix(hash ^ rest, 0xE7037ED1A0B428DBu ^ seed >> 1);
}

/* Returns the slot of these bytes, or the empty slot for them. At most half of the slots are
 * taken. */
static uint32_t slot_of(const struct vocabulary *vocabulary, const char *bytes, size_t length)
{
    uint32_t slot = (uint32_t)text_hash(bytes, length, vocabulary->seed) & vocabulary->slot_mask;
    for (; vocabulary->slots[slot]; slot = (slot + 1) & vocabulary->slot_mask) {
        const struct token *token = &vocabulary->tokens[vocabulary->slots[slot] - 1];
        if (token->length == length && memcmp(vocabulary->pool + token->offset, bytes, length) == 0)
            break;
    }
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

/* Bytes that are visible in Latin-1 are spelled as themselves, the other 68 as the characters from
 * U+0100 on, in order. */
static bool byte_of(uint32_t code, unsigned char *byte)
{
    if ((code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xFF && code != 0xAD)) {
        *byte = (unsigned char)code;
        return true;
    }
    if (code < 0x100 || code > 0x143)
        return false;
    uint32_t nth = code - 0x100; /* 00..20, 7F..A0, AD */
    *byte = (unsigned char)(nth <= 0x20 ? nth : nth < 0x43 ? nth - 0x21 + 0x7F : 0xAD);
    return true;
}

size_t byte_level_put(unsigned char byte, char spelling[4])
{
    uint32_t code = byte;
    unsigned char back;
    if (!byte_of(code, &back)) /* the nth of 00..20, 7F..A0, AD */
        code = byte <= 0x20 ? 0x100u + byte : byte == 0xAD ? 0x143 : 0x121u + byte - 0x7F;
    return utf8_put(code, spelling);
}

bool byte_level_read(const char *spelling, size_t length, char *bytes, size_t *count)
{
    size_t written = 0;
    for (size_t at = 0; at < length;) {
        struct utf8_char next = utf8_next(spelling + at, length - at);
        unsigned char byte;
        if (next.kind != UTF8_WHOLE || !byte_of(next.code, &byte))
            return false;
        bytes[written++] = (char)byte;
        at += next.length;
    }
    *count = written;
    return true;
}

static uint64_t process_seed;

static void draw(void)
{
    /* Without the kernel's numbers an address will do, as it differs between processes. */
    if (getrandom(&process_seed, sizeof process_seed, 0) != sizeof process_seed)
        process_seed = text_hash_mix((uintptr_t)&process_seed, 0x9E3779B97F4A7C15u);
}

uint64_t text_hash_seed(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw);
    return process_seed;
}
