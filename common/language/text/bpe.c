#include "common/language/text/bpe.h"

#include "common/base/assert.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define FEW  32 /* symbols of a segment that an array joins faster than a heap */

struct bpe_symbol {
    uint32_t token; /* NONE once joined to its left neighbour */
    uint32_t previous, next;
};

/* Tokens that stand in a word for what they don't spell; merges of them would hide which symbols a
 * token starts with. */
static bool joins_substitutes(const struct bpe *bpe)
{
    if (bpe->alphabet.kind == BPE_ALPHABET_BYTES)
        return false;
    bool *substitutes = calloc(bpe->vocabulary->count, sizeof *substitutes), found = false;
    ASSERT(substitutes);
    for (size_t byte = 0; byte < 256; byte++)
        if (bpe->alphabet.bytes[byte] != NONE)
            substitutes[bpe->alphabet.bytes[byte]] = true;
    if (bpe->alphabet.unk != NONE)
        substitutes[bpe->alphabet.unk] = true;
    for (uint32_t rank = 0; rank < bpe->merges.count && !found; rank++)
        found = substitutes[bpe->merges.merges[rank].left] ||
                substitutes[bpe->merges.merges[rank].right];
    free(substitutes);
    return found;
}

static void find_joinable(struct bpe *bpe)
{
    if (joins_substitutes(bpe)) {
        merge_table_set_all_joinable(&bpe->merges);
        return;
    }
    for (uint32_t rank = 0; rank < bpe->merges.count; rank++) {
        const struct bpe_merge *merge = &bpe->merges.merges[rank];
        size_t left, right;
        const char *left_bytes = vocabulary_bytes(bpe->vocabulary, merge->left, &left);
        const char *right_bytes = vocabulary_bytes(bpe->vocabulary, merge->right, &right);
        if (left && right) /* an empty token never is a symbol */
            merge_table_set_joinable(&bpe->merges,
                                     bpe_alphabet_last(&bpe->alphabet, left_bytes, left),
                                     bpe_alphabet_first(&bpe->alphabet, right_bytes, right));
    }
}

static void mark_whole_tokens(struct bpe *bpe)
{
    struct bpe_scratch scratch;
    bpe_scratch_init(&scratch);
    uint8_t *whole = calloc(bpe->vocabulary->count, 1);
    ASSERT(whole);
    for (uint32_t id = 0; id < bpe->vocabulary->count; id++) {
        size_t length = 0;
        uint32_t found;
        const char *bytes = vocabulary_bytes(bpe->vocabulary, id, &length);
        if (!length || !vocabulary_find(bpe->vocabulary, bytes, length, &found) || found != id)
            continue;
        uint32_t room[1];
        struct token_ids ids = {.data = room, .capacity = 1, .limit_count = 1};
        whole[id] =
            bpe_encode(bpe, &scratch, bytes, length, &ids) && ids.count == 1 && ids.data[0] == id;
    }
    bpe_scratch_deinit(&scratch);
    bpe->whole = whole;
}

enum status bpe_init(struct bpe *bpe, const struct vocabulary *vocabulary,
                     const struct bpe_settings *settings, struct bpe_merge *merges,
                     uint32_t merge_count, struct error *err)
{
    *bpe = (struct bpe){.vocabulary = vocabulary};
    merge_table_init(&bpe->merges, merges, merge_count);
    enum status status = bpe_alphabet_init(&bpe->alphabet, vocabulary, &settings->alphabet, err);
    if (status != STATUS_OK) {
        bpe_deinit(bpe);
        return status;
    }
    find_joinable(bpe);
    mark_whole_tokens(bpe);
    bpe->ignore_merges = settings->ignore_merges;
    return STATUS_OK;
}

void bpe_deinit(struct bpe *bpe)
{
    bpe_alphabet_deinit(&bpe->alphabet);
    merge_table_deinit(&bpe->merges);
    free(bpe->whole);
    *bpe = (struct bpe){0};
}

