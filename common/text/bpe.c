#include "common/text/bpe.h"

#include "common/base/assert.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct bpe_symbol {
    uint32_t token; /* NONE once joined to its left neighbour */
    uint32_t previous, next;
};

static uint32_t pair_slot(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    uint64_t pair = (uint64_t)left << 32 | right;
    return (uint32_t)(pair * 0x9E3779B97F4A7C15u >> bpe->slot_shift);
}

/* The slot of the pair, or the empty one where it belongs. At most half of the slots are taken. */
static uint32_t *find_pair(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    uint32_t mask = UINT32_MAX >> (bpe->slot_shift - 32);
    uint32_t slot = pair_slot(bpe, left, right);
    for (; bpe->slots[slot]; slot = (slot + 1) & mask) {
        const struct bpe_merge *merge = &bpe->merges[bpe->slots[slot] - 1];
        if (merge->left == left && merge->right == right)
            break;
    }
    return &bpe->slots[slot];
}

static void index_merges(struct bpe *bpe)
{
    bpe->slot_shift = 58; /* 64 slots */
    while ((1ull << (64 - bpe->slot_shift)) < 2ull * bpe->merge_count)
        bpe->slot_shift--;
    bpe->slots = calloc((size_t)1 << (64 - bpe->slot_shift), sizeof *bpe->slots);
    ASSERT(bpe->slots);
    for (uint32_t rank = 0; rank < bpe->merge_count;
         rank++) /* of equal pairs the last one counts */
        *find_pair(bpe, bpe->merges[rank].left, bpe->merges[rank].right) = rank + 1;
}

/* Bytes that no UTF-8 text has needn't have a token. */
static bool is_of_utf8(int byte)
{
    return byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
}

static enum status find_byte_tokens(struct bpe *bpe, struct error *err)
{
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        bpe->byte_tokens[byte] = NONE;
        if (!vocabulary_find(bpe->vocabulary, &c, 1, &bpe->byte_tokens[byte]) && is_of_utf8(byte))
            return error_set(err, STATUS_INVALID, "the vocabulary has no token for the byte 0x%02X",
                             byte);
    }
    return STATUS_OK;
}

static void mark_whole_tokens(struct bpe *bpe, bool ignore_merges)
{
    struct bpe_scratch scratch;
    bpe_scratch_init(&scratch);
    bpe->whole = calloc(bpe->vocabulary->count, 1);
    ASSERT(bpe->whole);
    for (uint32_t id = 0; id < bpe->vocabulary->count; id++) {
        size_t length = 0;
        uint32_t found;
        const char *bytes = vocabulary_bytes(bpe->vocabulary, id, &length);
        if (!length || !vocabulary_find(bpe->vocabulary, bytes, length, &found) || found != id)
            continue;
        struct token_ids ids;
        token_ids_init(&ids, 1);
        bpe->whole[id] = ignore_merges || (bpe_encode(bpe, &scratch, bytes, length, &ids) &&
                                           ids.count == 1 && ids.data[0] == id);
        token_ids_deinit(&ids);
    }
    bpe_scratch_deinit(&scratch);
}

enum status bpe_init(struct bpe *bpe, const struct vocabulary *vocabulary, struct bpe_merge *merges,
                     uint32_t merge_count, bool ignore_merges, struct error *err)
{
    ASSERT(merge_count <= BPE_LIMIT_MERGES);
    *bpe = (struct bpe){.vocabulary = vocabulary, .merges = merges, .merge_count = merge_count};
    index_merges(bpe);
    enum status status = find_byte_tokens(bpe, err);
    if (status != STATUS_OK) {
        bpe_deinit(bpe);
        return status;
    }
    mark_whole_tokens(bpe, ignore_merges);
    return STATUS_OK;
}

void bpe_deinit(struct bpe *bpe)
{
    free(bpe->merges);
    free(bpe->slots);
    free(bpe->whole);
    *bpe = (struct bpe){0};
}

void bpe_scratch_init(struct bpe_scratch *scratch)
{
    *scratch = (struct bpe_scratch){0};
}

void bpe_scratch_deinit(struct bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (struct bpe_scratch){0};
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

/* A word of n bytes has n symbols; its heap never holds more than n - 1 first candidates and two more a merge. */
static void scratch_reserve(struct bpe_scratch *scratch, size_t length)
{
    if (scratch->symbol_capacity >= length)
        return;
    scratch->symbol_capacity = length + length / 2 + 64;
    scratch->heap_capacity = 3 * scratch->symbol_capacity;
    free(scratch->symbols);
    free(scratch->heap);
    scratch->symbols = malloc(scratch->symbol_capacity * sizeof *scratch->symbols);
    scratch->heap = malloc(scratch->heap_capacity * sizeof *scratch->heap);
    ASSERT(scratch->symbols && scratch->heap);
}

static void propose(const struct bpe *bpe, struct bpe_scratch *scratch, uint32_t left)
{
    const struct bpe_symbol *symbols = scratch->symbols;
    uint32_t rank_plus_1 = *find_pair(bpe, symbols[left].token, symbols[symbols[left].next].token);
    if (rank_plus_1)
        heap_push(scratch, (uint64_t)(rank_plus_1 - 1) << 32 | left);
}

/* A candidate is stale when one of its two symbols has grown since. */
static void apply(const struct bpe *bpe, struct bpe_scratch *scratch, uint64_t candidate)
{
    struct bpe_symbol *symbols = scratch->symbols;
    const struct bpe_merge *merge = &bpe->merges[candidate >> 32];
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

bool bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t length,
                struct token_ids *ids)
{
    if (length == 0)
        return true;
    uint32_t id;
    if (bpe->whole && vocabulary_find(bpe->vocabulary, word, length, &id) && bpe->whole[id])
        return token_ids_push(ids, id);
    ASSERT(length < NONE / 2);
    scratch_reserve(scratch, length);
    struct bpe_symbol *symbols = scratch->symbols;
    uint32_t count = (uint32_t)length;
    for (uint32_t i = 0; i < count; i++)
        symbols[i] = (struct bpe_symbol){.token = bpe->byte_tokens[(unsigned char)word[i]],
                                         .previous = i ? i - 1 : NONE,
                                         .next = i + 1 < count ? i + 1 : NONE};
    scratch->heap_count = 0;
    for (uint32_t i = 0; i + 1 < count; i++)
        propose(bpe, scratch, i);
    while (scratch->heap_count)
        apply(bpe, scratch, heap_pop(scratch));
    for (uint32_t i = 0; i != NONE; i = symbols[i].next)
        if (!token_ids_push(ids, symbols[i].token))
            return false;
    return true;
}
