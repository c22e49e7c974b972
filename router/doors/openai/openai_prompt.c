#include "router/doors/openai/openai_request_parts.h"

#include <stdio.h>

/* The elements of one prompt's array: numbers. */
static bool read_ids(const struct openai_fields *fields, const char *name,
                     const struct json_value *array, struct openai_request *request,
                     struct openai_prompt *prompt)
{
    struct openai_ids ids;
    if (!openai_array_ids(fields, name, REASON_INVALID_TOKEN_ID, array, &request->arena, &ids))
        return false;
    *prompt = (struct openai_prompt){.ids = ids.ids, .id_count = ids.count};
    return true;
}

static bool read_text(const struct openai_fields *fields, const char *name,
                      const struct json_value *value, struct openai_prompt *prompt)
{
    struct error why;
    if (json_as_string(value, &prompt->text, NULL, &why) == STATUS_OK)
        return true;
    return openai_field_refuse(fields, name, REASON_MALFORMED, "%s", why.text);
}

static bool read_one(const struct openai_fields *fields, size_t index,
                     const struct json_value *value, struct openai_request *request,
                     struct openai_prompt *prompt)
{
    char name[32];
    snprintf(name, sizeof name, "prompt[%zu]", index);
    if (json_kind(value) == JSON_ARRAY)
        return read_ids(fields, name, value, request, prompt);
    return read_text(fields, name, value, prompt);
}

static void read_several(const struct openai_fields *fields, const struct json_value *array,
                         struct openai_request *request, struct openai_prompt *prompts)
{
    request->prompt_count = json_count(array);
    for (size_t i = 0; i < request->prompt_count; i++)
        if (!read_one(fields, i, json_at(array, i), request, &prompts[i]))
            return;
}

static bool is_number(const struct json_value *value)
{
    return json_kind(value) == JSON_INTEGER || json_kind(value) == JSON_NUMBER;
}

void openai_read_prompt(const struct openai_fields *fields, struct openai_request *request)
{
    const struct json_value *value = openai_field(fields, "prompt");
    size_t count = json_kind(value) == JSON_ARRAY ? json_count(value) : 0;
    bool ids = count && is_number(json_at(value, 0));
    if (fields->refusal->reason)
        return;
    if (!value || (json_kind(value) == JSON_ARRAY && !count)) {
        openai_field_refuse(
            fields, "prompt", value ? REASON_EMPTY_PROMPT : REASON_MISSING_INPUT,
            "%s: give a text, a list of texts, a list of token ids, or a list of those",
            value ? "is empty" : "is missing");
        return;
    }
    if (!ids && count > OPENAI_MAX_PROMPTS) {
        openai_field_refuse(fields, "prompt", REASON_MALFORMED, "%zu prompts: at most %d at once",
                            count, OPENAI_MAX_PROMPTS);
        return;
    }
    struct openai_prompt *prompts =
        arena_take(&request->arena, (ids || !count ? 1 : count) * sizeof *prompts);
    if (!prompts) {
        openai_field_refuse(fields, "prompt", REASON_MALFORMED, "too large");
        return;
    }
    request->prompts = prompts;
    if (ids)
        read_ids(fields, "prompt", value, request, prompts);
    else if (count)
        read_several(fields, value, request, prompts);
    else
        read_text(fields, "prompt", value, prompts);
}
