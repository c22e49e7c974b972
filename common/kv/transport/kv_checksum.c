#include "common/kv/transport/kv_checksum.h"

#include <isa-l/crc.h>

uint32_t kv_checksum(const void *bytes, size_t count)
{
    const size_t max_call = 1u << 30;                      /* crc32_iscsi takes an int */
    unsigned char *at = (unsigned char *)(uintptr_t)bytes; /* it takes no const, but only reads */
    uint32_t crc = ~0u;
    while (count > 0) {
        size_t part = count < max_call ? count : max_call;
        crc = crc32_iscsi(at, (int)part, crc);
        at += part;
        count -= part;
    }
    return ~crc;
}
