#include "common/language/text/tokenizer.h"

#include "common/base/assert.h"
#include "common/base/json/json.h"
#include "common/base/utf8.h"
#include "common/language/text/bpe.h"
#include "common/language/text/decoder.h"
#include "common/language/text/pipeline.h"
#include "common/language/text/regex.h"

#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT_DEPTH 32
#define INITIAL_IDS      64
/* Form C has at least a third of a text's bytes (Hangul: three letters of 3 bytes are one). */
#define NFC_SHRINKS    4
#define MAX_UTF8_BYTES 4

/* --------------------------------------------------------------------------- the post-processor */

/* Puts special tokens before and behind the text's tokens: TemplateProcessing, BertProcessing,
 * RobertaProcessing, ByteLevel (which only concerns offsets), or Sequences of these. */
#define POST_PROCESSOR_LIMIT_COUNT 32 /* tokens on each side */

struct post_processor {
    uint32_t before[POST_PROCESSOR_LIMIT_COUNT], after[POST_PROCESSOR_LIMIT_COUNT];
    size_t before_count, after_count;
};

/* A template that is being read: the ids on each side of the text. */
struct sides {
    uint32_t ids[2][POST_PROCESSOR_LIMIT_COUNT];
    size_t counts[2];
    bool text_seen;
};

static enum status add_special(struct sides *sides, const struct json_value *specials,
                               const char *name, uint32_t vocabulary_count, struct error *err)
{
    const struct json_value *ids;
    const struct json_value *special = json_find(specials, name);
    if (!special)
        return error_set(err, STATUS_INVALID, "\"special_tokens\" lacks \"%.40s\"", name);
    TRY(json_get_array(special, "ids", &ids, err));
    for (size_t i = 0; i < json_count(ids); i++) {
        int64_t id;
        enum status status =
            json_as_i64(json_at(ids, i), 0, (int64_t)vocabulary_count - 1, &id, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"special_tokens\": the id of \"%.40s\"", name);
        size_t *count = &sides->counts[sides->text_seen];
        if (*count == POST_PROCESSOR_LIMIT_COUNT)
            return error_set(err, STATUS_LIMIT, "more than %d special tokens",
                             POST_PROCESSOR_LIMIT_COUNT);
        sides->ids[sides->text_seen][(*count)++] = (uint32_t)id;
    }
    return STATUS_OK;
}

static enum status read_piece(struct sides *sides, const struct json_value *piece,
                              const struct json_value *specials, uint32_t vocabulary_count,
                              struct error *err)
{
    const char *name;
    const struct json_value *body;
    if (json_find(piece, "SpecialToken")) {
        TRY(json_get_object(piece, "SpecialToken", &body, err));
        TRY(json_get_string(body, "id", &name, NULL, err));
        return add_special(sides, specials, name, vocabulary_count, err);
    }
    TRY(json_get_object(piece, "Sequence", &body, err));
    TRY(json_get_string(body, "id", &name, NULL, err));
    if (strcmp(name, "A") != 0 || sides->text_seen)
        return error_set(err, STATUS_UNSUPPORTED,
                         "a template that isn't the text once, as \"A\", isn't supported");
    sides->text_seen = true;
    return STATUS_OK;
}

/* Puts the template around the tokens of earlier processors. */
static enum status wrap(struct post_processor *processor, const struct sides *sides,
                        struct error *err)
{
    size_t before = sides->counts[0], after = sides->counts[1];
    if (before + processor->before_count > POST_PROCESSOR_LIMIT_COUNT ||
        after + processor->after_count > POST_PROCESSOR_LIMIT_COUNT)
        return error_set(err, STATUS_LIMIT, "more than %d special tokens",
                         POST_PROCESSOR_LIMIT_COUNT);
    memmove(processor->before + before, processor->before,
            processor->before_count * sizeof *processor->before);
    memcpy(processor->before, sides->ids[0], before * sizeof *processor->before);
    processor->before_count += before;
    memcpy(processor->after + processor->after_count, sides->ids[1],
           after * sizeof *processor->after);
    processor->after_count += after;
    return STATUS_OK;
}

