#include "common/domain/content_hash.h"

#include <xxhash.h>

#ifdef BATON_XXHASH_DISPATCH
#include <xxh_x86dispatch.h> /* the same sums, by the widest vectors of this CPU */
#endif

uint64_t content_hash(const void *bytes, size_t count)
{
    return XXH3_64bits(bytes, count);
}
