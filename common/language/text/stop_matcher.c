#include "common/language/text/stop_matcher.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"

#include <stdlib.h>
#include <string.h>

struct stop {
    char bytes[STOP_MATCHER_LIMIT_BYTES];
    /* By byte: the length of the longest proper prefix that also ends at this byte. */
    uint16_t failure[STOP_MATCHER_LIMIT_BYTES];
    uint16_t length;
    uint16_t matched; /* its first bytes that the text ends with; less than length */
};

struct stop_matcher {
    size_t count;
    int found;
    size_t longest_index; /* the stop with most bytes matched: these are held back */
    struct stop stops[];
};

static enum status check(const struct text *stops, size_t count, struct error *err)
{
    if (count > STOP_MATCHER_LIMIT_COUNT)
        return error_set(err, STATUS_LIMIT, "%zu stop strings are over the limit of %d", count,
                         STOP_MATCHER_LIMIT_COUNT);
    for (size_t i = 0; i < count; i++) {
        if (stops[i].length < 1 || stops[i].length > STOP_MATCHER_LIMIT_BYTES)
            return error_set(err, STATUS_INVALID,
                             "stop string %zu has %zu bytes, which isn't within 1..%d", i,
                             stops[i].length, STOP_MATCHER_LIMIT_BYTES);
        if (!utf8_valid(stops[i].bytes, stops[i].length, NULL))
            return error_set(err, STATUS_INVALID, "stop string %zu isn't valid UTF-8", i);
    }
    return STATUS_OK;
}

enum status stop_matcher_create(const struct text *stops, size_t count,
                                struct stop_matcher **matcher, struct error *err)
{
    TRY(check(stops, count, err));
    struct stop_matcher *made = calloc(1, sizeof *made + count * sizeof *made->stops);
    ASSERT(made);
    made->count = count;
    made->found = STOP_MATCHER_NONE;
    for (size_t i = 0; i < count; i++) {
        struct stop *stop = &made->stops[i];
        stop->length = (uint16_t)stops[i].length;
        memcpy(stop->bytes, stops[i].bytes, stops[i].length);
        for (uint16_t at = 1, matched = 0; at < stop->length; at++) {
            while (matched && stop->bytes[at] != stop->bytes[matched])
                matched = stop->failure[matched - 1];
            matched += stop->bytes[at] == stop->bytes[matched];
            stop->failure[at] = matched;
        }
    }
    *matcher = made;
    return STATUS_OK;
}

void stop_matcher_destroy(struct stop_matcher *matcher)
{
    free(matcher);
}

/* Moves all automata on. Returns the index of the longest stop string that this byte completes. */
static int step(struct stop_matcher *matcher, char byte)
{
    int found = STOP_MATCHER_NONE;
    matcher->longest_index = 0;
    for (size_t i = 0; i < matcher->count; i++) {
        struct stop *stop = &matcher->stops[i];
        while (stop->matched && stop->bytes[stop->matched] != byte)
            stop->matched = stop->failure[stop->matched - 1];
        stop->matched += stop->bytes[stop->matched] == byte;
        bool complete = stop->matched == stop->length;
        if (complete && (found < 0 || stop->length > matcher->stops[found].length))
            found = (int)i;
        if (stop->matched > matcher->stops[matcher->longest_index].matched)
            matcher->longest_index = i;
    }
    return found;
}

static size_t held_count(const struct stop_matcher *matcher)
{
    return matcher->count ? matcher->stops[matcher->longest_index].matched : 0;
}

int stop_matcher_push(struct stop_matcher *matcher, const char *text, size_t length,
                      struct str *out)
{
    if (matcher->found >= 0 || matcher->count == 0) {
        if (matcher->found < 0)
            str_append(out, text, length);
        return matcher->found;
    }
    /* The bytes held back are the start of this stop string, so they aren't kept elsewhere. */
    const char *held = matcher->stops[matcher->longest_index].bytes;
    size_t held_before = held_count(matcher), taken = 0;
    while (taken < length && matcher->found < 0)
        matcher->found = step(matcher, text[taken++]);
    size_t keep = matcher->found >= 0 ? matcher->stops[matcher->found].length : held_count(matcher);
    size_t decided = held_before + taken - keep;
    size_t from_held = decided < held_before ? decided : held_before;
    str_append(out, held, from_held);
    str_append(out, text, decided - from_held);
    return matcher->found;
}

void stop_matcher_flush(struct stop_matcher *matcher, struct str *out)
{
    if (matcher->found >= 0 || matcher->count == 0)
        return;
    str_append(out, matcher->stops[matcher->longest_index].bytes, held_count(matcher));
    for (size_t i = 0; i < matcher->count; i++)
        matcher->stops[i].matched = 0;
}

struct text stop_matcher_text(const struct stop_matcher *matcher, int index)
{
    ASSERT(index >= 0 && (size_t)index < matcher->count);
    return (struct text){matcher->stops[index].bytes, matcher->stops[index].length};
}
