#include "common/base/assert.h"
#include "common/base/utf8.h"
#include "common/language/text/pipeline.h"
#include "common/language/text/unicode.h"

#include <stdlib.h>
#include <string.h>

/* GPT-2's pattern, which ByteLevel uses unless use_regex is false. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* A pre-tokenizer that is being read. */
struct builder {
    struct pre_tokenizer *made;
    struct error *err;
};

/* Adds a stage, all zero. pre_tokenizer_deinit frees its memory, on errors too. */
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

/* Adds a split at a class of characters. */
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

/* Splits into words of \w and runs of other characters, and drops white space. */
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
    /* Files from before there were schemes have only add_prefix_space. */
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
    return regex_create(gpt2_pattern, strlen(gpt2_pattern), &stage->pattern.regex, builder->err);
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
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(type, kinds[i].type) == 0)
            return kinds[i].read(builder, json);
    if (strcmp(type, "Sequence") != 0)
        return error_set(builder->err, STATUS_UNSUPPORTED,
                         "\"%.40s\" isn't supported (Split, Digits, Punctuation, Whitespace, "
                         "WhitespaceSplit, Metaspace, ByteLevel and Sequence are)",
                         type);
    const struct json_value *parts;
    TRY(json_get_array(json, "pretokenizers", &parts, builder->err));
    if (depth == PIPELINE_LIMIT_DEPTH)
        return error_set(builder->err, STATUS_LIMIT, "Sequences are nested deeper than %d", depth);
    for (size_t i = 0; i < json_count(parts); i++) {
        enum status status = read_component(builder, json_at(parts, i), depth + 1);
        if (status != STATUS_OK)
            return error_prefix(builder->err, status, "\"pretokenizers\"[%zu]", i);
    }
    return STATUS_OK;
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

/* -------------------------------------------------------------------------------------- running */

/* Each stage hands its pieces straight to the next one: the recursion is as deep as there are
 * stages. */
struct run {
    const struct pre_tokenizer *pre_tokenizer;
    struct regex_scratch *scratch;
    const struct word_sink *sink;
    struct error *err;
};

static enum status run_stage(const struct run *run, size_t nth, struct piece piece);

/* One split. Matches, and the segments between them, arrive in order. */
struct splitter {
    const struct run *run;
    size_t nth;
    struct piece whole;
    enum split_behavior behavior;
    bool waits; /* [start, end) is still to be handed on */
    bool last_matched;
    size_t start, end;
};

static enum status hand_on(const struct splitter *splitter, size_t start, size_t end)
{
    if (start == end)
        return STATUS_OK;
    return run_stage(splitter->run, splitter->nth + 1, piece_part(splitter->whole, start, end));
}

static enum status hand_on_waiting(struct splitter *splitter)
{
    bool waits = splitter->waits;
    splitter->waits = false;
    return waits ? hand_on(splitter, splitter->start, splitter->end) : STATUS_OK;
}

/* Joins the segment to the one that waits; or hands that on, and lets this one wait. */
static enum status join_or_wait(struct splitter *splitter, size_t start, size_t end, bool join)
{
    if (!join || !splitter->waits) {
        TRY(hand_on_waiting(splitter));
        splitter->start = start;
        splitter->waits = true;
    }
    splitter->end = end;
    return STATUS_OK;
}

static enum status take_segment(struct splitter *splitter, size_t start, size_t end, bool matched)
{
    bool last_matched = splitter->last_matched;
    splitter->last_matched = matched;
    switch (splitter->behavior) {
    case SPLIT_ISOLATED: return hand_on(splitter, start, end);
    case SPLIT_REMOVED: return matched ? STATUS_OK : hand_on(splitter, start, end);
    case SPLIT_CONTIGUOUS: return join_or_wait(splitter, start, end, matched == last_matched);
    case SPLIT_MERGED_WITH_PREVIOUS:
        return join_or_wait(splitter, start, end, matched && !last_matched);
    case SPLIT_MERGED_WITH_NEXT:
        TRY(join_or_wait(splitter, start, end, !matched && last_matched));
        return matched ? STATUS_OK : hand_on_waiting(splitter);
    }
    ASSERT(false);
}

