#include "common/text/pre_tokenizer.h"

#include "common/base/assert.h"
#include "common/base/str.h"

#include <stdlib.h>
#include <string.h>

#define SEQUENCE_LIMIT_DEPTH 4

/* GPT-2's own, which ByteLevel stands for unless use_regex is false. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* While it is read. */
struct builder {
    struct pre_tokenizer *made;
    bool byte_level; /* the last one: nothing may follow */
    struct error *err;
};

static enum status add_stage(struct builder *builder, struct pre_tokenizer_stage stage)
{
    struct pre_tokenizer *made = builder->made;
    if (made->stage_count == PRE_TOKENIZER_LIMIT_STAGES) {
        regex_destroy(stage.regex);
        return error_set(builder->err, STATUS_LIMIT, "more than %d steps",
                         PRE_TOKENIZER_LIMIT_STAGES);
    }
    made->stages[made->stage_count++] = stage;
    return STATUS_OK;
}

static enum status add_pattern(struct builder *builder, const char *pattern, size_t length)
{
    struct pre_tokenizer_stage stage = {0};
    TRY(regex_create(pattern, length, &stage.regex, builder->err));
    return add_stage(builder, stage);
}

static enum status optional_bool(const struct json_value *json, const char *key, bool *value,
                                 struct error *err)
{
    return json_find(json, key) ? json_get_bool(json, key, value, err) : STATUS_OK;
}

/* {"String": ...} is searched for as it is: each byte that might mean something in a pattern is written as \xHH. */
static enum status add_literal(struct builder *builder, const char *text, size_t length)
{
    struct str pattern;
    str_init(&pattern, 16 * 1024);
    for (size_t i = 0; i < length; i++) {
        bool letter = (text[i] & 0x80) || (text[i] >= '0' && text[i] <= '9') ||
                      ((text[i] | 32) >= 'a' && (text[i] | 32) <= 'z') || text[i] == ' ';
        str_addf(&pattern, letter ? "%c" : "\\x%02x", text[i]);
    }
    enum status status = pattern.truncated
                             ? error_set(builder->err, STATUS_LIMIT, "the string is too long")
                             : add_pattern(builder, pattern.data, pattern.length);
    str_deinit(&pattern);
    return status;
}

static enum status read_split(struct builder *builder, const struct json_value *json)
{
    const struct json_value *pattern;
    const char *behavior, *text;
    size_t length;
    bool invert = false;
    TRY(json_get_object(json, "pattern", &pattern, builder->err));
    TRY(json_get_string(json, "behavior", &behavior, NULL, builder->err));
    TRY(optional_bool(json, "invert", &invert, builder->err));
    bool removed = strcmp(behavior, "Removed") == 0;
    if (!removed && strcmp(behavior, "Isolated") != 0)
        return error_set(builder->err, STATUS_UNSUPPORTED,
                         "Split with behavior \"%.40s\" isn't supported (Isolated and Removed are)",
                         behavior);
    if (json_find(pattern, "Regex")) {
        TRY(json_get_string(pattern, "Regex", &text, &length, builder->err));
        TRY(add_pattern(builder, text, length));
    } else {
        TRY(json_get_string(pattern, "String", &text, &length, builder->err));
        TRY(add_literal(builder, text, length));
    }
    struct pre_tokenizer_stage *stage = &builder->made->stages[builder->made->stage_count - 1];
    stage->drop_matches = removed && !invert;
    stage->drop_rest = removed && invert;
    return STATUS_OK;
}

static enum status read_byte_level(struct builder *builder, const struct json_value *json)
{
    bool add_prefix_space = true, use_regex = true;
    TRY(optional_bool(json, "add_prefix_space", &add_prefix_space, builder->err));
    TRY(optional_bool(json, "use_regex", &use_regex, builder->err));
    if (add_prefix_space)
        TRY(add_stage(builder, (struct pre_tokenizer_stage){0}));
    if (use_regex)
        TRY(add_pattern(builder, gpt2_pattern, strlen(gpt2_pattern)));
    builder->byte_level = true;
    return STATUS_OK;
}

static enum status read_digits(struct builder *builder, const struct json_value *json)
{
    bool individual = false;
    TRY(optional_bool(json, "individual_digits", &individual, builder->err));
    const char *pattern = individual ? "\\p{N}" : "\\p{N}+";
    return add_pattern(builder, pattern, strlen(pattern));
}

