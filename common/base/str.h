/* A growing byte string with a limit, and a few safe text helpers. Owner: the caller of str_init;
 * str_deinit frees. Not thread-safe. Contents are always NUL-terminated. */
#ifndef BATON_BASE_STR_H
#define BATON_BASE_STR_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Bytes that belong to another owner. They may have a NUL inside, and none need follow them. */
struct text {
    const char *bytes;
    size_t length;
};

static inline struct text text_from(const char *string)
{
    return (struct text){string, strlen(string)};
}

struct str {
    char *data;    /* NUL-terminated; never NULL after str_init */
    size_t length; /* bytes without the NUL */
    size_t capacity;
    size_t limit; /* bytes; appending past it sets `truncated` and drops the rest */
    bool truncated;
};

void str_init(struct str *s, size_t limit_bytes);
void str_deinit(struct str *s);
void str_clear(struct str *s);
void str_append(struct str *s, const void *bytes, size_t count);
void str_add(struct str *s, const char *text);
void str_addf(struct str *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void str_remove_front(struct str *s, size_t count);

/* Copies, cut to `size` with the NUL. Returns false when it had to cut. size > 0. */
bool str_copy(char *target, size_t size, const char *source);
/* Parse the whole string as a decimal number within [min, max]. Return false otherwise. */
bool str_to_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value);
bool str_to_double(const char *text, double min, double max, double *value);

struct str_unit {
    const char *name; /* "ms"; "": a number without a unit */
    uint64_t factor;
};
#define STR_TIME_UNITS 5
extern const struct str_unit str_time_units[STR_TIME_UNITS]; /* us, ms, s, m, h; ascending */
/* Parses a whole number and the name of one of `units` behind it. Returns false otherwise. */
bool str_to_units(const char *text, const struct str_unit *units, size_t count, uint64_t *value);
/* Parses "20us", "500ms", "10s", "2m" or "1h" into microseconds; only 0 needs no unit. Returns
 * false otherwise. */
bool str_to_duration_us(const char *text, uint64_t *us);

/* 64-bit FNV-1a, for hash maps and layout ids. Never use it for bytes that an attacker may choose.
 */
uint64_t hash_bytes(const void *bytes, size_t count, uint64_t seed);
#define HASH_SEED 0xcbf29ce484222325u

#endif
