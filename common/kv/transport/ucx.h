/* Internal to this folder: the memory of the lane shm, and the lane rdma. ucx.c and ucx_card.c are
 * the only files that know UCX, and this is all that UCX does here. Other processes of the machine
 * can map a pool that UCX has allocated, from UCX's description of it: its worker's address and the
 * pool's key. UCX copies nothing: kv_transport_poll (kv_transport.c) copies from the mapping. UCX
 * does not watch the peer either: kv_life and the socket of the pairing do. Uses the API of UCX
 * 1.13 and nothing newer, so that Debian 12's builds too. */
#ifndef BATON_KV_TRANSPORT_UCX_H
#define BATON_KV_TRANSPORT_UCX_H

#include "common/kv/transport/kv_address.h"

struct kv_life_word;
struct kv_move;
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

/* --- the lane rdma: pools in the memory of a GPU, read by network cards without their owner. No
 * part of it was ever run: the machines that it was made on have no such card. --- */

struct ucx_card;   /* the cards' side of the own pool */
struct ucx_remote; /* a peer's pool */

/* Registers `bytes` of a GPU's memory with the cards. STATUS_UNSUPPORTED, with a sentence: there is
 * no card, or UCX can't reach a GPU's memory. */
enum status ucx_card_open(void *memory, size_t bytes, struct ucx_card **card,
                          struct error *err) WARN_UNUSED;
void ucx_card_close(struct ucx_card *card); /* NULL is fine; after the last remote */
/* Fills base, worker and rkey, which point to memory of `card`. */
void ucx_card_describe(const struct ucx_card *card, struct kv_address *address);
/* Readable when progress has work, if it was armed. Progress arms it. */
int ucx_card_fd(const struct ucx_card *card);
/* Returns whether it has more to do at once; the descriptor doesn't tell that. */
bool ucx_card_progress(struct ucx_card *card);
const char *ucx_card_name(const struct ucx_card *card); /* the lane's, by what it runs over */

enum status ucx_remote_open(struct ucx_card *card, const struct kv_address *address,
                            struct ucx_remote **remote, struct error *err) WARN_UNUSED;
/* The forced close: all reads end, whatever the peer does, and no byte lands after it. A card that
 * doesn't end them within a second ends this process: their blocks could never be used again. */
void ucx_remote_stop(struct ucx_remote *remote);
/* Stops it, too. NULL is fine. */
void ucx_remote_close(struct ucx_remote *remote);
/* As gather and poll of struct kv_copier. A read has no deadline of its own: the transport's
 * stops the remote. */
enum status ucx_remote_read(struct ucx_remote *remote, const struct kv_move *moves, uint32_t count,
                            uint64_t *copy) WARN_UNUSED;
bool ucx_remote_poll(struct ucx_remote *remote, uint64_t copy, enum status *status);

#endif
