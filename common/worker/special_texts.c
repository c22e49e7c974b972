#include "common/worker/special_texts.h"

#include "common/language/constrain/token_trie.h"
#include "common/language/text/token_text.h"

#include <stdlib.h>
#include <string.h>

/* Counts what there is, and where there is room keeps it. */
static size_t gather(struct special_texts *texts, const struct tokenizer *tokenizer, uint32_t vocab,
                     size_t *bytes)
{
    size_t count = 0, length;
    *bytes = 0;
    for (uint32_t id = 0; id < vocab; id++) {
        const char *spelling = token_special_text(tokenizer, id, &length);
        if (!spelling || !length || length >= TOKEN_TRIE_MAX_BYTES)
            continue;
        if (texts->pool) {
            texts->items[count] =
                (struct special_text){.id = id, .length = (uint32_t)length + 1, .offset = *bytes};
            texts->pool[*bytes] = (char)TOKEN_SPECIAL;
            memcpy(texts->pool + *bytes + 1, spelling, length);
        }
        *bytes += length + 1;
        count++;
    }
    return count;
}

bool special_texts_init(struct special_texts *texts, const struct tokenizer *tokenizer,
                        uint32_t vocab)
{
    size_t bytes;
    *texts = (struct special_texts){0};
    size_t count = gather(texts, tokenizer, vocab, &bytes);
    texts->items = calloc(count + 1, sizeof *texts->items);
    texts->pool = malloc(bytes + 1);
    if (!texts->items || !texts->pool) {
        special_texts_deinit(texts);
        return false;
    }
    texts->count = gather(texts, tokenizer, vocab, &bytes);
    return true;
}

void special_texts_deinit(struct special_texts *texts)
{
    free(texts->items);
    free(texts->pool);
    *texts = (struct special_texts){0};
}

static int by_id(const void *key, const void *item)
{
    uint32_t id = *(const uint32_t *)key, other = ((const struct special_text *)item)->id;
    return (id > other) - (id < other);
}

const char *special_texts_find(const struct special_texts *texts, uint32_t id, size_t *length)
{
    const struct special_text *found =
        texts->count ? bsearch(&id, texts->items, texts->count, sizeof *texts->items, by_id) : NULL;
    *length = found ? found->length : 0;
    return found ? texts->pool + found->offset : NULL;
}
