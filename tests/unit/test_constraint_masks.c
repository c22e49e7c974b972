/* Masks of tokens equal the automaton's verdict on each token, whatever the vocabulary, the state
 * and the kept sets. Also tests the cache of constraints. */
#include "common/base/rng.h"
#include "common/language/constrain/constraint_cache.h"
#include "common/worker/step_constraints.h"
#include "tests/constrain/adversarial.h"
#include "tests/constrain/generate.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_TOKENS 600
#define END_ID     3

/* A small vocabulary: each token has its bytes, and its bytes at the start of an answer. */
struct words {
    char bytes[MAX_TOKENS][260];
    size_t lengths[MAX_TOKENS];
    uint32_t count;
    bool strips; /* a space is dropped at the start of an answer */
};

static const char *bytes_of(const void *context, uint32_t id, bool first, size_t *length)
{
    const struct words *words = context;
    const char *bytes = words->bytes[id];
    *length = words->lengths[id];
    if (first && words->strips && *length && *bytes == ' ') {
        bytes++;
        --*length;
    }
    return *length ? bytes : NULL;
}

static void add_word(struct words *words, const char *bytes, size_t length)
{
    assert_true(words->count < MAX_TOKENS && length <= sizeof words->bytes[0]);
    memcpy(words->bytes[words->count], bytes, length);
    words->lengths[words->count++] = length;
}

/* All single bytes except control characters, and pieces of JSON; id 0 and the end id have no
 * bytes. */
static void make_words(struct words *words, uint64_t seed, bool strips)
{
    static const char *const parts[] = {"a",        "b",        "x",
                                        "the",      " ",        "\"",
                                        "{",        "}",        "[",
                                        "]",        ",",        ":",
                                        "1",        "20",       "\\",
                                        "u00",      "n",        ".5",
                                        "-",        "e3",       "true",
                                        "null",     "id",       "name",
                                        "_",        "\n",       "@",
                                        "\"a",      "\":",      "\xc3\xa9",
                                        "\xc3",     "\xa9",     "\xf0\x9f\x99\x82",
                                        "\xf0\x9f", "\x99\x82", "\xff",
                                        "}}",       "\", \""};
    struct rng rng = rng_seeded(seed);
    *words = (struct words){.strips = strips};
    for (int i = 0; i < 256 - ' '; i++) {
        char c = (char)(' ' + i);
        add_word(words, &c, i == 0 || i == END_ID ? 0 : 1);
    }
    add_word(words, " ", 1);
    add_word(words, "#", 1);
    while (words->count < MAX_TOKENS - 2) {
        char text[64] = "";
        size_t count = 1 + rng_below(&rng, 4);
        for (size_t i = 0; i < count; i++)
            strcat(text, parts[rng_below(&rng, sizeof parts / sizeof *parts)]);
        add_word(words, text, strlen(text));
    }
    char longest[256];
    memset(longest, 'y', sizeof longest);
    add_word(words, longest, 255);
    add_word(words, longest, 256); /* too long ever to match */
}

