/* CRC32C (Castagnoli; RFC 3720, B.4) of KV bytes. Both ends of a handoff compute it for each block.
 * It finds bytes that changed on the way. It is no defence against an attacker. The only file that
 * knows ISA-L. Any thread. */
#ifndef BATON_KV_TRANSPORT_KV_CHECKSUM_H
#define BATON_KV_TRANSPORT_KV_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* With the usual inversion before and after: "123456789" gives 0xe3069283, no bytes give 0. */
uint32_t kv_checksum(const void *bytes, size_t count);

#endif
