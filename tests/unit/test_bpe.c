/* bpe: against the plain algorithm (search the whole word for the best pair, join it, again), and
 * in time. */
#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/language/text/bpe.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LETTERS = 3, MERGES = 60 };

/* Byte tokens, then random merges of letters that grow out of each other; some pairs come twice. */
static void make(struct vocabulary *vocabulary, struct bpe *bpe, bool ignore_merges, uint64_t seed)
{
    struct rng rng = rng_seeded(seed);
    struct bpe_merge *merges = calloc(MERGES, sizeof *merges);
    uint32_t letters[LETTERS + MERGES], known = LETTERS, count = 256, made = 0;
    vocabulary_init(vocabulary, 256 + MERGES);
    for (uint32_t id = 0; id < 256; id++) {
        char byte = (char)id;
        assert_int_equal(vocabulary_add(vocabulary, id, &byte, 1, true, NULL), STATUS_OK);
    }
    for (uint32_t i = 0; i < LETTERS; i++)
        letters[i] = 'a' + i;
    while (made < MERGES) {
        struct bpe_merge merge = {.left = letters[rng_below(&rng, known)],
                                  .right = letters[rng_below(&rng, known)]};
        char joined[64];
        size_t left, right;
        const char *left_bytes = vocabulary_bytes(vocabulary, merge.left, &left);
        const char *right_bytes = vocabulary_bytes(vocabulary, merge.right, &right);
        if (left + right > 12)
            continue;
        memcpy(joined, left_bytes, left);
        memcpy(joined + left, right_bytes, right);
        if (!vocabulary_find(vocabulary, joined, left + right, &merge.joined)) {
            merge.joined = letters[known++] = count++;
            assert_int_equal(
                vocabulary_add(vocabulary, merge.joined, joined, left + right, true, NULL),
                STATUS_OK);
        }
        merges[made++] = merge;
    }
    struct bpe_settings settings = {.alphabet.kind = BPE_ALPHABET_BYTES,
                                    .ignore_merges = ignore_merges};
    assert_int_equal(bpe_init(bpe, vocabulary, &settings, merges, MERGES, NULL), STATUS_OK);
}

/* The token of a text of a and b, of up to 4 letters. */
static uint32_t dense_id(const char *text, size_t length)
{
    uint32_t id = 256;
    if (length == 1)
        return (unsigned char)*text;
    for (size_t i = 0; i < length; i++)
        id += ((uint32_t)(text[i] - 'a') << i) + (i > 1 ? 1u << i : 0);
    return id;
}

/* Every two neighbours can be joined, up to 4 letters, by ranks at random: merges leave more
 * candidates than they take. */
static void make_dense(struct vocabulary *vocabulary, struct bpe *bpe, uint64_t seed)
{
    enum { TEXTS = 28, DENSE_MERGES = 68 };
    struct rng rng = rng_seeded(seed);
    struct bpe_merge *merges = calloc(DENSE_MERGES, sizeof *merges);
    uint32_t made = 0;
    vocabulary_init(vocabulary, 256 + TEXTS);
    for (uint32_t id = 0; id < 256; id++) {
        char byte = (char)id;
        assert_int_equal(vocabulary_add(vocabulary, id, &byte, 1, true, NULL), STATUS_OK);
    }
    for (size_t length = 2; length <= 4; length++) {
        for (uint32_t bits = 0; bits < 1u << length; bits++) {
            char text[4];
            for (size_t i = 0; i < length; i++)
                text[i] = (char)('a' + (bits >> i & 1));
            uint32_t joined = dense_id(text, length);
            assert_int_equal(vocabulary_add(vocabulary, joined, text, length, true, NULL),
                             STATUS_OK);
            for (size_t left = 1; left < length; left++, made++) {
                uint32_t at = (uint32_t)rng_below(&rng, made + 1);
                merges[made] = merges[at];
                merges[at] = (struct bpe_merge){dense_id(text, left),
                                                dense_id(text + left, length - left), joined};
            }
        }
    }
    assert_int_equal(made, DENSE_MERGES);
    struct bpe_settings settings = {.alphabet.kind = BPE_ALPHABET_BYTES};
    assert_int_equal(bpe_init(bpe, vocabulary, &settings, merges, made, NULL), STATUS_OK);
}

