/* Splits a model's text, as it comes, into text and tool calls. PURE. The published formats:
 *
 *     Hermes, Qwen   <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>
 *                    Any number of them; text may come before.
 *     Llama 3        {"name": ..., "parameters": {...}}, or the same after <|python_tag|>
 *                    Several are separated by ";". Nothing may come before.
 *     Mistral        [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]
 *                    or [TOOL_CALLS]name[ARGS]{...}. Text may come before.
 *     DeepSeek-R1    CALLS_BEGIN CALL_BEGIN function SEPARATOR name\n```json\n{...}\n``` CALL_END
 *                    ... CALLS_END, where the words are the tokens below. Text may come before.
 *
 * The events together are the same, however the text is cut. The parser holds back text that may
 * become a marker, and a call until its name and the start of its arguments are known. After
 * TOOL_MAX_HELD_BYTES a held call counts as text. If it turns out to be no call, it is text,
 * unchanged. A call that breaks off after its name stays a call, with the arguments that came. A
 * call cut off before its name is dropped. A call without its end (an outer brace, the marker
 * behind it) is a call, and the text behind it stays.
 *
 * Not a validator of JSON: the parser finds where values begin and end, and keeps the arguments
 * byte for byte. In a call's object "parameters" means "arguments", members may have any order, and
 * unknown members are ignored. Arguments are an object: null becomes {}, a string becomes the
 * object that it spells, and with any other value this is no call. */
#ifndef BATON_ROUTER_DOORS_OPENAI_TOOL_PARSER_H
#define BATON_ROUTER_DOORS_OPENAI_TOOL_PARSER_H

#include "common/base/str.h"
#include "common/language/chat/chat_forms.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOOL_MAX_HELD_BYTES  65536
#define TOOL_MAX_CALLS       128 /* in one answer; later ones are text */
#define TOOL_MAX_INPUT_BYTES (64u << 20)
#define TOOL_MAX_NAME        256 /* bytes of a key or a name, as JSON */

/* DeepSeek's markers: the bar is U+FF5C, the block U+2581. */
#define DEEPSEEK_CALLS_BEGIN                                                                       \
    "<\xef\xbd\x9ctool\xe2\x96\x81"                                                                \
    "calls\xe2\x96\x81"                                                                            \
    "begin\xef\xbd\x9c>"
#define DEEPSEEK_CALL_BEGIN                                                                        \
    "<\xef\xbd\x9ctool\xe2\x96\x81"                                                                \
    "call\xe2\x96\x81"                                                                             \
    "begin\xef\xbd\x9c>"
#define DEEPSEEK_SEPARATOR "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>"
#define DEEPSEEK_CALL_END                                                                          \
    "<\xef\xbd\x9ctool\xe2\x96\x81"                                                                \
    "call\xe2\x96\x81"                                                                             \
    "end\xef\xbd\x9c>"
#define DEEPSEEK_CALLS_END                                                                         \
    "<\xef\xbd\x9ctool\xe2\x96\x81"                                                                \
    "calls\xe2\x96\x81"                                                                            \
    "end\xef\xbd\x9c>"

enum tool_format {
    TOOL_FORMAT_NONE,
    TOOL_FORMAT_HERMES,
    TOOL_FORMAT_LLAMA3,
    TOOL_FORMAT_MISTRAL,
    TOOL_FORMAT_DEEPSEEK,
};
extern const char *const tool_format_names[]; /* by format, for logs */

/* Returns the format in which the parser reads back the call that a model's template writes.
 * TOOL_FORMAT_NONE: the template writes none, or in a way that isn't known. */
enum tool_format tool_format_of(const struct chat_forms *forms);

enum tool_event_kind {
    TOOL_TEXT,
    TOOL_CALL,      /* text: the name */
    TOOL_ARGUMENTS, /* more of the last call's arguments; each whole call has some */
};
struct tool_event {
    enum tool_event_kind kind;
    uint32_t index;   /* the call's, from 0 */
    const char *text; /* [length]; valid during the event */
    size_t length;    /* whole UTF-8 characters if the input was */
};

struct tool_parser_config {
    enum tool_format format; /* NONE: all is text */
    /* The functions that may be called. Only Llama 3's calls, which have no marker, are checked
     * against them. Not copied. */
    const char *const *names;
    size_t name_count;
    void (*event)(void *context, const struct tool_event *event);
    void *context;
};

/* How far one JSON value was read. */
struct tool_value {
    int depth;
    bool begun, in_string, escaped, scalar;
};

/* How far a call's object was read. */
struct tool_object {
    enum {
        TOOL_OBJECT_OPEN, /* waits for { */
        TOOL_OBJECT_KEY,
        TOOL_OBJECT_COLON,
        TOOL_OBJECT_VALUE,
        TOOL_OBJECT_COMMA, /* waits for , or } */
        TOOL_OBJECT_DONE,
        TOOL_OBJECT_BROKEN,
    } state;
    enum { TOOL_MEMBER_OTHER, TOOL_MEMBER_NAME, TOOL_MEMBER_ARGUMENTS } member;
    struct tool_value value;
    char text[TOOL_MAX_NAME]; /* the key or the name being read, with its quotes */
    size_t length;            /* bytes in `text` */
    char name[TOOL_MAX_NAME]; /* decoded */
    bool has_name, has_arguments;
};

struct tool_parser {
    struct tool_parser_config config;
    enum {
        TOOL_STATE_TEXT,
        TOOL_STATE_BETWEEN, /* at the start, or after a call: white space here may be dropped */
        TOOL_STATE_OPENED,  /* after a marker */
        TOOL_STATE_SCAN,    /* in a call's object */
        TOOL_STATE_NAME,    /* Mistral: in a name without an object */
        TOOL_STATE_HEAD,    /* DeepSeek: before the arguments */
        TOOL_STATE_VALUE,   /* Mistral, DeepSeek: in the arguments after that name */
        TOOL_STATE_AFTER,   /* after a call's object */
    } state;
    struct str in;        /* input that no step has taken yet */
    struct str held;      /* from the marker on, until the event TOOL_CALL */
    struct str arguments; /* not in an event yet */
    struct tool_object object;
    struct tool_value value;
    uint32_t call_count;
    bool told;      /* the event TOOL_CALL of this call was sent */
    bool bracketed; /* Mistral: inside the list */
    bool in_call;   /* DeepSeek: the marker of one call has come */
};

void tool_parser_init(struct tool_parser *parser, const struct tool_parser_config *config);
void tool_parser_deinit(struct tool_parser *parser);
void tool_parser_push(struct tool_parser *parser, const char *text, size_t length);
/* No more text comes. `cut`: the answer had no room for more, so the model didn't mean an open call
 * to end here. */
void tool_parser_end(struct tool_parser *parser, bool cut);

#endif
