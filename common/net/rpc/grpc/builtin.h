/* The services that every server answers by itself: grpc.health.v1.Health (Check and Watch, one
 * state for all services) and grpc.reflection v1 and v1alpha. Any thread. Internal to this
 * folder. */
#ifndef BATON_NET_RPC_GRPC_BUILTIN_H
#define BATON_NET_RPC_GRPC_BUILTIN_H

#include "common/net/rpc/rpc.h"

#include <stdatomic.h>

/* The open streams of one server: health watches, of any service, and reflection. They need no key,
 * last as long as the client likes, and take room from its other calls: one more than
 * BUILTIN_MAX_STREAMS is refused as RPC_RESOURCE_EXHAUSTED. Zero: none. */
#define BUILTIN_MAX_STREAMS 1024

struct builtin_streams {
    _Atomic size_t count;
};

/* --- health --- */

struct health;

#define HEALTH_METHODS 2

/* `streams` outlives it. */
struct health *health_create(const char *const *services, size_t service_count,
                             struct builtin_streams *streams);
void health_destroy(struct health *health); /* all its calls have ended */
void health_methods(struct health *health, struct rpc_method methods[HEALTH_METHODS]);
void health_set_serving(struct health *health, bool serving);

/* --- reflection; it never changes after its creation --- */

struct reflection;

#define REFLECTION_METHODS 2

/* Takes services and descriptors from the config and adds those of the built-in services. `streams`
 * outlives it. */
struct reflection *reflection_create(const struct rpc_server_config *config,
                                     struct builtin_streams *streams);
void reflection_destroy(struct reflection *reflection); /* all its calls have ended */
void reflection_methods(struct reflection *reflection,
                        struct rpc_method methods[REFLECTION_METHODS]);

/* --- the .proto files that reflection serves --- */

#define DESCRIPTOR_FILES_MAX 64

/* Cut out of serialized FileDescriptorSets without copying: the sets must outlive this. Knows the
 * wire format of google/protobuf/descriptor.proto only. */
struct descriptor_files {
    struct rpc_bytes items[DESCRIPTOR_FILES_MAX]; /* one FileDescriptorProto each, unique by name */
    size_t count;
};

/* Adds the files of a set, except names that are there already. */
void descriptor_files_add_set(struct descriptor_files *files, struct rpc_bytes set);

/* Return the index of a file, or files->count if there is none. Symbols are full names
 * ("baton.v1.Baton.Generate") of messages, fields, oneofs, enums and their values, services and
 * methods, also nested ones. */
size_t descriptor_files_by_name(const struct descriptor_files *files, const char *name);
size_t descriptor_files_by_symbol(const struct descriptor_files *files, const char *symbol);

/* Collects the file and all that it imports, itself first. Returns how many. */
size_t descriptor_files_closure(const struct descriptor_files *files, size_t index,
                                struct rpc_bytes closure[DESCRIPTOR_FILES_MAX]);

#endif
