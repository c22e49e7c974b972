#include "common/net/crypto/digest.h"

#include "common/base/assert.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <errno.h>
#include <string.h>
#include <sys/random.h>

struct digest digest_of(const void *bytes, size_t count)
{
    struct digest digest;
    unsigned length = 0;
    int done = EVP_Digest(bytes, count, digest.bytes, &length, EVP_sha256(), NULL);
    ASSERT(done == 1 && length == DIGEST_BYTES); /* fails without memory only */
    return digest;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return CRYPTO_memcmp(a->bytes, b->bytes, DIGEST_BYTES) == 0;
}

void digest_to_hex(const struct digest *digest, char hex[DIGEST_HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        hex[2 * i] = digits[digest->bytes[i] >> 4];
        hex[2 * i + 1] = digits[digest->bytes[i] & 15];
    }
    hex[2 * DIGEST_BYTES] = 0;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool digest_from_hex(const char *hex, size_t length, struct digest *digest)
{
    struct digest read;
    if (length != 2 * DIGEST_BYTES)
        return false;
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        int high = digit_of(hex[2 * i]), low = digit_of(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        read.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *digest = read;
    return true;
}

enum status random_bytes(void *bytes, size_t count, struct error *err)
{
    for (size_t done = 0; done < count;) {
        ssize_t got = getrandom((char *)bytes + done, count - done, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return error_set(err, STATUS_IO, "no random bytes: %s", strerror(errno));
        done += (size_t)got;
    }
    return STATUS_OK;
}
