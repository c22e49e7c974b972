/* Markers in a model's text, of which the end may be still to come. PURE. */
#ifndef BATON_ROUTER_DOORS_OPENAI_TOOL_MARKER_H
#define BATON_ROUTER_DOORS_OPENAI_TOOL_MARKER_H

#include <stddef.h>

enum tool_match { TOOL_MATCH_NO, TOOL_MATCH_MAYBE, TOOL_MATCH_YES };

/* Does the text begin with the marker? */
enum tool_match tool_marker_match(const char *text, size_t length, const char *marker);
/* Bytes up to the marker, or to what may become it. */
size_t tool_marker_before(const char *text, size_t length, const char *marker);
/* Bytes of white space that it begins with. */
size_t tool_marker_blanks(const char *text, size_t length);

#endif
