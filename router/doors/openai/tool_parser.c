#include "router/doors/openai/tool_parser.h"

#include "common/base/json/json.h"

#include <string.h>

#define BLANKS_HELD 256  /* bytes of white space held before a call */
#define ID_HELD     256  /* bytes from [CALL_ID] to the end of [ARGS] */
#define HEAD_HELD   512  /* bytes before the arguments of a DeepSeek call */
#define NAME_HELD   4096 /* bytes before the arguments, with white space before them */
#define OPENED_HELD (TOOL_MAX_HELD_BYTES - NAME_HELD) /* bytes before what is behind a marker */

/* A call begins with any of them. */
#define MARKERS 2
static const char *const markers[][MARKERS] = {
    [TOOL_FORMAT_NONE] = {NULL},
    [TOOL_FORMAT_HERMES] = {"<tool_call>"},
    [TOOL_FORMAT_LLAMA3] = {"<|python_tag|>"},
    [TOOL_FORMAT_MISTRAL] = {"[TOOL_CALLS]"},
    [TOOL_FORMAT_DEEPSEEK] = {DEEPSEEK_CALL_BEGIN, DEEPSEEK_CALLS_BEGIN},
};
static const char hermes_end[] = "</tool_call>";
const char *const tool_format_names[] = {[TOOL_FORMAT_NONE] = "none",
                                         [TOOL_FORMAT_HERMES] = "hermes",
                                         [TOOL_FORMAT_LLAMA3] = "llama3",
                                         [TOOL_FORMAT_MISTRAL] = "mistral",
                                         [TOOL_FORMAT_DEEPSEEK] = "deepseek"};
static const char mistral_arguments[] = "[ARGS]";
static const char mistral_id[] = "[CALL_ID]";

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

/* -------------------------------------------------------------------------------------- markers */

enum match { MATCH_NO, MATCH_MAYBE, MATCH_YES }; /* MAYBE: the text ends inside the marker */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Whether the byte is inside a character. Text is never held up to one: it may become an event. */
static bool is_inside(char c)
{
    return (c & 0xc0) == 0x80;
}

/* Whether the text begins with the marker. */
static enum match marker_match(const char *text, size_t length, const char *marker)
{
    size_t size = strlen(marker);
    if (memcmp(text, marker, length < size ? length : size) != 0)
        return MATCH_NO;
    return length < size ? MATCH_MAYBE : MATCH_YES;
}

/* Whether the text begins with a marker of the format; YES: *marker is set to it. */
static enum match begins(enum tool_format format, const char *text, size_t length,
                         const char **marker)
{
    enum match found = MATCH_NO;
    for (size_t i = 0; i < MARKERS && found != MATCH_YES && markers[format][i]; i++) {
        enum match match = marker_match(text, length, markers[format][i]);
        if (match == MATCH_YES)
            *marker = markers[format][i];
        if (match != MATCH_NO)
            found = match;
    }
    return found;
}

/* Bytes before the marker, or before a part of it at the end. */
static size_t before_marker(const char *text, size_t length, const char *marker)
{
    size_t at = 0;
    while (at < length && marker_match(text + at, length - at, marker) == MATCH_NO)
        at++;
    return at;
}

/* Bytes of white space at the beginning. */
static size_t leading_blanks(const char *text, size_t length)
{
    size_t count = 0;
    while (count < length && is_blank(text[count]))
        count++;
    return count;
}

/* ----------------------------------------------------------------- one JSON value, byte by byte */

enum step {
    STEP_BLANK,  /* white space before the value */
    STEP_INSIDE, /* a byte of it */
    STEP_LAST,   /* its last byte */
    STEP_BEHIND, /* a byte after it: the value ended before */
    STEP_BROKEN, /* no value can begin like this */
};