static struct token_trie *trie_of(const struct words *words)
{
    static const uint32_t end_ids[] = {END_ID};
    struct token_source source = {.bytes = bytes_of,
                                  .context = words,
                                  .count = words->count,
                                  .end_ids = end_ids,
                                  .end_count = 1};
    struct token_trie *trie = NULL;
    struct error err = {""};
    if (token_trie_create(&source, &trie, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return trie;
}

static struct constraint *compiled(enum constraint_kind kind, const char *text)
{
    struct constraint *constraint = NULL;
    struct error err = {""};
    if (constraint_compile(kind, text, strlen(text), &constraint, &err) != STATUS_OK)
        fail_msg("%s: %s", text, err.text);
    return constraint;
}

static bool has(const uint32_t *bits, uint32_t id)
{
    return bits[id / 32] >> id % 32 & 1;
}

/* Asks about each token by itself. */
static void check_mask(const struct constraint *constraint, const struct words *words,
                       const struct constraint_state *state, const uint32_t *bits, uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t id = 0; id < words->count; id++) {
        size_t length;
        struct constraint_state next = *state;
        const char *bytes = bytes_of(words, id, !state->started, &length);
        bool allowed = bytes && length <= TOKEN_TRIE_MAX_BYTES &&
                       constraint_state_take(constraint, &next, bytes, length);
        if (id == END_ID)
            allowed = constraint_state_may_end(constraint, state);
        if (allowed != has(bits, id))
            fail_msg("token %u (%.*s) is %s", id, (int)length, bytes ? bytes : "",
                     allowed ? "allowed" : "not allowed");
        found += allowed;
    }
    assert_int_equal(found, count);
}

static void check_walk(const struct constraint *constraint, const struct words *words,
                       const struct token_trie *trie, struct constraint_masks *masks,
                       struct constraint_masks *fresh, uint64_t seed)
{
    struct rng rng = rng_seeded(seed);
    struct constraint_state state;
    uint32_t bits[MAX_TOKENS / 32 + 1], again[MAX_TOKENS / 32 + 1];
    constraint_state_init(constraint, &state);
    for (int step = 0; step < 60; step++) {
        uint32_t count = constraint_masks_find(masks, &state, bits);
        check_mask(constraint, words, &state, bits, count);
        assert_int_equal(constraint_masks_find(fresh, &state, again), count);
        assert_memory_equal(bits, again, trie->words * sizeof *bits);
        assert_true(count > 0);
        uint32_t id = END_ID, skip = (uint32_t)rng_below(&rng, count);
        for (uint32_t at = 0; at < words->count; at++)
            if (has(bits, at) && skip-- == 0)
                id = at;
        if (id == END_ID)
            return;
        size_t length;
        const char *bytes = bytes_of(words, id, !state.started, &length);
        assert_true(constraint_state_take(constraint, &state, bytes, length));
    }
}

static const struct {
    enum constraint_kind kind;
    const char *text;
} constraints[] = {
    {CONSTRAINT_JSON_OBJECT, ""},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\"}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":40}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":5}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"[0-9]{3}\",\"maxLength\":9}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"[a@]..x\",\"maxLength\":12}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"id|\u00e9\",\"maxLength\":6}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"x$\",\"maxLength\":7}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"[0-9].[a-n]\",\"minLength\":4,"
                             "\"maxLength\":8}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":300}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":270}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[^x]*$\",\"maxLength\":290}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"id$\",\"minLength\":9,"
                             "\"maxLength\":36}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^([^0-9]{2})*$\",\"minLength\":"
                             "7,\"maxLength\":21}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"format\":\"uri\",\"minLength\":1,"
                             "\"maxLength\":45}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":6},{\"type\":"
                             "\"string\",\"pattern\":\"^[a-m]*$\",\"maxLength\":13},{\"type\":"
                             "\"string\",\"pattern\":\"^x\"}]}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"anyOf\":[{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}},{"
                             "\"type\":\"string\",\"pattern\":\"^(\u00e9|[a-e])*$\",\"minLength\":"
                             "2,\"maxLength\":4}]}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\","
                             "\"minLength\":1,\"maxLength\":3}}"},
    {CONSTRAINT_REGEX, ".{0,6}(20|@).{0,3}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[^xe\\u00e9]*$\"}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"number\"}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"array\"}}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\"},"
                             "\"name\":{\"type\":\"string\"}},"
                             "\"additionalProperties\":true}"},
    {CONSTRAINT_JSON_SCHEMA, "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}}"
                             ",\"required\":[\"a\"]},{\"type\":"
                             "\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}}},{\"enum\":["
                             "\"\xc3\xa9\xc3\xa9\",\"a\\nb\"]}]}"},
    {CONSTRAINT_REGEX, "[a-z ]+(\xc3\xa9|[0-9]{2,4})*"},
    {CONSTRAINT_REGEX, "(.|\\n)*"},
    {CONSTRAINT_REGEX, ".{0,33}"},
    {CONSTRAINT_CHOICE, "[\"the id\",\"the name\",\"x\"]"},
    {CONSTRAINT_BEHIND_REASONING, "json_object inside <think> </e>\n"},
    {CONSTRAINT_BEHIND_REASONING, "regex outside [ ]\n[a-z]+"},
};

