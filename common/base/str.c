#include "common/base/str.h"

#include "common/base/assert.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INITIAL_CAPACITY 64

void str_init(struct str *s, size_t limit_bytes)
{
    *s = (struct str){
        .data = malloc(INITIAL_CAPACITY), .capacity = INITIAL_CAPACITY, .limit = limit_bytes};
    ASSERT(s->data);
    s->data[0] = 0;
}

void str_deinit(struct str *s)
{
    free(s->data);
    *s = (struct str){0};
}

void str_clear(struct str *s)
{
    s->length = 0;
    s->truncated = false;
    s->data[0] = 0;
}

static void str_reserve(struct str *s, size_t length)
{
    if (length + 1 <= s->capacity)
        return;
    while (s->capacity < length + 1)
        s->capacity *= 2;
    s->data = realloc(s->data, s->capacity);
    ASSERT(s->data);
}

void str_append(struct str *s, const void *bytes, size_t count)
{
    if (count > s->limit - s->length) {
        count = s->limit - s->length;
        s->truncated = true;
    }
    str_reserve(s, s->length + count);
    if (count)
        memcpy(s->data + s->length, bytes, count);
    s->length += count;
    s->data[s->length] = 0;
}

void str_add(struct str *s, const char *text)
{
    str_append(s, text, strlen(text));
}

void str_addf(struct str *s, const char *format, ...)
{
    char stack[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(stack, sizeof stack, format, args);
    va_end(args);
    ASSERT(length >= 0);
    if ((size_t)length < sizeof stack) {
        str_append(s, stack, (size_t)length);
        return;
    }
    char *heap = malloc((size_t)length + 1);
    ASSERT(heap);
    va_start(args, format);
    vsnprintf(heap, (size_t)length + 1, format, args);
    va_end(args);
    str_append(s, heap, (size_t)length);
    free(heap);
}

void str_remove_front(struct str *s, size_t count)
{
    ASSERT(count <= s->length);
    memmove(s->data, s->data + count, s->length - count + 1);
    s->length -= count;
}

bool str_copy(char *target, size_t size, const char *source)
{
    ASSERT(size > 0);
    size_t length = strlen(source);
    size_t kept = length < size ? length : size - 1;
    memcpy(target, source, kept);
    target[kept] = 0;
    return kept == length;
}

bool str_to_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
    if (*text < '0' || *text > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long parsed = strtoull(text, &end, 10);
    if (errno || *end || parsed < min || parsed > max)
        return false;
    *value = parsed;
    return true;
}

bool str_to_double(const char *text, double min, double max, double *value)
{
    char *end;
    errno = 0;
    double parsed = strtod(text, &end);
    if (errno || end == text || *end || !isfinite(parsed) || parsed < min || parsed > max)
        return false;
    *value = parsed;
    return true;
}

const struct str_unit str_time_units[STR_TIME_UNITS] = {{"us", 1},
                                                        {"ms", 1000},
                                                        {"s", 1000000},
                                                        {"m", 60 * (uint64_t)1000000},
                                                        {"h", 3600 * (uint64_t)1000000}};

bool str_to_units(const char *text, const struct str_unit *units, size_t count, uint64_t *value)
{
    char digits[24];
    size_t length = strspn(text, "0123456789");
    uint64_t number;
    if (!length || length >= sizeof digits)
        return false;
    memcpy(digits, text, length);
    digits[length] = 0;
    if (!str_to_u64(digits, 0, UINT64_MAX, &number))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!strcmp(text + length, units[i].name))
            return !__builtin_mul_overflow(number, units[i].factor, value);
    return false;
}

bool str_to_duration_us(const char *text, uint64_t *us)
{
    if (!strcmp(text, "0")) {
        *us = 0;
        return true;
    }
    return str_to_units(text, str_time_units, STR_TIME_UNITS, us);
}

uint64_t hash_bytes(const void *bytes, size_t count, uint64_t seed)
{
    const unsigned char *p = bytes;
    uint64_t hash = seed;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}
