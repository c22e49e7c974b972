/* A growing list of token ids with a limit. Owner: whoever calls token_ids_init; token_ids_deinit
 * frees. */
#ifndef BATON_LANGUAGE_TEXT_TOKEN_IDS_H
#define BATON_LANGUAGE_TEXT_TOKEN_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct token_ids {
    uint32_t *data; /* NULL while empty */
    size_t count;
    size_t capacity;
    size_t limit_count;
};

void token_ids_init(struct token_ids *ids, size_t limit_count);
void token_ids_deinit(struct token_ids *ids);
bool token_ids_push(struct token_ids *ids, uint32_t id); /* false at the limit */

#endif