static enum step value_take(struct tool_value *value, char byte)
{
    if (!value->begun) {
        if (is_blank(byte))
            return STEP_BLANK;
        if (strchr(",:]}", byte)) /* also NUL */
            return STEP_BROKEN;
        value->begun = true;
        value->in_string = byte == '"';
        value->depth = byte == '{' || byte == '[';
        value->scalar = !value->in_string && !value->depth;
        return STEP_INSIDE;
    }
    if (value->scalar)
        return is_blank(byte) || strchr(",]}", byte) ? STEP_BEHIND : STEP_INSIDE;
    if (value->escaped)
        value->escaped = false;
    else if (value->in_string && byte == '\\')
        value->escaped = true;
    else if (byte == '"')
        value->in_string = !value->in_string;
    else if (!value->in_string && (byte == '{' || byte == '['))
        value->depth++;
    else if (!value->in_string && (byte == '}' || byte == ']'))
        value->depth--;
    return value->in_string || value->depth ? STEP_INSIDE : STEP_LAST;
}

/* ---------------------------------------------------------------- a call's object, byte by byte */

/* Decodes the JSON string in object->text. False: it isn't one, so neither a key nor a name. */
static bool decode(const struct tool_object *object, char out[TOOL_MAX_NAME])
{
    static const struct json_limits limits = {.max_bytes = TOOL_MAX_NAME, .max_depth = 1};
    struct json *json;
    const char *text;
    if (json_parse(object->text, object->length, limits, &json, NULL) != STATUS_OK)
        return false;
    bool fine = json_as_string(json_root(json), &text, NULL, NULL) == STATUS_OK &&
                str_copy(out, TOOL_MAX_NAME, text);
    json_destroy(json);
    return fine;
}

static void keep(struct tool_object *object, char byte)
{
    if (object->length < sizeof object->text)
        object->text[object->length++] = byte;
    else if (!is_inside(byte))
        object->state = TOOL_OBJECT_BROKEN;
}

static void begin_part(struct tool_object *object, int state)
{
    object->state = state;
    object->value = (struct tool_value){0};
    object->length = 0;
}

/* Takes a byte where the object wants `wanted`, and then a part in `state`; skips white space. */
static void take_sign(struct tool_object *object, char byte, char wanted, int state)
{
    if (byte == wanted)
        begin_part(object, state);
    else if (!is_blank(byte))
        object->state = TOOL_OBJECT_BROKEN;
}

static void take_comma(struct tool_object *object, char byte)
{
    if (byte == '}')
        object->state = TOOL_OBJECT_DONE;
    else
        take_sign(object, byte, ',', TOOL_OBJECT_KEY);
}

static void take_key(struct tool_object *object, char byte)
{
    char key[TOOL_MAX_NAME];
    if (!object->value.begun && byte == '}') {
        object->state = TOOL_OBJECT_DONE;
        return;
    }
    if (!object->value.begun && !is_blank(byte) && byte != '"') {
        object->state = TOOL_OBJECT_BROKEN;
        return;
    }
    enum step step = value_take(&object->value, byte);
    if (step == STEP_INSIDE || step == STEP_LAST)
        keep(object, byte);
    if (step != STEP_LAST || object->state == TOOL_OBJECT_BROKEN)
        return;
    if (!decode(object, key)) {
        object->state = TOOL_OBJECT_BROKEN;
        return;
    }
    bool arguments = !strcmp(key, "arguments") || !strcmp(key, "parameters");
    object->member = !strcmp(key, "name")                  ? TOOL_MEMBER_NAME
                     : arguments && !object->has_arguments ? TOOL_MEMBER_ARGUMENTS
                                                           : TOOL_MEMBER_OTHER;
    begin_part(object, TOOL_OBJECT_COLON);
}

