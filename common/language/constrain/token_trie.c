#include "common/language/constrain/token_trie.h"

#include "common/base/utf8.h"
#include "common/language/constrain/automaton.h"

#include <string.h>

/* A token while the trees are made. */
struct spelled {
    const char *bytes; /* in the pool */
    uint32_t length, id;
    uint32_t characters; /* 0: not all are plain */
};

struct spelling {
    struct spelled *tokens;
    uint32_t count;
    char *pool;
};

/* Returns the number of characters; 0: not all are plain. */
static uint32_t plain_characters(const char *bytes, size_t length)
{
    uint32_t count = 0;
    for (size_t at = 0; at < length; count++) {
        struct utf8_char next = utf8_next(bytes + at, length - at);
        if (next.kind != UTF8_WHOLE || !plain_byte((uint8_t)bytes[at]))
            return 0;
        at += next.length;
    }
    return count;
}

static void spell(const struct token_source *source, bool first, struct spelling *spelling)
{
    size_t used = 0, total = 0, length;
    for (uint32_t id = 0; id < source->count; id++)
        if (source->bytes(source->context, id, first, &length) && length <= TOKEN_TRIE_MAX_BYTES)
            total += length;
    *spelling = (struct spelling){.tokens = calloc(source->count, sizeof *spelling->tokens),
                                  .pool = malloc(total + 1)};
    ASSERT(spelling->tokens && spelling->pool);
    for (uint32_t id = 0; id < source->count; id++) {
        const char *bytes = source->bytes(source->context, id, first, &length);
        if (!bytes || !length || length > TOKEN_TRIE_MAX_BYTES)
            continue;
        memcpy(spelling->pool + used, bytes, length);
        spelling->tokens[spelling->count++] =
            (struct spelled){.bytes = spelling->pool + used,
                             .length = (uint32_t)length,
                             .id = id,
                             .characters = plain_characters(bytes, length)};
        used += length;
    }
}

static int by_bytes(const void *a, const void *b)
{
    const struct spelled *left = a, *right = b;
    uint32_t shorter = left->length < right->length ? left->length : right->length;
    int order = memcmp(left->bytes, right->bytes, shorter);
    if (order)
        return order;
    if (left->length != right->length)
        return left->length < right->length ? -1 : 1;
    return (left->id > right->id) - (left->id < right->id);
}

/* A node while its tree is made. Tokens come in order, so children follow their parents. */
struct made_node {
    struct token_node node;
    uint32_t end; /* index behind all nodes below this one */
};

struct making {
    struct made_node *nodes;
    size_t count, capacity;
    uint32_t open[TOKEN_TRIE_MAX_BYTES + 1]; /* by depth: the nodes on the way to the last token */
    uint32_t depth;
};

static void add_node(struct making *m, uint8_t byte, uint32_t first)
{
    m->nodes = grow(m->nodes, m->count, &m->capacity, sizeof *m->nodes);
    m->nodes[m->count++] = (struct made_node){.node = {.byte = byte, .first = first}};
}

/* Closes nodes deeper than `depth`. All nodes below a closed one are known, and its parent adds
 * their sums to its own. */
static void close_to(struct making *m, uint32_t depth, uint32_t used)
{
    for (; m->depth > depth; m->depth--) {
        struct made_node *made = &m->nodes[m->open[m->depth]];
        struct token_node *parent = &m->nodes[m->open[m->depth - 1]].node;
        bool begins = (made->node.byte & 0xc0) != 0x80; /* first byte of a character */
        uint32_t below = made->node.below + (uint32_t)begins;
        made->end = (uint32_t)m->count;
        made->node.last = used;
        parent->groups |= made->node.groups | 1ull << plain_group(made->node.byte);
        if (below > parent->below)
            parent->below = (uint8_t)below;
    }
}

static void add_token(struct making *m, const struct spelled *token, uint32_t index)
{
    uint32_t shared = 0;
    while (shared < m->depth && shared < token->length &&
           m->nodes[m->open[shared + 1]].node.byte == (uint8_t)token->bytes[shared])
        shared++;
    close_to(m, shared, index);
    while (m->depth < token->length) {
        uint8_t byte = (uint8_t)token->bytes[m->depth];
        m->open[++m->depth] = (uint32_t)m->count;
        add_node(m, byte, index);
    }
    struct token_node *node = &m->nodes[m->open[m->depth]].node;
    if (node->count < TOKEN_NODE_MANY)
        node->count++;
}

/* Puts the children of the node, and all nodes below them. Recursion takes a level for each byte of
 * a token. */
static void lay_out_children(const struct making *m, uint32_t made, struct token_tree *tree,
                             uint32_t at)
{
    uint32_t start = tree->node_count, end = m->nodes[made].end;
    for (uint32_t child = made + 1; child < end; child = m->nodes[child].end)
        tree->nodes[tree->node_count++] = m->nodes[child].node;
    if (tree->node_count == start)
        return;
    tree->nodes[at].child = start;
    tree->nodes[at].last_child = (uint8_t)(tree->node_count - start - 1);
    for (uint32_t child = made + 1; child < end; child = m->nodes[child].end)
        lay_out_children(m, child, tree, start++);
}

/* Makes the tree of the tokens with least..most characters. Adds their ids behind the *used
 * ones. */
