#include "tests/constrain/generate.h"

#include "common/language/text/detokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPERATURE      1.5
#define CANDIDATES       256 /* allowed tokens considered for a draw, chosen at random */
#define CLOSING_LOGIT    2.0
#define IMPATIENCE_STEPS 24 /* tokens per logit added to closing tokens */

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

void read_whole(const char *path, struct str *text)
{
    char buffer[65536];
    FILE *file = fopen(path, "rb");
    if (!file)
        fail(path, "can't be opened");
    for (size_t count; (count = fread(buffer, 1, sizeof buffer, file)) > 0;)
        str_append(text, buffer, count);
    fclose(file);
    if (text->truncated)
        fail(path, "is too long");
}

const char *vocabulary_source_text(const struct vocabulary_source *source, uint32_t id, bool first,
                                   size_t *length)
{
    uint32_t real = tokenizer_vocab_size(source->tokenizer);
    if (id < real)
        return token_text(source->tokenizer, id, first, length);
    *length = source->made_up_lengths[id - real];
    return source->made_up[id - real];
}

static const char *bytes_of(const void *context, uint32_t id, bool first, size_t *length)
{
    return vocabulary_source_text(context, id, first, length);
}

static void make_up(struct vocabulary_source *source)
{
    uint32_t real = tokenizer_vocab_size(source->tokenizer), more = source->count - real;
    struct rng rng = rng_seeded(1);
    source->made_up = calloc(more + 1u, sizeof *source->made_up);
    source->made_up_lengths = calloc(more + 1u, 1);
    for (uint32_t i = 0; i < more; i++)
        for (int part = 0; part < 2; part++) {
            size_t length, used = source->made_up_lengths[i];
            const char *bytes =
                token_text(source->tokenizer, (uint32_t)rng_below(&rng, real), false, &length);
            if (!bytes || used + length > TOKEN_TRIE_MAX_BYTES)
                continue;
            memcpy(source->made_up[i] + used, bytes, length);
            source->made_up_lengths[i] = (uint8_t)(used + length);
        }
}

static uint32_t find_end(const struct tokenizer *tokenizer)
{
    static const char *const names[] = {"<|endoftext|>", "</s>", "<|end_of_text|>",
                                        "<\xef\xbd\x9c"
                                        "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"};
    uint32_t id = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tokenizer_id_of(tokenizer, names[i], &id))
            return id;
    fail("the tokenizer", "has no end token that is known here");
}

void vocabulary_source_open(struct vocabulary_source *source, const char *path, uint32_t count)
{
    struct error err = {""};
    *source = (struct vocabulary_source){0};
    if (tokenizer_open(path, &source->tokenizer, &err) != STATUS_OK)
        fail("tokenizer", err.text);
    uint32_t real = tokenizer_vocab_size(source->tokenizer);
    source->count = count > real ? count : real;
    source->end_id = find_end(source->tokenizer);
    make_up(source);
    struct token_source tokens = {.bytes = bytes_of,
                                  .context = source,
                                  .count = source->count,
                                  .end_ids = &source->end_id,
                                  .end_count = 1};
    if (token_trie_create(&tokens, &source->trie, &err) != STATUS_OK)
        fail("trie", err.text);
    source->closes = calloc(source->count, sizeof *source->closes);
    for (uint32_t id = 0; id < source->count; id++) {
        size_t length;
        const char *bytes = vocabulary_source_text(source, id, false, &length);
        for (size_t i = 0; bytes && i < length; i++)
            source->closes[id] = source->closes[id] || strchr("\"]}", bytes[i]);
    }
    source->closes[source->end_id] = true;
}

void vocabulary_source_close(struct vocabulary_source *source)
{
    token_trie_destroy(source->trie);
    tokenizer_close(source->tokenizer);
    free(source->closes);
    free(source->made_up);
    free(source->made_up_lengths);
}

static double normal(struct rng *rng)
{
    double radius = sqrt(-2 * log(1 - rng_unit(rng)));
    return radius * cos(6.283185307179586 * rng_unit(rng));
}

/* Up to CANDIDATES of the list, in which order doesn't matter any more. */
static uint32_t pick(uint32_t *list, uint32_t count, struct rng *rng)
{
    uint32_t picked = count < CANDIDATES ? count : CANDIDATES;
    for (uint32_t i = 0; i < picked; i++) {
        uint32_t at = i + (uint32_t)rng_below(rng, count - i), id = list[at];
        list[at] = list[i];
        list[i] = id;
    }
    return picked;
}

/* Draws among the tokens that close (or don't). *sum: the weight of all of them. */
static uint32_t draw_among(uint32_t *list, uint32_t count, double bonus, struct rng *rng,
                           double *sum)
{
    double weights[CANDIDATES], total = 0;
    uint32_t picked = pick(list, count, rng), at = 0;
    for (uint32_t i = 0; i < picked; i++)
        total += weights[i] = exp((normal(rng) + bonus) / TEMPERATURE);
    *sum = picked ? total * count / picked : 0;
    double left = rng_unit(rng) * total;
    while (at + 1 < picked && (left -= weights[at]) > 0)
        at++;
    return picked ? list[at] : 0;
}

uint32_t draw_token(const struct vocabulary_source *source, const uint32_t *bits, uint32_t step,
                    struct rng *rng)
{
    uint32_t *lists[2], counts[2] = {0};
    for (int i = 0; i < 2; i++)
        lists[i] = malloc(source->count * sizeof *lists[i]);
    for (uint32_t word = 0; word < source->trie->words; word++)
        for (uint32_t rest = bits[word]; rest; rest &= rest - 1) {
            uint32_t id = word * 32 + (uint32_t)__builtin_ctz(rest);
            bool closes = source->closes[id];
            lists[closes][counts[closes]++] = id;
        }
    double bonus = CLOSING_LOGIT + (double)step / IMPATIENCE_STEPS, sums[2];
    uint32_t goes_on = draw_among(lists[0], counts[0], 0, rng, &sums[0]);
    uint32_t closes = draw_among(lists[1], counts[1], bonus, rng, &sums[1]);
    free(lists[0]);
    free(lists[1]);
    if (source->endless && counts[0])
        return goes_on;
    return rng_unit(rng) * (sums[0] + sums[1]) < sums[1] ? closes : goes_on;
}

struct generated generate(const struct vocabulary_source *source,
                          const struct constraint *constraint, struct constraint_masks *masks,
                          uint64_t seed, uint32_t max_tokens, struct str *text)
{
    struct generated result = {.tokens = 0};
    struct constraint_state state;
    struct rng rng = rng_seeded(seed);
    uint32_t *bits = malloc(source->trie->words * sizeof *bits);
    constraint_state_init(constraint, &state);
    for (; result.tokens < max_tokens; result.tokens++) {
        size_t length;
        if (!constraint_masks_find(masks, &state, bits)) {
            result.stuck = true;
            break;
        }
        uint32_t id = draw_token(source, bits, result.tokens, &rng);
        if (id == source->end_id) {
            result.complete = true;
            break;
        }
        const char *bytes = vocabulary_source_text(source, id, !state.started, &length);
        if (!constraint_state_take(constraint, &state, bytes, length))
            fail("generate", "an allowed token isn't taken");
        str_append(text, bytes, length);
    }
    free(bits);
    return result;
}
