#include "common/base/json/json_write.h"
#include "common/base/str.h"
#include "router/doors/openai/openai_request_parts.h"

#include <string.h>

#define MAX_FORMAT_TEXT (1u << 20) /* the validator takes less, and says so */

/* `key` asks for a constraint; false: one is asked for already. */
static bool begin(const struct openai_fields *fields, const char *key, const char *param,
                  struct openai_request *request)
{
    if (request->message.constraint)
        return openai_field_refuse(
            fields, key, REASON_MALFORMED,
            "an answer can have one structure, and another is asked for already");
    baton__v1__constraint__init(&request->constraint);
    request->message.constraint = &request->constraint;
    request->constraint_param = param;
    return true;
}

/* JSON as text, in the request's arena. */
static char *write(const struct openai_fields *fields, const char *key,
                   const struct json_value *value, struct openai_request *request)
{
    struct str text;
    str_init(&text, MAX_FORMAT_TEXT);
    json_write(&text, value);
    char *copy = text.truncated ? NULL : arena_copy(&request->arena, text.data, text.length + 1);
    if (!copy)
        openai_field_refuse(fields, key, REASON_INVALID_CONSTRAINT, "it is too long");
    str_deinit(&text);
    return copy;
}

static void set_schema(const struct openai_fields *fields, const char *key, const char *param,
                       const struct json_value *value, struct openai_request *request)
{
    char *text = write(fields, key, value, request);
    if (!text || !begin(fields, key, param, request))
        return;
    request->constraint.kind_case = BATON__V1__CONSTRAINT__KIND_JSON_SCHEMA;
    request->constraint.json_schema = text;
}

static void set_object(const struct openai_fields *fields, const char *key, const char *param,
                       struct openai_request *request)
{
    if (!begin(fields, key, param, request))
        return;
    request->constraint.kind_case = BATON__V1__CONSTRAINT__KIND_JSON_OBJECT;
    request->constraint.json_object = true;
}

static void set_text(const struct openai_fields *fields, const char *key, bool schema,
                     struct openai_request *request)
{
    const char *text;
    if (!openai_field_text(fields, key, &text) || !begin(fields, key, key, request))
        return;
    request->constraint.kind_case =
        schema ? BATON__V1__CONSTRAINT__KIND_JSON_SCHEMA : BATON__V1__CONSTRAINT__KIND_REGEX;
    if (schema)
        request->constraint.json_schema = (char *)text; /* the message is only read */
    else
        request->constraint.regex = (char *)text;
}

static void set_choice(const struct openai_fields *fields, const char *key,
                       struct openai_request *request)
{
    const struct json_value *list;
    if (!openai_field_array(fields, key, &list))
        return;
    size_t count = json_count(list);
    char **texts = arena_take(&request->arena, (count + 1) * sizeof *texts);
    for (size_t i = 0; i < count && texts; i++) {
        const char *text;
        size_t length;
        if (json_as_string(json_at(list, i), &text, &length, NULL) != STATUS_OK ||
            strlen(text) != length) {
            openai_field_refuse(fields, key, REASON_MALFORMED,
                                "element %zu is not a string without a NUL", i);
            return;
        }
        texts[i] = (char *)text;
    }
    if (!texts || !begin(fields, key, key, request))
        return;
    baton__v1__choices__init(&request->choices_of_text);
    request->choices_of_text.n_texts = count;
    request->choices_of_text.texts = texts;
    request->constraint.kind_case = BATON__V1__CONSTRAINT__KIND_CHOICE;
    request->constraint.choice = &request->choices_of_text;
}

static void read_schema(const struct openai_fields *fields, struct openai_request *request)
{
    struct openai_fields inside = {NULL, "response_format.json_schema.", fields->refusal};
    const struct json_value *schema = NULL;
    const char *text;
    bool strict; /* it is kept either way */
    if (!openai_field_object(fields, "json_schema", &inside.object)) {
        openai_field_refuse(fields, "json_schema", REASON_MALFORMED, "is missing");
        return;
    }
    openai_field_text(&inside, "name", &text);
    openai_field_text(&inside, "description", &text);
    openai_field_bool(&inside, "strict", &strict);
    if (!openai_field_object(&inside, "schema", &schema))
        openai_field_refuse(&inside, "schema", REASON_MALFORMED, "is missing");
    else
        set_schema(fields, "json_schema", "response_format", schema, request);
}

static void read_response_format(const struct openai_fields *fields, struct openai_request *request)
{
    struct openai_fields inside = {NULL, "response_format.", fields->refusal};
    const char *type;
    if (!openai_field_object(fields, "response_format", &inside.object))
        return;
    if (!openai_field_text(&inside, "type", &type))
        openai_field_refuse(&inside, "type", REASON_MALFORMED, "is missing");
    else if (!strcmp(type, "json_object"))
        set_object(&inside, "type", "response_format", request);
    else if (!strcmp(type, "json_schema"))
        read_schema(&inside, request);
    else if (strcmp(type, "text") != 0)
        openai_field_refuse(&inside, "type", REASON_UNSUPPORTED_PARAMETER,
                            "\"%.40s\" is none of text, json_object, json_schema", type);
}

/* vLLM's names, by themselves (guided_json) or as members of structured_outputs (json). A schema
 * may come as text, too. */
static void read_members(const struct openai_fields *fields, bool guided,
                         struct openai_request *request)
{
    const char *json = guided ? "guided_json" : "json",
               *grammar = guided ? "guided_grammar" : "grammar";
    const char *object = guided ? "guided_json_object" : "json_object", *text;
    const struct json_value *schema = openai_field(fields, json);
    bool wanted = false;
    if (schema && json_kind(schema) == JSON_STRING)
        set_text(fields, json, true, request);
    else if (schema)
        set_schema(fields, json, json, schema, request);
    if (openai_field_bool(fields, object, &wanted) && wanted)
        set_object(fields, object, object, request);
    set_text(fields, guided ? "guided_regex" : "regex", false, request);
    set_choice(fields, guided ? "guided_choice" : "choice", request);
    if (openai_field_text(fields, grammar, &text))
        openai_field_refuse(fields, grammar, REASON_UNSUPPORTED_PARAMETER,
                            "grammars are not offered: schemas, expressions and choices are");
    if (openai_field(fields, "structural_tag"))
        openai_field_refuse(fields, "structural_tag", REASON_UNSUPPORTED_PARAMETER, "not offered");
    const char *blanks = guided ? "guided_whitespace_pattern" : "whitespace_pattern";
    if (openai_field(fields, blanks))
        openai_field_refuse(fields, blanks, REASON_UNSUPPORTED_PARAMETER,
                            "white space has one form");
}

void openai_read_format(const struct openai_fields *fields, struct openai_request *request)
{
    struct openai_fields inside = {NULL, "structured_outputs.", fields->refusal};
    read_response_format(fields, request);
    read_members(fields, true, request);
    const Baton__V1__Constraint *before = request->message.constraint;
    if (!openai_field_object(fields, "structured_outputs", &inside.object))
        return;
    read_members(&inside, false, request);
    if (request->message.constraint != before)
        request->constraint_param = "structured_outputs";
}
