/* What special tokens are for a constraint: TOKEN_SPECIAL and their spelling (token_trie.h). Made
 * once, immutable then. */
#ifndef BATON_WORKER_SPECIAL_TEXTS_H
#define BATON_WORKER_SPECIAL_TEXTS_H

#include "common/language/text/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

struct special_texts {
    struct special_text {
        uint32_t id, length;
        size_t offset; /* in the pool */
    } * items;         /* ascending */
    size_t count;
    char *pool;
};

/* Of all ids below `vocab`. Those that are too long for a trie are left out. False: no memory. */
bool special_texts_init(struct special_texts *texts, const struct tokenizer *tokenizer,
                        uint32_t vocab);
void special_texts_deinit(struct special_texts *texts); /* all zeros are fine */
/* NULL, and length 0: the token isn't special. */
const char *special_texts_find(const struct special_texts *texts, uint32_t id, size_t *length);

#endif
