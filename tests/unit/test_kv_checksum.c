#include "common/kv/transport/kv_checksum.h"

#include "common/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
/* cmocka.h wants the three above first */
#include <cmocka.h>

/* One bit at a time, from the polynomial. */
static uint32_t slow_crc32c(const uint8_t *bytes, size_t count)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void test_known_values(void **state)
{
    (void)state;
    assert_int_equal(kv_checksum("123456789", 9), 0xe3069283u);
    assert_int_equal(kv_checksum("", 0), 0);
    static const uint8_t zeros[32];
    assert_int_equal(kv_checksum(zeros, sizeof zeros), 0x8a9136aau); /* RFC 3720, B.4 */
}

static void test_every_length_and_alignment_agrees_with_the_definition(void **state)
{
    (void)state;
    uint8_t bytes[700];
    struct rng rng = rng_seeded(1);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)rng_next(&rng);
    for (size_t start = 0; start < 9; start++)
        for (size_t count = 0; start + count <= sizeof bytes; count += 1 + count / 16)
            assert_int_equal(kv_checksum(bytes + start, count), slow_crc32c(bytes + start, count));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_every_length_and_alignment_agrees_with_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
