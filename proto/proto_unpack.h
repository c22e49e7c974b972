/* Unpacks messages from outside, with limits and checks that protobuf-c alone doesn't have: it
 * validates no UTF-8, cuts a string at an embedded NUL, and lets 4 MiB of empty sub-messages grow
 * into 300 MB.
 *
 * Texts of the public interface (prompts, answers, stop strings) may hold a NUL: C's side has them
 * as bytes (proto_text.h). Names are strings.
 *
 * The message and all it points to live in the arena: never call a *__free_unpacked on it. An arena
 * belongs to one thread. */
#ifndef BATON_PROTO_PROTO_UNPACK_H
#define BATON_PROTO_PROTO_UNPACK_H

#include "common/base/arena.h"
#include "common/base/status.h"

#include <protobuf-c/protobuf-c.h>

#define PROTO_MAX_DEPTH 8

/* A limit of the arena that is enough for any message of a real client with `size` wire bytes. */
static inline size_t proto_arena_bytes(size_t size)
{
    return size * 16 + (64u << 10);
}

/* STATUS_INVALID: malformed, nested too deeply, a string or text that is not UTF-8, or a string
 * that holds a NUL (err names the field); STATUS_LIMIT: the arena is full. */
enum status proto_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                         struct arena *arena, ProtobufCMessage **message,
                         struct error *err) WARN_UNUSED;

#endif
