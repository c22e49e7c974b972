/* CRC32C (Castagnoli; RFC 3720, B.4) of KV bytes: both ends of a handoff compute it per block. It
 * finds bytes that changed on the way; it is no defence against anyone who wants to change them.
 * The only file that knows ISA-L. Any thread. */
#ifndef BATON_KV_TRANSPORT_KV_CHECKSUM_H
#define BATON_KV_TRANSPORT_KV_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* With the usual inversion before and after: "123456789" gives 0xe3069283, no bytes give 0. */
uint32_t kv_checksum(const void *bytes, size_t count);

#endif