static void test_masks_are_what_each_token_says(void **state)
{
    (void)state;
    static struct words words;
    for (int strips = 0; strips < 2; strips++) {
        make_words(&words, 7 + (uint64_t)strips, strips);
        struct token_trie *trie = trie_of(&words);
        assert_int_equal(trie->has_first, strips);
        for (size_t i = 0; i < sizeof constraints / sizeof *constraints; i++) {
            struct constraint *constraint = compiled(constraints[i].kind, constraints[i].text);
            struct constraint_masks *masks = constraint_masks_create(constraint, trie, 5);
            struct constraint_masks *fresh = constraint_masks_create(constraint, trie, 0);
            for (uint64_t seed = 0; seed < 4; seed++)
                check_walk(constraint, &words, trie, masks, fresh, seed);
            assert_int_equal(constraint_masks_counts(fresh).found, 0);
            constraint_masks_destroy(masks);
            constraint_masks_destroy(fresh);
            constraint_destroy(constraint);
        }
        token_trie_destroy(trie);
    }
}

/* At each count of a long string, and in the midst of its characters. */
static void test_masks_at_every_length(void **state)
{
    (void)state;
    static const char *const schemas[] = {
        "{\"type\":\"string\",\"minLength\":3,\"maxLength\":280}",
        "{\"type\":\"string\",\"pattern\":\"^(..)*$\",\"minLength\":5,\"maxLength\":270}",
        "{\"type\":\"string\",\"pattern\":\"[a@1].$\",\"maxLength\":265}"};
    static const char *const characters[] = {"y", "\\u00e9", "\xc3\xa9", "@"};
    static struct words words;
    make_words(&words, 11, false);
    struct token_trie *trie = trie_of(&words);
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        struct constraint *constraint = compiled(CONSTRAINT_JSON_SCHEMA, schemas[i]);
        struct constraint_masks *masks = constraint_masks_create(constraint, trie, 64);
        struct constraint_state at;
        uint32_t bits[MAX_TOKENS / 32 + 1];
        bool more = true;
        constraint_state_init(constraint, &at);
        assert_true(constraint_state_take(constraint, &at, "\"", 1));
        for (uint32_t count = 0; more; count++) {
            more = false;
            if (count % 16 == 0 || count > 256)
                check_mask(constraint, &words, &at, bits, constraint_masks_find(masks, &at, bits));
            for (size_t c = 0; c < 4 && !more; c++) {
                const char *character = characters[(count + c) % 4];
                struct constraint_state next = at, within = at;
                more = constraint_state_take(constraint, &next, character, strlen(character));
                if (more && strlen(character) > 1 && count > 256) {
                    assert_true(constraint_state_take(constraint, &within, character, 1));
                    check_mask(constraint, &words, &within, bits,
                               constraint_masks_find(masks, &within, bits));
                }
                at = more ? next : at;
            }
        }
        assert_true(constraint_state_take(constraint, &at, "\"", 1));
        constraint_masks_destroy(masks);
        constraint_destroy(constraint);
    }
    token_trie_destroy(trie);
}

