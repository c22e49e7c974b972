#include "router/doors/openai/tool_marker.h"

#include <stdbool.h>
#include <string.h>

enum tool_match tool_marker_match(const char *text, size_t length, const char *marker)
{
    size_t size = strlen(marker);
    if (memcmp(text, marker, length < size ? length : size) != 0)
        return TOOL_MATCH_NO;
    return length < size ? TOOL_MATCH_MAYBE : TOOL_MATCH_YES;
}

size_t tool_marker_before(const char *text, size_t length, const char *marker)
{
    for (size_t at = 0; at < length; at++)
        if (tool_marker_match(text + at, length - at, marker) != TOOL_MATCH_NO)
            return at;
    return length;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

size_t tool_marker_blanks(const char *text, size_t length)
{
    size_t count = 0;
    while (count < length && is_blank(text[count]))
        count++;
    return count;
}