static enum status read_template(struct post_processor *processor, const struct json_value *json,
                                 uint32_t vocabulary_count, struct error *err)
{
    const struct json_value *pieces;
    struct sides sides = {0};
    TRY(json_get_array(json, "single", &pieces, err));
    for (size_t i = 0; i < json_count(pieces); i++)
        TRY(read_piece(&sides, json_at(pieces, i), json_find(json, "special_tokens"),
                       vocabulary_count, err));
    if (!sides.text_seen)
        return error_set(err, STATUS_UNSUPPORTED, "a template without the text isn't supported");
    return wrap(processor, &sides, err);
}

/* Reads a member like "sep": ["[SEP]", 102]. */
static enum status read_named_id(const struct json_value *json, const char *key,
                                 uint32_t vocabulary_count, uint32_t *id, struct error *err)
{
    const struct json_value *pair;
    int64_t value;
    TRY(json_get_array(json, key, &pair, err));
    if (json_count(pair) != 2)
        return error_set(err, STATUS_INVALID, "\"%s\" isn't a token and its id", key);
    enum status status =
        json_as_i64(json_at(pair, 1), 0, (int64_t)vocabulary_count - 1, &value, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "the id of \"%s\"", key);
    *id = (uint32_t)value;
    return STATUS_OK;
}

/* Ids must be below `vocabulary_count`. */
static enum status read_processor(struct post_processor *processor, const struct json_value *json,
                                  uint32_t vocabulary_count, int depth, struct error *err)
{
    const char *type;
    TRY(json_get_string(json, "type", &type, NULL, err));
    if (strcmp(type, "ByteLevel") == 0)
        return STATUS_OK;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(processor, json, vocabulary_count, err);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        struct sides sides = {.counts = {1, 1}}; /* [CLS] text [SEP] */
        TRY(read_named_id(json, "cls", vocabulary_count, &sides.ids[0][0], err));
        TRY(read_named_id(json, "sep", vocabulary_count, &sides.ids[1][0], err));
        return wrap(processor, &sides, err);
    }
    if (strcmp(type, "Sequence") != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"%.40s\" isn't supported (TemplateProcessing, BertProcessing, "
                         "RobertaProcessing, ByteLevel and Sequence are)",
                         type);
    const struct json_value *parts;
    TRY(json_get_array(json, "processors", &parts, err));
    if (depth == PIPELINE_LIMIT_DEPTH)
        return error_set(err, STATUS_LIMIT, "Sequences are nested deeper than %d", depth);
    for (size_t i = 0; i < json_count(parts); i++) {
        enum status status =
            read_processor(processor, json_at(parts, i), vocabulary_count, depth + 1, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"processors\"[%zu]", i);
    }
    return STATUS_OK;
}

/* -------------------------------------------------------------------------------- the tokenizer */

struct tokenizer {
    struct normalizer normalizer;
    struct pre_tokenizer pre_tokenizer;
    struct added_tokens added;
    struct post_processor post_processor;
    struct decoder decoder;
    struct bpe_model model;
    size_t most_bytes; /* parts of a text that one token can stand for; 0: no bound */
};

void token_ids_init(struct token_ids *ids, size_t limit_count)
{
    *ids = (struct token_ids){.limit_count = limit_count};
}

void token_ids_deinit(struct token_ids *ids)
{
    free(ids->data);
    *ids = (struct token_ids){0};
}

bool token_ids_push(struct token_ids *ids, uint32_t id)
{
    if (ids->count == ids->limit_count)
        return false;
    if (ids->count == ids->capacity) {
        ids->capacity = ids->capacity ? 2 * ids->capacity : INITIAL_IDS;
        ids->data = realloc(ids->data, ids->capacity * sizeof *ids->data);
        ASSERT(ids->data);
    }
    ids->data[ids->count++] = id;
    return true;
}

