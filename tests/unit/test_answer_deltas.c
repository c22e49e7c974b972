/* answer_deltas: ids at once, text in whole characters, stop strings held back, ends. On the
 * tokenizer that ships with the model. */
#include "router/dispatch/answer_deltas.h"

#include "common/base/rng.h"
#include "common/base/utf8.h"
#include "tests/unit/tokenizer_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TOKENIZER "deploy/local/tiny-shakespeare/tokenizer.json"

#define BEGIN_ID 256
#define END_ID   257

static struct tokenizer *tokenizer;
static struct tokenizer *tagged; /* the ids of bytes, and tags of reasoning as special tokens */

static int open_tokenizer(void **state)
{
    (void)state;
    static const struct tokenizer_file file = {
        .added_tokens = "[{\"id\":256,\"content\":\"<think>\",\"special\":true},"
                        "{\"id\":257,\"content\":\"</think>\",\"special\":true}]"};
    struct error err;
    if (tokenizer_open(TOKENIZER, &tokenizer, &err) == STATUS_OK &&
        tokenizer_file_open(&file, &tagged, &err) == STATUS_OK)
        return 0;
    fprintf(stderr, "%s\n", err.text);
    return -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    tokenizer_close(tagged);
    return 0;
}

/* An answer, with the deltas sent so far. */
struct answer {
    struct answer_deltas out;
    struct str text;
    uint32_t ids;
    size_t longest; /* bytes of the longest piece of text */
};

static void answer_init_split(struct answer *answer, const struct text *stops, size_t stop_count,
                              const struct reasoning_tags *reasoning)
{
    struct answer_deltas_config config = {.tokenizer = tokenizer,
                                          .skip_special_tokens = true,
                                          .return_token_ids = true,
                                          .stops = stops,
                                          .stop_count = stop_count,
                                          .reasoning = reasoning};
    struct error err;
    assert_int_equal(answer_deltas_init(&answer->out, &config, &err), STATUS_OK);
    str_init(&answer->text, 1 << 16);
    answer->ids = 0;
    answer->longest = 0;
}

static void answer_init(struct answer *answer, const struct text *stops, size_t stop_count)
{
    answer_init_split(answer, stops, stop_count, NULL);
}

static void answer_deinit(struct answer *answer)
{
    answer_deltas_deinit(&answer->out);
    str_deinit(&answer->text);
}

static void answer_take(struct answer *answer)
{
    struct stream_delta delta;
    if (!answer_deltas_take(&answer->out, &delta))
        return;
    assert_int_equal(delta.first_index, answer->ids);
    answer->ids += (uint32_t)delta.id_count;
    str_append(&answer->text, delta.text.bytes, delta.text.length);
    if (delta.text.length > answer->longest)
        answer->longest = delta.text.length;
}

static void encode(const char *text, struct token_ids *ids)
{
    struct error err;
    token_ids_init(ids, 1000);
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), false, ids, &err), STATUS_OK);
}

/* Feeds the tokens of `text` one by one, taking after each `every` of them; returns how many were
 * fed. */
static size_t feed(struct answer *answer, const char *text, size_t every)
{
    struct token_ids ids;
    encode(text, &ids);
    size_t fed = 0;
    bool ended = false;
    while (fed < ids.count && !ended) {
        ended = answer_deltas_token(&answer->out, &(struct stream_token){ids.data[fed], 0, NULL},
                                    FINISH_NONE);
        fed++;
        if (fed % every == 0)
            answer_take(answer);
    }
    token_ids_deinit(&ids);
    return fed;
}

static void test_text_is_the_same_however_it_is_taken(void **state)
{
    (void)state;
    static const char text[] = "O Romeo, Romeo! na\xc3\xafve \xe2\x82\xac \xf0\x9f\x8e\xad end";
    for (size_t every = 1; every < 6; every++) {
        struct answer answer;
        answer_init(&answer, NULL, 0);
        size_t fed = feed(&answer, text, every);
        assert_int_equal(answer_deltas_end(&answer.out, FINISH_MAX_TOKENS), FINISH_MAX_TOKENS);
        answer_take(&answer);
        assert_string_equal(answer.text.data, text);
        assert_int_equal(answer.ids, fed);
        answer_deinit(&answer);
    }
}

