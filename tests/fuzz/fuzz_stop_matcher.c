/* Stop strings and a text in pieces, against a plain implementation of the rule. Whatever the cuts,
 * the stop string that is complete first wins; of several that end together, the longest. The text
 * before it is passed on. */
#include "common/base/utf8.h"
#include "common/language/text/stop_matcher.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define MAX_STOPS 20 /* more than are taken */

struct stops {
    struct text texts[MAX_STOPS];
    size_t count;
};

struct found {
    int index;
    size_t start;
};

static struct found plain_search(const struct stops *stops, const char *text, size_t length)
{
    for (size_t end = 1; end <= length; end++) {
        struct found best = {STOP_MATCHER_NONE, 0};
        for (size_t i = 0; i < stops->count; i++) {
            size_t bytes = stops->texts[i].length;
            bool here = bytes <= end && !memcmp(text + end - bytes, stops->texts[i].bytes, bytes);
            if (here && (best.index < 0 || bytes > stops->texts[best.index].length))
                best = (struct found){(int)i, end - bytes};
        }
        if (best.index >= 0)
            return best;
    }
    return (struct found){STOP_MATCHER_NONE, length};
}

/* `step`: bytes of a piece; 0: as the cuts say, a byte each. */
static void check_pieces(const struct stops *stops, struct fuzz_bytes text, size_t step,
                         struct fuzz_bytes cuts, struct found expected)
{
    struct error err;
    struct stop_matcher *matcher;
    struct str out;
    FUZZ_CHECK(stop_matcher_create(stops->texts, stops->count, &matcher, &err) == STATUS_OK);
    str_init(&out, text.size + 1);
    int found = STOP_MATCHER_NONE;
    for (size_t at = 0, i = 0; at < text.size; i++) {
        size_t bytes = step ? step : i < cuts.size ? cuts.data[i] : text.size;
        if (bytes > text.size - at)
            bytes = text.size - at;
        int now = stop_matcher_push(matcher, (const char *)text.data + at, bytes, &out);
        FUZZ_CHECK(found == STOP_MATCHER_NONE || now == found);
        found = now;
        at += bytes;
    }
    stop_matcher_flush(matcher, &out);
    FUZZ_CHECK((found < 0) == (expected.index < 0));
    if (found >= 0) { /* the same string may be there twice */
        struct text stop = stop_matcher_text(matcher, found), want = stops->texts[expected.index];
        FUZZ_CHECK(stop.length == want.length && !memcmp(stop.bytes, want.bytes, want.length));
    }
    FUZZ_CHECK(!out.truncated && out.length == expected.start);
    FUZZ_CHECK(!memcmp(out.data, text.data, expected.start));
    str_deinit(&out);
    stop_matcher_destroy(matcher);
}

static bool acceptable(const struct stops *stops)
{
    bool good = stops->count <= STOP_MATCHER_LIMIT_COUNT;
    for (size_t i = 0; i < stops->count; i++)
        good = good && stops->texts[i].length > 0 &&
               stops->texts[i].length <= STOP_MATCHER_LIMIT_BYTES &&
               utf8_valid(stops->texts[i].bytes, stops->texts[i].length, NULL);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    struct stops stops = {.count = fuzz_take_below(&input, MAX_STOPS + 1)};
    for (size_t i = 0; i < stops.count; i++) {
        struct fuzz_bytes stop = fuzz_take_piece(&input);
        stops.texts[i] = (struct text){(const char *)stop.data, stop.size};
    }
    struct fuzz_bytes cuts = fuzz_take_piece(&input), text = fuzz_take_rest(&input);
    if (!acceptable(&stops)) {
        struct stop_matcher *matcher;
        struct error err;
        FUZZ_CHECK(stop_matcher_create(stops.texts, stops.count, &matcher, &err) != STATUS_OK);
        fuzz_check_sentence(err.text);
        return 0;
    }
    if (text.size > 2048)
        text.size = 2048;
    struct found expected = plain_search(&stops, (const char *)text.data, text.size);
    check_pieces(&stops, text, text.size + !text.size, cuts, expected);
    check_pieces(&stops, text, 1, cuts, expected);
    bool moves = false; /* a cut of nothing but zeros would never end */
    for (size_t i = 0; i < cuts.size; i++)
        moves |= cuts.data[i];
    if (moves)
        check_pieces(&stops, text, 0, cuts, expected);
    return 0;
}
