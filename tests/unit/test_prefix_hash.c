/* prefix_hash: the values are fixed for ever, and differ by everything that must not be shared. */
#include "common/domain/prefix_hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* By the xxhash package of PyPI: xxh3_128_intdigest(struct.pack("<2Q", 1, 2) + b"tenant", seed=0x6261746f6e722001), and of that, low
 * half first, with the 32 tokens and seed 0x6261746f6e622001. Routers and workers of all versions must agree. */
static void test_names_never_change(void **state)
{
    (void)state;
    struct prefix_hash root = prefix_hash_root(1, 2, "tenant", 6);
    uint32_t tokens[32];
    for (uint32_t i = 0; i < 32; i++)
        tokens[i] = i * 1000;
    struct prefix_hash block = prefix_hash_block(root, tokens, 32);
    const struct prefix_hash want_root = {.low = UINT64_C(0x66098c6e84b48819),
                                          .high = UINT64_C(0x16c95f6d0bf2c174)};
    const struct prefix_hash want_block = {.low = UINT64_C(0x18d31badd4d0b398),
                                           .high = UINT64_C(0x60a789b2da1c8823)};
    assert_true(prefix_hash_equal(root, want_root));
    assert_true(prefix_hash_equal(block, want_block));
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
