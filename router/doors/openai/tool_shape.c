#include "router/doors/openai/tool_shape.h"

#include "common/base/json/json_quote.h"
#include "common/base/json/json_write.h"
#include "common/base/str.h"

#include <string.h>

#define MAX_TOOL_TEXT (1u << 20) /* bytes of a schema; the validator's own limit is lower */

static const struct tool_shape hermes = {.begin = "",
                                         .call = "<tool_call>\n{\"name\": ",
                                         .arguments = ", \"arguments\": ",
                                         .call_end = "}\n</tool_call>",
                                         .separator = "\n",
                                         .end = "",
                                         .special_tokens = {"<tool_call>", "</tool_call>"}};
/* No separator: its templates refuse several calls in one message. */
#define LLAMA(between)                                                                             \
    {                                                                                              \
        .begin = "", .call = "{\"name\": ", .arguments = (between), .call_end = "}", .end = ""     \
    }
static const struct tool_shape llama3 = LLAMA(", \"parameters\": "),
                               llama_arguments = LLAMA(", \"arguments\": ");
#define MISTRAL_LIST(opening)                                                                      \
    {                                                                                              \
        .begin = (opening),                                                                        \
        .call = "{\"name\": ", .arguments = ", \"arguments\": ", .call_end = "}",                  \
        .separator = ", ", .end = "]", .special_tokens = {                                         \
            "[TOOL_CALLS]"                                                                         \
        }                                                                                          \
    }
static const struct tool_shape mistral = MISTRAL_LIST("[TOOL_CALLS]["),
                               mistral_spaced = MISTRAL_LIST("[TOOL_CALLS] [");
static const struct tool_shape mistral_named = {.begin = "",
                                                .call = "[TOOL_CALLS]",
                                                .arguments = "[ARGS]",
                                                .call_end = "",
                                                .separator = "",
                                                .end = "",
                                                .special_tokens = {"[TOOL_CALLS]", "[ARGS]"},
                                                .bare_name = true};

static const struct tool_shape deepseek = {
    .begin = DEEPSEEK_CALLS_BEGIN,
    .call = DEEPSEEK_CALL_BEGIN "function" DEEPSEEK_SEPARATOR,
    .arguments = "\n```json\n",
    .call_end = "\n```" DEEPSEEK_CALL_END,
    .separator = "\n",
    .end = DEEPSEEK_CALLS_END,
    .special_tokens = {DEEPSEEK_CALLS_BEGIN, DEEPSEEK_CALL_BEGIN, DEEPSEEK_SEPARATOR,
                       DEEPSEEK_CALL_END, DEEPSEEK_CALLS_END},
    .bare_name = true};

const struct tool_shape *tool_shape_of(enum tool_format format, const struct chat_forms *forms)
{
    const char *text = forms->calls;
    switch (format) {
    case TOOL_FORMAT_NONE: return NULL;
    case TOOL_FORMAT_HERMES: return &hermes;
    case TOOL_FORMAT_LLAMA3: return strstr(text, "\"parameters\"") ? &llama3 : &llama_arguments;
    case TOOL_FORMAT_DEEPSEEK: return &deepseek;
    case TOOL_FORMAT_MISTRAL: break;
    }
    if (strstr(text, "[CALL_ID]"))
        return NULL; /* the parser reads such calls, but no constraint asks for them */
    if (strstr(text, "[ARGS]"))
        return &mistral_named;
    return strstr(text, "[TOOL_CALLS] [") ? &mistral_spaced : &mistral;
}

struct making {
    const struct tool_shape *shape;
    struct openai_request *request;
    struct openai_refusal *refusal;
    struct str text;
};

/* Moves `text` to the arena. NULL: refused. */
static char *keep(struct making *m, size_t tool)
{
    char *copy =
        m->text.truncated ? NULL : arena_copy(&m->request->arena, m->text.data, m->text.length + 1);
    if (!copy)
        openai_refuse(m->refusal, REASON_INVALID_CONSTRAINT, "tools",
                      "tools[%zu]: it is too long for a constraint", tool);
    str_clear(&m->text);
    return copy;
}

/* A function takes the parameters that it names, and no others. Without any, its arguments are
 * {}. */
static void write_schema(const struct json_value *function, struct str *text)
{
    const struct json_value *schema = json_find(function, "parameters");
    const struct json_value *properties = json_find(schema, "properties");
    static const char *const others[] = {
        "additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf"};
    bool none = !schema || (properties && !json_count(properties));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        none = none && !json_find(schema, others[i]);
    if (none)
        str_add(text, "{\"type\":\"object\",\"additionalProperties\":false}");
    else
        json_write(text, schema);
}

