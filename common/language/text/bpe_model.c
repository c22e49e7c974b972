/* The "model" member of tokenizer.json. */
#include "common/base/assert.h"
#include "common/language/text/bpe.h"
#include "common/language/text/decoder.h"

#include <stdlib.h>

static enum status check_settings(const struct json_value *json, struct error *err)
{
    const char *type = "BPE"; /* old files don't have the key */
    if (json_find(json, "type"))
        TRY(json_get_string(json, "type", &type, NULL, err));
    if (strcmp(type, "BPE") != 0)
        return error_set(err, STATUS_UNSUPPORTED, "type \"%.40s\" isn't supported (BPE is)", type);
    const struct json_value *dropout = json_find(json, "dropout");
    double share = 0;
    if (dropout)
        TRY(json_get_double(json, "dropout", 0, 1, &share, err));
    if (share > 0)
        return error_set(err, STATUS_UNSUPPORTED, "\"dropout\" isn't supported");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof affixes / sizeof *affixes; i++) {
        const char *text = "";
        if (json_find(json, affixes[i]))
            TRY(json_get_string(json, affixes[i], &text, NULL, err));
        if (*text)
            return error_set(err, STATUS_UNSUPPORTED, "\"%s\" isn't supported", affixes[i]);
    }
    return STATUS_OK;
}

size_t bpe_model_bytes(const struct bpe_model *model, const char *spelling, size_t length,
                       char *bytes, bool *findable)
{
    size_t count = length;
    *findable = length > 0;
    if (model->kind == BPE_ALPHABET_BYTES && byte_level_read(spelling, length, bytes, &count))
        return count;
    *findable &= model->kind != BPE_ALPHABET_BYTES;
    memcpy(bytes, spelling, length);
    return length;
}

static enum status largest_id(const struct json_value *vocab, uint32_t *max_id, struct error *err)
{
    int64_t max = *max_id, id;
    for (struct json_member m = {0}; json_next(vocab, &m);) {
        enum status status = json_as_i64(m.value, 0, VOCABULARY_LIMIT_COUNT - 1, &id, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"vocab\": the id of \"%.40s\"", m.key);
        max = id > max ? id : max;
    }
    *max_id = (uint32_t)max;
    return STATUS_OK;
}

static enum status read_vocabulary(struct bpe_model *model, const struct json_value *vocab,
                                   struct decoder *decoder, struct error *err)
{
    for (struct json_member m = {0}; json_next(vocab, &m);) {
        char bytes[VOCABULARY_LIMIT_TOKEN];
        bool findable;
        int64_t id;
        size_t length = strlen(m.key);
        if (length > sizeof bytes)
            return error_set(err, STATUS_LIMIT,
                             "\"vocab\": the token \"%.40s...\" is longer than %zu bytes", m.key,
                             sizeof bytes);
        TRY(json_as_i64(m.value, 0, VOCABULARY_LIMIT_COUNT - 1, &id, err));
        size_t count = bpe_model_bytes(model, m.key, length, bytes, &findable);
        enum status status =
            vocabulary_add(&model->vocabulary, (uint32_t)id, bytes, count, findable, err);
        if (status == STATUS_OK)
            status = decoder_add(decoder, (uint32_t)id, m.key, length, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"vocab\"");
    }
    return STATUS_OK;
}

/* One side of a merge. */
struct part {
    const char *spelling;
    size_t length;
};

static enum status split_merge(const struct json_value *merge, struct part parts[2],
                               struct error *err)
{
    if (json_kind(merge) == JSON_ARRAY) {
        if (json_count(merge) != 2)
            return error_set(err, STATUS_INVALID, "%zu parts instead of 2", json_count(merge));
        for (size_t i = 0; i < 2; i++)
            TRY(json_as_string(json_at(merge, i), &parts[i].spelling, &parts[i].length, err));
        return STATUS_OK;
    }
    size_t length;
    const char *text;
    TRY(json_as_string(merge, &text, &length, err));
    const char *space = memchr(text, ' ', length);
    if (!space || memchr(space + 1, ' ', length - (size_t)(space + 1 - text)))
        return error_set(err, STATUS_INVALID, "\"%.40s\" isn't two tokens with a space between",
                         text);
    parts[0] = (struct part){text, (size_t)(space - text)};
    parts[1] = (struct part){space + 1, length - parts[0].length - 1};
    return STATUS_OK;
}

