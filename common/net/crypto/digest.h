/* SHA-256, comparison that takes the same time whatever differs, and random bytes for keys. Any
 * thread. */
#ifndef BATON_NET_CRYPTO_DIGEST_H
#define BATON_NET_CRYPTO_DIGEST_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define DIGEST_BYTES     32
#define DIGEST_HEX_BYTES (2 * DIGEST_BYTES + 1) /* with the NUL */

struct digest {
    uint8_t bytes[DIGEST_BYTES];
};

struct digest digest_of(const void *bytes, size_t count);
bool digest_equal(const struct digest *a, const struct digest *b);
/* Lower-case hex; from_hex takes both cases and nothing but 64 digits. */
void digest_to_hex(const struct digest *digest, char hex[DIGEST_HEX_BYTES]);
bool digest_from_hex(const char *hex, size_t length, struct digest *digest);

/* From the kernel's generator. STATUS_IO: it gives none. */
enum status random_bytes(void *bytes, size_t count, struct error *err) WARN_UNUSED;

#endif
