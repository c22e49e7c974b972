/* kv_address: the longest address that is written and read, and one byte more. */
#include "common/kv/transport/kv_address.h"

#include "common/kv/transport/kv_checksum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t key[KV_TRANSPORT_MAX_ADDRESS_BYTES];

/* Returns an address with `rkey_bytes` in its library's part. */
static struct kv_address of(uint16_t rkey_bytes)
{
    return (struct kv_address){.kind = KV_TRANSPORT_REMOTE,
                               .lanes = KV_ADDRESS_SHM | KV_ADDRESS_TCP,
                               .id = 1,
                               .base = 4096,
                               .pool_bytes = 4096,
                               .ip_version = 4,
                               .ip = {127, 0, 0, 1},
                               .port = 1,
                               .worker = key,
                               .worker_bytes = 8,
                               .rkey = key,
                               .rkey_bytes = rkey_bytes};
}

/* Its bytes made longer by one that belongs to the key: everything in them says so. */
static void lengthen(uint8_t *bytes, size_t count)
{
    size_t checksum = count - 4,
           at = 0; /* `at`: of the key's size, which the worker's 8 bytes follow */
    while ((size_t)(bytes[at] | bytes[at + 1] << 8) != checksum - 8 - at - 2)
        at++;
    unsigned size = (unsigned)(bytes[at] | bytes[at + 1] << 8) + 1;
    bytes[at] = (uint8_t)size;
    bytes[at + 1] = (uint8_t)(size >> 8);
    bytes[8] = (uint8_t)(count + 1);
    bytes[9] = (uint8_t)((count + 1) >> 8);
    bytes[checksum] = 0;
    uint32_t sum = kv_checksum(bytes, checksum + 1);
    for (int i = 0; i < 4; i++)
        bytes[checksum + 1 + (size_t)i] = (uint8_t)(sum >> 8 * i);
}

static void test_the_longest_address(void **state)
{
    (void)state;
    uint8_t bytes[KV_TRANSPORT_MAX_ADDRESS_BYTES + 1];
    size_t count, shortest;
    struct kv_address address = of(0), found;
    struct error err;
    assert_int_equal(kv_address_encode(&address, bytes, &shortest, &err), STATUS_OK);
    uint16_t longest = (uint16_t)(KV_TRANSPORT_MAX_ADDRESS_BYTES - shortest);

    address = of(longest + 1);
    assert_int_equal(kv_address_encode(&address, bytes, &count, &err), STATUS_LIMIT);
    address = of(longest);
    assert_int_equal(kv_address_encode(&address, bytes, &count, &err), STATUS_OK);
    assert_int_equal(count, KV_TRANSPORT_MAX_ADDRESS_BYTES);
    assert_int_equal(kv_address_decode(bytes, count, KV_TRANSPORT_REMOTE, &found, &err), STATUS_OK);
    assert_int_equal(found.rkey_bytes, longest);

    lengthen(bytes, count);
    assert_int_equal(kv_address_decode(bytes, count + 1, KV_TRANSPORT_REMOTE, &found, &err),
                     STATUS_INVALID);

    /* It is its length alone that was wrong with it. */
    address = of(longest - 1);
    assert_int_equal(kv_address_encode(&address, bytes, &count, &err), STATUS_OK);
    lengthen(bytes, count);
    assert_int_equal(kv_address_decode(bytes, count + 1, KV_TRANSPORT_REMOTE, &found, &err),
                     STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_longest_address)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
