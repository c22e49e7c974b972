/* The opaque bytes of a transport's address: written here, and checked here before any of them is
 * used.
 *
 * The checksum keeps damaged or foreign bytes away from the library behind the transport, which
 * trusts the bytes that it unpacks. It does not make a hostile peer harmless: addresses come only
 * from peers that the control plane knows. */
#ifndef BATON_KV_TRANSPORT_KV_ADDRESS_H
#define BATON_KV_TRANSPORT_KV_ADDRESS_H

#include "common/base/status.h"
#include "common/kv/transport/kv_frame.h"
#include "common/kv/transport/kv_transport.h"

/* More than any machine has; sums of offsets below it can't overflow. */
#define KV_ADDRESS_MAX_POOL_BYTES ((uint64_t)1 << 47)

/* The lanes that an owner serves, as bits of kv_address.lanes. */
#define KV_ADDRESS_SHM  1u
#define KV_ADDRESS_TCP  2u
#define KV_ADDRESS_CUDA 4u /* never with SHM or RDMA */
#define KV_ADDRESS_RDMA 8u

struct kv_address {
    enum kv_transport_kind kind;
    uint8_t lanes;
    uint32_t shm_version; /* shm: the version of the library behind it, the same on both ends */
    uint32_t sign;        /* shm, cuda: the words' value while the owner lives; 0: none */
    /* remote: the reader's number, and the secret that proves it */
    uint64_t admission;
    uint8_t secret[KV_SECRET_BYTES];
    uint64_t id;   /* random: names this pool, and no later one */
    uint64_t base; /* address of the pool in its owner */
    uint64_t pool_bytes;
    uint8_t ip_version; /* the owner's place, network order: 4, 6, or 0: it doesn't listen */
    uint8_t ip[16];
    uint16_t port;
    /* shm: the library's description of the pool; cuda: the socket, and two numbers of
     * mapped_lane.c; rdma: as shm. They point into the decoded bytes. */
    const uint8_t *worker, *rkey;
    uint16_t worker_bytes, rkey_bytes;
};

/* STATUS_LIMIT: more than KV_TRANSPORT_MAX_ADDRESS_BYTES. */
enum status kv_address_encode(const struct kv_address *address,
                              uint8_t bytes[KV_TRANSPORT_MAX_ADDRESS_BYTES], size_t *count,
                              struct error *err) WARN_UNUSED;
/* STATUS_INVALID: not an address of `kind`, or damaged. STATUS_UNSUPPORTED: written by another
 * version. */
enum status kv_address_decode(const void *bytes, size_t count, enum kv_transport_kind kind,
                              struct kv_address *address, struct error *err) WARN_UNUSED;

#endif
