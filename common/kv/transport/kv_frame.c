#include "common/kv/transport/kv_frame.h"

#include <string.h>

#define MAGIC      "BKVL"
#define HEAD_BYTES 8

static void put(uint8_t *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static void put_fields(uint8_t *at, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    put(at, a, 8);
    put(at + 8, b, 8);
    put(at + 16, c, 8);
    put(at + 24, d, 8);
}

void kv_frame_encode(const struct kv_frame *frame, uint8_t bytes[KV_FRAME_BYTES])
{
    memcpy(bytes, MAGIC, 4);
    put(bytes + 4, KV_FRAME_VERSION, 2);
    put(bytes + 6, frame->kind, 2);
    uint8_t *at = bytes + HEAD_BYTES;
    switch (frame->kind) {
    case KV_FRAME_HELLO:
        put(at, frame->hello.admission, 8);
        memcpy(at + 8, frame->hello.secret, KV_SECRET_BYTES);
        put(at + 24, 0, 8);
        break;
    case KV_FRAME_WELCOME:
        put_fields(at, frame->welcome.verdict, frame->welcome.pool_id, frame->welcome.pool_bytes,
                   0);
        break;
    case KV_FRAME_ASK:
        put_fields(at, frame->ask.number, frame->ask.offset, frame->ask.bytes, frame->ask.grant);
        break;
    case KV_FRAME_ANSWER:
        put_fields(at, frame->answer.number, frame->answer.bytes, frame->answer.refused, 0);
        break;
    }
}

enum kv_frame_fault kv_frame_decode(const uint8_t bytes[KV_FRAME_BYTES], struct kv_frame *frame)
{
    const uint8_t *at = bytes + HEAD_BYTES;
    if (memcmp(bytes, MAGIC, 4) != 0)
        return KV_FRAME_NOT_OURS;
    if (get(bytes + 4, 2) != KV_FRAME_VERSION)
        return KV_FRAME_OTHER_VERSION;
    uint64_t a = get(at, 8), b = get(at + 8, 8), c = get(at + 16, 8), d = get(at + 24, 8);
    uint64_t kind = get(bytes + 6, 2);
    if (d != 0 && kind != KV_FRAME_ASK)
        return KV_FRAME_UNEXPECTED;
    switch (kind) {
    case KV_FRAME_HELLO:
        *frame = (struct kv_frame){.kind = KV_FRAME_HELLO, .hello.admission = a};
        memcpy(frame->hello.secret, at + 8, KV_SECRET_BYTES);
        return KV_FRAME_GOOD;
    case KV_FRAME_WELCOME:
        if (a == 0 || a >= KV_VERDICTS)
            return KV_FRAME_UNEXPECTED;
        *frame = (struct kv_frame){.kind = KV_FRAME_WELCOME, .welcome = {a, b, c}};
        return KV_FRAME_GOOD;
    case KV_FRAME_ASK:
        *frame = (struct kv_frame){.kind = KV_FRAME_ASK, .ask = {a, b, c, d}};
        return KV_FRAME_GOOD;
    case KV_FRAME_ANSWER:
        if (c > 1)
            return KV_FRAME_UNEXPECTED;
        *frame = (struct kv_frame){.kind = KV_FRAME_ANSWER, .answer = {a, b, c == 1}};
        return KV_FRAME_GOOD;
    default: return KV_FRAME_UNEXPECTED;
    }
}

static enum kv_frame_fault judge(struct kv_frames *frames, const struct kv_frame *frame)
{
    if (!frames->greeted) {
        frames->greeted = frame->kind == KV_FRAME_HELLO;
        return frames->greeted ? KV_FRAME_GOOD : KV_FRAME_UNEXPECTED;
    }
    bool inside = frame->kind == KV_FRAME_ASK && frame->ask.bytes > 0 &&
                  frame->ask.bytes <= frames->pool_bytes &&
                  frame->ask.offset <= frames->pool_bytes - frame->ask.bytes;
    return inside ? KV_FRAME_GOOD : KV_FRAME_UNEXPECTED;
}

bool kv_frames_take(struct kv_frames *frames, const uint8_t *bytes, size_t count, size_t *taken,
                    struct kv_frame *frame)
{
    *taken = 0;
    if (frames->bad)
        return false;
    size_t missing = KV_FRAME_BYTES - frames->part_bytes;
    *taken = count < missing ? count : missing;
    if (*taken > 0)
        memcpy(frames->part + frames->part_bytes, bytes, *taken);
    frames->part_bytes += *taken;
    /* A stranger shows by its first bytes, and so does another version, with frames of another
     * size: no need to wait for more of them. */
    size_t magic = frames->part_bytes < 4 ? frames->part_bytes : 4;
    if (memcmp(frames->part, MAGIC, magic) != 0)
        frames->bad = KV_FRAME_NOT_OURS;
    else if (frames->part_bytes >= 6 && get(frames->part + 4, 2) != KV_FRAME_VERSION)
        frames->bad = KV_FRAME_OTHER_VERSION;
    if (frames->bad)
        return false;
    if (frames->part_bytes < KV_FRAME_BYTES)
        return false;
    frames->part_bytes = 0;
    frames->bad = kv_frame_decode(frames->part, frame);
    if (!frames->bad)
        frames->bad = judge(frames, frame);
    return !frames->bad;
}
