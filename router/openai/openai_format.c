#include "router/openai/openai_request_parts.h"

#include <string.h>

static void set(const struct openai_fields *fields, const char *key, enum openai_format format,
                const struct json_value *value, struct openai_request *request)
{
    if (request->format != OPENAI_FORMAT_TEXT)
        openai_field_refuse(fields, key, REASON_MALFORMED,
                            "an answer can have one structure, and another is asked for already");
    request->format = format;
    request->format_value = value;
}

static void read_schema(const struct openai_fields *fields, struct openai_request *request)
{
    struct openai_fields inside = {NULL, "response_format.json_schema.", fields->refusal};
    const struct json_value *schema = NULL;
    const char *name;
    if (!openai_field_object(fields, "json_schema", &inside.object)) {
        openai_field_refuse(fields, "json_schema", REASON_MALFORMED, "is missing");
        return;
    }
    openai_field_text(&inside, "name", &name);
    if (!openai_field_object(&inside, "schema", &schema)) {
        openai_field_refuse(&inside, "schema", REASON_MALFORMED, "is missing");
        return;
    }
    set(fields, "json_schema", OPENAI_FORMAT_JSON_SCHEMA, schema, request);
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
        set(&inside, "type", OPENAI_FORMAT_JSON_OBJECT, NULL, request);
    else if (!strcmp(type, "json_schema"))
        read_schema(&inside, request);
    else if (strcmp(type, "text") != 0)
        openai_field_refuse(&inside, "type", REASON_UNSUPPORTED_PARAMETER,
                            "\"%.40s\" is none of text, json_object, json_schema", type);
}

/* vLLM's names, by themselves (guided_json) or as members of structured_outputs (json). */
static void read_member(const struct openai_fields *fields, const char *key,
                        enum openai_format format, struct openai_request *request)
{
    const struct json_value *value = openai_field(fields, key);
    enum json_kind kind = json_kind(value);
    const char *text;
    if (!value)
        return;
    if (format == OPENAI_FORMAT_CHOICE) {
        if (openai_field_array(fields, key, &value))
            set(fields, key, format, value, request);
    } else if (format == OPENAI_FORMAT_JSON_OBJECT) {
        bool wanted = false;
        if (openai_field_bool(fields, key, &wanted) && wanted)
            set(fields, key, format, NULL, request);
    } else if (format == OPENAI_FORMAT_JSON_SCHEMA && kind == JSON_OBJECT) {
        set(fields, key, format, value, request);
    } else if (openai_field_text(fields, key, &text)) {
        set(fields, key, format, value, request); /* a schema as text, too */
    }
}

void openai_read_format(const struct openai_fields *fields, struct openai_request *request)
{
    static const struct {
        const char *name, *guided;
        enum openai_format format;
    } members[] = {
        {"json", "guided_json", OPENAI_FORMAT_JSON_SCHEMA},
        {"json_object", "guided_json_object", OPENAI_FORMAT_JSON_OBJECT},
        {"regex", "guided_regex", OPENAI_FORMAT_REGEX},
        {"choice", "guided_choice", OPENAI_FORMAT_CHOICE},
        {"grammar", "guided_grammar", OPENAI_FORMAT_GRAMMAR},
    };
    struct openai_fields inside = {NULL, "structured_outputs.", fields->refusal};
    openai_field_object(fields, "structured_outputs", &inside.object);
    read_response_format(fields, request);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        read_member(fields, members[i].guided, members[i].format, request);
        read_member(&inside, members[i].name, members[i].format, request);
    }
}