/* Adds a token to vocabulary and decoder. Its id must be the one that the model's vocabulary has
 * for it, if any. */
static enum status add_token(struct tokenizer *tokenizer, const struct added_token *token,
                             struct error *err)
{
    struct vocabulary *vocabulary = &tokenizer->model.vocabulary;
    char bytes[ADDED_TOKENS_LIMIT_BYTES];
    bool findable;
    size_t length =
        bpe_model_bytes(&tokenizer->model, token->content, token->content_length, bytes, &findable);
    size_t present_length;
    const char *present = vocabulary_bytes(vocabulary, token->id, &present_length);
    uint32_t id = token->id;
    if (findable)
        vocabulary_find(vocabulary, bytes, length, &id);
    if (id != token->id ||
        (present && (present_length != length || memcmp(present, bytes, length) != 0)))
        return error_set(err, STATUS_INVALID,
                         "\"%.40s\" has id %u, which disagrees with the vocabulary", token->content,
                         token->id);
    if (!present)
        TRY(vocabulary_add(vocabulary, token->id, bytes, length, false, err));
    vocabulary->tokens[token->id].special = token->special;
    /* As in `tokenizers`, it decodes to its form in normalized text. */
    return decoder_add(&tokenizer->decoder, token->id, token->pattern, token->pattern_length, err);
}

static enum status in_member(enum status status, const char *key, struct error *err)
{
    return status == STATUS_OK ? status : error_prefix(err, status, "\"%s\"", key);
}

/* Returns whether every byte that occurs in UTF-8 has a token. */
static bool has_all_bytes(const uint32_t tokens[256])
{
    bool complete = true;
    for (unsigned byte = 0; byte < 256; byte++) {
        bool occurs = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
        complete &= !occurs || tokens[byte] != BPE_NONE;
    }
    return complete;
}

/* Returns the most bytes of a text that one token can stand for; 0: there is no bound. */
static size_t most_bytes_of(const struct tokenizer *t)
{
    size_t most = t->model.vocabulary.longest, shrinks = 1;
    const struct bpe_alphabet *alphabet = &t->model.bpe.alphabet;
    /* Each part of a word becomes a token, and at most one unknown character each. */
    bool bounded = has_all_bytes(alphabet->bytes) || has_all_bytes(alphabet->fallback) ||
                   (alphabet->unk != BPE_NONE && !alphabet->fuse_unk);
    most = most > MAX_UTF8_BYTES ? most : MAX_UTF8_BYTES; /* an unknown character */
    for (size_t i = 0; i < t->normalizer.step_count; i++) {
        const struct normalizer_step *step = &t->normalizer.steps[i];
        if (step->kind == NORMALIZER_NFC)
            shrinks *= NFC_SHRINKS;
        else if (step->kind == NORMALIZER_REPLACE)
            bounded &= step->pattern.string && step->content_length >= step->pattern.string_length;
    }
    for (size_t i = 0; i < t->pre_tokenizer.stage_count; i++)
        bounded &= t->pre_tokenizer.stages[i].kind != PRE_TOKENIZER_SPLIT ||
                   t->pre_tokenizer.stages[i].behavior != SPLIT_REMOVED;
    for (size_t i = 0; i < t->added.count; i++) {
        const struct added_token *token = &t->added.tokens[i];
        bounded &= !token->lstrip && !token->rstrip;
        most = token->pattern_length > most ? token->pattern_length : most;
    }
    return bounded ? most * shrinks : 0;
}

/* Makes the members in this order. An error leaves the later ones zero, which every deinit
 * takes. */
