/* A piece of a text on its way from tokenizer.json's normalizer to its model. */
#ifndef BATON_LANGUAGE_TEXT_PIECE_H
#define BATON_LANGUAGE_TEXT_PIECE_H

#include <stddef.h>

struct piece {
    const char *text; /* valid UTF-8 */
    size_t length;
    /* How many of its leading bytes stand for the whole text's first character, whatever steps made
     * of that: 0 where the text doesn't start here. Metaspace's "first" asks for it. The package
     * `tokenizers` aligns what is put in with the last byte that it replaces, so a piece whose
     * first two letters became one doesn't start the text. */
    size_t head;
};

/* Of the `head` leading bytes of something, how many are in [start, end). */
static inline size_t head_of_part(size_t head, size_t start, size_t end)
{
    return head <= start ? 0 : (head < end ? head : end) - start;
}

static inline struct piece piece_part(struct piece piece, size_t start, size_t end)
{
    return (struct piece){piece.text + start, end - start, head_of_part(piece.head, start, end)};
}

#endif
