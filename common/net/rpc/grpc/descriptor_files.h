/* The .proto files that reflection serves, cut out of serialized FileDescriptorSets without
 * copying: the sets must outlive this. Nothing but google/protobuf/descriptor.proto's wire format
 * is known here. */
#ifndef BATON_NET_RPC_GRPC_DESCRIPTOR_FILES_H
#define BATON_NET_RPC_GRPC_DESCRIPTOR_FILES_H

#include "common/net/rpc/rpc.h"

#define DESCRIPTOR_FILES_MAX 64

struct descriptor_files {
    struct rpc_bytes items[DESCRIPTOR_FILES_MAX]; /* FileDescriptorProto each, unique by name */
    size_t count;
};

/* A file that is there already (by name) is left out. */
void descriptor_files_add_set(struct descriptor_files *files, struct rpc_bytes set);

/* Index of a file, or files->count when there is none. Symbols are full names
 * ("baton.v1.Baton.Generate") of messages, fields, oneofs, enums and their values, services and
 * methods, nested ones too. */
size_t descriptor_files_by_name(const struct descriptor_files *files, const char *name);
size_t descriptor_files_by_symbol(const struct descriptor_files *files, const char *symbol);

/* The file and all that it imports, itself first; returns how many. */
size_t descriptor_files_closure(const struct descriptor_files *files, size_t index,
                                struct rpc_bytes closure[DESCRIPTOR_FILES_MAX]);

#endif
