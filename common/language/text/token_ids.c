#include "common/language/text/token_ids.h"

#include "common/base/assert.h"

#include <stdlib.h>

#define INITIAL_CAPACITY 64

void token_ids_init(struct token_ids *ids, size_t limit_count)
{
    *ids = (struct token_ids){.limit_count = limit_count};
}

void token_ids_deinit(struct token_ids *ids)
{
    free(ids->data);
    *ids = (struct token_ids){0};
}

bool token_ids_push(struct token_ids *ids, uint32_t id)
{
    if (ids->count == ids->limit_count)
        return false;
    if (ids->count == ids->capacity) {
        ids->capacity = ids->capacity ? 2 * ids->capacity : INITIAL_CAPACITY;
        ids->data = realloc(ids->data, ids->capacity * sizeof *ids->data);
        ASSERT(ids->data);
    }
    ids->data[ids->count++] = id;
    return true;
}
