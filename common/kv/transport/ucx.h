/* Internal to ucx*.c and remote.c: the lane shm, which is all that UCX does here. A pool that UCX
 * has allocated can be mapped by other processes of the machine, from what UCX says about it (its
 * worker's address and the pool's key); kv_transport_poll copies from the mapping. Nothing is ever
 * sent over UCX, and it is not what watches the peer: kv_life and the socket of the pairing do. The
 * API of UCX 1.13 and nothing newer, so that Debian 12's builds too. */
#ifndef BATON_KV_TRANSPORT_UCX_H
#define BATON_KV_TRANSPORT_UCX_H

#include "common/kv/transport/kv_address.h"

#include <ucp/api/ucp.h>

struct kv_life_word;
struct ucx_pool;
struct ucx_mapping;

/* STATUS_LIMIT, ...: no shared memory of that size can be had. */
enum status ucx_pool_create(size_t bytes, struct ucx_pool **pool, struct error *err) WARN_UNUSED;
void ucx_pool_destroy(struct ucx_pool *pool); /* after the last mapping made with it */
uint8_t *ucx_pool_memory(const struct ucx_pool *pool);
struct kv_life_word *ucx_pool_signs(const struct ucx_pool *pool); /* behind it, mapped with it */
/* Fills shm_version, base, worker and rkey, which point to memory of `pool`. */
void ucx_pool_describe(const struct ucx_pool *pool, struct kv_address *address);
/* Whatever UCX has to do for itself: a few steps. */
void ucx_pool_progress(struct ucx_pool *pool);

/* The peer's pool in our address space, for reading only. STATUS_UNAVAILABLE: not from here. */
enum status ucx_map(struct ucx_pool *pool, const struct kv_address *address,
                    struct ucx_mapping **mapping, const uint8_t **start,
                    struct error *err) WARN_UNUSED;
/* Of a pool that was mapped there. */
const struct kv_life_word *ucx_mapping_signs(const uint8_t *start,
                                             const struct kv_address *address);
void ucx_unmap(struct ucx_pool *pool, struct ucx_mapping *mapping);

/* ucx_config.c. Process-wide: takes UCX's crash handlers out and brings its messages into our log.
 * What it does while it is loaded (it patches mmap, munmap and madvise) only the environment can
 * stop: UCX_MEM_EVENTS=n, before the program starts. */
void ucx_process_init(void);
/* The options of a context with shared memory alone; release with ucp_config_release. */
enum status ucx_config_create(ucp_config_t **out, struct error *err) WARN_UNUSED;
enum status ucx_status(ucs_status_t status);

#endif
