/* Patterns from outside (tokenizer.json) on any text: compiled or refused, and a search ends soon,
 * whatever both are. */
#include "common/base/utf8.h"
#include "common/language/text/regex.h"
#include "tests/fuzz/fuzz.h"

#define MAX_TEXT_BYTES 512
#define MAX_MATCHES    64

static void search(const struct regex *regex, const char *text, size_t length)
{
    struct regex_scratch *scratch = regex_scratch_create();
    struct error err;
    size_t from = 0;
    for (int i = 0; i < MAX_MATCHES; i++) {
        struct regex_match match;
        if (regex_find(regex, scratch, text, length, from, &match, &err) != STATUS_OK) {
            fuzz_check_sentence(err.text);
            break;
        }
        if (!match.found)
            break;
        FUZZ_CHECK(match.start >= from && match.end >= match.start && match.end <= length);
        /* Whole characters. */
        FUZZ_CHECK(match.start == length || ((uint8_t)text[match.start] & 0xc0) != 0x80);
        FUZZ_CHECK(match.end == length || ((uint8_t)text[match.end] & 0xc0) != 0x80);
        if (match.end == length)
            break;
        from = match.end;
        if (match.start == match.end)
            from += utf8_next(text + from, length - from).length;
    }
    regex_scratch_destroy(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    struct fuzz_bytes pattern = fuzz_take_piece(&input), text = fuzz_take_rest(&input);
    if (text.size > MAX_TEXT_BYTES || !utf8_valid((const char *)text.data, text.size, NULL) ||
        !utf8_valid((const char *)pattern.data, pattern.size, NULL))
        return 0; /* both were checked before they come here */
    struct regex *regex;
    struct error err;
    if (regex_create((const char *)pattern.data, pattern.size, &regex, &err) == STATUS_OK) {
        search(regex, (const char *)text.data, text.size);
        regex_destroy(regex);
    } else {
        fuzz_check_sentence(err.text);
    }
    return 0;
}
