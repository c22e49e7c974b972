/* Any text as a file of API keys. Accepted keys have names, are sorted and unique, and are found by
 * their digests. A refusal names a line and shows nothing of its content. */
#include "router/ops/access_keys.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct access_keys keys;
    struct error err;
    if (access_keys_parse((const char *)data, size, &keys, &err) != STATUS_OK) {
        fuzz_check_sentence(err.text);
        return 0;
    }
    FUZZ_CHECK(keys.count <= ACCESS_KEYS_MAX);
    for (size_t i = 0; i < keys.count; i++) {
        const struct access_key *key = &keys.items[i];
        FUZZ_CHECK(*key->id && *key->tenant);
        FUZZ_CHECK(access_keys_find(&keys, &key->digest) == key);
        FUZZ_CHECK(i == 0 ||
                   memcmp(keys.items[i - 1].digest.bytes, key->digest.bytes, DIGEST_BYTES) < 0);
        FUZZ_CHECK(key->priorities[0] || key->priorities[1] || key->priorities[2]);
    }
    struct digest none = digest_of(data, size);
    const struct access_key *found = access_keys_find(&keys, &none);
    FUZZ_CHECK(!found || digest_equal(&found->digest, &none));
    access_keys_deinit(&keys);
    return 0;
}
