/* The constraint "tool_calls" of a request as the JSON that workers compile
 * (common/language/constrain/tool_calls.h). PURE. */
#ifndef BATON_ROUTER_DOORS_TOOL_CALLS_TEXT_H
#define BATON_ROUTER_DOORS_TOOL_CALLS_TEXT_H

#include "common/base/str.h"
#include "proto/baton.pb-c.h"

void tool_calls_write(const Baton__V1__ToolCalls *calls, struct str *text);

#endif
