/* Internal to this folder: the memory of the lane shm. ucx.c is the only file that knows UCX, and
 * this is all that UCX does here. Other processes of the machine can map a pool that UCX has
 * allocated, from UCX's description of it: its worker's address and the pool's key. UCX copies
 * nothing: kv_transport_poll (kv_transport.c) copies from the mapping. UCX does not watch the peer
 * either: kv_life and the socket of the pairing do. Uses the API of UCX 1.13 and nothing newer, so
 * that Debian 12's builds too. */
#ifndef BATON_KV_TRANSPORT_UCX_H
#define BATON_KV_TRANSPORT_UCX_H

#include "common/kv/transport/kv_address.h"

struct kv_life_word;
struct ucx_pool;
struct ucx_mapping;

/* STATUS_LIMIT, ...: shared memory of that size can't be had. */
enum status ucx_pool_create(size_t bytes, struct ucx_pool **pool, struct error *err) WARN_UNUSED;
void ucx_pool_destroy(struct ucx_pool *pool); /* after the last mapping made with it */
uint8_t *ucx_pool_memory(const struct ucx_pool *pool);
struct kv_life_word *ucx_pool_signs(const struct ucx_pool *pool); /* behind it, mapped with it */
/* Fills shm_version, base, worker and rkey, which point to memory of `pool`. */
void ucx_pool_describe(const struct ucx_pool *pool, struct kv_address *address);
/* Lets UCX do its own work: a few steps. */
void ucx_pool_progress(struct ucx_pool *pool);

/* Maps the peer's pool into our address space, for reading only. STATUS_UNAVAILABLE: this process
 * can't map it. */
enum status ucx_map(struct ucx_pool *pool, const struct kv_address *address,
                    struct ucx_mapping **mapping, const uint8_t **start,
                    struct error *err) WARN_UNUSED;
/* Returns the signs behind a mapped pool. */
const struct kv_life_word *ucx_mapping_signs(const uint8_t *start,
                                             const struct kv_address *address);
void ucx_unmap(struct ucx_pool *pool, struct ucx_mapping *mapping);

#endif
