/* Shared by the tests of the prefix cache: small blocks, and prompts' roots that must never share
 * blocks. */
#ifndef BATON_TESTS_PREFIX_FIXTURE_H
#define BATON_TESTS_PREFIX_FIXTURE_H

#include "common/base/domain/prefix_hash.h"

#include <string.h>

#define B     3 /* tokens of a block */
#define ROOTS 4

static inline struct prefix_hash root_of(int which)
{
    static const struct {
        uint64_t model, numerics;
        const char *salt;
    } roots[ROOTS] = {{1, 2, ""}, {1, 2, "tenant"}, {1, 3, ""}, {4, 2, ""}};
    return prefix_hash_root(roots[which].model, roots[which].numerics, roots[which].salt,
                            strlen(roots[which].salt));
}

#endif
