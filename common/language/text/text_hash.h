/* A seeded hash for tables whose keys come from outside: the seed is drawn once in each process, so
 * that no file can be made whose keys all fall into one place. Not cryptographic. */
#ifndef BATON_LANGUAGE_TEXT_TEXT_HASH_H
#define BATON_LANGUAGE_TEXT_TEXT_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

static inline uint64_t text_hash(const char *bytes, size_t length, uint64_t seed)
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

#endif
