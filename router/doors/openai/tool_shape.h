/* How models write calls, as texts around the arguments: what an answer that must call is kept to,
 * and tool_parser.h reads. PURE. */
#ifndef BATON_ROUTER_DOORS_OPENAI_TOOL_SHAPE_H
#define BATON_ROUTER_DOORS_OPENAI_TOOL_SHAPE_H

#include "router/doors/openai/openai_request.h"
#include "router/doors/openai/tool_parser.h"

struct tool_shape {
    const char *begin;     /* of all calls */
    const char *call;      /* before a call's name */
    const char *arguments; /* between name and arguments */
    const char *call_end;
    const char *separator; /* NULL: one call at a time */
    const char *end;
    const char *special_tokens[2]; /* that these texts are of, in some vocabularies */
    bool bare_name;                /* without quotes: of letters, digits and _-. only */
};

/* NULL: of TOOL_FORMAT_NONE, and where calls have ids ("[CALL_ID]"). Mistral's ways are told apart
 * by what the template writes. */
const struct tool_shape *tool_shape_of(enum tool_format format, const char *template_source);

/* Makes the request's constraint the calls that its tool_choice asks for (REQUIRED or NAMED), in
 * its arena; a response_format is of text that isn't there then. False: *refusal. */
bool tool_shape_constrain(const struct tool_shape *shape, struct openai_request *request,
                          struct openai_refusal *refusal);

#endif
