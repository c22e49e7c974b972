#include "common/net/rpc/grpc/channel_args.h"

#include "common/base/assert.h"
#include "common/net/rpc/grpc/call.h"

#include <grpc/compression.h>

#include <limits.h>

#define KEEPALIVE_ANSWER_MS 2000

void channel_args_add(struct channel_args *args, const char *key, int value)
{
    ASSERT(args->count < sizeof args->items / sizeof *args->items);
    args->items[args->count++] =
        (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

void channel_args_add_string(struct channel_args *args, const char *key, const char *value)
{
    ASSERT(args->count < sizeof args->items / sizeof *args->items);
    args->items[args->count++] =
        (grpc_arg){.type = GRPC_ARG_STRING, .key = (char *)key, .value.string = (char *)value};
}

void channel_args_add_pointer(struct channel_args *args, const char *key, void *pointer,
                              const grpc_arg_pointer_vtable *vtable)
{
    ASSERT(args->count < sizeof args->items / sizeof *args->items);
    args->items[args->count++] = (grpc_arg){.type = GRPC_ARG_POINTER,
                                            .key = (char *)key,
                                            .value.pointer = {.p = pointer, .vtable = vtable}};
}

void channel_args_add_common(struct channel_args *args, size_t max_message_bytes,
                             uint64_t keepalive_us)
{
    size_t limit = max_message_bytes ? max_message_bytes : RPC_DEFAULT_BYTES;
    channel_args_add(args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                     limit < INT_MAX ? (int)limit : INT_MAX);
    if (keepalive_us) {
        uint64_t ms = keepalive_us / 1000 ? keepalive_us / 1000 : 1;
        channel_args_add(args, GRPC_ARG_KEEPALIVE_TIME_MS, ms < INT_MAX ? (int)ms : INT_MAX);
        channel_args_add(args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_ANSWER_MS);
    }
    channel_args_add(args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    channel_args_add(args, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    /* A compressed message may unpack to any size, and compression costs six times the CPU of a
     * token message. */
    channel_args_add(args, GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
                     1 << GRPC_COMPRESS_NONE);
    channel_args_add(args, GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    channel_args_add(args, GRPC_ARG_ENABLE_CHANNELZ, 0);
}
