/* Two bytes that say how the rest is cut and how it ends, and bytes that may be an answer. However
 * they are cut they are read alike, no more than the limit is kept, and what is refused is told in
 * one sentence. */
#include "common/net/http/http_response.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT 100

static enum status read_in_steps(struct fuzz_bytes bytes, size_t step, bool orderly,
                                 struct http_response *response, struct str *payload,
                                 struct error *err)
{
    enum status status = STATUS_OK;
    str_init(payload, LIMIT);
    http_response_init(response, payload);
    for (size_t at = 0; at < bytes.size && status == STATUS_OK; at += step)
        status = http_response_take(response, (const char *)bytes.data + at,
                                    bytes.size - at < step ? bytes.size - at : step, err);
    if (status == STATUS_OK)
        status = http_response_end(response, orderly, err);
    FUZZ_CHECK(payload->length <= LIMIT);
    if (status == STATUS_OK) {
        FUZZ_CHECK(response->has_head && response->status >= 200 && response->status <= 599);
        FUZZ_CHECK(response->whole || orderly);
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    size_t step = fuzz_take_below(&input, 64) + 1;
    bool orderly = fuzz_take_u8(&input) & 1;
    struct fuzz_bytes bytes = fuzz_take_rest(&input);
    struct http_response whole, cut;
    struct str payload, other;
    struct error err, other_err;
    enum status status = read_in_steps(bytes, bytes.size + 1, orderly, &whole, &payload, &err);
    FUZZ_CHECK(read_in_steps(bytes, step, orderly, &cut, &other, &other_err) == status);
    if (status != STATUS_OK) {
        FUZZ_CHECK(!strcmp(err.text, other_err.text));
        fuzz_check_sentence(err.text);
    } else {
        FUZZ_CHECK(whole.status == cut.status && whole.whole == cut.whole);
        FUZZ_CHECK(payload.length == other.length &&
                   !memcmp(payload.data, other.data, other.length));
    }
    http_response_deinit(&whole);
    http_response_deinit(&cut);
    str_deinit(&payload);
    str_deinit(&other);
    return 0;
}
