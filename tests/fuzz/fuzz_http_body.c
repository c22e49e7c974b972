/* Input: a byte for the cuts, a byte for the framing, and a request's body with the bytes after it.
 * However it is cut, the same bytes are taken and the same payload comes out, within its limit. */
#include "common/net/http/http_request.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define LIMIT_BYTES 200

struct taken {
    enum status status;
    size_t used;
    bool whole;
    struct str payload;
    struct http_refusal why;
};

static void take_in_steps(const struct http_head *head, struct fuzz_bytes bytes, size_t step,
                          struct taken *taken)
{
    struct http_body body;
    *taken = (struct taken){0};
    str_init(&taken->payload, LIMIT_BYTES);
    taken->status = http_body_begin(&body, head, LIMIT_BYTES, &taken->why);
    while (taken->status == STATUS_OK && taken->used < bytes.size && body.part != BODY_WHOLE) {
        size_t used, left = bytes.size - taken->used, piece = left < step ? left : step;
        taken->status = http_body_take(&body, (const char *)bytes.data + taken->used, piece, &used,
                                       &taken->payload, &taken->why);
        taken->used += used;
        FUZZ_CHECK(taken->status != STATUS_OK || used == piece || body.part == BODY_WHOLE);
    }
    taken->whole = taken->status == STATUS_OK && body.part == BODY_WHOLE;
    FUZZ_CHECK(taken->payload.length <= LIMIT_BYTES);
    FUZZ_CHECK(taken->payload.length == body.received_bytes);
    if (taken->status != STATUS_OK)
        fuzz_check_sentence(taken->why.why.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    size_t step = fuzz_take_below(&input, 64) + 1;
    uint8_t how = fuzz_take_u8(&input);
    struct http_head head = {.chunked = how & 1, .length = how & 1 ? 0 : how};
    struct fuzz_bytes bytes = fuzz_take_rest(&input);
    struct taken whole, cut;
    take_in_steps(&head, bytes, bytes.size + 1, &whole);
    take_in_steps(&head, bytes, step, &cut);
    FUZZ_CHECK(whole.status == cut.status && whole.whole == cut.whole);
    FUZZ_CHECK(whole.payload.length == cut.payload.length);
    FUZZ_CHECK(!memcmp(whole.payload.data, cut.payload.data, whole.payload.length));
    if (whole.status == STATUS_OK)
        FUZZ_CHECK(whole.used == cut.used);
    else
        FUZZ_CHECK(whole.why.status == cut.why.status);
    if (whole.whole && !head.chunked)
        FUZZ_CHECK(whole.used == head.length && whole.payload.length == head.length);
    str_deinit(&whole.payload);
    str_deinit(&cut.payload);
    return 0;
}