void bpe_scratch_init(struct bpe_scratch *scratch)
{
    *scratch = (struct bpe_scratch){0};
}

void bpe_scratch_deinit(struct bpe_scratch *scratch)
{
    free(scratch->tokens);
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (struct bpe_scratch){0};
}

static uint32_t rank_of(const struct bpe *bpe, struct bpe_scratch *scratch, uint32_t left,
                        uint32_t right)
{
    scratch->pairs_looked_up++;
    return merge_table_rank(&bpe->merges, left, right);
}

/* Joins in place: ranks[i] is that of the pair (i, i + 1). */
static void join_few(const struct bpe *bpe, struct bpe_scratch *scratch)
{
    uint32_t ranks[FEW], *tokens = scratch->tokens;
    size_t count = scratch->token_count;
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] = rank_of(bpe, scratch, tokens[i], tokens[i + 1]);
    for (;;) {
        uint32_t best = NONE;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            if (ranks[i] < best) {
                best = ranks[i];
                at = i;
            }
        }
        if (best == NONE)
            break;
        tokens[at] = bpe->merges.merges[best].joined;
        count--;
        for (size_t i = at + 1; i < count; i++) {
            tokens[i] = tokens[i + 1];
            ranks[i - 1] = ranks[i];
        }
        if (at > 0)
            ranks[at - 1] = rank_of(bpe, scratch, tokens[at - 1], tokens[at]);
        if (at + 1 < count)
            ranks[at] = rank_of(bpe, scratch, tokens[at], tokens[at + 1]);
    }
    scratch->token_count = count;
}

