#include "router/doors/openai/tool_parser.h"

#include "router/doors/openai/tool_marker.h"

#include <string.h>

#define BLANKS_HELD 256 /* of white space that may stand before a call */
#define ID_HELD     256 /* from [CALL_ID] to the end of [ARGS] */

static const char *const markers[] = {[TOOL_FORMAT_HERMES] = "<tool_call>",
                                      [TOOL_FORMAT_LLAMA3] = "<|python_tag|>",
                                      [TOOL_FORMAT_MISTRAL] = "[TOOL_CALLS]"};
static const char hermes_end[] = "</tool_call>";
static const char mistral_arguments[] = "[ARGS]";
static const char mistral_id[] = "[CALL_ID]";

enum tool_format tool_format_of(const char *template_source)
{
    if (strstr(template_source, "<function=")) /* Qwen3-Coder's, which isn't JSON */
        return TOOL_FORMAT_NONE;
    if (strstr(template_source, "<tool_call>"))
        return TOOL_FORMAT_HERMES;
    if (strstr(template_source, "[TOOL_CALLS]"))
        return TOOL_FORMAT_MISTRAL;
    if (strstr(template_source, "<|start_header_id|>") && strstr(template_source, "\"parameters\""))
        return TOOL_FORMAT_LLAMA3;
    return TOOL_FORMAT_NONE;
}

void tool_parser_init(struct tool_parser *parser, const struct tool_parser_config *config)
{
    *parser = (struct tool_parser){.config = *config, .state = TOOL_STATE_BETWEEN};
    if (config->format == TOOL_FORMAT_NONE)
        parser->state = TOOL_STATE_TEXT;
    str_init(&parser->in, TOOL_MAX_INPUT_BYTES);
    str_init(&parser->held, TOOL_MAX_HELD_BYTES);
    str_init(&parser->arguments, TOOL_MAX_INPUT_BYTES);
}

void tool_parser_deinit(struct tool_parser *parser)
{
    str_deinit(&parser->in);
    str_deinit(&parser->held);
    str_deinit(&parser->arguments);
}

static void tell(struct tool_parser *parser, enum tool_event_kind kind, const char *text,
                 size_t length)
{
    struct tool_event event = {.kind = kind,
                               .index = parser->call_count ? parser->call_count - 1 : 0,
                               .text = text,
                               .length = length};
    if (length)
        parser->config.event(parser->config.context, &event);
}

/* --------------------------------------------------------------------------------- one call */

static void open_call(struct tool_parser *parser, const char *marker, size_t length)
{
    str_clear(&parser->held);
    str_clear(&parser->arguments);
    str_append(&parser->held, marker, length);
    parser->told = parser->bracketed = false;
    parser->state = TOOL_STATE_OPENED;
}

static void begin_scan(struct tool_parser *parser)
{
    parser->scan = (struct call_scan){.state = CALL_OPEN};
    parser->told = false;
    str_clear(&parser->arguments);
    parser->state = TOOL_STATE_SCAN;
}

/* It was no call: all of it is text. */
static void give_up(struct tool_parser *parser)
{
    if (!parser->told)
        tell(parser, TOOL_TEXT, parser->held.data, parser->held.length);
    str_clear(&parser->held);
    str_clear(&parser->arguments);
    parser->state = TOOL_STATE_TEXT;
}

static bool may_be_called(const struct tool_parser *parser, const char *name)
{
    if (parser->config.format != TOOL_FORMAT_LLAMA3)
        return true;
    for (size_t i = 0; i < parser->config.name_count; i++)
        if (!strcmp(parser->config.names[i], name))
            return true;
    return false;
}

static bool tell_call(struct tool_parser *parser, const char *name)
{
    if (parser->call_count == TOOL_MAX_CALLS || !may_be_called(parser, name))
        return false;
    parser->call_count++;
    parser->told = true;
    tell(parser, TOOL_CALL, name, strlen(name));
    str_clear(&parser->held);
    return true;
}

static void tell_arguments(struct tool_parser *parser)
{
    if (!parser->told)
        return;
    tell(parser, TOOL_ARGUMENTS, parser->arguments.data, parser->arguments.length);
    str_clear(&parser->arguments);
}

/* Some of them came, or will. */
static bool arguments_begun(const struct call_scan *scan)
{
    return scan->has_arguments || (scan->member == CALL_ARGUMENTS && scan->span.begun);
}

/* `whole`: without arguments it has none; else they would have come. */
static void end_call(struct tool_parser *parser, bool whole, bool had_arguments)
{
    if (whole && !had_arguments)
        str_add(&parser->arguments, "{}");
    tell_arguments(parser);
    parser->state = TOOL_STATE_AFTER;
}