static bool make_tool(struct making *m, size_t index, const struct json_value *function,
                      const char *name, Baton__V1__ToolCalls__Tool *tool)
{
    static const char bare[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    const struct tool_shape *shape = m->shape;
    if (shape->bare_name && name[strspn(name, bare)])
        return openai_refuse(m->refusal, REASON_INVALID_CONSTRAINT, "tools",
                             "tools[%zu].function.name: this model writes names of letters, "
                             "digits, \"_\", \"-\" and \".\" only",
                             index);
    baton__v1__tool_calls__tool__init(tool);
    tool->name = (char *)name; /* the message is only read */
    tool->end = (char *)shape->call_end;
    str_add(&m->text, shape->call);
    if (shape->bare_name)
        str_add(&m->text, name);
    else
        json_quote(&m->text, name, strlen(name));
    str_add(&m->text, shape->arguments);
    tool->begin = keep(m, index);
    write_schema(function, &m->text);
    tool->json_schema = keep(m, index);
    return tool->begin && tool->json_schema;
}

/* Makes all tools, or the named one. */
static bool make_tools(struct making *m, Baton__V1__ToolCalls *calls)
{
    struct openai_request *request = m->request;
    size_t count = json_count(request->tools);
    Baton__V1__ToolCalls__Tool *tools = arena_take(&request->arena, count * sizeof *tools);
    calls->tools = arena_take(&request->arena, count * sizeof(void *));
    if (!tools || !calls->tools)
        return openai_refuse(m->refusal, REASON_INVALID_CONSTRAINT, "tools", "tools: too many");
    for (size_t i = 0; i < count; i++) {
        const struct json_value *function = json_find(json_at(request->tools, i), "function");
        const char *name = "";
        enum status status = json_get_string(function, "name", &name, NULL, NULL);
        if (status != STATUS_OK ||
            (request->tool_choice == OPENAI_TOOLS_NAMED && strcmp(name, request->tool_name) != 0))
            continue;
        if (!make_tool(m, i, function, name, &tools[calls->n_tools]))
            return false;
        calls->tools[calls->n_tools] = &tools[calls->n_tools];
        calls->n_tools++;
    }
    return true;
}

static void set_texts(const struct making *m, Baton__V1__ToolCalls *calls)
{
    const struct tool_shape *shape = m->shape;
    calls->begin = (char *)shape->begin;
    calls->end = (char *)shape->end;
    calls->separator = (char *)(shape->separator ? shape->separator : "");
    calls->parallel = shape->separator && !m->request->one_call &&
                      m->request->tool_choice == OPENAI_TOOLS_REQUIRED;
    calls->special_tokens = (char **)shape->special_tokens;
    while (calls->n_special_tokens < TOOL_SHAPE_SPECIALS &&
           shape->special_tokens[calls->n_special_tokens])
        calls->n_special_tokens++;
}

bool tool_shape_constrain(const struct tool_shape *shape, struct openai_request *request,
                          struct openai_refusal *refusal)
{
    Baton__V1__Constraint *constraint = &request->constraint;
    if (request->message.constraint && strcmp(request->constraint_param, "response_format") != 0)
        return openai_refuse(refusal, REASON_MALFORMED, request->constraint_param,
                             "%s: an answer can have one structure, and tool_choice asks for one",
                             request->constraint_param);
    struct making m = {.shape = shape, .request = request, .refusal = refusal};
    str_init(&m.text, MAX_TOOL_TEXT);
    baton__v1__tool_calls__init(&request->tool_calls);
    bool fine = make_tools(&m, &request->tool_calls);
    set_texts(&m, &request->tool_calls);
    str_deinit(&m.text);
    baton__v1__constraint__init(constraint);
    constraint->kind_case = BATON__V1__CONSTRAINT__KIND_TOOL_CALLS;
    constraint->tool_calls = &request->tool_calls;
    request->message.constraint = constraint;
    request->constraint_param = "tools";
    /* The parser must see the markers, which may be special tokens. */
    request->output.skip_special_tokens_presence_case =
        BATON__V1__OUTPUT__SKIP_SPECIAL_TOKENS_PRESENCE_SKIP_SPECIAL_TOKENS;
    request->output.skip_special_tokens = false;
    return fine;
}