/* A stop string in the reasoning doesn't end the answer, and tokens of reasoning are counted. */
static void test_reasoning_comes_apart(void **state)
{
    (void)state;
    static const struct reasoning_tags tags = {.begin = "<think>", .end = "</think>"},
                                       begun = {
                                           .begin = "<think>", .end = "</think>", .inside = true};
    static const struct text stop = {"stop", 4};
    static const struct {
        const char *text;
        const struct reasoning_tags *tags;
        const char *reasoning, *content;
        const char *counted; /* its tokens are reasoning */
        bool stopped;
    } rows[] = {
        {"<think>\nso stop\n</think>\n\nYes stop no", &tags, "so stop", "Yes ",
         "<think>\nso stop\n</think>", true},
        {"so stop</think>Yes", &begun, "so stop", "Yes", "so stop</think>", false},
        {"so stop", &begun, "so stop", "", "so stop", false},
        {"Yes <think> no", &tags, "", "Yes <think> no", "", false},
        {"<think>so</think>", NULL, "", "<think>so</think>", "", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t every = 1; every < 4; every++) {
            struct answer answer;
            struct str reasoning;
            struct token_ids ids, counted;
            answer_init_split(&answer, &stop, 1, rows[i].tags);
            str_init(&reasoning, 1000);
            encode(rows[i].text, &ids);
            encode(rows[i].counted, &counted);
            bool ended = false;
            for (size_t at = 0; at < ids.count && !ended; at++) {
                const struct stream_token token = {ids.data[at], 0, NULL};
                struct stream_delta delta;
                ended = answer_deltas_token(&answer.out, &token, FINISH_NONE);
                if (at % every == 0 && answer_deltas_take(&answer.out, &delta)) {
                    str_append(&reasoning, delta.reasoning.bytes, delta.reasoning.length);
                    str_append(&answer.text, delta.text.bytes, delta.text.length);
                }
            }
            struct stream_delta last;
            assert_int_equal(answer_deltas_end(&answer.out, FINISH_EOS),
                             rows[i].stopped ? FINISH_STOP_STRING : FINISH_EOS);
            if (answer_deltas_take(&answer.out, &last)) {
                str_append(&reasoning, last.reasoning.bytes, last.reasoning.length);
                str_append(&answer.text, last.text.bytes, last.text.length);
            }
            assert_string_equal(reasoning.data, rows[i].reasoning);
            assert_string_equal(answer.text.data, rows[i].content);
            assert_int_equal(answer.out.reasoning_tokens, counted.count);
            token_ids_deinit(&ids);
            token_ids_deinit(&counted);
            str_deinit(&reasoning);
            answer_deinit(&answer);
        }
    }
}

/* Feeds ids of `source`, taking a delta now and then, and parts the answer. */
static void part(const struct tokenizer *source, const struct reasoning_tags *tags,
                 const uint32_t *ids, size_t count, size_t every, struct str *reasoning,
                 struct str *content)
{
    struct answer_deltas_config config = {
        .tokenizer = source, .skip_special_tokens = true, .reasoning = tags};
    struct answer_deltas out;
    struct stream_delta delta;
    struct error err;
    assert_int_equal(answer_deltas_init(&out, &config, &err), STATUS_OK);
    str_init(reasoning, 1 << 16);
    str_init(content, 1 << 16);
    for (size_t i = 0; i <= count; i++) {
        if (i == count)
            answer_deltas_end(&out, FINISH_EOS);
        else
            assert_false(
                answer_deltas_token(&out, &(struct stream_token){ids[i], 0, NULL}, FINISH_NONE));
        if ((i == count || i % every == 0) && answer_deltas_take(&out, &delta)) {
            str_append(reasoning, delta.reasoning.bytes, delta.reasoning.length);
            str_append(content, delta.text.bytes, delta.text.length);
        }
    }
    answer_deltas_deinit(&out);
}

