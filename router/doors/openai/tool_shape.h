/* The texts that models write around the arguments of a call. An answer that must call a tool is
 * constrained to them, and tool_parser.h reads them. PURE. */
#ifndef BATON_ROUTER_DOORS_OPENAI_TOOL_SHAPE_H
#define BATON_ROUTER_DOORS_OPENAI_TOOL_SHAPE_H

#include "router/doors/openai/openai_request.h"
#include "router/doors/openai/tool_parser.h"

#define TOOL_SHAPE_SPECIALS 5

struct tool_shape {
    const char *begin;     /* before the first call */
    const char *call;      /* before a call's name */
    const char *arguments; /* between name and arguments */
    const char *call_end;
    const char *separator; /* between calls; NULL: one call only */
    const char *end;       /* after the last call */
    /* Parts of these texts that some vocabularies hold as one token. */
    const char *special_tokens[TOOL_SHAPE_SPECIALS];
    bool bare_name; /* no quotes: only letters, digits and _-. */
};

/* The text that the template writes tells variants of a format apart. NULL: TOOL_FORMAT_NONE, or
 * calls that have ids ("[CALL_ID]"). */
const struct tool_shape *tool_shape_of(enum tool_format format, const struct chat_forms *forms);

/* Sets the request's constraint, in its arena, to the calls that tool_choice (REQUIRED or NAMED)
 * asks for. It replaces a response_format, which is about text. False: *refusal says why. */
bool tool_shape_constrain(const struct tool_shape *shape, struct openai_request *request,
                          struct openai_refusal *refusal);

#endif
