#include "router/doors/tool_calls_text.h"

#include "common/base/json/json_quote.h"

#include <string.h>

/* {"key":"text", or with a comma before; nothing where the text is empty and no object begins. */
static void add(struct str *out, char before, const char *key, const char *text)
{
    if (before == ',' && !*text)
        return;
    str_addf(out, "%c\"%s\":", before, key);
    json_quote(out, text, strlen(text));
}

static void add_tool(struct str *out, const Baton__V1__ToolCalls__Tool *tool)
{
    add(out, '{', "name", tool->name);
    add(out, ',', "begin", tool->begin);
    add(out, ',', "schema", *tool->json_schema ? tool->json_schema : "true");
    add(out, ',', "end", tool->end);
    str_add(out, "}");
}

void tool_calls_write(const Baton__V1__ToolCalls *calls, struct str *text)
{
    add(text, '{', "begin", calls->begin);
    for (size_t i = 0; i < calls->n_tools; i++) {
        str_add(text, i ? "," : ",\"tools\":[");
        add_tool(text, calls->tools[i]);
    }
    str_add(text, calls->n_tools ? "]" : "");
    add(text, ',', "separator", calls->separator);
    add(text, ',', "end", calls->end);
    for (size_t i = 0; i < calls->n_special_tokens; i++) {
        str_add(text, i ? "," : ",\"special_tokens\":[");
        json_quote(text, calls->special_tokens[i], strlen(calls->special_tokens[i]));
    }
    str_add(text, calls->n_special_tokens ? "]" : "");
    str_add(text, calls->parallel ? ",\"parallel\":true}" : "}");
}