/* In these rows a B is the special begin tag, and an E the end tag. They never are text. */
static void test_special_tags(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool inside;
        const char *reasoning, *content;
    } rows[] = {
        {"Bso\nE\nyes", false, "so", "yes"},
        {" \nBsoEyes", false, "so", "yes"},
        {"soEyes", true, "so", "yes"},
        {"\nBsoEyes", true, "so", "yes"},
        /* An end tag behind half a character ends it. */
        {"so \xe2\x82"
         "Eyes",
         true, "so \xef\xbf\xbd", "yes"},
        {"Bso \xe2\x82"
         "E\xacyes",
         false, "so \xef\xbf\xbd", "\xef\xbf\xbdyes"},
        /* Tags where none is awaited. */
        {"Eyes", false, "", "yes"},
        {"EBsoEyes", false, "so", "yes"},
        {"yes BE no", false, "", "yes  no"},
        {"\xe2\x82"
         "B\xac",
         false, "", "\xe2\x82\xac"},
        {"<thB so", false, "", "<th so"},
        {"<thBsoEyes", true, "<thso", "yes"},
        {"so BBmoreEyesE.B.", true, "so more", "yes.."},
        {"BBsoEyes", true, "so", "yes"},
        {"<E", true, "<", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reasoning_tags tags = {
            .begin = "<think>", .end = "</think>", .inside = rows[i].inside};
        uint32_t ids[64];
        size_t count = strlen(rows[i].text);
        for (size_t at = 0; at < count; at++) {
            char byte = rows[i].text[at];
            ids[at] = byte == 'B' ? BEGIN_ID : byte == 'E' ? END_ID : (unsigned char)byte;
        }
        for (size_t every = 1; every < 4; every++) {
            struct str reasoning, content;
            part(tagged, &tags, ids, count, every, &reasoning, &content);
            if (strcmp(reasoning.data, rows[i].reasoning) || strcmp(content.data, rows[i].content))
                fail_msg("%s: %s|%s", rows[i].text, reasoning.data, content.data);
            str_deinit(&reasoning);
            str_deinit(&content);
        }
    }
}

static void test_half_a_character_waits(void **state)
{
    (void)state;
    struct token_ids ids;
    encode("\xf0\x9f\x8e\xad", &ids); /* a byte a token in this vocabulary */
    assert_int_equal(ids.count, 4);
    struct answer answer;
    answer_init(&answer, NULL, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_false(answer_deltas_token(&answer.out, &(struct stream_token){ids.data[i], 0, NULL},
                                         FINISH_NONE));
        answer_take(&answer);
        assert_int_equal(answer.ids, i + 1); /* ids don't wait */
        assert_string_equal(answer.text.data, "");
    }
    /* Cut off here it becomes one U+FFFD. */
    assert_int_equal(answer_deltas_end(&answer.out, FINISH_CONTEXT), FINISH_CONTEXT);
    answer_take(&answer);
    assert_string_equal(answer.text.data, "\xef\xbf\xbd");
    answer_deinit(&answer);
    token_ids_deinit(&ids);
}

static void test_a_stop_string_ends_the_answer(void **state)
{
    (void)state;
    static const struct text stops[] = {{"never", 5}, {"Juliet", 6}};
    for (size_t every = 1; every < 4; every++) {
        struct answer answer;
        answer_init(&answer, stops, 2);
        size_t fed = feed(&answer, "Romeo and Juliet are dead", every);
        assert_int_equal(answer_deltas_end(&answer.out, FINISH_NONE), FINISH_STOP_STRING);
        answer_take(&answer);
        assert_string_equal(answer.text.data, "Romeo and ");
        assert_int_equal(answer.ids, fed); /* with the token that completed it */
        struct text stop = {NULL, 0};
        assert_true(answer_deltas_stop(&answer.out, &stop));
        assert_int_equal(stop.length, strlen("Juliet"));
        assert_memory_equal(stop.bytes, "Juliet", stop.length);
        answer_deinit(&answer);
    }
}

static void test_what_may_become_a_stop_is_held_back(void **state)
{
    (void)state;
    static const struct text stops[] = {{"dead\n", 5}};
    struct answer answer;
    answer_init(&answer, stops, 1);
    feed(&answer, "all are dead", 1);
    assert_string_equal(answer.text.data, "all are ");
    struct text stop;
    assert_false(answer_deltas_stop(&answer.out, &stop));
    assert_int_equal(answer_deltas_end(&answer.out, FINISH_EOS), FINISH_EOS);
    answer_take(&answer);
    assert_string_equal(answer.text.data, "all are dead"); /* it was not one */
    answer_deinit(&answer);
}

static void test_a_stop_may_come_with_the_flush(void **state)
{
    (void)state;
    static const struct text stops[] = {{"\xef\xbf\xbd", 3}};
    struct token_ids ids;
    encode("\xe2\x82\xac", &ids);
    struct answer answer;
    answer_init(&answer, stops, 1);
    assert_false(answer_deltas_token(&answer.out, &(struct stream_token){ids.data[0], 0, NULL},
                                     FINISH_MAX_TOKENS));
    assert_int_equal(answer_deltas_end(&answer.out, FINISH_MAX_TOKENS), FINISH_STOP_STRING);
    answer_take(&answer);
    assert_string_equal(answer.text.data, "");
    answer_deinit(&answer);
    token_ids_deinit(&ids);
}

