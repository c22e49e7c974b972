#include "common/language/text/bpe.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>

#define NONE BPE_NONE
#define FEW  32 /* symbols of a segment that an array joins faster than a heap */

/* --------------------------------------------------------------------------------- the alphabet */

/* Finds the tokens of bytes: themselves, or spelled. Returns whether every byte that occurs in
 * UTF-8 has one. */
static bool find_bytes(uint32_t tokens[256], const struct vocabulary *vocabulary, bool spelled)
{
    bool complete = true;
    for (int byte = 0; byte < 256; byte++) {
        char name[8] = {(char)byte};
        size_t length = 1;
        if (spelled)
            length = (size_t)snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        bool occurs = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
        complete &= vocabulary_find(vocabulary, name, length, &tokens[byte]) || !occurs;
    }
    return complete;
}

static void find_characters(struct bpe_alphabet *alphabet, const struct vocabulary *vocabulary)
{
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        size_t length = 0;
        uint32_t found;
        const char *bytes = vocabulary_bytes(vocabulary, id, &length);
        if (!length || length > 4)
            continue;
        struct utf8_char character = utf8_next(bytes, length);
        if (character.kind != UTF8_WHOLE || character.length != length ||
            !vocabulary_find(vocabulary, bytes, length, &found) || found != id)
            continue;
        uint32_t **page = &alphabet->pages[character.code >> 8];
        if (!*page) {
            *page = malloc(256 * sizeof **page);
            ASSERT(*page);
            memset(*page, 0xFF, 256 * sizeof **page);
        }
        (*page)[character.code & 0xFF] = id;
    }
}

static enum status bpe_alphabet_init(struct bpe_alphabet *alphabet,
                                     const struct vocabulary *vocabulary,
                                     const struct bpe_alphabet_settings *settings,
                                     struct error *err)
{
    *alphabet =
        (struct bpe_alphabet){.kind = settings->kind, .fuse_unk = settings->fuse_unk, .unk = NONE};
    memset(alphabet->bytes, 0xFF, sizeof alphabet->bytes);
    memset(alphabet->fallback, 0xFF, sizeof alphabet->fallback);
    bool complete = false;
    if (settings->kind == BPE_ALPHABET_BYTES)
        complete = find_bytes(alphabet->bytes, vocabulary, false);
    if (settings->byte_fallback)
        complete |= find_bytes(alphabet->fallback, vocabulary, true);
    if (settings->unk_token && !complete &&
        !vocabulary_find(vocabulary, settings->unk_token, strlen(settings->unk_token),
                         &alphabet->unk))
        return error_set(err, STATUS_INVALID, "the \"unk_token\" \"%.40s\" isn't in the vocabulary",
                         settings->unk_token);
    if (settings->kind == BPE_ALPHABET_CHARACTERS)
        find_characters(alphabet, vocabulary);
    return STATUS_OK;
}

static uint32_t token_of_character(const struct bpe_alphabet *alphabet, uint32_t code)
{
    const uint32_t *page = alphabet->pages[code >> 8];
    return page ? page[code & 0xFF] : NONE;
}

/* Returns the symbol that the first character of a token's bytes becomes, or NONE. length > 0. */
static uint32_t first_symbol(const struct bpe_alphabet *alphabet, const char *bytes, size_t length)
{
    if (alphabet->kind == BPE_ALPHABET_BYTES)
        return alphabet->bytes[(unsigned char)bytes[0]];
    return token_of_character(alphabet, utf8_next(bytes, length).code);
}

/* Returns the symbol that the last character of a token's bytes becomes, or NONE. length > 0. */
static uint32_t last_symbol(const struct bpe_alphabet *alphabet, const char *bytes, size_t length)
{
    size_t at = length - 1;
    if (alphabet->kind == BPE_ALPHABET_BYTES)
        return alphabet->bytes[(unsigned char)bytes[at]];
    while (at > 0 && ((unsigned char)bytes[at] & 0xC0) == 0x80)
        at--;
    return token_of_character(alphabet, utf8_next(bytes + at, length - at).code);
}

/* ----------------------------------------------------------------------------------- the merges */

#define JOINABLE_BITS_MIN 4096

static uint64_t merge_table_hash(const struct merge_table *table, uint32_t left, uint32_t right)
{
    return text_hash_u64((uint64_t)left << 32 | right, table->seed);
}

/* Returns false only if no merge ever joins a token that ends in `last` to one that starts with
 * `first`. */
