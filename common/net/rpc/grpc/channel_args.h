/* The gRPC core settings that servers and channels share. */
#ifndef BATON_NET_RPC_GRPC_CHANNEL_ARGS_H
#define BATON_NET_RPC_GRPC_CHANNEL_ARGS_H

#include <grpc/grpc.h>

#include <stdint.h>

struct channel_args {
    grpc_arg items[24];
    size_t count;
};

void channel_args_add(struct channel_args *args, const char *key, int value);
/* The text is used until the args were used. */
void channel_args_add_string(struct channel_args *args, const char *key, const char *value);
/* The pointer is used until the args were used. */
void channel_args_add_pointer(struct channel_args *args, const char *key, void *pointer,
                              const grpc_arg_pointer_vtable *vtable);
/* Message limit, keepalive, and what is always off: compression, channelz. */
void channel_args_add_common(struct channel_args *args, size_t max_message_bytes,
                             uint64_t keepalive_us);

#endif
