#include "common/language/text/tokenizer.h"

#include "common/base/assert.h"
#include "common/base/json/json.h"
#include "common/base/utf8.h"
#include "common/language/text/added_tokens.h"
#include "common/language/text/bpe_model.h"
#include "common/language/text/decoder.h"
#include "common/language/text/normalizer.h"
#include "common/language/text/post_processor.h"
#include "common/language/text/pre_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT_DEPTH 32

struct tokenizer {
    struct normalizer normalizer;
    struct pre_tokenizer pre_tokenizer;
    struct added_tokens added;
    struct post_processor post_processor;
    struct decoder decoder;
    struct bpe_model model;
};

/* The id that the model's vocabulary has for an added token is the one that counts. */
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
                         "\"%.40s\" has id %u, but the vocabulary says otherwise", token->content,
                         token->id);
    if (!present)
        TRY(vocabulary_add(vocabulary, token->id, bytes, length, false, err));
    vocabulary->tokens[token->id].special = token->special;
    /* As `tokenizers`: it decodes to what it looks like in normalized text. */
    return decoder_add(&tokenizer->decoder, token->id, token->pattern, token->pattern_length, err);
}

static enum status add_tokens(struct tokenizer *tokenizer, struct error *err)
{
    for (size_t i = 0; i < tokenizer->added.count; i++)
        TRY(add_token(tokenizer, &tokenizer->added.tokens[i], err));
    decoder_seal(&tokenizer->decoder);
    return STATUS_OK;
}

static enum status in_member(enum status status, const char *key, struct error *err)
{
    return status == STATUS_OK ? status : error_prefix(err, status, "\"%s\"", key);
}

/* Members are made in this order, so that a failure leaves the later ones zero, which every deinit
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
    TRY(in_member(add_tokens(t, err), "added_tokens", err));
    return in_member(post_processor_init(&t->post_processor, json_find(root, "post_processor"),
                                         t->model.vocabulary.count, err),
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
    const char *text;                /* the whole, which `plain` counts from */
    struct added_tokens_plain plain; /* where special tokens are text */
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

/* Whether a piece's special tokens are tokens, or text. */
enum trust { TRUST_ALL, TRUST_NONE };

static enum status encode_words(struct encoding *encoding, struct piece gap)
{
    struct word_sink sink = {.take = encode_word, .context = encoding};
    return pre_tokenizer_run(&encoding->tokenizer->pre_tokenizer, encoding->regex, gap, &sink,
                             encoding->err);
}

/* The added tokens of normalized text, and the words between them. */
static enum status encode_normalized(struct encoding *encoding, struct piece whole,
                                     enum trust trust)
{
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

static enum status encode_gap(struct encoding *encoding, struct piece gap, enum trust trust)
{
    TRY(normalizer_apply(&encoding->tokenizer->normalizer, encoding->regex, &encoding->normal, &gap,
                         encoding->err));
    return encode_normalized(encoding, gap, trust);
}

/* How many special tokens normalized text spells. */
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

/* The next part of [at, end) that is trusted as a whole, or not at all. */
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

/* Part by part: counts the special tokens of those that are trusted, or, with NULL, encodes
 * each. */
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

/* What stands between the special tokens of the text as it came. Where the normalized text has more
 * special tokens than its trusted parts have of their own, the others must have come out of what
 * isn't trusted, and the parts go one by one. */
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

/* The added tokens of the text as it came, and what stands between them through the rest of the
 * pipeline. */
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