/* If the stack is almost full, fewer tokens are allowed than by the state alone. */
static void test_masks_near_the_depth_limit(void **state)
{
    (void)state;
    static struct words words;
    make_words(&words, 3, false);
    struct token_trie *trie = trie_of(&words);
    struct constraint *constraint = compiled(CONSTRAINT_JSON_OBJECT, "");
    struct constraint_masks *masks = constraint_masks_create(constraint, trie, 8);
    struct constraint_state at;
    uint32_t bits[MAX_TOKENS / 32 + 1];
    constraint_state_init(constraint, &at);
    assert_true(constraint_state_take(constraint, &at, "{\"a\":", 5));
    int depth = 0;
    for (bool more = true; more; depth++) {
        check_mask(constraint, &words, &at, bits, constraint_masks_find(masks, &at, bits));
        more = constraint_state_take(constraint, &at, "[", 1);
    }
    assert_true(depth > CONSTRAINT_MAX_DEPTH - 4);
    assert_true(constraint_state_take(constraint, &at, "],\"a", 4));
    check_mask(constraint, &words, &at, bits, constraint_masks_find(masks, &at, bits));
    constraint_masks_destroy(masks);
    constraint_destroy(constraint);
    token_trie_destroy(trie);
}

static void check_one_walk(const char *schema)
{
    static struct words words;
    make_words(&words, 1, false);
    struct token_trie *trie = trie_of(&words);
    struct constraint *constraint = compiled(CONSTRAINT_JSON_SCHEMA, schema);
    struct constraint_masks *masks = constraint_masks_create(constraint, trie, 16);
    struct constraint_state at;
    uint32_t bits[MAX_TOKENS / 32 + 1];
    constraint_state_init(constraint, &at);
    assert_true(constraint_state_take(constraint, &at, "\"", 1));
    for (int i = 0; i < 10; i++) {
        constraint_masks_find(masks, &at, bits);
        assert_true(constraint_state_take(constraint, &at, "x", 1));
    }
    assert_int_equal(constraint_masks_counts(masks).walked, 1);
    assert_int_equal(constraint_masks_counts(masks).found, 9);
    constraint_masks_destroy(masks);
    constraint_destroy(constraint);
    token_trie_destroy(trie);
}

/* Far from its limits a string that counts is in one state, as one that doesn't. */
static void test_states_that_come_again_are_kept(void **state)
{
    (void)state;
    check_one_walk("{\"type\":\"string\"}");
    check_one_walk("{\"type\":\"string\",\"maxLength\":8192}");
    check_one_walk("{\"type\":\"string\",\"minLength\":300}");
    check_one_walk("{\"type\":\"string\",\"pattern\":\"^x*$\",\"maxLength\":8192}");
}

/* Tokens with equal bytes are allowed together, however many, with longer tokens below them in the
 * trie and without. */
static void test_tokens_with_equal_bytes(void **state)
{
    (void)state;
    static struct words words;
    words = (struct words){.count = 0};
    for (int i = 0; i < 301; i++)
        add_word(&words, i == END_ID ? "" : "x", i != END_ID);
    for (int i = 0; i < 280; i++)
        add_word(&words, "xy!", 3);
    struct token_trie *trie = trie_of(&words);
    struct constraint *constraint = compiled(CONSTRAINT_REGEX, "xz|(xy!){2}");
    struct constraint_masks *masks = constraint_masks_create(constraint, trie, 1);
    struct constraint_state at;
    uint32_t bits[MAX_TOKENS / 32 + 1];
    constraint_state_init(constraint, &at);
    check_mask(constraint, &words, &at, bits, constraint_masks_find(masks, &at, bits));
    assert_int_equal(constraint_masks_find(masks, &at, bits), 580);
    assert_true(constraint_state_take(constraint, &at, "xy!", 3));
    assert_int_equal(constraint_masks_find(masks, &at, bits), 580);
    assert_true(constraint_state_take(constraint, &at, "x", 1));
    assert_int_equal(constraint_masks_find(masks, &at, bits), 0); /* the vocabulary has no y */
    constraint_masks_destroy(masks);
    constraint_destroy(constraint);
    token_trie_destroy(trie);
}

