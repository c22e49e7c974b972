/* Unpacking of messages that came from outside, bounded and checked, which protobuf-c alone does
 * not do: it validates no UTF-8, cuts a string at an embedded NUL, and lets 4 MiB of empty
 * sub-messages grow into 300 MB.
 *
 * The message and all it points to live in the arena: never call a *__free_unpacked on it. Not
 * thread-safe (arena).
 */
#ifndef BATON_PROTO_PROTO_UNPACK_H
#define BATON_PROTO_PROTO_UNPACK_H

#include "common/base/arena.h"
#include "common/base/status.h"

#include <protobuf-c/protobuf-c.h>

#define PROTO_MAX_DEPTH 8

/* An arena limit that every honest message of `size` wire bytes fits in. */
static inline size_t proto_arena_bytes(size_t size)
{
    return size * 16 + (64u << 10);
}

/* STATUS_INVALID: malformed, nested too deeply, or a string that is not UTF-8 or holds a NUL (err
 * names the field); STATUS_LIMIT: the arena is full. */
enum status proto_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                         struct arena *arena, ProtobufCMessage **message,
                         struct error *err) WARN_UNUSED;

#endif
