/* Reads one tool call out of a model's text as it comes: {"name": ..., "arguments": {...}}, with
 * "parameters" for "arguments" too, members in any order, others passed over. What the model wrote
 * as arguments is kept byte for byte. PURE.
 *
 * Not a validator: it finds where things begin and end, and a client that reads the arguments finds
 * what is wrong in them. */
#ifndef BATON_ROUTER_DOORS_OPENAI_CALL_SCAN_H
#define BATON_ROUTER_DOORS_OPENAI_CALL_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#define CALL_SCAN_MAX_NAME 256 /* bytes of a key or a name, as JSON */

/* Where one JSON value ends. */
struct value_span {
    int depth;
    bool begun, in_string, escaped, scalar;
};
enum span_step {
    SPAN_BLANK,  /* white space before it */
    SPAN_INSIDE, /* a byte of it */
    SPAN_LAST,   /* its last byte */
    SPAN_BEHIND, /* not its byte any more: the value has ended before */
    SPAN_BROKEN, /* no value begins or ends so */
};
enum span_step value_span_take(struct value_span *span, char byte);

enum call_scan_state {
    CALL_OPEN, /* waits for { */
    CALL_KEY,
    CALL_COLON,
    CALL_VALUE,
    CALL_COMMA, /* , or } */
    CALL_DONE,
    CALL_BROKEN,
};

struct call_scan {
    enum call_scan_state state;
    enum { CALL_OTHER, CALL_NAME, CALL_ARGUMENTS } member;
    struct value_span span;
    char text[CALL_SCAN_MAX_NAME]; /* of the key or the name that is being read, with its quotes */
    size_t length;
    char name[CALL_SCAN_MAX_NAME]; /* decoded */
    bool has_name, has_arguments;
};

/* Takes one byte; true: it belongs to the arguments. */
bool call_scan_take(struct call_scan *scan, char byte);

#endif