static enum status split(const struct run *run, size_t nth, struct piece piece)
{
    const struct pre_tokenizer_stage *stage = &run->pre_tokenizer->stages[nth];
    struct splitter splitter = {
        .run = run, .nth = nth, .whole = piece, .behavior = stage->behavior};
    struct pattern_search search = {
        .scratch = run->scratch, .text = piece.text, .length = piece.length};
    struct regex_match match = {.found = true};
    for (size_t at = 0; match.found; at = match.end) {
        TRY(pattern_next(&stage->pattern, &search, &match, run->err));
        if (match.start > at)
            TRY(take_segment(&splitter, at, match.start, stage->invert));
        if (match.found)
            TRY(take_segment(&splitter, match.start, match.end, !stage->invert));
    }
    return hand_on_waiting(&splitter);
}

/* Puts a space before the piece, unless it starts with one. */
static enum status put_space(const struct run *run, size_t nth, struct piece piece)
{
    if (piece.text[0] == ' ')
        return run_stage(run, nth + 1, piece);
    char *spaced = malloc(piece.length + 1);
    ASSERT(spaced);
    spaced[0] = ' ';
    memcpy(spaced + 1, piece.text, piece.length);
    struct piece made = {spaced, piece.length + 1, piece.head ? piece.head + 1 : 0};
    enum status status = run_stage(run, nth + 1, made);
    free(spaced);
    return status;
}

static bool starts_with(struct piece piece, const struct metaspace *metaspace)
{
    return piece.length >= metaspace->length &&
           memcmp(piece.text, metaspace->replacement, metaspace->length) == 0;
}

/* Splits before each replacement character, as MergedWithNext does. */
static enum status split_metaspace(const struct run *run, size_t nth,
                                   const struct metaspace *metaspace, struct piece piece)
{
    while (piece.length) {
        size_t from = starts_with(piece, metaspace) ? metaspace->length : 0;
        const char *next = memmem(piece.text + from, piece.length - from, metaspace->replacement,
                                  metaspace->length);
        size_t length = next ? (size_t)(next - piece.text) : piece.length;
        TRY(run_stage(run, nth + 1, piece_part(piece, 0, length)));
        piece = piece_part(piece, length, piece.length);
    }
    return STATUS_OK;
}

/* Puts the replacement in place of each space, and maybe before the piece. */
static enum status apply_metaspace(const struct run *run, size_t nth, struct piece piece)
{
    const struct metaspace *metaspace = &run->pre_tokenizer->stages[nth].metaspace;
    size_t spaces = 0, length = 0, head = 0;
    for (size_t i = 0; i < piece.length; i++)
        spaces += piece.text[i] == ' ';
    char *text = malloc(piece.length + (spaces + 1) * metaspace->length);
    ASSERT(text);
    bool prepend = metaspace->prepend == PREPEND_ALWAYS ||
                   (metaspace->prepend == PREPEND_FIRST && piece.head > 0);
    if (prepend && piece.text[0] != ' ' && !starts_with(piece, metaspace)) {
        memcpy(text, metaspace->replacement, metaspace->length);
        length = metaspace->length;
        head = piece.head ? length : 0;
    }
    for (size_t i = 0; i < piece.length; i++) {
        size_t width = piece.text[i] == ' ' ? metaspace->length : 1;
        head += i < piece.head ? width : 0;
        if (piece.text[i] != ' ') {
            text[length++] = piece.text[i];
            continue;
        }
        memcpy(text + length, metaspace->replacement, metaspace->length);
        length += metaspace->length;
    }
    struct piece made = {text, length, head};
    enum status status = metaspace->split ? split_metaspace(run, nth, metaspace, made)
                                          : run_stage(run, nth + 1, made);
    free(text);
    return status;
}

static enum status run_stage(const struct run *run, size_t nth, struct piece piece)
{
    if (nth == run->pre_tokenizer->stage_count)
        return run->sink->take(run->sink->context, piece.text, piece.length, run->err);
    switch (run->pre_tokenizer->stages[nth].kind) {
    case PRE_TOKENIZER_SPLIT: return split(run, nth, piece);
    case PRE_TOKENIZER_METASPACE: return apply_metaspace(run, nth, piece);
    case PRE_TOKENIZER_SPACE: return put_space(run, nth, piece);
    }
    ASSERT(false);
}

enum status pre_tokenizer_run(const struct pre_tokenizer *pre_tokenizer,
                              struct regex_scratch *scratch, struct piece piece,
                              const struct word_sink *sink, struct error *err)
{
    struct run run = {pre_tokenizer, scratch, sink, err};
    return piece.length ? run_stage(&run, 0, piece) : STATUS_OK;
}
