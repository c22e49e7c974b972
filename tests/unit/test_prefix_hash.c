/* prefix_hash: the values are fixed for ever, and differ by everything that must not be shared. */
#include "common/base/domain/prefix_hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* With h = xxh3_128_intdigest of PyPI's xxhash, and numbers as 16 bytes with the low half first:
 * the root is h(1 and 2 in 8 bytes each, h("tenant", seed ...73...), seed ...72...), a block
 * h(parent, h(tokens, seed ...74...), seed ...62...). Routers and workers of all versions must
 * agree. The library has other code for short and for long contents. */
static void test_names_never_change(void **state)
{
    (void)state;
    uint32_t tokens[512];
    for (uint32_t i = 0; i < 512; i++)
        tokens[i] = i * 1000;
    static const struct prefix_hash want_root = {.low = UINT64_C(0xe445f0a9e3f47da7),
                                                 .high = UINT64_C(0x8145a701b4eb2039)};
    static const struct prefix_hash want_32 = {.low = UINT64_C(0x9c3a05055a54f70d),
                                               .high = UINT64_C(0xf583a50301f368b6)};
    static const struct prefix_hash want_512 = {.low = UINT64_C(0x86e26870ebcb842d),
                                                .high = UINT64_C(0x502d4372ade8d735)};
    for (int i = 0; i < 2; i++) {
        struct prefix_hash root = prefix_hash_root(1, 2, "tenant", 6);
        assert_true(prefix_hash_equal(root, want_root));
        assert_true(prefix_hash_equal(prefix_hash_block(root, tokens, 32), want_32));
        assert_true(prefix_hash_equal(prefix_hash_block(root, tokens, 512), want_512));
    }
}

static void test_whatever_must_not_be_shared_has_another_name(void **state)
{
    (void)state;
    const struct prefix_hash names[] = {
        prefix_hash_root(1, 2, NULL, 0), prefix_hash_root(2, 1, NULL, 0),
        prefix_hash_root(1, 3, NULL, 0), prefix_hash_root(1, 2, "a", 1),
        prefix_hash_root(1, 2, "b", 1), prefix_hash_root(1, 2, "\0", 1),
        prefix_hash_root(1, 2, "ab", 2), prefix_hash_block(names[0], (const uint32_t[]){7, 8}, 2),
        prefix_hash_block(names[1], (const uint32_t[]){7, 8}, 2),
        prefix_hash_block(names[0], (const uint32_t[]){8, 7}, 2),
        prefix_hash_block(names[0], (const uint32_t[]){7}, 1),
        /* no tokens, and a root of the same bytes */
        prefix_hash_block((struct prefix_hash){1, 2}, (const uint32_t[]){0}, 0)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t j = 0; j < sizeof names / sizeof *names; j++)
            assert_int_equal(prefix_hash_equal(names[i], names[j]), i == j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_never_change),
        cmocka_unit_test(test_whatever_must_not_be_shared_has_another_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