/* The last of equal pairs counts, as in the map of `tokenizers`. */
static uint32_t rank_of(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    for (uint32_t rank = bpe->merges.count; rank-- > 0;)
        if (bpe->merges.merges[rank].left == left && bpe->merges.merges[rank].right == right)
            return rank;
    return UINT32_MAX;
}

static size_t encode_plainly(const struct bpe *bpe, const char *word, size_t length, uint32_t *ids)
{
    for (size_t i = 0; i < length; i++)
        ids[i] = (unsigned char)word[i];
    for (;;) {
        uint32_t best = UINT32_MAX;
        size_t at = 0;
        for (size_t i = 0; i + 1 < length; i++) {
            uint32_t rank = rank_of(bpe, ids[i], ids[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == UINT32_MAX)
            return length;
        ids[at] = bpe->merges.merges[best].joined;
        length--;
        memmove(ids + at + 1, ids + at + 2, (length - at - 1) * sizeof *ids);
    }
}

static void compare(const struct bpe *bpe, struct bpe_scratch *scratch, struct rng *rng,
                    uint32_t letters)
{
    char word[64];
    uint32_t plain[64];
    size_t length = 1 + rng_below(rng, sizeof word - 1);
    for (size_t i = 0; i < length; i++)
        word[i] = (char)('a' + rng_below(rng, letters));
    size_t count = encode_plainly(bpe, word, length, plain);
    struct token_ids ids;
    token_ids_init(&ids, 64);
    assert_true(bpe_encode(bpe, scratch, word, length, &ids));
    assert_int_equal(ids.count, count);
    assert_memory_equal(ids.data, plain, count * sizeof *plain);
    token_ids_deinit(&ids);
}

static void test_equals_the_plain_algorithm(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(3);
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct vocabulary vocabulary;
        struct bpe bpe;
        struct bpe_scratch scratch;
        make(&vocabulary, &bpe, false, seed);
        bpe_scratch_init(&scratch);
        for (int i = 0; i < 100; i++)
            compare(&bpe, &scratch, &rng, LETTERS + 1);
        bpe_scratch_deinit(&scratch);
        bpe_deinit(&bpe);
        vocabulary_deinit(&vocabulary);
    }
}

/* The heap of candidates is full, and goes on without those that were left behind. */
static void test_a_full_heap(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(4);
    uint64_t sweeps = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct vocabulary vocabulary;
        struct bpe bpe;
        struct bpe_scratch scratch;
        make_dense(&vocabulary, &bpe, seed);
        bpe_scratch_init(&scratch);
        for (int i = 0; i < 50; i++)
            compare(&bpe, &scratch, &rng, 2);
        sweeps += scratch.sweeps;
        bpe_scratch_deinit(&scratch);
        bpe_deinit(&bpe);
        vocabulary_deinit(&vocabulary);
    }
    assert_true(sweeps > 100);
}

static void test_whole_tokens(void **state)
{
    (void)state;
    for (int ignore_merges = 0; ignore_merges < 2; ignore_merges++) {
        struct vocabulary vocabulary;
        struct bpe bpe;
        struct bpe_scratch scratch;
        make(&vocabulary, &bpe, ignore_merges, 1);
        bpe_scratch_init(&scratch);
        size_t whole = 0, total = 0;
        for (uint32_t id = 0; id < vocabulary.count; id++) {
            size_t length;
            const char *bytes = vocabulary_bytes(&vocabulary, id, &length);
            uint32_t plain[64];
            struct token_ids ids;
            if (!bytes)
                continue;
            token_ids_init(&ids, 64);
            assert_true(bpe_encode(&bpe, &scratch, bytes, length, &ids));
            bool itself = ids.count == 1 && ids.data[0] == id;
            size_t count = encode_plainly(&bpe, bytes, length, plain);
            assert_int_equal(itself, ignore_merges || (count == 1 && plain[0] == id));
            whole += itself;
            total++;
            token_ids_deinit(&ids);
        }
        assert_true(ignore_merges ? whole == total : whole < total); /* some can't be reached */
        bpe_scratch_deinit(&scratch);
        bpe_deinit(&bpe);
        vocabulary_deinit(&vocabulary);
    }
}