static void test_vocabularies_that_are_refused(void **state)
{
    (void)state;
    static struct words words;
    make_words(&words, 1, false);
    uint32_t end_id = words.count;
    struct token_source source = {.bytes = bytes_of, .context = &words};
    struct token_trie *trie = NULL;
    struct error err = {""};
    assert_int_equal(token_trie_create(&source, &trie, &err), STATUS_LIMIT);
    source.count = TOKEN_TRIE_MAX_COUNT + 1;
    assert_int_equal(token_trie_create(&source, &trie, &err), STATUS_LIMIT);
    source.count = words.count;
    source.end_ids = &end_id;
    source.end_count = 1;
    assert_int_equal(token_trie_create(&source, &trie, &err), STATUS_INVALID);
    assert_string_equal(err.text, "the end id 600 is not below the vocabulary's 600");
}

#define LARGE_VOCABULARY 131072

/* As a step and then the walker go on with it, until it is through or took too many. The nodes that
 * it took. */
static uint64_t walk_in_turns(struct constraint_walk *walk, uint32_t *bits, uint64_t most)
{
    uint64_t taken = 0, turn = STEP_CONSTRAINTS_NODES;
    for (bool through = false; !through && taken <= most; turn = CONSTRAINT_WALKER_NODES) {
        uint64_t left = turn;
        through = constraint_walk_go(walk, bits, &left);
        assert_in_range(left, 0, through ? turn : 0);
        taken += turn - left;
    }
    return taken;
}

/* Over a vocabulary of a real model's size: the cost of one set is bounded, and a budget is kept
 * wherever it breaks a walk off. */
static void test_nodes_are_bounded(void **state)
{
    (void)state;
    struct vocabulary_source source;
    struct adversarial list[ADVERSARIAL_MAX];
    size_t count = adversarial_to_mask(list);
    vocabulary_source_open(&source, "tests/golden/tokenizers/gpt-2.tokenizer.json",
                           LARGE_VOCABULARY);
    uint32_t words = source.trie->words;
    /* A node is looked at once; ids that are set count as an eighth of one. */
    const struct token_forest *forest = &source.trie->inside;
    uint64_t most =
        (uint64_t)forest->plain.node_count + forest->other.node_count + LARGE_VOCABULARY / 8 + 64;
    assert_in_range(most, 1, 650000);
    uint32_t *bits = malloc(words * sizeof *bits), *whole = malloc(words * sizeof *whole);
    struct constraint_walk *walk = constraint_walk_create();
    for (size_t i = 0; i < count; i++) {
        struct constraint *constraint;
        struct constraint_state at;
        struct error err;
        if (constraint_compile(list[i].kind, list[i].text, strlen(list[i].text), &constraint,
                               &err) != STATUS_OK)
            fail_msg("%s: %s", list[i].name, err.text);
        struct constraint_masks *at_once = constraint_masks_create(constraint, source.trie, 0);
        struct constraint_mask mask = {.bits = bits};
        struct rng rng = rng_seeded(i);
        constraint_state_init(constraint, &at);
        for (uint32_t token = 0; token < 12; token++) {
            size_t length;
            mask.state = at;
            constraint_masks_begin(at_once, &mask, walk);
            uint64_t taken = walk_in_turns(walk, bits, most);
            if (taken > most)
                fail_msg("%s: %" PRIu64 " nodes", list[i].name, taken);
            bool any = constraint_masks_find(at_once, &at, whole) > 0;
            assert_memory_equal(bits, whole, words * sizeof *bits);
            uint32_t id = any ? draw_token(&source, bits, token, &rng) : source.end_id;
            if (id == source.end_id)
                break;
            const char *bytes = vocabulary_source_text(&source, id, !at.started, &length);
            assert_true(constraint_state_take(constraint, &at, bytes, length));
        }
        constraint_masks_destroy(at_once);
        constraint_destroy(constraint);
    }
    constraint_walk_destroy(walk);
    free(bits);
    free(whole);
    adversarial_free(list, count);
    vocabulary_source_close(&source);
}

