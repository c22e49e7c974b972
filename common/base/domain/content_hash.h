/* A checksum of bytes in files: XXH3 with 64 bits, as fast as memory. It finds what changed by
 * chance; it is no defence against anyone who wants to change them. Part of file formats: the same
 * for ever. PURE. */
#ifndef BATON_BASE_DOMAIN_CONTENT_HASH_H
#define BATON_BASE_DOMAIN_CONTENT_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t content_hash(const void *bytes, size_t count);

#endif
