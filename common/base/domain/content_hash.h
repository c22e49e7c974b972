/* A checksum of bytes in files: XXH3 with 64 bits, as fast as memory. It finds accidental changes;
 * it is no defence against an attacker. It is part of file formats and never changes. PURE. */
#ifndef BATON_BASE_DOMAIN_CONTENT_HASH_H
#define BATON_BASE_DOMAIN_CONTENT_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t content_hash(const void *bytes, size_t count);

#endif