static void test_the_ending_id_is_no_text(void **state)
{
    (void)state;
    static const enum finish_reason ends[] = {FINISH_EOS, FINISH_STOP_TOKEN};
    for (size_t i = 0; i < 2; i++) {
        struct answer answer;
        answer_init(&answer, NULL, 0);
        struct token_ids ids;
        encode("Exeunt", &ids);
        size_t fed = feed(&answer, "Exeunt", 1);
        assert_false(answer_deltas_token(&answer.out, &(struct stream_token){ids.data[0], 0, NULL},
                                         ends[i]));
        assert_int_equal(answer_deltas_end(&answer.out, ends[i]), ends[i]);
        answer_take(&answer);
        assert_string_equal(answer.text.data, "Exeunt");
        assert_int_equal(answer.ids, fed + 1);
        answer_deinit(&answer);
        token_ids_deinit(&ids);
    }
}

static void test_ids_alone_without_a_tokenizer(void **state)
{
    (void)state;
    struct answer_deltas out;
    struct answer_deltas_config config = {.return_token_ids = true, .return_logits_hash = true};
    struct error err;
    struct stream_delta delta;
    assert_int_equal(answer_deltas_init(&out, &config, &err), STATUS_OK);
    assert_false(answer_deltas_take(&out, &delta));
    for (uint32_t i = 0; i < 40; i++)
        assert_false(answer_deltas_token(&out, &(struct stream_token){100 + i, 1000 + i, NULL},
                                         FINISH_NONE));
    assert_true(answer_deltas_take(&out, &delta));
    assert_int_equal(delta.first_index, 0);
    assert_int_equal(delta.id_count, 40);
    assert_int_equal(delta.hash_count, 40);
    assert_int_equal(delta.ids[39], 139);
    assert_int_equal(delta.hashes[39], 1039);
    assert_int_equal(delta.text.length, 0);
    assert_false(answer_deltas_take(&out, &delta));
    answer_deltas_token(&out, &(struct stream_token){7, 8, NULL}, FINISH_MAX_TOKENS);
    assert_int_equal(answer_deltas_end(&out, FINISH_MAX_TOKENS), FINISH_MAX_TOKENS);
    assert_true(answer_deltas_take(&out, &delta));
    assert_int_equal(delta.first_index, 40);
    assert_int_equal(delta.ids[0], 7);
    answer_deltas_deinit(&out);
}

static void test_logprobs_where_they_are_returned(void **state)
{
    (void)state;
    struct answer_deltas out;
    struct answer_deltas_config config = {.return_logprobs = true};
    struct error err;
    struct stream_delta delta;
    assert_int_equal(answer_deltas_init(&out, &config, &err), STATUS_OK);
    for (uint32_t i = 0; i < 40; i++) {
        struct token_logprobs logprobs = {.given = true, .logprob = -(float)i, .top_count = i % 21};
        assert_false(
            answer_deltas_token(&out, &(struct stream_token){5, 0, &logprobs}, FINISH_NONE));
    }
    assert_true(answer_deltas_take(&out, &delta)); /* a delta of logprobs alone */
    assert_int_equal(delta.id_count + delta.hash_count, 0);
    assert_int_equal(delta.logprobs_count, 40);
    for (uint32_t i = 0; i < 40; i++)
        assert_true(delta.logprobs[i].logprob == -(float)i &&
                    delta.logprobs[i].top_count == i % 21);
    assert_false(answer_deltas_take(&out, &delta));
    answer_deltas_deinit(&out);
}

/* Text that isn't taken is bounded, and a loss is always reported. */
static void test_text_that_is_not_taken_is_bounded(void **state)
{
    (void)state;
    for (size_t limit = 3; limit <= 6; limit++) {
        struct answer_deltas out;
        struct answer_deltas_config config = {.tokenizer = tokenizer, .max_text_bytes = limit};
        struct error err;
        struct stream_delta delta;
        struct token_ids ids;
        encode("Exeunt", &ids);
        assert_int_equal(answer_deltas_init(&out, &config, &err), STATUS_OK);
        for (uint32_t i = 0; i < ids.count; i++)
            answer_deltas_token(&out, &(struct stream_token){ids.data[i], 0, NULL}, FINISH_NONE);
        answer_deltas_end(&out, FINISH_MAX_TOKENS);
        answer_deltas_take(&out, &delta);
        assert_int_equal(answer_deltas_overflowed(&out), limit < strlen("Exeunt"));
        assert_true(delta.text.length <= limit);
        answer_deltas_take(&out, &delta);
        assert_int_equal(answer_deltas_overflowed(&out), limit < strlen("Exeunt")); /* for ever */
        answer_deltas_deinit(&out);
        token_ids_deinit(&ids);
    }
}

