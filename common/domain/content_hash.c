#include "common/domain/content_hash.h"

#include <xxhash.h>

uint64_t content_hash(const void *bytes, size_t count)
{
    return XXH3_64bits(bytes, count);
}
