/* A vocabulary as trees of bytes, for walking all tokens at once. Built once for a model, immutable
 * and shared by threads.
 *
 * Tokens of plain characters alone (automaton.h) have trees of their own, and ready sets by their
 * number of characters. No walk over them is needed where an automaton
 * takes any plain characters, as inside a string.
 *
 * The bytes of a special token are TOKEN_SPECIAL and its spelling. No text has that byte, so such a
 * token comes only where a constraint asks for it.
 *
 * Tokens without bytes (holes) and tokens of more than TOKEN_TRIE_MAX_BYTES never match. */
#ifndef BATON_LANGUAGE_CONSTRAIN_TOKEN_TRIE_H
#define BATON_LANGUAGE_CONSTRAIN_TOKEN_TRIE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define TOKEN_SPECIAL        0xff
#define TOKEN_TRIE_MAX_COUNT (1u << 20) /* ids */
#define TOKEN_TRIE_MAX_BYTES 255        /* longest token */
#define TOKEN_TRIE_LEVELS    32         /* ready sets: plain tokens of up to 1, 2, ... characters */

/* The children of a node are neighbours: most don't match, so looking at all of them reads one
 * piece of memory. The nodes below follow in the order of a walk, so a walk reads memory in
 * sequence. */
struct token_node {
    uint64_t groups;      /* groups of plain characters below this node (plain_group) */
    uint32_t child;       /* index of the first child; 0: none */
    uint32_t first, last; /* tokens that end here or below: ids[first..last - 1] */
    uint8_t count;        /* tokens that end here, from `first` on; TOKEN_NODE_MANY: all up to the
                           * first one below */
    uint8_t last_child;   /* children behind the first one */
    uint8_t byte;
    uint8_t below; /* characters below this node, at most */
};

#define TOKEN_NODE_MANY UINT8_MAX

/* nodes[0] is the root, which has no byte. */
struct token_tree {
    struct token_node *nodes;
    uint32_t node_count;
};

/* All tokens with one spelling each: as they read inside an answer, or as its first token. */
struct token_forest {
    struct token_tree plain, other;
    struct token_tree long_plain; /* the tokens of `plain` with over TOKEN_TRIE_LEVELS characters */
    uint32_t *ids;                /* ids of all trees */
    /* Ready sets: [n] has the plain tokens of up to n characters; [0] is empty. */
    uint32_t *sets[TOKEN_TRIE_LEVELS + 1];
    uint32_t *all_plain; /* ready set: all plain tokens */
};

struct token_trie {
    uint32_t count; /* ids are below it */
    uint32_t words; /* words of a set of ids: (count + 31) / 32 */
    struct token_forest inside, first;
    bool has_first; /* false: `first` is empty, and `inside` holds for first tokens too */
    uint32_t *end_ids;
    uint32_t end_count;
    bool has_byte[256]; /* the byte alone is a token, inside an answer */
};

/* `bytes` returns the bytes of a token inside an answer, or as its first token (`first`). NULL or
 * length 0: none. Called only while the trie is made. */
struct token_source {
    const char *(*bytes)(const void *context, uint32_t id, bool first, size_t *length);
    const void *context;
    uint32_t count;          /* 1..TOKEN_TRIE_MAX_COUNT */
    const uint32_t *end_ids; /* tokens that end an answer; copied */
    uint32_t end_count;
};

/* STATUS_LIMIT: a count out of range. STATUS_INVALID: an end id that isn't below `count`. Takes
 * about 30 bytes for each token, and 4 bytes for each 32 ids of a set. */
enum status token_trie_create(const struct token_source *source, struct token_trie **trie,
                              struct error *err) WARN_UNUSED;
void token_trie_destroy(struct token_trie *trie); /* NULL is fine */

#endif