static enum status find_part(const struct vocabulary *vocabulary, const char *bytes, size_t length,
                             uint32_t *id, struct error *err)
{
    if (vocabulary_find(vocabulary, bytes, length, id))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "its token isn't in the vocabulary");
}

static enum status read_merge(const struct bpe_model *model, const struct json_value *json,
                              struct bpe_merge *merge, struct error *err)
{
    struct part parts[2];
    TRY(split_merge(json, parts, err));
    char bytes[VOCABULARY_LIMIT_TOKEN];
    if (parts[0].length + parts[1].length > sizeof bytes)
        return error_set(err, STATUS_LIMIT, "longer than %zu bytes", sizeof bytes);
    bool known[2];
    size_t left = bpe_model_bytes(model, parts[0].spelling, parts[0].length, bytes, &known[0]);
    size_t right =
        bpe_model_bytes(model, parts[1].spelling, parts[1].length, bytes + left, &known[1]);
    for (size_t i = 0; i < 2; i++)
        if (!known[i] && parts[i].length > 0)
            return error_set(err, STATUS_UNSUPPORTED, "not spelled in the byte-level alphabet");
    TRY(find_part(&model->vocabulary, bytes, left, &merge->left, err));
    TRY(find_part(&model->vocabulary, bytes + left, right, &merge->right, err));
    return find_part(&model->vocabulary, bytes, left + right, &merge->joined, err);
}

static enum status read_merges(const struct bpe_model *model, const struct json_value *array,
                               struct bpe_merge *merges, uint32_t *count, struct error *err)
{
    *count = 0;
    for (size_t i = 0; i < json_count(array); i++) {
        const struct json_value *merge = json_at(array, i);
        const char *text;
        if (i == 0 && json_as_string(merge, &text, NULL, NULL) == STATUS_OK &&
            strncmp(text, "#version", strlen("#version")) == 0)
            continue; /* files made from merges.txt may keep its first line */
        enum status status = read_merge(model, merge, &merges[(*count)++], err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"merges\": merge %zu", i);
    }
    return STATUS_OK;
}

static enum status init_bpe(struct bpe_model *model, const struct json_value *json,
                            const struct json_value *array, struct error *err)
{
    struct bpe_settings settings = {.alphabet.kind = model->kind};
    struct bpe_alphabet_settings *alphabet = &settings.alphabet;
    TRY(json_get_optional_bool(json, "ignore_merges", &settings.ignore_merges, err));
    TRY(json_get_optional_bool(json, "byte_fallback", &alphabet->byte_fallback, err));
    TRY(json_get_optional_bool(json, "fuse_unk", &alphabet->fuse_unk, err));
    if (json_find(json, "unk_token"))
        TRY(json_get_string(json, "unk_token", &alphabet->unk_token, NULL, err));
    if (json_count(array) > MERGE_TABLE_LIMIT_COUNT)
        return error_set(err, STATUS_LIMIT, "\"merges\": %zu are over the limit of %u",
                         json_count(array), MERGE_TABLE_LIMIT_COUNT);
    struct bpe_merge *merges = calloc(json_count(array) + 1, sizeof *merges);
    ASSERT(merges);
    uint32_t count;
    enum status status = read_merges(model, array, merges, &count, err);
    if (status != STATUS_OK) {
        free(merges);
        return status;
    }
    return bpe_init(&model->bpe, &model->vocabulary, &settings, merges, count, err);
}

enum status bpe_model_init(struct bpe_model *model, const struct json_value *json,
                           enum bpe_alphabet_kind kind, uint32_t max_added_id,
                           struct decoder *decoder, struct error *err)
{
    const struct json_value *vocab, *merges;
    TRY(check_settings(json, err));
    TRY(json_get_object(json, "vocab", &vocab, err));
    TRY(json_get_array(json, "merges", &merges, err));
    uint32_t max_id = max_added_id;
    TRY(largest_id(vocab, &max_id, err));
    *model = (struct bpe_model){.kind = kind};
    vocabulary_init(&model->vocabulary, max_id + 1);
    decoder_reserve(decoder, max_id + 1);
    enum status status = read_vocabulary(model, vocab, decoder, err);
    if (status == STATUS_OK)
        status = init_bpe(model, json, merges, err);
    if (status != STATUS_OK)
        vocabulary_deinit(&model->vocabulary);
    return status;
}

void bpe_model_deinit(struct bpe_model *model)
{
    bpe_deinit(&model->bpe);
    vocabulary_deinit(&model->vocabulary);
}