static bool hold(struct tool_parser *parser, char byte)
{
    if (parser->told)
        return true;
    if (parser->held.length + 1 >= TOOL_MAX_HELD_BYTES)
        return false;
    str_append(&parser->held, &byte, 1);
    return true;
}

static size_t step_scan(struct tool_parser *parser, const char *text, size_t length)
{
    struct call_scan *scan = &parser->scan;
    for (size_t at = 0; at < length; at++) {
        if (!hold(parser, text[at])) {
            give_up(parser);
            return at;
        }
        if (call_scan_take(scan, text[at]))
            str_append(&parser->arguments, &text[at], 1);
        bool refused = !parser->told && scan->has_name && !tell_call(parser, scan->name);
        bool broken = scan->state == CALL_BROKEN && !parser->told;
        if (refused || broken || (scan->state == CALL_DONE && !parser->told)) {
            give_up(parser);
            return at + 1;
        }
        if (scan->state == CALL_DONE || scan->state == CALL_BROKEN) {
            end_call(parser, true, arguments_begun(scan));
            return at + 1;
        }
    }
    tell_arguments(parser);
    return length;
}

/* ------------------------------------------------------------------ Mistral's name[ARGS]{...} */

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

/* Held is the marker, and then the name. */
static size_t step_name(struct tool_parser *parser, const char *text, size_t length)
{
    struct call_scan *scan = &parser->scan;
    size_t count = 0;
    while (count < length && is_name_byte(text[count]) &&
           scan->length + count < CALL_SCAN_MAX_NAME - 1)
        count++;
    if (count) {
        memcpy(scan->name + scan->length, text, count);
        scan->length += count;
        scan->name[scan->length] = 0;
        str_append(&parser->held, text, count);
        return count;
    }
    enum tool_match arguments = tool_marker_match(text, length, mistral_arguments);
    enum tool_match id = tool_marker_match(text, length, mistral_id);
    if (arguments == TOOL_MATCH_MAYBE || id == TOOL_MATCH_MAYBE)
        return 0;
    size_t skipped = arguments == TOOL_MATCH_YES ? strlen(mistral_arguments) : 0;
    if (id == TOOL_MATCH_YES) { /* theirs: calls get ids of ours */
        size_t seen = length < ID_HELD ? length : ID_HELD;
        size_t end = tool_marker_before(text, seen, mistral_arguments) + strlen(mistral_arguments);
        if (end > seen && length < ID_HELD)
            return 0;
        skipped = end > seen ? 0 : end;
    }
    bool is_call = skipped || *text == '{';
    str_append(&parser->held, text, skipped);
    if (!is_call || !tell_call(parser, scan->name)) {
        give_up(parser);
        return skipped;
    }
    parser->span = (struct value_span){0};
    parser->state = TOOL_STATE_VALUE;
    return skipped;
}

static size_t step_value(struct tool_parser *parser, const char *text, size_t length)
{
    for (size_t at = 0; at < length; at++) {
        enum span_step step = value_span_take(&parser->span, text[at]);
        if (step == SPAN_INSIDE || step == SPAN_LAST)
            str_append(&parser->arguments, &text[at], 1);
        if (step == SPAN_LAST || step == SPAN_BEHIND || step == SPAN_BROKEN) {
            end_call(parser, true, parser->span.begun);
            return step == SPAN_LAST ? at + 1 : at;
        }
    }
    tell_arguments(parser);
    return length;
}

/* ------------------------------------------------------------------------------- around calls */

static size_t step_text(struct tool_parser *parser, const char *text, size_t length)
{
    const char *marker = markers[parser->config.format];
    size_t count = length;
    /* Llama's calls stand at the start, or behind one another. */
    if (marker && parser->config.format != TOOL_FORMAT_LLAMA3 &&
        parser->call_count < TOOL_MAX_CALLS) {
        count = tool_marker_before(text, length, marker);
        if (!count && tool_marker_match(text, length, marker) == TOOL_MATCH_YES) {
            open_call(parser, text, strlen(marker));
            return strlen(marker);
        }
    }
    tell(parser, TOOL_TEXT, text, count);
    return count;
}

static size_t step_between(struct tool_parser *parser, const char *text, size_t length)
{
    const char *marker = markers[parser->config.format];
    size_t count = tool_marker_blanks(text, length);
    if (count >= BLANKS_HELD) {
        parser->state = TOOL_STATE_TEXT;
        return 0;
    }
    if (count == length)
        return 0;
    enum tool_match found = tool_marker_match(text + count, length - count, marker);
    if (found == TOOL_MATCH_MAYBE)
        return 0;
    if (found == TOOL_MATCH_YES && parser->call_count < TOOL_MAX_CALLS) {
        open_call(parser, text, count + strlen(marker));
        return count + strlen(marker);
    }
    if (parser->config.format == TOOL_FORMAT_LLAMA3 && text[count] == '{' && !parser->call_count) {
        open_call(parser, text, count);
        return count;
    }
    parser->state = TOOL_STATE_TEXT;
    return parser->call_count ? count : 0;
}

