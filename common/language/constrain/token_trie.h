/* A vocabulary as trees of bytes, for walking all tokens at once. Built once for a model, immutable
 * and shared by threads.
 *
 * Tokens of plain characters only (no control, quote or backslash) are apart, and sets of them by
 * their number of characters are ready: where an automaton takes whatever comes, as inside a
 * string, no walk over them is needed.
 *
 * A special token's bytes are TOKEN_SPECIAL and its spelling: as no text has that byte, such a
 * token comes only where it is asked for.
 *
 * Tokens without bytes (holes) and those of more than TOKEN_TRIE_MAX_BYTES never match. */
#ifndef BATON_LANGUAGE_CONSTRAIN_TOKEN_TRIE_H
#define BATON_LANGUAGE_CONSTRAIN_TOKEN_TRIE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define TOKEN_SPECIAL        0xff
#define TOKEN_TRIE_MAX_COUNT (1u << 20) /* ids */
#define TOKEN_TRIE_MAX_BYTES 255        /* of a token */
#define TOKEN_TRIE_LEVELS    32         /* sets of plain tokens: of up to 1, 2, ... characters */

/* The children of a node are neighbours, so that looking at all of them, most of which don't match,
 * reads one piece of memory; and what is below them follows in the order of a walk, so that walking
 * reads on and on. */
struct token_node {
    uint64_t groups;      /* of plain characters below this node (automaton_plain.h) */
    uint32_t child;       /* its first one; 0: none */
    uint32_t first, last; /* in ids: of the tokens that end here or below: first..last - 1 */
    uint8_t count;        /* that end here: from `first` on; TOKEN_NODE_MANY: up to those below */
    uint8_t last_child;   /* how many behind the first one */
    uint8_t byte;
    uint8_t below; /* characters below this node, at most */
};

#define TOKEN_NODE_MANY UINT8_MAX

/* nodes[0] is the root, which has no byte. */
struct token_tree {
    struct token_node *nodes;
    uint32_t node_count;
};

/* How a token reads: somewhere in an answer, or as its first. */
struct token_forest {
    struct token_tree plain, other;
    struct token_tree long_plain; /* part of plain: more than TOKEN_TRIE_LEVELS characters */
    uint32_t *ids;                /* of all trees */
    uint32_t
        *sets[TOKEN_TRIE_LEVELS + 1]; /* [n]: plain tokens of up to n characters; [0] is empty */
    uint32_t *all_plain;              /* of any length */
};

struct token_trie {
    uint32_t count; /* ids are below it */
    uint32_t words; /* of a set of ids: (count + 31) / 32 */
    struct token_forest inside, first;
    bool has_first; /* otherwise `first` is empty and `inside` holds for all */
    uint32_t *end_ids;
    uint32_t end_count;
    bool has_byte[256]; /* as a token of its own, inside */
};

/* The bytes of a token inside an answer (`first`: as its first token), NULL or length 0 for none.
 * Called while the trie is made. */
struct token_source {
    const char *(*bytes)(const void *context, uint32_t id, bool first, size_t *length);
    const void *context;
    uint32_t count;          /* 1..TOKEN_TRIE_MAX_COUNT */
    const uint32_t *end_ids; /* end an answer; copied */
    uint32_t end_count;
};

/* STATUS_LIMIT, STATUS_INVALID (an end id that isn't below count). Memory: about 30 bytes a token
 * and 4 bytes a set's 32. */
enum status token_trie_create(const struct token_source *source, struct token_trie **trie,
                              struct error *err) WARN_UNUSED;
void token_trie_destroy(struct token_trie *trie); /* NULL is fine */

#endif