static enum status load(struct tokenizer *t, const struct json_value *root, struct error *err)
{
    const struct json_value *model;
    TRY(in_member(normalizer_init(&t->normalizer, json_find(root, "normalizer"), err), "normalizer",
                  err));
    TRY(in_member(pre_tokenizer_init(&t->pre_tokenizer, json_find(root, "pre_tokenizer"), err),
                  "pre_tokenizer", err));
    TRY(in_member(decoder_init(&t->decoder, json_find(root, "decoder"), err), "decoder", err));
    TRY(in_member(
        added_tokens_init(&t->added, json_find(root, "added_tokens"), &t->normalizer, err),
        "added_tokens", err));
    TRY(json_get_object(root, "model", &model, err));
    enum bpe_alphabet_kind kind =
        t->pre_tokenizer.byte_level ? BPE_ALPHABET_BYTES : BPE_ALPHABET_CHARACTERS;
    TRY(in_member(bpe_model_init(&t->model, model, kind, t->added.max_id, &t->decoder, err),
                  "model", err));
    for (size_t i = 0; i < t->added.count; i++)
        TRY(in_member(add_token(t, &t->added.tokens[i], err), "added_tokens", err));
    decoder_seal(&t->decoder);
    t->most_bytes = most_bytes_of(t);
    const struct json_value *post = json_find(root, "post_processor");
    if (!post)
        return STATUS_OK;
    return in_member(read_processor(&t->post_processor, post, t->model.vocabulary.count, 0, err),
                     "post_processor", err);
}

enum status tokenizer_open(const char *path, struct tokenizer **tokenizer, struct error *err)
{
    struct json *json;
    struct json_limits limits = {.max_bytes = TOKENIZER_LIMIT_FILE, .max_depth = FILE_LIMIT_DEPTH};
    TRY(json_read_file(path, limits, &json, err));
    struct tokenizer *made = calloc(1, sizeof *made);
    ASSERT(made);
    enum status status = load(made, json_root(json), err);
    json_destroy(json);
    if (status != STATUS_OK) {
        tokenizer_close(made);
        return error_prefix(err, status, "%s", path);
    }
    *tokenizer = made;
    return STATUS_OK;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    normalizer_deinit(&tokenizer->normalizer);
    pre_tokenizer_deinit(&tokenizer->pre_tokenizer);
    decoder_deinit(&tokenizer->decoder);
    added_tokens_deinit(&tokenizer->added);
    bpe_model_deinit(&tokenizer->model);
    free(tokenizer);
}

/* One call of tokenizer_encode. */
struct encoding {
    const struct tokenizer *tokenizer;
    struct regex_scratch *regex;
    struct normalizer_room normal;
    struct bpe_scratch bpe;
    struct token_ids *ids;
    const char *text;                /* the whole text, from which `plain` counts */
    struct added_tokens_plain plain; /* parts in which special tokens are text */
    struct error *err;
};

static enum status too_many(const struct token_ids *ids, struct error *err)
{
    return error_set(err, STATUS_LIMIT, "the text has more than %zu tokens", ids->limit_count);
}

static enum status push(struct encoding *encoding, uint32_t id)
{
    return token_ids_push(encoding->ids, id) ? STATUS_OK : too_many(encoding->ids, encoding->err);
}

static enum status encode_word(void *context, const char *word, size_t length, struct error *err)
{
    struct encoding *encoding = context;
    const struct bpe *bpe = &encoding->tokenizer->model.bpe;
    return bpe_encode(bpe, &encoding->bpe, word, length, encoding->ids)
               ? STATUS_OK
               : too_many(encoding->ids, err);
}

/* TRUST_NONE: special tokens in a piece are text. */
enum trust { TRUST_ALL, TRUST_NONE };

static enum status encode_words(struct encoding *encoding, struct piece gap)
{
    struct word_sink sink = {.take = encode_word, .context = encoding};
    return pre_tokenizer_run(&encoding->tokenizer->pre_tokenizer, encoding->regex, gap, &sink,
                             encoding->err);
}

/* Encodes text between added tokens: normalizes it, then its own added tokens and the words between
 * them. */