static void make_tree(const struct spelling *spelling, uint32_t least, uint32_t most,
                      struct token_forest *forest, uint32_t *used, struct token_tree *tree)
{
    struct making m = {.count = 0};
    add_node(&m, 0, *used);
    for (uint32_t i = 0; i < spelling->count; i++) {
        const struct spelled *token = &spelling->tokens[i];
        if (token->characters < least || token->characters > most)
            continue;
        forest->ids[*used] = token->id;
        add_token(&m, token, (*used)++);
    }
    close_to(&m, 0, *used);
    m.nodes[0].node.last = *used;
    m.nodes[0].end = (uint32_t)m.count;
    tree->nodes = malloc(m.count * sizeof *tree->nodes);
    ASSERT(tree->nodes);
    tree->nodes[0] = m.nodes[0].node;
    tree->node_count = 1;
    lay_out_children(&m, 0, tree, 0);
    ASSERT(tree->node_count == m.count);
    free(m.nodes);
}

static void add_to_set(uint32_t *set, uint32_t id)
{
    set[id / 32] |= 1u << id % 32;
}

static void make_sets(const struct spelling *spelling, uint32_t words, struct token_forest *forest)
{
    for (uint32_t level = 0; level <= TOKEN_TRIE_LEVELS; level++) {
        forest->sets[level] = calloc(words, sizeof(uint32_t));
        ASSERT(forest->sets[level]);
    }
    forest->all_plain = calloc(words, sizeof(uint32_t));
    ASSERT(forest->all_plain);
    for (uint32_t i = 0; i < spelling->count; i++) {
        const struct spelled *token = &spelling->tokens[i];
        if (!token->characters)
            continue;
        add_to_set(forest->all_plain, token->id);
        for (uint32_t level = token->characters; level <= TOKEN_TRIE_LEVELS; level++)
            add_to_set(forest->sets[level], token->id);
    }
}

static void make_forest(const struct token_source *source, bool first, uint32_t words,
                        struct token_forest *forest)
{
    struct spelling spelling;
    uint32_t used = 0;
    spell(source, first, &spelling);
    if (spelling.count)
        qsort(spelling.tokens, spelling.count, sizeof *spelling.tokens, by_bytes);
    forest->ids = malloc((2u * spelling.count + 1u) * sizeof *forest->ids);
    ASSERT(forest->ids);
    make_tree(&spelling, 0, 0, forest, &used, &forest->other);
    make_tree(&spelling, 1, UINT32_MAX, forest, &used, &forest->plain);
    make_tree(&spelling, TOKEN_TRIE_LEVELS + 1, UINT32_MAX, forest, &used, &forest->long_plain);
    make_sets(&spelling, words, forest);
    free(spelling.tokens);
    free(spelling.pool);
}

static void free_forest(struct token_forest *forest)
{
    free(forest->plain.nodes);
    free(forest->other.nodes);
    free(forest->long_plain.nodes);
    free(forest->ids);
    for (uint32_t level = 0; level <= TOKEN_TRIE_LEVELS; level++)
        free(forest->sets[level]);
    free(forest->all_plain);
}

/* Returns whether some token reads differently as the first one. Sets the bytes that are tokens. */
static bool look_over(const struct token_source *source, bool has_byte[256])
{
    bool differs = false;
    for (uint32_t id = 0; id < source->count; id++) {
        size_t length = 0, first_length = 0;
        const char *bytes = source->bytes(source->context, id, false, &length);
        const char *first = source->bytes(source->context, id, true, &first_length);
        length = bytes ? length : 0;
        first_length = first ? first_length : 0;
        differs =
            differs || length != first_length || (length && memcmp(bytes, first, length) != 0);
        if (length == 1)
            has_byte[(uint8_t)*bytes] = true;
    }
    return differs;
}

enum status token_trie_create(const struct token_source *source, struct token_trie **trie,
                              struct error *err)
{
    if (source->count == 0 || source->count > TOKEN_TRIE_MAX_COUNT)
        return error_set(err, STATUS_LIMIT, "a vocabulary of %u ids: 1 to %u are possible",
                         source->count, TOKEN_TRIE_MAX_COUNT);
    for (uint32_t i = 0; i < source->end_count; i++)
        if (source->end_ids[i] >= source->count)
            return error_set(err, STATUS_INVALID, "the end id %u is not below the vocabulary's %u",
                             source->end_ids[i], source->count);
    struct token_trie *made = calloc(1, sizeof *made);
    ASSERT(made);
    made->count = source->count;
    made->words = (source->count + 31) / 32;
    made->end_count = source->end_count;
    made->end_ids = malloc((source->end_count + 1u) * sizeof *made->end_ids);
    ASSERT(made->end_ids);
    if (source->end_count)
        memcpy(made->end_ids, source->end_ids, source->end_count * sizeof *made->end_ids);
    made->has_first = look_over(source, made->has_byte);
    make_forest(source, false, made->words, &made->inside);
    if (made->has_first)
        make_forest(source, true, made->words, &made->first);
    *trie = made;
    return STATUS_OK;
}

void token_trie_destroy(struct token_trie *trie)
{
    if (!trie)
        return;
    free_forest(&trie->inside);
    free_forest(&trie->first);
    free(trie->end_ids);
    free(trie);
}
