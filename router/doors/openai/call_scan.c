#include "router/doors/openai/call_scan.h"

#include "common/base/json/json.h"
#include "common/base/str.h"

#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static enum span_step begin(struct value_span *span, char byte)
{
    if (is_blank(byte))
        return SPAN_BLANK;
    if (strchr(",:]}", byte)) /* NUL, too */
        return SPAN_BROKEN;
    span->begun = true;
    span->in_string = byte == '"';
    span->depth = byte == '{' || byte == '[';
    span->scalar = !span->in_string && !span->depth;
    return SPAN_INSIDE;
}

static enum span_step take_in_string(struct value_span *span, char byte)
{
    if (span->escaped)
        span->escaped = false;
    else if (byte == '\\')
        span->escaped = true;
    else if (byte == '"')
        span->in_string = false;
    return span->in_string || span->depth ? SPAN_INSIDE : SPAN_LAST;
}

enum span_step value_span_take(struct value_span *span, char byte)
{
    if (!span->begun)
        return begin(span, byte);
    if (span->in_string)
        return take_in_string(span, byte);
    if (span->scalar)
        return is_blank(byte) || strchr(",]}", byte) ? SPAN_BEHIND : SPAN_INSIDE;
    if (byte == '"')
        span->in_string = true;
    else if (byte == '{' || byte == '[')
        span->depth++;
    else if (byte == '}' || byte == ']')
        span->depth--;
    return span->depth ? SPAN_INSIDE : SPAN_LAST;
}

/* `text` is a JSON string; anything else is no key and no name. */
static bool decode(const struct call_scan *scan, char out[CALL_SCAN_MAX_NAME])
{
    static const struct json_limits limits = {.max_bytes = CALL_SCAN_MAX_NAME, .max_depth = 1};
    struct json *json;
    const char *text;
    if (json_parse(scan->text, scan->length, limits, &json, NULL) != STATUS_OK)
        return false;
    bool fine = json_as_string(json_root(json), &text, NULL, NULL) == STATUS_OK &&
                str_copy(out, CALL_SCAN_MAX_NAME, text);
    json_destroy(json);
    return fine;
}

static void keep(struct call_scan *scan, char byte)
{
    if (scan->length < sizeof scan->text)
        scan->text[scan->length++] = byte;
    else
        scan->state = CALL_BROKEN;
}

static void begin_part(struct call_scan *scan, enum call_scan_state state)
{
    scan->state = state;
    scan->span = (struct value_span){0};
    scan->length = 0;
}

static void take_key(struct call_scan *scan, char byte)
{
    char key[CALL_SCAN_MAX_NAME];
    if (!scan->span.begun && byte == '}') {
        scan->state = CALL_DONE;
        return;
    }
    if (!scan->span.begun && !is_blank(byte) && byte != '"') {
        scan->state = CALL_BROKEN;
        return;
    }
    enum span_step step = value_span_take(&scan->span, byte);
    if (step == SPAN_INSIDE || step == SPAN_LAST)
        keep(scan, byte);
    if (step != SPAN_LAST || scan->state == CALL_BROKEN)
        return;
    if (!decode(scan, key)) {
        scan->state = CALL_BROKEN;
        return;
    }
    bool arguments = !strcmp(key, "arguments") || !strcmp(key, "parameters");
    scan->member = !strcmp(key, "name")                ? CALL_NAME
                   : arguments && !scan->has_arguments ? CALL_ARGUMENTS
                                                       : CALL_OTHER;
    begin_part(scan, CALL_COLON);
}

static void end_value(struct call_scan *scan)
{
    if (scan->member == CALL_NAME && !scan->has_name)
        scan->has_name = decode(scan, scan->name) && *scan->name;
    scan->has_arguments |= scan->member == CALL_ARGUMENTS;
    scan->state = CALL_COMMA;
}

static void take_comma(struct call_scan *scan, char byte)
{
    if (byte == ',')
        begin_part(scan, CALL_KEY);
    else if (byte == '}')
        scan->state = CALL_DONE;
    else if (!is_blank(byte))
        scan->state = CALL_BROKEN;
}

static bool take_value(struct call_scan *scan, char byte)
{
    enum span_step step = value_span_take(&scan->span, byte);
    bool inside = step == SPAN_INSIDE || step == SPAN_LAST;
    if (step == SPAN_BROKEN)
        scan->state = CALL_BROKEN;
    if (inside && scan->member == CALL_NAME && !scan->has_name)
        keep(scan, byte);
    if (step == SPAN_LAST || step == SPAN_BEHIND)
        end_value(scan);
    if (step == SPAN_BEHIND)
        take_comma(scan, byte);
    return inside && scan->member == CALL_ARGUMENTS;
}

bool call_scan_take(struct call_scan *scan, char byte)
{
    switch (scan->state) {
    case CALL_OPEN:
        if (byte == '{')
            begin_part(scan, CALL_KEY);
        else if (!is_blank(byte))
            scan->state = CALL_BROKEN;
        return false;
    case CALL_KEY: take_key(scan, byte); return false;
    case CALL_COLON:
        if (byte == ':')
            begin_part(scan, CALL_VALUE);
        else if (!is_blank(byte))
            scan->state = CALL_BROKEN;
        return false;
    case CALL_VALUE: return take_value(scan, byte);
    case CALL_COMMA: take_comma(scan, byte); return false;
    case CALL_DONE:
    case CALL_BROKEN: return false;
    }
    return false;
}