static enum status encode_gap(struct encoding *encoding, struct piece whole, enum trust trust)
{
    TRY(normalizer_apply(&encoding->tokenizer->normalizer, encoding->regex, &encoding->normal,
                         &whole, encoding->err));
    const struct byte_range everything = {0, SIZE_MAX};
    struct added_tokens_plain plain = {&everything, trust == TRUST_NONE};
    struct added_match match = {0};
    size_t at = 0;
    while ((match = added_tokens_next(&encoding->tokenizer->added, ADDED_TOKENS_NORMALIZED,
                                      whole.text, whole.length, plain, match))
               .token) {
        if (match.start > at)
            TRY(encode_words(encoding, piece_part(whole, at, match.start)));
        if (match.start < match.end)
            TRY(push(encoding, match.token->id));
        at = match.end;
    }
    return at == whole.length ? STATUS_OK
                              : encode_words(encoding, piece_part(whole, at, whole.length));
}

/* Adds to *count the special tokens that the normalized piece spells. */
static enum status count_specials(struct encoding *encoding, struct piece piece, size_t *count)
{
    struct added_match match = {0};
    TRY(normalizer_apply(&encoding->tokenizer->normalizer, encoding->regex, &encoding->normal,
                         &piece, encoding->err));
    while (
        (match = added_tokens_next(&encoding->tokenizer->added, ADDED_TOKENS_NORMALIZED, piece.text,
                                   piece.length, (struct added_tokens_plain){0}, match))
            .token)
        *count += match.token->special;
    return STATUS_OK;
}

/* Returns the end of the first part of [at, end) that is trusted as a whole, or not at all. */
static size_t next_border(const struct added_tokens_plain *plain, size_t *range, size_t at,
                          size_t end, enum trust *trust)
{
    while (*range < plain->count && plain->ranges[*range].to <= at)
        ++*range;
    bool inside = *range < plain->count && plain->ranges[*range].from <= at;
    size_t border = end;
    if (*range < plain->count)
        border = inside ? plain->ranges[*range].to : plain->ranges[*range].from;
    *trust = inside ? TRUST_NONE : TRUST_ALL;
    return border < end ? border : end;
}

/* Counts the special tokens of the trusted parts; with `specials` NULL, encodes each part by
 * itself. */
static enum status for_each_part(struct encoding *encoding, struct piece gap, size_t *specials)
{
    size_t from = (size_t)(gap.text - encoding->text), range = 0;
    for (size_t at = from; at < from + gap.length;) {
        enum trust trust;
        size_t to = next_border(&encoding->plain, &range, at, from + gap.length, &trust);
        struct piece part = piece_part(gap, at - from, to - from);
        if (!specials)
            TRY(encode_gap(encoding, part, trust));
        else if (trust == TRUST_ALL)
            TRY(count_specials(encoding, part, specials));
        at = to;
    }
    return STATUS_OK;
}

/* Encodes text between the added tokens of the text as it came. If the normalized gap has more
 * special tokens than its trusted parts have by themselves, the others came out of parts that
 * aren't trusted. Then each part is encoded by itself. */
static enum status encode_raw_gap(struct encoding *encoding, struct piece gap)
{
    bool careful = encoding->plain.count &&
                   encoding->tokenizer->added.passes[ADDED_TOKENS_NORMALIZED].has_special;
    size_t all = 0, trusted = 0;
    if (!careful)
        return encode_gap(encoding, gap, TRUST_ALL);
    TRY(count_specials(encoding, gap, &all));
    if (all)
        TRY(for_each_part(encoding, gap, &trusted));
    return all == trusted ? encode_gap(encoding, gap, TRUST_ALL)
                          : for_each_part(encoding, gap, NULL);
}