static enum status read_component(struct builder *builder, const struct json_value *json, int depth)
{
    const char *type;
    TRY(json_get_string(json, "type", &type, NULL, builder->err));
    if (builder->byte_level)
        return error_set(builder->err, STATUS_UNSUPPORTED,
                         "\"%.40s\" behind ByteLevel isn't supported", type);
    if (strcmp(type, "Split") == 0)
        return read_split(builder, json);
    if (strcmp(type, "Digits") == 0)
        return read_digits(builder, json);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(builder, json);
    if (strcmp(type, "Sequence") != 0)
        return error_set(builder->err, STATUS_UNSUPPORTED,
                         "\"%.40s\" isn't supported (Split, Digits and ByteLevel are)", type);
    const struct json_value *parts;
    TRY(json_get_array(json, "pretokenizers", &parts, builder->err));
    if (depth == SEQUENCE_LIMIT_DEPTH)
        return error_set(builder->err, STATUS_LIMIT, "Sequences are nested deeper than %d", depth);
    for (size_t i = 0; i < json_count(parts); i++)
        TRY(read_component(builder, json_at(parts, i), depth + 1));
    return STATUS_OK;
}

enum status pre_tokenizer_init(struct pre_tokenizer *pre_tokenizer, const struct json_value *json,
                               struct error *err)
{
    *pre_tokenizer = (struct pre_tokenizer){0};
    struct builder builder = {.made = pre_tokenizer, .err = err};
    enum status status = json ? read_component(&builder, json, 0) : STATUS_OK;
    if (status == STATUS_OK && !builder.byte_level)
        status =
            error_set(err, STATUS_UNSUPPORTED, "a pre-tokenizer without ByteLevel isn't supported");
    if (status != STATUS_OK)
        pre_tokenizer_deinit(pre_tokenizer);
    return status;
}

void pre_tokenizer_deinit(struct pre_tokenizer *pre_tokenizer)
{
    for (size_t i = 0; i < pre_tokenizer->stage_count; i++)
        regex_destroy(pre_tokenizer->stages[i].regex);
    *pre_tokenizer = (struct pre_tokenizer){0};
}

/* Each step hands its pieces straight to the next one, so the recursion is as deep as there are steps. */
struct run {
    const struct pre_tokenizer *pre_tokenizer;
    struct regex_scratch *scratch;
    const struct word_sink *sink;
    struct error *err;
};

static enum status run_stage(const struct run *run, size_t nth, const char *text, size_t length);

static enum status put_space(const struct run *run, size_t nth, const char *text, size_t length)
{
    if (text[0] == ' ')
        return run_stage(run, nth + 1, text, length);
    char *spaced = malloc(length + 1);
    ASSERT(spaced);
    spaced[0] = ' ';
    memcpy(spaced + 1, text, length);
    enum status status = run_stage(run, nth + 1, spaced, length + 1);
    free(spaced);
    return status;
}

static enum status run_stage(const struct run *run, size_t nth, const char *text, size_t length)
{
    if (length == 0)
        return STATUS_OK;
    if (nth == run->pre_tokenizer->stage_count)
        return run->sink->take(run->sink->context, text, length, run->err);
    const struct pre_tokenizer_stage *stage = &run->pre_tokenizer->stages[nth];
    if (!stage->regex)
        return put_space(run, nth, text, length);
    for (size_t at = 0; at < length;) {
        struct regex_match match;
        TRY(regex_find(stage->regex, run->scratch, text, length, at, &match, run->err));
        if (!stage->drop_rest)
            TRY(run_stage(run, nth + 1, text + at, match.start - at));
        if (match.found && !stage->drop_matches)
            TRY(run_stage(run, nth + 1, text + match.start, match.end - match.start));
        at = match.end;
    }
    return STATUS_OK;
}

enum status pre_tokenizer_run(const struct pre_tokenizer *pre_tokenizer,
                              struct regex_scratch *scratch, const char *text, size_t length,
                              const struct word_sink *sink, struct error *err)
{
    struct run run = {pre_tokenizer, scratch, sink, err};
    return run_stage(&run, 0, text, length);
}
