/* Any bytes that a stranger or a reader sends to the port of a pool, in pieces. The cuts don't
 * change the frames and the end. HELLO comes first and once, requests are inside the pool, and each
 * frame is written again as the same bytes. Input: size of the pool, cuts, bytes. */
#include "common/kv/transport/kv_frame.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define MAX_FRAMES 128

struct seen {
    size_t count;
    struct kv_frame frames[MAX_FRAMES];
    struct kv_frames state;
};

static void check_frame(const struct seen *seen, const struct kv_frame *frame)
{
    FUZZ_CHECK(frame->kind == (seen->count ? KV_FRAME_ASK : KV_FRAME_HELLO));
    if (frame->kind == KV_FRAME_ASK) {
        FUZZ_CHECK(frame->ask.bytes > 0 && frame->ask.bytes <= seen->state.pool_bytes);
        FUZZ_CHECK(frame->ask.offset <= seen->state.pool_bytes - frame->ask.bytes);
    }
    uint8_t bytes[KV_FRAME_BYTES];
    kv_frame_encode(frame, bytes);
    FUZZ_CHECK(!memcmp(bytes, seen->state.part, sizeof bytes));
}

static void take(struct seen *seen, const uint8_t *bytes, size_t count)
{
    while (count > 0 && !seen->state.bad && seen->count < MAX_FRAMES) {
        struct kv_frame frame;
        size_t taken;
        bool whole = kv_frames_take(&seen->state, bytes, count, &taken, &frame);
        FUZZ_CHECK(taken <= count);
        bytes += taken;
        count -= taken;
        if (whole) {
            check_frame(seen, &frame);
            seen->frames[seen->count++] = frame;
        } else {
            FUZZ_CHECK(!count || seen->state.bad);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    uint32_t pool_bytes = fuzz_take_u32(&input);
    struct fuzz_bytes cuts = fuzz_take_piece(&input), bytes = fuzz_take_rest(&input);
    if (bytes.size > MAX_FRAMES * KV_FRAME_BYTES)
        bytes.size = MAX_FRAMES * KV_FRAME_BYTES;
    static struct seen whole, cut;
    memset(&whole, 0, sizeof whole);
    whole.state.pool_bytes = pool_bytes;
    cut = whole;
    take(&whole, bytes.data, bytes.size);
    for (size_t at = 0, i = 0; at < bytes.size; i++) {
        size_t count = i < cuts.size ? cuts.data[i] : bytes.size;
        count = count < bytes.size - at ? count : bytes.size - at;
        take(&cut, bytes.data + at, count);
        at += count;
    }
    FUZZ_CHECK(cut.count == whole.count && cut.state.bad == whole.state.bad);
    FUZZ_CHECK(!memcmp(cut.frames, whole.frames, whole.count * sizeof *whole.frames));
    return 0;
}