static size_t step_opened(struct tool_parser *parser, const char *text, size_t length)
{
    bool mistral = parser->config.format == TOOL_FORMAT_MISTRAL;
    size_t count = tool_marker_blanks(text, length);
    str_append(&parser->held, text, count);
    if (count || !length)
        return count;
    if (mistral && !parser->bracketed && *text == '[') {
        parser->bracketed = true;
        str_append(&parser->held, text, 1);
        return 1;
    }
    if (mistral && !parser->bracketed && is_name_byte(*text)) {
        parser->scan = (struct call_scan){.state = CALL_OPEN};
        parser->state = TOOL_STATE_NAME;
    } else if (*text == '{') {
        begin_scan(parser);
    } else {
        give_up(parser);
    }
    return 0;
}

static size_t step_after(struct tool_parser *parser, const char *text, size_t length)
{
    enum tool_format format = parser->config.format;
    if (format == TOOL_FORMAT_HERMES) { /* what stands before the end marker is nobody's */
        size_t count = tool_marker_before(text, length, hermes_end);
        if (count || tool_marker_match(text, length, hermes_end) != TOOL_MATCH_YES)
            return count;
        parser->state = TOOL_STATE_BETWEEN;
        return strlen(hermes_end);
    }
    size_t count = tool_marker_blanks(text, length);
    if (count)
        return count;
    bool next = format == TOOL_FORMAT_LLAMA3 ? *text == ';' : parser->bracketed && *text == ',';
    bool end = parser->bracketed && *text == ']';
    if (next) {
        bool bracketed = parser->bracketed;
        open_call(parser, text, 1);
        parser->bracketed = bracketed;
    } else {
        parser->state = format == TOOL_FORMAT_LLAMA3 ? TOOL_STATE_TEXT : TOOL_STATE_BETWEEN;
    }
    return next || end;
}

static size_t step(struct tool_parser *parser, const char *text, size_t length)
{
    switch (parser->state) {
    case TOOL_STATE_TEXT: return step_text(parser, text, length);
    case TOOL_STATE_BETWEEN: return step_between(parser, text, length);
    case TOOL_STATE_OPENED: return step_opened(parser, text, length);
    case TOOL_STATE_SCAN: return step_scan(parser, text, length);
    case TOOL_STATE_NAME: return step_name(parser, text, length);
    case TOOL_STATE_VALUE: return step_value(parser, text, length);
    case TOOL_STATE_AFTER: return step_after(parser, text, length);
    }
    return length;
}

/* A step takes bytes, or changes the state, or waits for more. */
static void run(struct tool_parser *parser)
{
    size_t at = 0;
    while (at < parser->in.length) {
        enum tool_state before = parser->state;
        size_t taken = step(parser, parser->in.data + at, parser->in.length - at);
        at += taken;
        if (!taken && parser->state == before)
            break;
    }
    str_remove_front(&parser->in, at);
}

void tool_parser_push(struct tool_parser *parser, const char *text, size_t length)
{
    str_append(&parser->in, text, length);
    run(parser);
}

/* Only a call begins like this. Llama's may begin as any JSON does. */
static bool is_surely_call(const struct tool_parser *parser)
{
    const struct str *held = &parser->held;
    size_t count = tool_marker_blanks(held->data, held->length);
    return parser->call_count || (count < held->length && held->data[count] != '{');
}

/* In a call that isn't told. */
static void end_untold(struct tool_parser *parser, bool cut)
{
    if (cut && is_surely_call(parser)) {
        str_clear(&parser->held);
        return;
    }
    give_up(parser);
    tell(parser, TOOL_TEXT, parser->in.data, parser->in.length);
}

void tool_parser_end(struct tool_parser *parser, bool cut)
{
    enum tool_state state = parser->state;
    bool text = state == TOOL_STATE_TEXT ||
                (state == TOOL_STATE_BETWEEN &&
                 (!parser->call_count ||
                  tool_marker_blanks(parser->in.data, parser->in.length) < parser->in.length));
    if (parser->told && state == TOOL_STATE_SCAN)
        end_call(parser, !cut, arguments_begun(&parser->scan));
    else if (state == TOOL_STATE_VALUE)
        end_call(parser, !cut, parser->span.begun);
    else if (state == TOOL_STATE_OPENED || state == TOOL_STATE_SCAN || state == TOOL_STATE_NAME)
        end_untold(parser, cut);
    else if (text)
        tell(parser, TOOL_TEXT, parser->in.data, parser->in.length);
    str_clear(&parser->in);
}
