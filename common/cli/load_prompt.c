#include "common/cli/load_prompt.h"

#include "common/language/text/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEWEST_WORDS = 32, MAX_IDS = 1 << 22, SAMPLE_WORDS = 2000 };

static const char *const common_words[] = {
    "the",   "of",    "and",   "to",    "in",     "is",    "that",  "for",  "it",   "as",
    "was",   "with",  "be",    "by",    "on",     "not",   "he",    "are",  "this", "at",
    "from",  "but",   "have",  "an",    "they",   "which", "one",   "you",  "were", "all",
    "her",   "she",   "there", "would", "their",  "we",    "him",   "been", "has",  "when",
    "will",  "no",    "more",  "if",    "out",    "so",    "up",    "said", "what", "its",
    "about", "than",  "into",  "them",  "can",    "only",  "other", "time", "new",  "some",
    "could", "these", "two",   "may",   "first",  "then",  "do",    "any",  "like", "my",
    "now",   "over",  "such",  "our",   "man",    "me",    "even",  "most", "made", "after",
    "also",  "well",  "did",   "many",  "before", "must",  "years", "back", "see",  "much",
    "way",   "how",   "where", "down",  "work",   "world", "long",  "good", "get"};

static uint32_t count_ids(const struct tokenizer *tokenizer, const char *text)
{
    struct token_ids ids;
    struct error err;
    token_ids_init(&ids, MAX_IDS);
    enum status status = tokenizer_encode(tokenizer, text, strlen(text), false, &ids, &err);
    uint32_t count = status == STATUS_OK ? (uint32_t)ids.count : UINT32_MAX;
    token_ids_deinit(&ids);
    return count;
}

static void take_word(struct load_words *words, const char *bytes, size_t length)
{
    char *word = words->words[words->count++];
    memcpy(word, bytes, length);
    word[length] = 0;
}

/* Takes tokens of a blank and ASCII letters from all over the vocabulary. */
static void take_vocabulary(struct load_words *words)
{
    const struct tokenizer *tokenizer = words->tokenizer;
    for (uint32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++) {
        size_t length = 0, letters = 0;
        const char *bytes = tokenizer_token_bytes(tokenizer, id, &length);
        if (!bytes || length < 2 || length > sizeof *words->words || *bytes != ' ')
            continue;
        while (letters < length - 1 && ((bytes[letters + 1] | 0x20) >= 'a') &&
               ((bytes[letters + 1] | 0x20) <= 'z'))
            letters++;
        if (letters < length - 1)
            continue;
        take_word(words, bytes + 1, letters);
        const char *word = words->words[words->count - 1]; /* is " word" one token more? */
        char text[128];
        snprintf(text, sizeof text, "%s %s", word, word);
        uint32_t two = count_ids(tokenizer, text);
        snprintf(text, sizeof text, "%s %s %s %s", word, word, word, word);
        if (count_ids(tokenizer, text) != two + 2) {
            words->count--;
            continue;
        }
        if (count_ids(tokenizer, word) == 1) {
            memcpy(text, words->words[words->first_count], sizeof *words->words);
            memmove(words->words[words->first_count++], word, sizeof *words->words);
            memmove(words->words[words->count - 1], text, sizeof *words->words);
        }
        if (words->count == LOAD_MAX_WORDS)
            return;
    }
}

enum status load_words_open(struct load_words *words, const struct tokenizer *tokenizer,
                            uint64_t seed, struct error *err)
{
    *words = (struct load_words){.seed = seed, .tokens_per_word = 1, .tokenizer = tokenizer};
    words->words = calloc(LOAD_MAX_WORDS, sizeof *words->words);
    if (!words->words)
        return error_set(err, STATUS_LIMIT, "out of memory for words");
    if (tokenizer)
        take_vocabulary(words);
    if (words->count >= FEWEST_WORDS)
        return STATUS_OK;
    words->count = words->first_count = 0;
    for (size_t i = 0; i < sizeof common_words / sizeof *common_words; i++)
        take_word(words, common_words[i], strlen(common_words[i]));
    if (!tokenizer)
        return STATUS_OK;
    struct str sample;
    str_init(&sample, 1u << 20);
    load_words_append(words, 0, SAMPLE_WORDS, &sample);
    words->tokens_per_word = (double)count_ids(tokenizer, sample.data) / SAMPLE_WORDS;
    str_deinit(&sample);
    return STATUS_OK;
}

void load_words_close(struct load_words *words)
{
    free(words->words);
}

void load_words_append(const struct load_words *words, uint64_t name, uint32_t count,
                       struct str *out)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t draw = rng_at(words->seed, name, i) >> 32;
        bool first = !out->length && words->first_count;
        const char *word = words->words[draw * (first ? words->first_count : words->count) >> 32];
        if (out->length)
            str_append(out, " ", 1);
        str_append(out, word, strlen(word));
    }
}

void load_words_render(const struct load_words *words, const struct load_plan *plan, uint32_t index,
                       struct str *out)
{
    const struct load_request *request = &plan->requests[index];
    if (request->text != LOAD_NONE) {
        str_add(out, plan->texts[request->text]);
        return;
    }
    uint32_t made = 0;
    for (uint32_t i = 0; i < request->segment_count; i++) {
        const struct load_segment *segment = &plan->segments[request->first_segment + i];
        bool last = i + 1 == request->segment_count;
        double tokens = segment->tokens;
        if (last && request->parent == LOAD_NONE)
            tokens -= words->overhead;
        double count = rint(tokens / words->tokens_per_word);
        if (count < 1)
            count = last && !made ? 1 : 0;
        load_words_append(words, segment->name, (uint32_t)count, out);
        made += (uint32_t)count;
    }
}

enum status load_words_count(const void *context, const char *text, size_t length, uint32_t *tokens,
                             struct error *err)
{
    const struct load_words *words = context;
    if (!words->tokenizer) {
        *tokens = (uint32_t)(length / 4);
        return STATUS_OK;
    }
    struct token_ids ids;
    token_ids_init(&ids, MAX_IDS);
    enum status status = tokenizer_encode(words->tokenizer, text, length, false, &ids, err);
    *tokens = (uint32_t)ids.count;
    token_ids_deinit(&ids);
    return status;
}