/* Look-ups of pairs. */
static uint64_t work_of(const struct bpe *bpe, const char *word, size_t length)
{
    struct bpe_scratch scratch;
    struct token_ids ids;
    bpe_scratch_init(&scratch);
    token_ids_init(&ids, length);
    assert_true(bpe_encode(bpe, &scratch, word, length, &ids));
    token_ids_deinit(&ids);
    uint64_t pairs = scratch.pairs_looked_up;
    bpe_scratch_deinit(&scratch);
    return pairs;
}

/* Every look-up of a pair is a first candidate or follows a merge: at most 3 for each symbol, for
 * any length of the word. */
static void test_work_is_linear_in_the_word(void **state)
{
    (void)state;
    enum { LENGTH = 100000 };
    char *word = malloc(LENGTH);
    assert_non_null(word);
    struct rng rng = rng_seeded(6);
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct vocabulary vocabulary;
        struct bpe bpe;
        make(&vocabulary, &bpe, false, seed);
        for (size_t i = 0; i < LENGTH; i++)
            word[i] = seed < 4 ? 'a' : (char)('a' + rng_below(&rng, LETTERS));
        assert_true(work_of(&bpe, word, LENGTH) <= 3 * LENGTH);
        bpe_deinit(&bpe);
        vocabulary_deinit(&vocabulary);
    }
    free(word);
}

/* Every sweep of the heap pays for itself by merges, and no text takes more than 24 bytes a letter
 * besides its tokens: one of a single letter took 60. */
static void test_memory_is_linear_in_the_word(void **state)
{
    (void)state;
    enum { LENGTH = 1 << 20, BYTES_EACH = 24 };
    char *word = malloc(LENGTH);
    assert_non_null(word);
    struct rng rng = rng_seeded(7);
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct vocabulary vocabulary;
        struct bpe bpe;
        struct bpe_scratch scratch;
        struct token_ids ids;
        make_dense(&vocabulary, &bpe, seed);
        bpe_scratch_init(&scratch);
        token_ids_init(&ids, LENGTH);
        for (size_t i = 0; i < LENGTH; i++)
            word[i] = seed < 2 ? (char)('a' + seed) : (char)('a' + rng_below(&rng, 2));
        assert_true(bpe_encode(&bpe, &scratch, word, LENGTH, &ids));
        size_t bytes = malloc_usable_size(scratch.tokens) + malloc_usable_size(scratch.links) +
                       malloc_usable_size(scratch.heap);
        assert_true(scratch.links && bytes <= (size_t)BYTES_EACH * LENGTH);
        assert_in_range(scratch.sweeps, seed < 2 ? 0 : 1, 16);
        token_ids_deinit(&ids);
        bpe_scratch_deinit(&scratch);
        bpe_deinit(&bpe);
        vocabulary_deinit(&vocabulary);
    }
    free(word);
}

/* The plain algorithm would take hours. */
static void test_a_long_word_takes_n_log_n(void **state)
{
    (void)state;
    enum { LENGTH = 1 << 18 };
    struct vocabulary vocabulary;
    struct bpe bpe;
    struct bpe_scratch scratch;
    struct token_ids ids;
    struct rng rng = rng_seeded(5);
    make(&vocabulary, &bpe, false, 2);
    bpe_scratch_init(&scratch);
    token_ids_init(&ids, LENGTH);
    char *word = malloc(LENGTH);
    assert_non_null(word);
    for (size_t i = 0; i < LENGTH; i++)
        word[i] = (char)('a' + rng_below(&rng, LETTERS));
    uint64_t start_us = clock_now_us();
    assert_true(bpe_encode(&bpe, &scratch, word, LENGTH, &ids));
    assert_true(clock_now_us() - start_us < 60u * 1000 * 1000);
    size_t total = 0, length;
    for (size_t i = 0; i < ids.count; i++, total += length) {
        const char *bytes = vocabulary_bytes(&vocabulary, ids.data[i], &length);
        assert_memory_equal(bytes, word + total, length);
    }
    assert_int_equal(total, LENGTH);
    free(word);
    token_ids_deinit(&ids);
    bpe_scratch_deinit(&scratch);
    bpe_deinit(&bpe);
    vocabulary_deinit(&vocabulary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_the_plain_algorithm),
        cmocka_unit_test(test_a_full_heap),
        cmocka_unit_test(test_whole_tokens),
        cmocka_unit_test(test_work_is_linear_in_the_word),
        cmocka_unit_test(test_memory_is_linear_in_the_word),
        cmocka_unit_test(test_a_long_word_takes_n_log_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
