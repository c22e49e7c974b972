/* Any bytes as the address of a KV pool, as a peer's Welcome carries it. An accepted address is in
 * range, points into the bytes, and is written again as the same bytes. If the first byte is odd,
 * the target corrects the checksum: mutations alone don't find it. */
#include "common/kv/transport/kv_address.h"
#include "common/kv/transport/kv_checksum.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void check_address(const struct kv_address *address, const uint8_t *bytes, size_t size)
{
    FUZZ_CHECK(address->pool_bytes > 0 && address->pool_bytes <= KV_ADDRESS_MAX_POOL_BYTES);
    FUZZ_CHECK(address->base + address->pool_bytes >= address->base);
    FUZZ_CHECK(address->worker >= bytes && address->rkey + address->rkey_bytes <= bytes + size);
    FUZZ_CHECK(address->worker + address->worker_bytes <= bytes + size);
    uint8_t again[KV_TRANSPORT_MAX_ADDRESS_BYTES];
    size_t again_size;
    struct error err;
    FUZZ_CHECK(kv_address_encode(address, again, &again_size, &err) == STATUS_OK);
    FUZZ_CHECK(again_size == size && !memcmp(again, bytes, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    uint8_t flags = fuzz_take_u8(&input);
    struct fuzz_bytes rest = fuzz_take_rest(&input);
    uint8_t *bytes = malloc(rest.size + !rest.size);
    FUZZ_CHECK(bytes);
    memcpy(bytes, rest.data, rest.size);
    if (flags & 1 && rest.size >= 96) {
        uint32_t count = (uint32_t)rest.size;
        for (int i = 0; i < 4; i++)
            bytes[8 + i] = (uint8_t)(count >> 8 * i);
        uint32_t sum = kv_checksum(bytes, rest.size - 4);
        for (int i = 0; i < 4; i++)
            bytes[rest.size - 4 + (size_t)i] = (uint8_t)(sum >> 8 * i);
    }
    struct kv_address address;
    struct error err;
    enum kv_transport_kind kind = flags & 2 ? KV_TRANSPORT_LOCAL : KV_TRANSPORT_REMOTE;
    if (kv_address_decode(bytes, rest.size, kind, &address, &err) == STATUS_OK)
        check_address(&address, bytes, rest.size);
    else
        fuzz_check_sentence(err.text);
    free(bytes);
    return 0;
}
