#include "common/language/text/post_processor.h"

#include <string.h>

#define SEQUENCE_LIMIT_DEPTH 4

/* A template while it is read: the ids on each side of the text. */
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

/* Puts the template around what earlier processors made. */
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

/* "sep": ["[SEP]", 102] */
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

/* BertProcessing and RobertaProcessing: [CLS] text [SEP]. */
static enum status read_bert(struct post_processor *processor, const struct json_value *json,
                             uint32_t vocabulary_count, struct error *err)
{
    struct sides sides = {.counts = {1, 1}};
    TRY(read_named_id(json, "cls", vocabulary_count, &sides.ids[0][0], err));
    TRY(read_named_id(json, "sep", vocabulary_count, &sides.ids[1][0], err));
    return wrap(processor, &sides, err);
}

static enum status read_component(struct post_processor *processor, const struct json_value *json,
                                  uint32_t vocabulary_count, int depth, struct error *err)
{
    const char *type;
    TRY(json_get_string(json, "type", &type, NULL, err));
    if (strcmp(type, "ByteLevel") == 0)
        return STATUS_OK;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(processor, json, vocabulary_count, err);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return read_bert(processor, json, vocabulary_count, err);
    if (strcmp(type, "Sequence") != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"%.40s\" isn't supported (TemplateProcessing, BertProcessing, "
                         "RobertaProcessing, ByteLevel and Sequence are)",
                         type);
    const struct json_value *parts;
    TRY(json_get_array(json, "processors", &parts, err));
    if (depth == SEQUENCE_LIMIT_DEPTH)
        return error_set(err, STATUS_LIMIT, "Sequences are nested deeper than %d", depth);
    for (size_t i = 0; i < json_count(parts); i++) {
        enum status status =
            read_component(processor, json_at(parts, i), vocabulary_count, depth + 1, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"processors\"[%zu]", i);
    }
    return STATUS_OK;
}

enum status post_processor_init(struct post_processor *processor, const struct json_value *json,
                                uint32_t vocabulary_count, struct error *err)
{
    *processor = (struct post_processor){0};
    return json ? read_component(processor, json, vocabulary_count, 0, err) : STATUS_OK;
}