static bool merge_table_joinable(const struct merge_table *table, uint32_t last, uint32_t first)
{
    uint32_t bit = (uint32_t)merge_table_hash(table, last, first) & table->joinable_mask;
    return table->joinable[bit / 64] >> bit % 64 & 1;
}

/* Returns the rank of the pair, or NONE. */
static uint32_t merge_table_rank(const struct merge_table *table, uint32_t left, uint32_t right)
{
    uint32_t slot = (uint32_t)merge_table_hash(table, left, right) & table->slot_mask;
    for (;; slot = (slot + 1) & table->slot_mask) {
        const struct merge_slot *entry = &table->slots[slot];
        if (entry->rank == NONE || (entry->left == left && entry->right == right))
            return entry->rank;
    }
}

static void add_merge(struct merge_table *table, uint32_t rank)
{
    const struct bpe_merge *merge = &table->merges[rank];
    uint32_t slot = (uint32_t)merge_table_hash(table, merge->left, merge->right) & table->slot_mask;
    for (;; slot = (slot + 1) & table->slot_mask) {
        const struct merge_slot *entry = &table->slots[slot];
        if (entry->rank == NONE || (entry->left == merge->left && entry->right == merge->right))
            break;
    }
    table->slots[slot] = (struct merge_slot){merge->left, merge->right, rank};
}

static void merge_table_init(struct merge_table *table, struct bpe_merge *merges, uint32_t count)
{
    ASSERT(count <= MERGE_TABLE_LIMIT_COUNT);
    uint32_t slots = 64, bits = JOINABLE_BITS_MIN; /* powers of two */
    while (slots < 2 * count)
        slots *= 2;
    while (bits < 4 * count)
        bits *= 2;
    *table = (struct merge_table){.merges = merges,
                                  .count = count,
                                  .slot_mask = slots - 1,
                                  .slots = malloc(slots * sizeof *table->slots),
                                  .joinable = calloc(bits / 64, sizeof *table->joinable),
                                  .joinable_mask = bits - 1,
                                  .seed = text_hash_seed()};
    ASSERT(table->slots && table->joinable);
    for (uint32_t slot = 0; slot < slots; slot++)
        table->slots[slot].rank = NONE;
    for (uint32_t rank = 0; rank < count; rank++)
        add_merge(table, rank);
}

/* ------------------------------------------------------------------------------------- encoding */

/* Returns whether a merge has a token of the byte fallback or the unknown token. Such a merge hides
 * the symbols that a token starts or ends with. */
static bool joins_substitutes(const struct bpe *bpe)
{
    bool *substitutes = calloc(bpe->vocabulary->count, sizeof *substitutes), found = false;
    ASSERT(substitutes);
    for (size_t byte = 0; byte < 256; byte++)
        if (bpe->alphabet.fallback[byte] != NONE)
            substitutes[bpe->alphabet.fallback[byte]] = true;
    if (bpe->alphabet.unk != NONE)
        substitutes[bpe->alphabet.unk] = true;
    for (uint32_t rank = 0; rank < bpe->merges.count && !found; rank++)
        found = substitutes[bpe->merges.merges[rank].left] ||
                substitutes[bpe->merges.merges[rank].right];
    free(substitutes);
    return found;
}

/* Sets the bits of `joinable`. */
static void find_joinable(struct bpe *bpe)
{
    if (joins_substitutes(bpe)) {
        memset(bpe->merges.joinable, 0xFF,
               (bpe->merges.joinable_mask / 64 + 1) * sizeof *bpe->merges.joinable);
        return;
    }
    for (uint32_t rank = 0; rank < bpe->merges.count; rank++) {
        const struct bpe_merge *merge = &bpe->merges.merges[rank];
        size_t left, right;
        const char *left_bytes = vocabulary_bytes(bpe->vocabulary, merge->left, &left);
        const char *right_bytes = vocabulary_bytes(bpe->vocabulary, merge->right, &right);
        if (!left || !right) /* an empty token never is a symbol */
            continue;
        uint32_t last = last_symbol(&bpe->alphabet, left_bytes, left);
        uint32_t first = first_symbol(&bpe->alphabet, right_bytes, right);
        uint32_t bit =
            (uint32_t)merge_table_hash(&bpe->merges, last, first) & bpe->merges.joinable_mask;
        bpe->merges.joinable[bit / 64] |= UINT64_C(1) << bit % 64;
    }
}

