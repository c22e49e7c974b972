#include "common/kv/transport/kv_address.h"

#include "common/kv/transport/kv_checksum.h"

#include <string.h>

/* magic[4] | u16 format | u8 kind | u8 lanes | u32 count | u32 shm_version | u32 sign | u64
 * admission | secret[16] | u64 id | u64 base | u64 pool_bytes | u16 ip_version | u16 port | ip[16]
 * | u16 worker_bytes | u16 rkey_bytes | worker | rkey | u32 CRC32C of all before it.
 * Little-endian. */
#define MAGIC          "BKVA"
#define FORMAT         3
#define HEADER_BYTES   92
#define CHECKSUM_BYTES 4

static uint8_t *put(uint8_t *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        *at++ = (uint8_t)(value >> 8 * i);
    return at;
}

static uint64_t take(const uint8_t **at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)(*at)[i] << 8 * i;
    *at += bytes;
    return value;
}

enum status kv_address_encode(const struct kv_address *address,
                              uint8_t bytes[KV_TRANSPORT_MAX_ADDRESS_BYTES], size_t *count,
                              struct error *err)
{
    size_t total =
        HEADER_BYTES + (size_t)address->worker_bytes + address->rkey_bytes + CHECKSUM_BYTES;
    if (total > KV_TRANSPORT_MAX_ADDRESS_BYTES)
        return error_set(err, STATUS_LIMIT,
                         "the transport's address is %zu bytes and may be %d: UCX has too many "
                         "devices",
                         total, KV_TRANSPORT_MAX_ADDRESS_BYTES);
    memcpy(bytes, MAGIC, 4);
    uint8_t *at = put(bytes + 4, FORMAT, 2);
    at = put(at, address->kind, 1);
    at = put(at, address->lanes, 1);
    at = put(at, total, 4);
    at = put(at, address->shm_version, 4);
    at = put(at, address->sign, 4);
    at = put(at, address->admission, 8);
    memcpy(at, address->secret, sizeof address->secret);
    at += sizeof address->secret;
    at = put(at, address->id, 8);
    at = put(at, address->base, 8);
    at = put(at, address->pool_bytes, 8);
    at = put(at, address->ip_version, 2);
    at = put(at, address->port, 2);
    memcpy(at, address->ip, sizeof address->ip);
    at = put(at + sizeof address->ip, address->worker_bytes, 2);
    at = put(at, address->rkey_bytes, 2);
    if (address->worker_bytes)
        memcpy(at, address->worker, address->worker_bytes);
    at += address->worker_bytes;
    if (address->rkey_bytes)
        memcpy(at, address->rkey, address->rkey_bytes);
    at += address->rkey_bytes;
    put(at, kv_checksum(bytes, total - CHECKSUM_BYTES), CHECKSUM_BYTES);
    *count = total;
    return STATUS_OK;
}

enum status kv_address_decode(const void *bytes, size_t count, enum kv_transport_kind kind,
                              struct kv_address *out, struct error *err)
{
    const uint8_t *at = bytes;
    if (count < HEADER_BYTES + CHECKSUM_BYTES || count > KV_TRANSPORT_MAX_ADDRESS_BYTES ||
        memcmp(at, MAGIC, 4) != 0)
        return error_set(err, STATUS_INVALID, "%zu bytes that are not a transport's address",
                         count);
    at += 4;
    unsigned format = (unsigned)take(&at, 2), found_kind = (unsigned)take(&at, 1);
    unsigned lanes = (unsigned)take(&at, 1);
    if (format != FORMAT)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the peer writes transport addresses in format %u, this program reads "
                         "format %d: run the same version on both",
                         format, FORMAT);
    const uint8_t *checksum = (const uint8_t *)bytes + count - CHECKSUM_BYTES;
    if (take(&at, 4) != count ||
        take(&checksum, CHECKSUM_BYTES) != kv_checksum(bytes, count - CHECKSUM_BYTES))
        return error_set(err, STATUS_INVALID, "a transport's address of %zu bytes is damaged",
                         count);
    if (found_kind != kind)
        return error_set(err, STATUS_INVALID,
                         "the peer uses another kind of transport (%u, not %u)", found_kind, kind);
    struct kv_address address = {.kind = kind, .lanes = (uint8_t)lanes};
    address.shm_version = (uint32_t)take(&at, 4);
    address.sign = (uint32_t)take(&at, 4);
    address.admission = take(&at, 8);
    memcpy(address.secret, at, sizeof address.secret);
    at += sizeof address.secret;
    address.id = take(&at, 8);
    address.base = take(&at, 8);
    address.pool_bytes = take(&at, 8);
    unsigned ip_version = (unsigned)take(&at, 2);
    address.ip_version = (uint8_t)ip_version;
    address.port = (uint16_t)take(&at, 2);
    memcpy(address.ip, at, sizeof address.ip);
    at += sizeof address.ip;
    address.worker_bytes = (uint16_t)take(&at, 2);
    address.rkey_bytes = (uint16_t)take(&at, 2);
    if (HEADER_BYTES + (size_t)address.worker_bytes + address.rkey_bytes + CHECKSUM_BYTES !=
            count ||
        address.pool_bytes == 0 || address.pool_bytes > KV_ADDRESS_MAX_POOL_BYTES ||
        address.base > UINT64_MAX - address.pool_bytes ||
        (ip_version != 0 && ip_version != 4 && ip_version != 6))
        return error_set(err, STATUS_INVALID,
                         "a transport's address of %zu bytes names impossible values", count);
    address.worker = at;
    address.rkey = at + address.worker_bytes;
    *out = address;
    return STATUS_OK;
}