#define ANSWERS     300
#define MOST_TOKENS 60
#define BYTES_BELOW 260 /* the tokens of single bytes have ids below */

/* Draws ids: bytes of all kinds, among them NUL and parts of characters, or any tokens. */
static size_t draw_ids(struct rng *rng, uint32_t ids[MOST_TOKENS])
{
    size_t count = 1 + rng_below(rng, MOST_TOKENS);
    uint32_t below = rng_below(rng, 2) ? BYTES_BELOW : tokenizer_vocab_size(tokenizer);
    uint32_t nul = 0;
    assert_true(tokenizer_id_of(tokenizer, "\xc4\x80", &nul)); /* U+0100 spells the byte 0 */
    for (size_t i = 0; i < count; i++)
        ids[i] = rng_below(rng, 8) ? (uint32_t)rng_below(rng, below) : nul;
    return count;
}

/* Chooses a stop string within the text, of whole characters. Returns where it is first; SIZE_MAX:
 * the text has no characters. */
static size_t draw_stop(struct rng *rng, const struct str *text, struct text *stop)
{
    size_t at = 0, from = text->length ? rng_below(rng, text->length) : 0, count = 0;
    while (at < from)
        at += utf8_next(text->data + at, text->length - at).length;
    for (size_t characters = 1 + rng_below(rng, 4); characters && at + count < text->length;
         characters--)
        count += utf8_next(text->data + at + count, text->length - at - count).length;
    *stop = (struct text){text->data + at, count};
    if (!count)
        return SIZE_MAX;
    const char *first = memmem(text->data, text->length, stop->bytes, count);
    return (size_t)(first - text->data);
}

/* Feeds ids, taking deltas now and then, up to the end that a stop string makes. */
static void feed_ids(struct rng *rng, struct answer *answer, const uint32_t *ids, size_t count)
{
    bool ended = false;
    for (size_t i = 0; i < count && !ended; i++) {
        ended =
            answer_deltas_token(&answer->out, &(struct stream_token){ids[i], 0, NULL}, FINISH_NONE);
        if (rng_below(rng, 3) == 0)
            answer_take(answer);
    }
    answer_deltas_end(&answer->out, FINISH_MAX_TOKENS);
    answer_take(answer);
}

/* Deltas together are the text that all ids have at once, whatever its bytes; or, with a stop
 * string, the part before it. */
static void test_any_bytes_come_whole(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(29);
    size_t with_nul = 0, stopped_at_nul = 0;
    for (size_t n = 0; n < ANSWERS; n++) {
        uint32_t ids[MOST_TOKENS];
        size_t count = draw_ids(&rng, ids);
        struct str whole;
        str_init(&whole, 1 << 16);
        assert_int_equal(detokenizer_decode(tokenizer, ids, count, true, &whole, NULL), STATUS_OK);
        struct text stop = {"", 0};
        size_t end = n % 2 ? draw_stop(&rng, &whole, &stop) : SIZE_MAX;
        struct answer answer;
        answer_init(&answer, &stop, end != SIZE_MAX);
        feed_ids(&rng, &answer, ids, count);
        size_t length = end != SIZE_MAX ? end : whole.length;
        assert_int_equal(answer.text.length, length);
        assert_memory_equal(answer.text.data, whole.data, length);
        with_nul += memchr(whole.data, 0, length) != NULL;
        stopped_at_nul += stop.length && memchr(stop.bytes, 0, stop.length);
        struct text matched = {"", 0};
        assert_int_equal(answer_deltas_stop(&answer.out, &matched), end != SIZE_MAX);
        assert_int_equal(matched.length, stop.length);
        assert_memory_equal(matched.bytes, stop.bytes, stop.length);
        answer_deinit(&answer);
        str_deinit(&whole);
    }
    assert_true(with_nul > ANSWERS / 4 && stopped_at_nul > ANSWERS / 20);
}

