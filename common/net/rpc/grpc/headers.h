/* Metadata of a call, copied out of gRPC core's slices into C strings. */
#ifndef BATON_NET_RPC_GRPC_HEADERS_H
#define BATON_NET_RPC_GRPC_HEADERS_H

#include "common/base/status.h"
#include "common/net/rpc/rpc.h"

#include <grpc/grpc.h>

/* Received: "key\0value\0key\0value\0...". Binary headers (-bin), and values with a NUL, are left
 * out. Zeroed: empty. */
struct headers {
    char *block;
    size_t size;
};

void headers_read(struct headers *headers, const grpc_metadata_array *array);
void headers_deinit(struct headers *headers);
const char *headers_get(const struct headers *headers, const char *key); /* "" when absent */

/* To be sent. Zeroed: empty. */
struct header_list {
    grpc_metadata *items; /* NULL or RPC_MAX_METADATA of them: most calls have none */
    size_t count;
};
/* STATUS_INVALID: HTTP/2 can't carry it; STATUS_LIMIT: the list is full. */
enum status header_list_add(struct header_list *list, const char *key,
                            const char *value) WARN_UNUSED;
void header_list_deinit(struct header_list *list);

#endif
