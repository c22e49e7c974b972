#include "common/language/text/pre_tokenizer.h"

#include "common/base/utf8.h"
#include "common/language/text/unicode.h"

#include <string.h>

#define SEQUENCE_LIMIT_DEPTH 4

/* GPT-2's own, which ByteLevel stands for unless use_regex is false. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* While it is read. */
struct builder {
    struct pre_tokenizer *made;
    struct error *err;
};

/* The next stage, zeroed: what it comes to hold is freed with the whole. */
static enum status next_stage(struct builder *builder, struct pre_tokenizer_stage **stage)
{
    struct pre_tokenizer *made = builder->made;
    if (made->stage_count == PRE_TOKENIZER_LIMIT_STAGES)
        return error_set(builder->err, STATUS_LIMIT, "more than %d steps",
                         PRE_TOKENIZER_LIMIT_STAGES);
    *stage = &made->stages[made->stage_count++];
    return STATUS_OK;
}

static enum status read_behavior(const struct json_value *json, enum split_behavior *behavior,
                                 struct error *err)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name;
    TRY(json_get_string(json, "behavior", &name, NULL, err));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            *behavior = (enum split_behavior)i;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_UNSUPPORTED,
                     "\"behavior\" \"%.40s\" isn't supported (Isolated, Removed, "
                     "MergedWithPrevious, MergedWithNext and Contiguous are)",
                     name);
}

static enum status read_split(struct builder *builder, const struct json_value *json)
{
    struct pre_tokenizer_stage *stage = NULL;
    const struct json_value *pattern;
    TRY(next_stage(builder, &stage));
    TRY(json_get_object(json, "pattern", &pattern, builder->err));
    TRY(read_behavior(json, &stage->behavior, builder->err));
    TRY(json_get_optional_bool(json, "invert", &stage->invert, builder->err));
    return pattern_read(&stage->pattern, pattern, builder->err);
}

static enum status split_by_class(struct builder *builder, bool (*has)(uint32_t),
                                  enum split_behavior behavior)
{
    struct pre_tokenizer_stage *stage = NULL;
    TRY(next_stage(builder, &stage));
    stage->pattern.has = has;
    stage->behavior = behavior;
    return STATUS_OK;
}

static enum status read_digits(struct builder *builder, const struct json_value *json)
{
    bool individual = false;
    TRY(json_get_optional_bool(json, "individual_digits", &individual, builder->err));
    return split_by_class(builder, unicode_is_numeric,
                          individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS);
}

static enum status read_punctuation(struct builder *builder, const struct json_value *json)
{
    enum split_behavior behavior = SPLIT_ISOLATED;
    if (json_find(json, "behavior"))
        TRY(read_behavior(json, &behavior, builder->err));
    return split_by_class(builder, unicode_is_punctuation, behavior);
}

/* Words of \w, and runs of what is neither that nor white space; white space is dropped. */
static enum status read_whitespace(struct builder *builder, const struct json_value *json)
{
    (void)json;
    TRY(split_by_class(builder, unicode_is_space, SPLIT_REMOVED));
    return split_by_class(builder, unicode_is_word, SPLIT_CONTIGUOUS);
}

static enum status read_whitespace_split(struct builder *builder, const struct json_value *json)
{
    (void)json;
    return split_by_class(builder, unicode_is_space, SPLIT_REMOVED);
}

static enum status read_prepend_scheme(struct metaspace *metaspace, const struct json_value *json,
                                       struct error *err)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name = "always";
    bool add_prefix_space = true;
    if (json_find(json, "prepend_scheme"))
        TRY(json_get_string(json, "prepend_scheme", &name, NULL, err));
    TRY(json_get_optional_bool(json, "add_prefix_space", &add_prefix_space, err));
    /* Files from before there were schemes have add_prefix_space alone. */
    if (!add_prefix_space && json_find(json, "prepend_scheme") && strcmp(name, "never") != 0)
        return error_set(err, STATUS_INVALID,
                         "\"add_prefix_space\" doesn't agree with \"prepend_scheme\"");
    if (!add_prefix_space)
        name = "never";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            metaspace->prepend = (enum prepend_scheme)i;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_UNSUPPORTED,
                     "\"prepend_scheme\" \"%.40s\" isn't supported (always, first and never are)",
                     name);
}