/* Moves the edges of text[*begin..*end) over newlines. */
static void drop_newlines(const struct str *text, size_t *begin, size_t *end)
{
    while (*begin < text->length && text->data[*begin] == '\n')
        ++*begin;
    while (*end && text->data[*end - 1] == '\n')
        --*end;
}

/* Decodes ids[from..to). */
static void decode_part(const struct tokenizer *source, const uint32_t *ids, size_t from, size_t to,
                        struct str *text)
{
    str_init(text, 1 << 16);
    assert_int_equal(detokenizer_decode(source, ids + from, to - from, true, text, NULL),
                     STATUS_OK);
}

/* In answers that begin inside their reasoning, both parts together are the text that all ids have,
 * less the tag, the newlines before it and the first behind it: whether the end tag is text or a
 * special token. */
static void test_any_bytes_come_whole_in_parts(void **state)
{
    (void)state;
    static const struct reasoning_tags tags = {
        .begin = "<think>", .end = "</think>", .inside = true};
    struct rng rng = rng_seeded(31);
    struct token_ids tag;
    encode(tags.end, &tag);
    for (size_t n = 0; n < 2 * ANSWERS; n++) {
        const struct tokenizer *source = n % 2 ? tagged : tokenizer;
        uint32_t ids[MOST_TOKENS + 64];
        size_t count = draw_ids(&rng, ids), at = rng_below(&rng, count + 1),
               size = n % 2 ? 1 : tag.count;
        for (size_t i = 0; n % 2 && i < count; i++) /* with other tags, which are skipped */
            ids[i] = i >= at ? ids[i] % (END_ID + 1) : ids[i] % END_ID;
        memmove(ids + at + size, ids + at, (count - at) * sizeof *ids);
        for (size_t i = 0; i < size; i++)
            ids[at + i] = n % 2 ? END_ID : tag.data[i];
        count += size;
        struct str before, behind, reasoning, content;
        decode_part(source, ids, 0, at, &before);
        decode_part(source, ids, at + size, count, &behind);
        size_t begin = 0, end = before.length, from = 0;
        drop_newlines(&before, &begin, &end);
        while (from < REASONING_NEWLINES_BEHIND && behind.data[from] == '\n')
            from++;
        size_t length = end > begin ? end - begin : 0;
        part(source, &tags, ids, count, 1 + rng_below(&rng, 4), &reasoning, &content);
        assert_int_equal(reasoning.length, length);
        assert_memory_equal(reasoning.data, before.data + begin, length);
        assert_int_equal(content.length, behind.length - from);
        assert_memory_equal(content.data, behind.data + from, content.length);
        str_deinit(&before);
        str_deinit(&behind);
        str_deinit(&reasoning);
        str_deinit(&content);
    }
    token_ids_deinit(&tag);
}

static void test_nothing_is_sent_where_nothing_was_asked_for(void **state)
{
    (void)state;
    struct answer_deltas out;
    struct answer_deltas_config config = {.tokenizer = NULL};
    struct error err;
    struct stream_delta delta;
    assert_int_equal(answer_deltas_init(&out, &config, &err), STATUS_OK);
    answer_deltas_token(&out, &(struct stream_token){1, 2, NULL}, FINISH_NONE);
    assert_false(answer_deltas_take(&out, &delta));
    answer_deltas_token(&out, &(struct stream_token){1, 2, NULL}, FINISH_NONE);
    assert_false(answer_deltas_take(&out, &delta));
    assert_int_equal(out.count, 2);
    answer_deltas_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_the_same_however_it_is_taken),
        cmocka_unit_test(test_half_a_character_waits),
        cmocka_unit_test(test_reasoning_comes_apart),
        cmocka_unit_test(test_special_tags),
        cmocka_unit_test(test_a_stop_string_ends_the_answer),
        cmocka_unit_test(test_what_may_become_a_stop_is_held_back),
        cmocka_unit_test(test_a_stop_may_come_with_the_flush),
        cmocka_unit_test(test_the_ending_id_is_no_text),
        cmocka_unit_test(test_ids_alone_without_a_tokenizer),
        cmocka_unit_test(test_logprobs_where_they_are_returned),
        cmocka_unit_test(test_text_that_is_not_taken_is_bounded),
        cmocka_unit_test(test_any_bytes_come_whole),
        cmocka_unit_test(test_any_bytes_come_whole_in_parts),
        cmocka_unit_test(test_nothing_is_sent_where_nothing_was_asked_for),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
