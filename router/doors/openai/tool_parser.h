/* A model's text as it comes, parted into what is said and what is called: the published formats of
 *
 *     Hermes, Qwen   <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>, any number of them, text before
 *     Llama 3        {"name": ..., "parameters": {...}}, or that behind <|python_tag|>, several divided by ";": nothing before
 *     Mistral        [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], or [TOOL_CALLS]name[ARGS]{...}, text before
 *
 * PURE. Cut however the text may be, the events together are the same. Held back is what may become
 * a marker, and a call until its name is known (TOOL_MAX_HELD_BYTES: then it was text). What turns
 * out to be no call is text, unchanged; a call that breaks off behind its name stays one, with the
 * arguments that came. What is cut off before the name of a call is known is neither. */
#ifndef BATON_ROUTER_DOORS_OPENAI_TOOL_PARSER_H
#define BATON_ROUTER_DOORS_OPENAI_TOOL_PARSER_H

#include "common/base/str.h"
#include "router/doors/openai/call_scan.h"

#define TOOL_MAX_HELD_BYTES  65536
#define TOOL_MAX_CALLS       128 /* of an answer; what comes behind is text */
#define TOOL_MAX_INPUT_BYTES (64u << 20)

enum tool_format { TOOL_FORMAT_NONE, TOOL_FORMAT_HERMES, TOOL_FORMAT_LLAMA3, TOOL_FORMAT_MISTRAL };

/* By what the model's chat template writes. */
enum tool_format tool_format_of(const char *template_source);

enum tool_event_kind {
    TOOL_TEXT,
    TOOL_CALL,      /* text: the name */
    TOOL_ARGUMENTS, /* more of those of the last call; every call has some that isn't cut off */
};
struct tool_event {
    enum tool_event_kind kind;
    uint32_t index;   /* of the call, from 0 */
    const char *text; /* until the next call of the parser */
    size_t length;    /* whole UTF-8 characters, if the input was */
};

struct tool_parser_config {
    enum tool_format format; /* NONE: all is text */
    /* What may be called; of Llama, whose calls have no marker, only these are. Not copied. */
    const char *const *names;
    size_t name_count;
    void (*event)(void *context, const struct tool_event *event);
    void *context;
};

enum tool_state {
    TOOL_STATE_TEXT,
    TOOL_STATE_BETWEEN, /* white space that may go: at the start, and behind a call */
    TOOL_STATE_OPENED,  /* behind a marker */
    TOOL_STATE_SCAN,    /* in a call's object */
    TOOL_STATE_NAME,    /* Mistral: a name without an object */
    TOOL_STATE_VALUE,   /* Mistral: the arguments behind it */
    TOOL_STATE_AFTER,   /* behind a call's object */
};

struct tool_parser {
    struct tool_parser_config config;
    enum tool_state state;
    struct str in;        /* not taken yet */
    struct str held;      /* since the marker, until the call is told */
    struct str arguments; /* not told yet */
    struct call_scan scan;
    struct value_span span;
    uint32_t call_count;
    bool told;      /* this call */
    bool bracketed; /* Mistral: inside the list */
};

void tool_parser_init(struct tool_parser *parser, const struct tool_parser_config *config);
void tool_parser_deinit(struct tool_parser *parser);
void tool_parser_push(struct tool_parser *parser, const char *text, size_t length);
/* No more text comes. `cut`: because there was no room for more, so that what is open is not the
 * model's end of it. */
void tool_parser_end(struct tool_parser *parser, bool cut);

#endif