static struct constraint_state behind(const struct constraint *constraint, const char *text)
{
    struct constraint_state state;
    constraint_state_init(constraint, &state);
    assert_true(constraint_state_take(constraint, &state, text, strlen(text)));
    return state;
}

/* Answers in one state hold one set, whichever makes it. A held set isn't evicted, and an
 * unfinished one without a maker is dropped. */
static void test_sets_are_held(void **state)
{
    (void)state;
    static struct words words;
    make_words(&words, 1, false);
    struct token_trie *trie = trie_of(&words);
    struct constraint *constraint = compiled(CONSTRAINT_REGEX, "abc");
    struct constraint_masks *masks = constraint_masks_create(constraint, trie, 2);
    struct constraint_state a = behind(constraint, "a"), b = behind(constraint, "ab"),
                            c = behind(constraint, "abc");
    uint32_t bits[MAX_TOKENS / 32 + 1], again[MAX_TOKENS / 32 + 1];
    struct constraint_mask spare = {.bits = bits};
    struct constraint_mask *first = constraint_masks_take(masks, &a, &spare);
    assert_false(first->whole || first->maker);
    assert_ptr_equal(constraint_masks_take(masks, &a, &spare), first);
    assert_int_equal(first->holders, 2);
    struct constraint_mask *second = constraint_masks_take(masks, &b, &spare);
    assert_true(second != first && second != &spare);
    assert_ptr_equal(constraint_masks_take(masks, &c, &spare), &spare); /* both are held */
    assert_ptr_equal(spare.bits, bits);
    constraint_masks_give(&spare);
    constraint_masks_give(first);
    assert_ptr_equal(constraint_masks_take(masks, &c, &spare), &spare); /* still, by one */
    constraint_masks_give(&spare);
    constraint_masks_give(first); /* and it isn't whole */
    assert_int_equal(constraint_masks_counts(masks).found, 1);
    assert_ptr_equal(constraint_masks_take(masks, &c, &spare), first);
    assert_int_equal(constraint_masks_counts(masks).found, 1);
    constraint_masks_give(first);
    uint32_t count = constraint_masks_find(masks, &a, again);
    assert_int_equal(constraint_masks_find(masks, &a, again), count);
    assert_true(count > 0);
    assert_int_equal(constraint_masks_counts(masks).found, 2);
    constraint_masks_give(second);
    constraint_masks_destroy(masks);
    constraint_destroy(constraint);
    token_trie_destroy(trie);
}

static enum status take_of(struct constraint_cache *cache, const char *text, uint64_t owner,
                           const struct constraint_entry **entry, struct error *err)
{
    struct constraint_source *source =
        constraint_source_create(CONSTRAINT_REGEX, text, strlen(text));
    assert_non_null(source);
    enum status status = constraint_cache_take(cache, source, owner, entry, err);
    free(source);
    return status;
}

