/* The frames of the tcp lane, and the owner's check of the bytes that come to its port. PURE: bytes
 * in, decision out; no socket, no clock, no pool.
 *
 * A frame is 40 bytes, little-endian: magic "BKVL" | u16 version | u16 kind | four fields of 8
 * bytes. Fields that a kind doesn't use are 0.
 *
 *     reader                                    owner
 *     HELLO   admission, secret (16 bytes)  ->
 *                                           <-  WELCOME  verdict, pool_id, pool_bytes
 *     ASK     number, offset, bytes, grant  ->
 *                                           <-  ANSWER   number, bytes, refused; then so many bytes
 *
 * A grant is the owner's number for what it lets this reader read (kv_transport_serve). A refused
 * ask is answered with refused = 1 and zeros, as many as it asked for: the reader knows the length
 * of the next bytes before they come.
 *
 * HELLO comes first and once. Asks follow the WELCOME, with at most KV_FRAME_WINDOW unanswered;
 * they are answered in order. Any other bytes end the connection, and nothing else. No frame makes
 * the receiver allocate, and it checks each length against its own numbers before it uses it. */
#ifndef BATON_KV_TRANSPORT_KV_FRAME_H
#define BATON_KV_TRANSPORT_KV_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_FRAME_BYTES   40
#define KV_FRAME_VERSION 2
#define KV_FRAME_WINDOW  128 /* asks of one connection that wait for (part of) their answer */
#define KV_SECRET_BYTES  16

enum kv_frame_kind { KV_FRAME_HELLO = 1, KV_FRAME_WELCOME, KV_FRAME_ASK, KV_FRAME_ANSWER };

/* The first field of WELCOME. Every verdict except ADMITTED is followed by the end of the
 * connection. */
enum kv_verdict {
    KV_ADMITTED = 1,
    KV_NOT_ADMITTED, /* no such admission, or another secret; the reader doesn't learn which */
    KV_OTHER_VERSION,
    KV_VERDICTS
};

struct kv_frame {
    enum kv_frame_kind kind;
    union {
        struct {
            uint64_t admission;
            uint8_t secret[KV_SECRET_BYTES];
        } hello;
        struct {
            uint64_t verdict, pool_id, pool_bytes;
        } welcome;
        struct {
            uint64_t number, offset, bytes, grant;
        } ask;
        struct {
            uint64_t number, bytes;
            bool refused;
        } answer;
    };
};

void kv_frame_encode(const struct kv_frame *frame, uint8_t bytes[KV_FRAME_BYTES]);

enum kv_frame_fault {
    KV_FRAME_GOOD,
    KV_FRAME_NOT_OURS,      /* no frame of the tcp lane */
    KV_FRAME_OTHER_VERSION, /* a frame of another version of it */
    KV_FRAME_UNEXPECTED,    /* a frame that may not come now, or with impossible values */
};
/* For logs: "not a frame", ... */
const char *kv_frame_fault_text(enum kv_frame_fault fault);
enum kv_frame_fault kv_frame_decode(const uint8_t bytes[KV_FRAME_BYTES], struct kv_frame *frame);

/* The owner's state of one connection. At the beginning everything is zero, except pool_bytes. */
struct kv_frames {
    uint64_t pool_bytes;
    bool greeted;            /* HELLO has come */
    enum kv_frame_fault bad; /* for good: no more bytes are taken */
    uint8_t part[KV_FRAME_BYTES];
    size_t part_bytes;
};

/* Takes bytes until one frame is whole; *taken is their number. Returns true if `frame` is a HELLO,
 * or an ASK that lies inside the pool. Returns false if all bytes were taken, or if they were
 * wrong: see frames->bad. */
bool kv_frames_take(struct kv_frames *frames, const uint8_t *bytes, size_t count, size_t *taken,
                    struct kv_frame *frame);

#endif