/* Marks the tokens that encode to themselves. */
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
    for (size_t i = 0; i < sizeof bpe->alphabet.pages / sizeof *bpe->alphabet.pages; i++)
        free(bpe->alphabet.pages[i]);
    free(bpe->merges.merges);
    free(bpe->merges.slots);
    free(bpe->merges.joinable);
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
    free(scratch->links);
    free(scratch->heap);
    *scratch = (struct bpe_scratch){0};
}

static uint32_t rank_of(const struct bpe *bpe, struct bpe_scratch *scratch, uint32_t left,
                        uint32_t right)
{
    scratch->pairs_looked_up++;
    return merge_table_rank(&bpe->merges, left, right);
}

/* Joins the segment in place. ranks[i] is the rank of the pair (i, i + 1). */
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

/* Puts a key at or below a place of the heap that has none. */
static void heap_sink(uint64_t *heap, size_t count, size_t at, uint64_t key)
{
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= key)
            break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

/* A symbol of one place needs no link. */
static uint32_t next_of(const struct bpe_scratch *scratch, uint32_t at)
{
    uint32_t behind = at + 1;
    bool several = behind < scratch->token_count && scratch->tokens[behind] == NONE;
    return several ? scratch->links[at] : behind;
}

/* Returns the right symbol of a candidate; NONE: one of its two symbols has grown since. */
static uint32_t right_of(const struct bpe *bpe, const struct bpe_scratch *scratch,
                         uint64_t candidate)
{
    const struct bpe_merge *merge = &bpe->merges.merges[candidate >> 32];
    uint32_t left = (uint32_t)candidate;
    if (scratch->tokens[left] != merge->left)
        return NONE;
    uint32_t right = next_of(scratch, left);
    bool current = right < scratch->token_count && scratch->tokens[right] == merge->right;
    return current ? right : NONE;
}

/* Drops the candidates that symbols have grown out of. At most one for each pair of neighbours
 * stays: their number shrinks with each merge. */
static void sweep(const struct bpe *bpe, struct bpe_scratch *scratch)
{
    uint64_t *heap = scratch->heap;
    size_t kept = 0;
    for (size_t i = 0; i < scratch->heap_count; i++)
        if (right_of(bpe, scratch, heap[i]) != NONE)
            heap[kept++] = heap[i];
    for (size_t i = kept / 2; i-- > 0;)
        heap_sink(heap, kept, i, heap[i]);
    scratch->heap_count = kept;
    scratch->sweeps++;
}

/* A merge takes one candidate and leaves at most two. So when the first n - 1 have become n + n/8,
 * n/8 merges were made, and a sweep drops twice as many: it takes constant time for each merge. */
static void reserve_places(struct bpe_scratch *scratch)
{
    size_t count = scratch->token_count;
    scratch->heap_count = 0;
    scratch->heap_limit = count + count / 8;
    if (scratch->place_capacity >= count)
        return;
    scratch->place_capacity = count + FEW;
    free(scratch->links);
    free(scratch->heap);
    scratch->links = malloc(scratch->place_capacity * sizeof *scratch->links);
    scratch->heap =
        malloc((scratch->place_capacity + scratch->place_capacity / 8) * sizeof *scratch->heap);
    ASSERT(scratch->links && scratch->heap);
}