static void heap_push(struct bpe_scratch *scratch, uint64_t key)
{
    uint64_t *heap = scratch->heap;
    size_t at = scratch->heap_count++;
    for (; at > 0 && heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = key;
}

static uint64_t heap_pop(struct bpe_scratch *scratch)
{
    uint64_t *heap = scratch->heap;
    uint64_t top = heap[0], last = heap[--scratch->heap_count];
    size_t count = scratch->heap_count, at = 0;
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

/* A segment of n symbols: its heap never holds more than n - 1 first candidates and two more a
 * merge. */
static void reserve_symbols(struct bpe_scratch *scratch, size_t count)
{
    if (scratch->symbol_capacity >= count)
        return;
    scratch->symbol_capacity = count + count / 2 + 64;
    free(scratch->symbols);
    free(scratch->heap);
    scratch->symbols = malloc(scratch->symbol_capacity * sizeof *scratch->symbols);
    scratch->heap = malloc(3 * scratch->symbol_capacity * sizeof *scratch->heap);
    ASSERT(scratch->symbols && scratch->heap);
}

static void propose(const struct bpe *bpe, struct bpe_scratch *scratch, uint32_t left)
{
    const struct bpe_symbol *symbols = scratch->symbols;
    uint32_t rank = rank_of(bpe, scratch, symbols[left].token, symbols[symbols[left].next].token);
    if (rank != NONE)
        heap_push(scratch, (uint64_t)rank << 32 | left);
}

/* A candidate is stale when one of its two symbols has grown since. */
static void apply(const struct bpe *bpe, struct bpe_scratch *scratch, uint64_t candidate)
{
    struct bpe_symbol *symbols = scratch->symbols;
    const struct bpe_merge *merge = &bpe->merges.merges[candidate >> 32];
    uint32_t left = (uint32_t)candidate, right = symbols[left].next;
    if (symbols[left].token != merge->left || right == NONE || symbols[right].token != merge->right)
        return;
    symbols[left].token = merge->joined;
    symbols[left].next = symbols[right].next;
    symbols[right].token = NONE;
    if (symbols[left].next != NONE) {
        symbols[symbols[left].next].previous = left;
        propose(bpe, scratch, left);
    }
    if (symbols[left].previous != NONE)
        propose(bpe, scratch, symbols[left].previous);
}

static void join_many(const struct bpe *bpe, struct bpe_scratch *scratch)
{
    uint32_t count = (uint32_t)scratch->token_count;
    reserve_symbols(scratch, count);
    struct bpe_symbol *symbols = scratch->symbols;
    for (uint32_t i = 0; i < count; i++)
        symbols[i] = (struct bpe_symbol){.token = scratch->tokens[i],
                                         .previous = i ? i - 1 : NONE,
                                         .next = i + 1 < count ? i + 1 : NONE};
    scratch->heap_count = 0;
    for (uint32_t i = 0; i + 1 < count; i++)
        propose(bpe, scratch, i);
    while (scratch->heap_count)
        apply(bpe, scratch, heap_pop(scratch));
    scratch->token_count = 0;
    for (uint32_t i = 0; i != NONE; i = symbols[i].next)
        scratch->tokens[scratch->token_count++] = symbols[i].token;
}

/* A word while its symbols arrive; scratch->tokens is the segment. */
struct segmenter {
    const struct bpe *bpe;
    struct bpe_scratch *scratch;
    struct token_ids *ids;
    const char *word;
    size_t start, end; /* of the segment in the word */
    bool spelled;      /* word[start..end) is what its symbols spell */
};

static bool end_segment(struct segmenter *segmenter)
{
    const struct bpe *bpe = segmenter->bpe;
    struct bpe_scratch *scratch = segmenter->scratch;
    uint32_t id;
    if (scratch->token_count > 1 && segmenter->spelled && bpe->whole &&
        vocabulary_find(bpe->vocabulary, segmenter->word + segmenter->start,
                        segmenter->end - segmenter->start, &id) &&
        bpe->whole[id]) {
        scratch->tokens[0] = id;
        scratch->token_count = 1;
    } else if (scratch->token_count > FEW) {
        join_many(bpe, scratch);
    } else if (scratch->token_count > 1) {
        join_few(bpe, scratch);
    }
    for (size_t i = 0; i < scratch->token_count; i++)
        if (!token_ids_push(segmenter->ids, scratch->tokens[i]))
            return false;
    scratch->token_count = 0;
    return true;
}

static void append(struct bpe_scratch *scratch, uint32_t token)
{
    if (scratch->token_count == scratch->token_capacity) {
        scratch->token_capacity = 2 * scratch->token_capacity + 2 * FEW;
        scratch->tokens =
            realloc(scratch->tokens, scratch->token_capacity * sizeof *scratch->tokens);
        ASSERT(scratch->tokens);
    }
    scratch->tokens[scratch->token_count++] = token;
}

static bool take_symbol(void *context, uint32_t token, size_t start, size_t length)
{
    struct segmenter *segmenter = context;
    struct bpe_scratch *scratch = segmenter->scratch;
    if (scratch->token_count &&
        !merge_table_joinable(&segmenter->bpe->merges, scratch->tokens[scratch->token_count - 1],
                              token) &&
        !end_segment(segmenter))
        return false;
    if (scratch->token_count == 0) {
        segmenter->start = segmenter->end = start;
        segmenter->spelled = true;
    }
    segmenter->spelled &= length > 0 && start == segmenter->end;
    segmenter->end = start + length;
    append(scratch, token);
    return true;
}

bool bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t length,
                struct token_ids *ids)
{
    uint32_t id;
    if (bpe->whole && vocabulary_find(bpe->vocabulary, word, length, &id) &&
        (bpe->ignore_merges || bpe->whole[id]))
        return token_ids_push(ids, id);
    ASSERT(length < NONE / 2);
    struct segmenter segmenter = {.bpe = bpe, .scratch = scratch, .ids = ids, .word = word};
    struct bpe_symbol_sink sink = {take_symbol, &segmenter};
    scratch->token_count = 0;
    return bpe_alphabet_read(&bpe->alphabet, word, length, &sink) && end_segment(&segmenter);
}
