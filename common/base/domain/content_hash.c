#include "common/base/domain/content_hash.h"

#include <xxhash.h>

#ifdef BATON_XXHASH_DISPATCH
#include <xxh_x86dispatch.h> /* the same sums, by the widest vectors of this CPU */

/* The library leaves the upper halves of registers in use. Then every SSE instruction waits for
 * them (measured: a table of sines took 12 times as long). */
static void leave_wide_vectors(void)
{
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroupper");
}
#else
static void leave_wide_vectors(void)
{
}
#endif

uint64_t content_hash(const void *bytes, size_t count)
{
    uint64_t hash = XXH3_64bits(bytes, count);
    leave_wide_vectors();
    return hash;
}