/* Pushes the pair of a symbol and its right neighbour, if a merge joins it. */
static void propose(const struct bpe *bpe, struct bpe_scratch *scratch, uint32_t left,
                    uint32_t right)
{
    uint32_t rank = rank_of(bpe, scratch, scratch->tokens[left], scratch->tokens[right]);
    if (rank == NONE)
        return;
    if (scratch->heap_count == scratch->heap_limit)
        sweep(bpe, scratch);
    uint64_t *heap = scratch->heap, key = (uint64_t)rank << 32 | left;
    size_t at = scratch->heap_count++;
    for (; at > 0 && heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = key;
}

/* Merges a candidate, unless one of its two symbols has grown since. */
static void apply(const struct bpe *bpe, struct bpe_scratch *scratch, uint64_t candidate)
{
    uint32_t *tokens = scratch->tokens, *links = scratch->links;
    uint32_t left = (uint32_t)candidate, right = right_of(bpe, scratch, candidate);
    if (right == NONE)
        return;
    uint32_t end = next_of(scratch, right);
    tokens[left] = bpe->merges.merges[candidate >> 32].joined;
    tokens[right] = NONE;
    links[left] = end;
    links[end - 1] = left;
    if (end < scratch->token_count)
        propose(bpe, scratch, left, end);
    if (left > 0)
        propose(bpe, scratch, tokens[left - 1] == NONE ? links[left - 1] : left - 1, left);
}

static void join_many(const struct bpe *bpe, struct bpe_scratch *scratch)
{
    uint32_t count = (uint32_t)scratch->token_count, kept = 0;
    reserve_places(scratch);
    for (uint32_t i = 0; i + 1 < count; i++)
        propose(bpe, scratch, i, i + 1);
    while (scratch->heap_count) {
        uint64_t *heap = scratch->heap, best = heap[0];
        scratch->heap_count--;
        heap_sink(heap, scratch->heap_count, 0, heap[scratch->heap_count]);
        apply(bpe, scratch, best);
    }
    for (uint32_t i = 0, next; i < count; i = next) {
        next = next_of(scratch, i);
        scratch->tokens[kept++] = scratch->tokens[i];
    }
    scratch->token_count = kept;
}

/* A word that is read symbol by symbol. scratch->tokens are the symbols of the segment. */
struct segmenter {
    const struct bpe *bpe;
    struct bpe_scratch *scratch;
    struct token_ids *ids;
    const char *word;
    size_t start, end; /* the segment is word[start..end) */
    bool spelled;      /* its symbols spell just these bytes */
    bool unk_waits;    /* unknown characters wait, to be fused */
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

/* Takes the next symbol, which spells word[start..start + length); length 0: the word doesn't spell
 * it. Returns false at the limit of ids. */
static bool take_symbol(struct segmenter *segmenter, uint32_t token, size_t start, size_t length)
{
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
    if (scratch->token_count == scratch->token_capacity) {
        scratch->token_capacity += scratch->token_capacity / 2 + 2 * FEW;
        scratch->tokens =
            realloc(scratch->tokens, scratch->token_capacity * sizeof *scratch->tokens);
        ASSERT(scratch->tokens);
    }
    scratch->tokens[scratch->token_count++] = token;
    return true;
}

static bool end_unknown(struct segmenter *segmenter)
{
    if (!segmenter->unk_waits)
        return true;
    segmenter->unk_waits = false;
    return take_symbol(segmenter, segmenter->bpe->alphabet.unk, 0, 0);
}

/* Takes a character without a token. As in `tokenizers`, its byte tokens don't end a run of unknown
 * characters: they come before it. */
static bool take_unknown(struct segmenter *segmenter, const char *bytes, size_t length)
{
    const struct bpe_alphabet *alphabet = &segmenter->bpe->alphabet;
    bool has_bytes = true;
    for (size_t i = 0; i < length; i++)
        has_bytes &= alphabet->fallback[(unsigned char)bytes[i]] != NONE;
    if (has_bytes) {
        for (size_t i = 0; i < length; i++)
            if (!take_symbol(segmenter, alphabet->fallback[(unsigned char)bytes[i]], 0, 0))
                return false;
        return true;
    }
    if (alphabet->unk == NONE)
        return true;
    if (!alphabet->fuse_unk && !end_unknown(segmenter))
        return false;
    segmenter->unk_waits = true;
    return true;
}

static bool take_characters(struct segmenter *segmenter, const char *word, size_t length)
{
    for (size_t at = 0; at < length;) {
        unsigned char byte = (unsigned char)word[at];
        struct utf8_char next = {.code = byte, .length = 1};
        if (byte >= 0x80)
            next = utf8_next(word + at, length - at);
        uint32_t token = token_of_character(&segmenter->bpe->alphabet, next.code);
        if (token == NONE) {
            if (!take_unknown(segmenter, word + at, next.length))
                return false;
        } else if (!end_unknown(segmenter) || !take_symbol(segmenter, token, at, next.length)) {
            return false;
        }
        at += next.length;
    }
    return end_unknown(segmenter);
}

static bool take_bytes(struct segmenter *segmenter, const char *word, size_t length)
{
    for (size_t at = 0; at < length; at++) {
        unsigned char byte = (unsigned char)word[at];
        uint32_t token = segmenter->bpe->alphabet.bytes[byte];
        char spelled[4];
        if (token != NONE) {
            if (!end_unknown(segmenter) || !take_symbol(segmenter, token, at, 1))
                return false;
        } else if (!take_unknown(segmenter, spelled, byte_level_put(byte, spelled))) {
            return false;
        }
    }
    return end_unknown(segmenter);
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
    scratch->token_count = 0;
    bool fits = bpe->alphabet.kind == BPE_ALPHABET_CHARACTERS
                    ? take_characters(&segmenter, word, length)
                    : take_bytes(&segmenter, word, length);
    return fits && end_segment(&segmenter);
}