static const struct constraint_entry *taken(struct constraint_cache *cache, const char *text)
{
    const struct constraint_entry *entry = NULL;
    struct error err = {""};
    if (take_of(cache, text, 0, &entry, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return entry;
}

static void test_a_cache_shares_and_drops(void **state)
{
    (void)state;
    static struct words words;
    make_words(&words, 1, false);
    struct token_trie *trie = trie_of(&words);
    struct constraint_cache *cache =
        constraint_cache_create(trie, (struct constraint_cache_limits){2, 1 << 20, 4});
    const struct constraint_entry *a = taken(cache, "a"), *b = taken(cache, "b"), *none = NULL;
    struct error err = {""};
    assert_ptr_equal(taken(cache, "a"), a);
    assert_int_equal(take_of(cache, "c", 0, &none, &err), STATUS_LIMIT); /* both are held */
    assert_int_equal(take_of(cache, "(", 0, &none, &err), STATUS_INVALID);
    constraint_cache_give(cache, a);
    constraint_cache_give(cache, b);
    const struct constraint_entry *c = taken(cache, "c"); /* a is still held once: b is evicted */
    assert_ptr_equal(taken(cache, "a"), a);
    struct constraint_cache_counts counts = constraint_cache_counts(cache);
    assert_int_equal(counts.compiled, 3);
    assert_int_equal(counts.found, 2);
    assert_int_equal(counts.dropped, 1);
    assert_int_equal(counts.entries, 2);
    assert_true(counts.bytes > 0);
    constraint_cache_give(cache, a);
    constraint_cache_give(cache, a);
    constraint_cache_give(cache, c);
    constraint_cache_destroy(cache);
    /* So small that nothing fits. */
    cache = constraint_cache_create(trie, (struct constraint_cache_limits){2, 10, 4});
    for (int i = 0; i < 3; i++) {
        assert_int_equal(take_of(cache, "a", 0, &none, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "but one may take 10 here (constraint-memory)"));
        assert_int_equal(take_of(cache, "(", 0, &none, &err), STATUS_INVALID);
    }
    counts = constraint_cache_counts(cache);
    assert_int_equal(counts.refused, 2); /* each is compiled once, whatever the result */
    assert_int_equal(counts.found, 4);
    constraint_cache_destroy(cache);
    token_trie_destroy(trie);
}

/* Nothing is evicted for a constraint that would not fit even then. One owner's constraints take
 * half at most, and make room among themselves. */
static void test_a_cache_is_shared_by_owners(void **state)
{
    (void)state;
    static struct words words;
    make_words(&words, 1, false);
    struct token_trie *trie = trie_of(&words);
    const struct constraint_entry *held[4], *none = NULL, *other;
    struct error err = {""};
    char text[2] = "a";
    struct constraint_cache *cache =
        constraint_cache_create(trie, (struct constraint_cache_limits){16, 1 << 20, 0});
    constraint_cache_give(cache, taken(cache, "a"));
    size_t each = constraint_cache_counts(cache).bytes;
    constraint_cache_destroy(cache);

    cache = constraint_cache_create(trie, (struct constraint_cache_limits){16, 8 * each + 7, 0});
    for (int i = 0; i < 4; i++, text[0]++)
        assert_int_equal(take_of(cache, text, 1, &held[i], &err), STATUS_OK);
    assert_int_equal(take_of(cache, "e", 1, &none, &err), STATUS_LIMIT); /* its half is held */
    assert_int_equal(constraint_cache_counts(cache).dropped, 0);
    assert_int_equal(take_of(cache, "f", 2, &other, &err), STATUS_OK);
    constraint_cache_give(cache, other);
    constraint_cache_give(cache, held[0]);
    assert_int_equal(take_of(cache, "e", 1, &held[0], &err), STATUS_OK); /* its own "a" goes */
    assert_int_equal(constraint_cache_counts(cache).dropped, 1);
    assert_int_equal(constraint_cache_counts(cache).entries, 5);
    assert_int_equal(take_of(cache, "f", 2, &other, &err), STATUS_OK); /* still there */
    assert_int_equal(constraint_cache_counts(cache).found, 1);
    for (int i = 0; i < 4; i++)
        constraint_cache_give(cache, held[i]);
    constraint_cache_give(cache, other);
    constraint_cache_destroy(cache);
    token_trie_destroy(trie);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_are_what_each_token_says),
        cmocka_unit_test(test_masks_at_every_length),
        cmocka_unit_test(test_masks_near_the_depth_limit),
        cmocka_unit_test(test_states_that_come_again_are_kept),
        cmocka_unit_test(test_tokens_with_equal_bytes),
        cmocka_unit_test(test_vocabularies_that_are_refused),
        cmocka_unit_test(test_nodes_are_bounded),
        cmocka_unit_test(test_sets_are_held),
        cmocka_unit_test(test_a_cache_shares_and_drops),
        cmocka_unit_test(test_a_cache_is_shared_by_owners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