enum status metaspace_read(struct metaspace *metaspace, const struct json_value *json,
                           struct error *err)
{
    const char *text;
    size_t length;
    *metaspace = (struct metaspace){.split = true};
    TRY(json_get_string(json, "replacement", &text, &length, err));
    if (length == 0 || utf8_next(text, length).length != length)
        return error_set(err, STATUS_INVALID, "\"replacement\" isn't one character");
    memcpy(metaspace->replacement, text, length);
    metaspace->length = length;
    TRY(json_get_optional_bool(json, "split", &metaspace->split, err));
    return read_prepend_scheme(metaspace, json, err);
}

static enum status read_metaspace(struct builder *builder, const struct json_value *json)
{
    struct pre_tokenizer_stage *stage = NULL;
    TRY(next_stage(builder, &stage));
    stage->kind = PRE_TOKENIZER_METASPACE;
    return metaspace_read(&stage->metaspace, json, builder->err);
}

static enum status read_byte_level(struct builder *builder, const struct json_value *json)
{
    struct pre_tokenizer_stage *stage = NULL;
    bool add_prefix_space = true, use_regex = true;
    TRY(json_get_optional_bool(json, "add_prefix_space", &add_prefix_space, builder->err));
    TRY(json_get_optional_bool(json, "use_regex", &use_regex, builder->err));
    if (add_prefix_space) {
        TRY(next_stage(builder, &stage));
        stage->kind = PRE_TOKENIZER_SPACE;
    }
    builder->made->byte_level = true;
    if (!use_regex)
        return STATUS_OK;
    TRY(next_stage(builder, &stage));
    return pattern_from_regex(&stage->pattern, gpt2_pattern, strlen(gpt2_pattern), builder->err);
}

static enum status read_component(struct builder *builder, const struct json_value *json,
                                  int depth);

static enum status read_sequence(struct builder *builder, const struct json_value *json, int depth)
{
    const struct json_value *parts;
    TRY(json_get_array(json, "pretokenizers", &parts, builder->err));
    if (depth == SEQUENCE_LIMIT_DEPTH)
        return error_set(builder->err, STATUS_LIMIT, "Sequences are nested deeper than %d", depth);
    for (size_t i = 0; i < json_count(parts); i++) {
        enum status status = read_component(builder, json_at(parts, i), depth + 1);
        if (status != STATUS_OK)
            return error_prefix(builder->err, status, "\"pretokenizers\"[%zu]", i);
    }
    return STATUS_OK;
}

static enum status read_component(struct builder *builder, const struct json_value *json, int depth)
{
    static const struct {
        const char *type;
        enum status (*read)(struct builder *builder, const struct json_value *json);
    } kinds[] = {
        {"Split", read_split},
        {"Digits", read_digits},
        {"Punctuation", read_punctuation},
        {"Whitespace", read_whitespace},
        {"WhitespaceSplit", read_whitespace_split},
        {"Metaspace", read_metaspace},
        {"ByteLevel", read_byte_level},
    };
    const char *type;
    TRY(json_get_string(json, "type", &type, NULL, builder->err));
    if (builder->made->byte_level)
        return error_set(builder->err, STATUS_UNSUPPORTED,
                         "\"%.40s\" behind ByteLevel isn't supported", type);
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(builder, json, depth);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(type, kinds[i].type) == 0)
            return kinds[i].read(builder, json);
    return error_set(builder->err, STATUS_UNSUPPORTED,
                     "\"%.40s\" isn't supported (Split, Digits, Punctuation, Whitespace, "
                     "WhitespaceSplit, Metaspace, ByteLevel and Sequence are)",
                     type);
}

enum status pre_tokenizer_init(struct pre_tokenizer *pre_tokenizer, const struct json_value *json,
                               struct error *err)
{
    *pre_tokenizer = (struct pre_tokenizer){0};
    struct builder builder = {.made = pre_tokenizer, .err = err};
    enum status status = json ? read_component(&builder, json, 0) : STATUS_OK;
    if (status != STATUS_OK)
        pre_tokenizer_deinit(pre_tokenizer);
    return status;
}

void pre_tokenizer_deinit(struct pre_tokenizer *pre_tokenizer)
{
    for (size_t i = 0; i < pre_tokenizer->stage_count; i++)
        pattern_deinit(&pre_tokenizer->stages[i].pattern);
    *pre_tokenizer = (struct pre_tokenizer){0};
}