/* True: the byte belongs to the arguments. */
static bool take_value(struct tool_object *object, char byte)
{
    enum step step = value_take(&object->value, byte);
    bool inside = step == STEP_INSIDE || step == STEP_LAST;
    bool named = object->member == TOOL_MEMBER_NAME && !object->has_name;
    if (step == STEP_BROKEN)
        object->state = TOOL_OBJECT_BROKEN;
    if (inside && named)
        keep(object, byte);
    if (step == STEP_LAST || step == STEP_BEHIND) {
        if (named)
            object->has_name = decode(object, object->name) && *object->name;
        object->has_arguments |= object->member == TOOL_MEMBER_ARGUMENTS;
        object->state = TOOL_OBJECT_COMMA;
    }
    if (step == STEP_BEHIND)
        take_comma(object, byte);
    return inside && object->member == TOOL_MEMBER_ARGUMENTS;
}

/* True: the byte belongs to the arguments. */
static bool object_take(struct tool_object *object, char byte)
{
    switch (object->state) {
    case TOOL_OBJECT_OPEN: take_sign(object, byte, '{', TOOL_OBJECT_KEY); break;
    case TOOL_OBJECT_KEY: take_key(object, byte); break;
    case TOOL_OBJECT_COLON: take_sign(object, byte, ':', TOOL_OBJECT_VALUE); break;
    case TOOL_OBJECT_VALUE: return take_value(object, byte);
    case TOOL_OBJECT_COMMA: take_comma(object, byte); break;
    case TOOL_OBJECT_DONE:
    case TOOL_OBJECT_BROKEN: break;
    }
    return false;
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

/* ------------------------------------------------------------------------------------- one call */

/* Opens a call with its first `length` bytes, which end with the marker. */
static void open_call(struct tool_parser *parser, const char *text, size_t length,
                      const char *marker)
{
    str_clear(&parser->held);
    str_clear(&parser->arguments);
    str_append(&parser->held, text, length);
    parser->object = (struct tool_object){.state = TOOL_OBJECT_OPEN};
    parser->value = (struct tool_value){0};
    parser->told = parser->bracketed = false;
    parser->in_call = !strcmp(marker, DEEPSEEK_CALL_BEGIN);
    parser->state = TOOL_STATE_OPENED;
}

/* Whether there is no room to hold the byte. Bytes inside a character have some of their own. */
static bool is_full(const struct tool_parser *parser, char byte)
{
    return parser->held.length + (is_inside(byte) ? 1 : 4) >= TOOL_MAX_HELD_BYTES;
}

/* The held text is no call: sends it as text. */
static void give_up(struct tool_parser *parser)
{
    if (!parser->told)
        tell(parser, TOOL_TEXT, parser->held.data, parser->held.length);
    str_clear(&parser->held);
    str_clear(&parser->arguments);
    parser->state = TOOL_STATE_TEXT;
}

/* False: `name` isn't callable, or there are too many calls. */
static bool tell_call(struct tool_parser *parser, const char *name)
{
    const struct tool_parser_config *config = &parser->config;
    bool known = config->format != TOOL_FORMAT_LLAMA3;
    for (size_t i = 0; !known && i < config->name_count; i++)
        known = !strcmp(config->names[i], name);
    if (!known || parser->call_count == TOOL_MAX_CALLS)
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

/* The object has arguments, whole or in part. */
static bool arguments_begun(const struct tool_object *object)
{
    return object->has_arguments ||
           (object->member == TOOL_MEMBER_ARGUMENTS && object->value.begun);
}

/* `whole`: the model ended the call. Without arguments it then gets {}. */
static void end_call(struct tool_parser *parser, bool whole, bool had_arguments)
{
    if (whole && !had_arguments)
        str_add(&parser->arguments, "{}");
    tell_arguments(parser);
    parser->state = TOOL_STATE_AFTER;
}

/* Arguments that aren't an object: null counts as none, and a string as the value that it spells.
 * False: no function takes them, so this is no call. */
static bool settle_arguments(struct tool_parser *parser)
{
    struct str *arguments = &parser->arguments;
    struct json_limits limits = {.max_bytes = TOOL_MAX_HELD_BYTES, .max_depth = 1000};
    struct json *json = NULL, *inner = NULL;
    const char *text = "";
    size_t length = 0;
    if (!arguments->length || *arguments->data == '{')
        return true;
    if (json_parse(arguments->data, arguments->length, limits, &json, NULL) != STATUS_OK)
        return false;
    enum json_kind kind = json_kind(json_root(json));
    if (json_as_string(json_root(json), &text, &length, NULL) == STATUS_OK &&
        json_parse(text, length, limits, &inner, NULL) == STATUS_OK)
        kind = json_kind(json_root(inner));
    str_clear(arguments);
    if (kind == JSON_NULL)
        str_add(arguments, "{}");
    else if (kind == JSON_OBJECT)
        str_append(arguments, text, length);
    json_destroy(inner);
    json_destroy(json);
    return arguments->length > 0;
}

/* Each step returns the bytes that it took. 0 without a change of the state: it waits for more.
 *
 * The call is told once its name and the start of its arguments are known. An object that is over
 * or broken before that may be text. One that breaks later ends the call, and takes no more. */
static size_t step_scan(struct tool_parser *parser, const char *text, size_t length)
{
    struct tool_object *object = &parser->object;
    for (size_t at = 0; at < length; at++) {
        bool told = parser->told;
        if (!told && is_full(parser, text[at])) {
            give_up(parser);
            return at;
        }
        if (object_take(object, text[at]))
            str_append(&parser->arguments, &text[at], 1);
        bool broken = object->state == TOOL_OBJECT_BROKEN;
        if (!told && !broken)
            str_append(&parser->held, &text[at], 1);
        bool over = object->state == TOOL_OBJECT_DONE || broken;
        bool whole = !told && object->state == TOOL_OBJECT_DONE && settle_arguments(parser);
        bool known = whole || (parser->arguments.length && *parser->arguments.data == '{');
        bool call = told || (object->has_name && known && tell_call(parser, object->name));
        if (!call && (over || (object->has_name && known))) {
            give_up(parser);
            return at + !broken;
        }
        if (over) {
            end_call(parser, true, arguments_begun(object));
            return at + !broken;
        }
    }
    tell_arguments(parser);
    return length;
}

/* -------------------------------------------------------------------- Mistral's name[ARGS]{...} */

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

/* `held` is the marker and the name so far. */
static size_t step_name(struct tool_parser *parser, const char *text, size_t length)
{
    struct tool_object *object = &parser->object;
    size_t count = 0;
    while (count < length && is_name_byte(text[count]) &&
           object->length + count < TOOL_MAX_NAME - 1)
        count++;
    if (count) {
        memcpy(object->name + object->length, text, count);
        object->length += count;
        object->name[object->length] = 0;
        str_append(&parser->held, text, count);
        return count;
    }
    enum match arguments = marker_match(text, length, mistral_arguments);
    enum match id = marker_match(text, length, mistral_id);
    if (arguments == MATCH_MAYBE || id == MATCH_MAYBE)
        return 0;
    size_t skipped = arguments == MATCH_YES ? strlen(mistral_arguments) : 0;
    if (id == MATCH_YES) { /* the model's id is dropped: openai_call_id makes another */
        size_t seen = length < ID_HELD ? length : ID_HELD;
        size_t end = before_marker(text, seen, mistral_arguments) + strlen(mistral_arguments);
        if (end > seen && length < ID_HELD)
            return 0;
        skipped = end > seen ? 0 : end;
    }
    str_append(&parser->held, text, skipped);
    if (skipped || *text == '{')
        parser->state = TOOL_STATE_VALUE;
    else
        give_up(parser);
    return skipped;
}

/* ------------------------------------------------- DeepSeek's function<sep>name, ```json, {...} */

/* Bytes at the beginning that are among those of `set`, or that aren't. A NUL is none of them. */
static size_t span_of(const char *text, size_t length, const char *set, bool among)
{
    size_t count = 0;
    while (count < length && (text[count] && strchr(set, text[count])) == among)
        count++;
    return count;
}

/* Sets the object's name. False: the text, which may have a NUL, is no head with one. */
static bool read_head(struct tool_object *object, const char *text, size_t length)
{
    static const char separator[] = DEEPSEEK_SEPARATOR;
    const char *name = memmem(text, length, separator, strlen(separator));
    if (!name)
        return false;
    name += strlen(separator);
    size_t rest = length - (size_t)(name - text), size = span_of(name, rest, " \t\r\n`", false);
    if (!size || size >= TOOL_MAX_NAME || memchr(name, 0, size) ||
        span_of(name + size, rest - size, " \t\r\n`json", true) < rest - size)
        return false;
    memcpy(object->name, name, size);
    object->name[size] = 0;
    return true;
}

/* `held` is the marker and the head so far: all before the arguments. */
static size_t step_head(struct tool_parser *parser, const char *text, size_t length)
{
    const struct str *held = &parser->held;
    size_t count = 0;
    while (count < length && text[count] != '{' &&
           held->length + count <= HEAD_HELD + (is_inside(text[count]) ? 3u : 0u))
        count++;
    str_append(&parser->held, text, count);
    if (count == length && held->length <= HEAD_HELD)
        return count;
    if (held->length <= HEAD_HELD && read_head(&parser->object, held->data, held->length))
        parser->state = TOOL_STATE_VALUE;
    else
        give_up(parser);
    return count;
}

/* The arguments behind a name. They begin with {; otherwise this is no call. */
static size_t step_value(struct tool_parser *parser, const char *text, size_t length)
{
    if (!parser->told) {
        size_t blank = is_blank(*text);
        str_append(&parser->held, text, blank);
        bool wait = blank && parser->held.length < NAME_HELD;
        if (!wait && (*text != '{' || !tell_call(parser, parser->object.name)))
            give_up(parser);
        if (!parser->told)
            return blank;
    }
    for (size_t at = 0; at < length; at++) {
        enum step step = value_take(&parser->value, text[at]);
        if (step == STEP_INSIDE || step == STEP_LAST)
            str_append(&parser->arguments, &text[at], 1);
        if (step == STEP_LAST || step == STEP_BEHIND || step == STEP_BROKEN) {
            end_call(parser, true, parser->value.begun);
            return step == STEP_LAST ? at + 1 : at;
        }
    }
    tell_arguments(parser);
    return length;
}

/* --------------------------------------------------------------------------------- around calls */

static size_t step_text(struct tool_parser *parser, const char *text, size_t length)
{
    enum tool_format format = parser->config.format;
    size_t count = length;
    const char *marker = NULL;
    /* Llama 3's calls come only at the start, or after one another. */
    if (format != TOOL_FORMAT_LLAMA3 && parser->call_count < TOOL_MAX_CALLS) {
        enum match found = MATCH_NO;
        for (count = 0; count < length; count++)
            if ((found = begins(format, text + count, length - count, &marker)) != MATCH_NO)
                break;
        if (!count && found == MATCH_YES) {
            open_call(parser, text, strlen(marker), marker);
            return strlen(marker);
        }
    }
    tell(parser, TOOL_TEXT, text, count);
    return count;
}

static size_t step_between(struct tool_parser *parser, const char *text, size_t length)
{
    enum tool_format format = parser->config.format;
    const char *marker = NULL;
    size_t count = leading_blanks(text, length);
    if (count >= BLANKS_HELD) {
        parser->state = TOOL_STATE_TEXT;
        return 0;
    }
    if (count == length)
        return 0;
    enum match found = begins(format, text + count, length - count, &marker);
    if (found == MATCH_YES && parser->call_count < TOOL_MAX_CALLS) {
        open_call(parser, text, count + strlen(marker), marker);
        return count + strlen(marker);
    }
    enum match end = MATCH_NO; /* the marker behind all calls */
    if (format == TOOL_FORMAT_DEEPSEEK && parser->call_count)
        end = marker_match(text + count, length - count, DEEPSEEK_CALLS_END);
    if (end == MATCH_YES)
        return count + strlen(DEEPSEEK_CALLS_END);
    if (found == MATCH_MAYBE || end == MATCH_MAYBE)
        return 0;
    if (format == TOOL_FORMAT_LLAMA3 && text[count] == '{' && !parser->call_count) {
        open_call(parser, text, count, "");
        return count;
    }
    parser->state = TOOL_STATE_TEXT;
    return parser->call_count ? count : 0;
}

static size_t step_opened(struct tool_parser *parser, const char *text, size_t length)
{
    enum tool_format format = parser->config.format;
    size_t count = leading_blanks(text, length);
    if (parser->held.length + count > OPENED_HELD) {
        give_up(parser);
        return 0;
    }
    str_append(&parser->held, text, count);
    if (count || !length)
        return count;
    if (format == TOOL_FORMAT_DEEPSEEK) {
        enum match found =
            parser->in_call ? MATCH_NO : marker_match(text, length, DEEPSEEK_CALL_BEGIN);
        size_t size = found == MATCH_YES ? strlen(DEEPSEEK_CALL_BEGIN) : 0;
        if (found == MATCH_MAYBE)
            return 0;
        str_append(&parser->held, text, size);
        if (size || parser->in_call)
            parser->state = TOOL_STATE_HEAD;
        else
            give_up(parser);
        return size;
    }
    bool mistral = format == TOOL_FORMAT_MISTRAL;
    if (mistral && !parser->bracketed && *text == '[') {
        parser->bracketed = true;
        str_append(&parser->held, text, 1);
        return 1;
    }
    if (mistral && !parser->bracketed && is_name_byte(*text))
        parser->state = TOOL_STATE_NAME;
    else if (*text == '{')
        parser->state = TOOL_STATE_SCAN;
    else
        give_up(parser);
    return 0;
}

/* Drops all up to the marker that ends a call: white space, and brackets that are too many. Other
 * text is kept, and the marker then counts as missing. */
static size_t find_end(struct tool_parser *parser, const char *text, size_t length,
                       const char *marker)
{
    size_t count = 0;
    while (count < length && count < BLANKS_HELD && text[count] &&
           strchr(" \t\r\n}]`", text[count]))
        count++;
    enum match found =
        count < BLANKS_HELD ? marker_match(text + count, length - count, marker) : MATCH_NO;
    if (found == MATCH_MAYBE)
        return 0;
    parser->state = TOOL_STATE_BETWEEN;
    return found == MATCH_YES ? count + strlen(marker) : 0;
}

static size_t step_after(struct tool_parser *parser, const char *text, size_t length)
{
    enum tool_format format = parser->config.format;
    if (format == TOOL_FORMAT_HERMES)
        return find_end(parser, text, length, hermes_end);
    if (format == TOOL_FORMAT_DEEPSEEK)
        return find_end(parser, text, length, DEEPSEEK_CALL_END);
    size_t count = leading_blanks(text, length);
    if (count)
        return count;
    bool next = format == TOOL_FORMAT_LLAMA3 ? *text == ';' : parser->bracketed && *text == ',';
    bool end = parser->bracketed && *text == ']';
    if (next) {
        bool bracketed = parser->bracketed;
        open_call(parser, text, 1, "");
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
    case TOOL_STATE_HEAD: return step_head(parser, text, length);
    case TOOL_STATE_VALUE: return step_value(parser, text, length);
    case TOOL_STATE_AFTER: return step_after(parser, text, length);
    }
    return length;
}

void tool_parser_push(struct tool_parser *parser, const char *text, size_t length)
{
    size_t at = 0;
    str_append(&parser->in, text, length);
    while (at < parser->in.length) {
        unsigned before = parser->state;
        size_t taken = step(parser, parser->in.data + at, parser->in.length - at);
        at += taken;
        if (!taken && parser->state == before)
            break;
    }
    str_remove_front(&parser->in, at);
}

/* The text ends before the event TOOL_CALL of the held call. */
static void end_untold(struct tool_parser *parser, bool cut)
{
    const struct str *held = &parser->held;
    size_t count = leading_blanks(held->data, held->length);
    /* Only a call begins like this. A call of Llama 3 without a marker may be any JSON. */
    bool call = parser->call_count || (count < held->length && held->data[count] != '{');
    if (cut && call) {
        str_clear(&parser->held);
        return;
    }
    give_up(parser);
    tell(parser, TOOL_TEXT, parser->in.data, parser->in.length);
}

/* The text ends in a call's object, or in the arguments behind a name. */
static void end_inside(struct tool_parser *parser, bool cut)
{
    const struct tool_object *object = &parser->object;
    bool scan = parser->state == TOOL_STATE_SCAN;
    bool begun = scan ? arguments_begun(object) : parser->value.begun;
    bool named = !scan || object->has_name;
    if (!parser->told && (begun || !named || !tell_call(parser, object->name)))
        end_untold(parser, cut);
    else
        end_call(parser, !cut, begun);
}

void tool_parser_end(struct tool_parser *parser, bool cut)
{
    unsigned state = parser->state;
    bool text = state == TOOL_STATE_TEXT ||
                (state == TOOL_STATE_BETWEEN &&
                 (!parser->call_count ||
                  leading_blanks(parser->in.data, parser->in.length) < parser->in.length));
    if (state == TOOL_STATE_SCAN || state == TOOL_STATE_VALUE)
        end_inside(parser, cut);
    else if (state == TOOL_STATE_OPENED || state == TOOL_STATE_NAME || state == TOOL_STATE_HEAD)
        end_untold(parser, cut);
    else if (text)
        tell(parser, TOOL_TEXT, parser->in.data, parser->in.length);
    str_clear(&parser->in);
}

/* --------------------------------------------------------------------- the format of a template */

/* Events of the call that a template has written. */
struct reading {
    uint32_t calls;
    bool named;
    struct str arguments;
};

static void on_event(void *context, const struct tool_event *event)
{
    struct reading *reading = context;
    reading->calls += event->kind == TOOL_CALL;
    if (event->kind == TOOL_CALL)
        reading->named = event->length == strlen(CHAT_PROBE_NAME) &&
                         !memcmp(event->text, CHAT_PROBE_NAME, event->length);
    if (event->kind == TOOL_ARGUMENTS)
        str_append(&reading->arguments, event->text, event->length);
}

static bool reads_back(enum tool_format format, const char *text)
{
    static const char *const names[] = {CHAT_PROBE_NAME};
    static const struct json_limits limits = {.max_bytes = CHAT_CALLS_BYTES, .max_depth = 4};
    struct reading reading = {.calls = 0};
    struct tool_parser_config config = {
        .format = format, .names = names, .name_count = 1, .event = on_event, .context = &reading};
    struct tool_parser parser;
    struct json *json = NULL;
    const char *value;
    str_init(&reading.arguments, CHAT_CALLS_BYTES);
    tool_parser_init(&parser, &config);
    tool_parser_push(&parser, text, strlen(text));
    tool_parser_end(&parser, false);
    tool_parser_deinit(&parser);
    bool same = reading.calls == 1 && reading.named &&
                json_parse(reading.arguments.data, reading.arguments.length, limits, &json, NULL) ==
                    STATUS_OK &&
                json_get_string(json_root(json), CHAT_PROBE_KEY, &value, NULL, NULL) == STATUS_OK &&
                !strcmp(value, CHAT_PROBE_VALUE);
    json_destroy(json);
    str_deinit(&reading.arguments);
    return same;
}

enum tool_format tool_format_of(const struct chat_forms *forms)
{
    static const enum tool_format formats[] = {TOOL_FORMAT_HERMES, TOOL_FORMAT_MISTRAL,
                                               TOOL_FORMAT_DEEPSEEK, TOOL_FORMAT_LLAMA3};
    for (size_t i = 0; *forms->calls && i < sizeof formats / sizeof *formats; i++)
        if (reads_back(formats[i], forms->calls))
            return formats[i];
    return TOOL_FORMAT_NONE;
}