/* Encodes the added tokens of the text as it came, and the gaps between them. */
static enum status encode_raw(struct encoding *encoding, struct piece whole)
{
    struct added_match match = {0};
    size_t at = 0;
    while ((match = added_tokens_next(&encoding->tokenizer->added, ADDED_TOKENS_RAW, whole.text,
                                      whole.length, encoding->plain, match))
               .token) {
        if (match.start > at)
            TRY(encode_raw_gap(encoding, piece_part(whole, at, match.start)));
        if (match.start < match.end)
            TRY(push(encoding, match.token->id));
        at = match.end;
    }
    return at == whole.length ? STATUS_OK
                              : encode_raw_gap(encoding, piece_part(whole, at, whole.length));
}

static enum status encode(struct encoding *encoding, const char *text, size_t length,
                          bool add_special)
{
    const struct post_processor *post = &encoding->tokenizer->post_processor;
    for (size_t i = 0; add_special && i < post->before_count; i++)
        TRY(push(encoding, post->before[i]));
    size_t head = length ? utf8_next(text, length).length : 0;
    TRY(encode_raw(encoding, (struct piece){text, length, head}));
    for (size_t i = 0; add_special && i < post->after_count; i++)
        TRY(push(encoding, post->after[i]));
    return STATUS_OK;
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                             bool add_special, struct token_ids *ids, struct error *err)
{
    return tokenizer_encode_parts(tokenizer, text, length, NULL, 0, add_special, ids, err);
}

enum status tokenizer_encode_parts(const struct tokenizer *tokenizer, const char *text,
                                   size_t length, const struct byte_range *plain,
                                   size_t plain_count, bool add_special, struct token_ids *ids,
                                   struct error *err)
{
    size_t bad_offset;
    if (length > TOKENIZER_LIMIT_TEXT)
        return error_set(err, STATUS_LIMIT, "text of %zu bytes is over the limit of %u", length,
                         TOKENIZER_LIMIT_TEXT);
    if (!utf8_valid(text, length, &bad_offset))
        return error_set(err, STATUS_INVALID, "the text isn't valid UTF-8 at byte %zu", bad_offset);
    struct encoding encoding = {.tokenizer = tokenizer,
                                .regex = regex_scratch_create(),
                                .ids = ids,
                                .text = text,
                                .plain = {plain, plain_count},
                                .err = err};
    bpe_scratch_init(&encoding.bpe);
    normalizer_room_init(&encoding.normal);
    enum status status = encode(&encoding, text, length, add_special);
    normalizer_room_deinit(&encoding.normal);
    bpe_scratch_deinit(&encoding.bpe);
    regex_scratch_destroy(encoding.regex);
    return status;
}

bool tokenizer_surely_exceeds(const struct tokenizer *tokenizer, size_t length, size_t count)
{
    return tokenizer->most_bytes && length / tokenizer->most_bytes > count;
}

uint32_t tokenizer_vocab_size(const struct tokenizer *tokenizer)
{
    return tokenizer->model.vocabulary.count;
}

const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t id, size_t *length)
{
    const struct decoded_token *token = decoder_token(&tokenizer->decoder, id);
    if (!token)
        return NULL;
    *length = token->length;
    return tokenizer->decoder.pool + token->offset;
}

const struct decoder *tokenizer_decoder(const struct tokenizer *tokenizer)
{
    return &tokenizer->decoder;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t id)
{
    return id < tokenizer_vocab_size(tokenizer) && tokenizer->model.vocabulary.tokens[id].special;
}

bool tokenizer_id_of(const struct tokenizer *tokenizer, const char *spelling, uint32_t *id)
{
    const struct added_token *added = added_tokens_find(&tokenizer->added, spelling);
    if (added) {
        *id = added->id;
        return true;
    }
    char bytes[VOCABULARY_LIMIT_TOKEN];
    bool findable;
    size_t length = strlen(spelling);
    if (length > sizeof bytes)
        return false;
    length = bpe_model_bytes(&tokenizer->model, spelling, length, bytes, &findable);
    return findable && vocabulary_find(&tokenizer->model.vocabulary, bytes, length, id);
}
