/* The values of a template at work, as Python has them: what a name, an expression, an argument is.
 *
 * A value is copied freely; what it points to lies in the arena of the run (or in what outlives the
 * run: the template, the caller's request) and is never changed once made, but for namespaces and
 * iterators. Pure; one thread a run.
 *
 * Every byte of a string knows whether it came from the request: `is_input` for the whole string,
 * or `marks`, one byte a byte, where a string has both. Whatever is made of strings keeps that. */
#ifndef BATON_LANGUAGE_TEMPLATE_VALUE_H
#define BATON_LANGUAGE_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

enum value_kind {
    VALUE_ABSENT, /* no value: an argument that was not given */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_RANGE,
    VALUE_VIEW,     /* dict.items(), keys(), values() */
    VALUE_ITERATOR, /* generators and the like: read once */
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_MACRO,
    VALUE_LOOP,
    VALUE_METHOD,
    VALUE_FUNCTION,
};

struct value {
    enum value_kind kind;
    bool is_input;  /* of a string without marks: all of it came from the request */
    bool is_markup; /* of a string: `safe`, so that "+" escapes what it is put together with */
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct value_text {
            const char *bytes; /* UTF-8, not NUL-terminated */
            size_t length;
            const uint8_t *marks; /* 1: from the request; NULL: is_input holds for all of it */
        } text;
        struct value_sequence *sequence;
        struct value_dict *dict; /* of a namespace, too */
        const struct value_undefined *undefined;
        const struct value_macro *macro;
        const struct value_loop *loop;
        const struct value_method *method;
        const struct template_function *function;
    };
};

struct value_sequence {
    struct value *items;
    size_t count;
    const char *type; /* Python's name of it */
    bool spent;       /* an iterator that was read */
    int64_t range[3]; /* of a range: start, stop, step */
};

struct value_entry {
    struct value key, value;
};

struct value_dict { /* in the order in which keys came */
    struct value_entry *entries;
    size_t count, capacity;
};

struct value_undefined {
    struct value name;
    const char *owner;   /* the type whose attribute it would be; NULL: a variable */
    const char *message; /* instead of one made of these; NULL: none */
    bool unsafe;         /* an attribute that the sandbox keeps */
};

struct value_method { /* an attribute of a built-in type that can be called */
    struct value self;
    const struct method *method;
};

struct value value_none(void);
struct value value_bool(bool boolean);
struct value value_int(int64_t integer);
struct value value_float(double real);
/* These keep the pointers. */
struct value value_string(const char *bytes, size_t length, bool is_input);
struct value value_literal(const char *text); /* NUL-terminated, the template's */
struct value value_sequence(enum value_kind kind, struct value_sequence *sequence);
struct value value_dict(struct value_dict *dict);

/* A part of a string, by bytes. */
struct value value_part(struct value string, size_t from, size_t to);

bool value_is_sequence(struct value value); /* one with `sequence` */
bool value_is_number(struct value value);   /* bools are numbers, as in Python */
double value_as_double(struct value number);
bool value_is_text(struct value value, const char *text); /* a string with these bytes */

/* NULL where the arena is full. `items` has room for `capacity` values. */
struct value_sequence *value_sequence_make(struct arena *arena, const char *type, size_t capacity);
struct value_dict *value_dict_make(struct arena *arena, size_t capacity);
/* False where the arena is full. `add` is for a key that is known to be new; with `put` one that is
 * there keeps its place. */
bool value_dict_add(struct arena *arena, struct value_dict *dict, struct value key,
                    struct value value);
bool value_dict_put(struct arena *arena, struct value_dict *dict, struct value key,
                    struct value value, uint64_t *steps);

/* What follows compares, and takes what that costs from *steps; where they are used up it finds
 * nothing and nothing is equal, and the caller, who sees the 0, gives up. */
const struct value *value_dict_find(const struct value_dict *dict, struct value key,
                                    uint64_t *steps); /* NULL: there is none */
/* Python's ==; beyond VALUE_LIMIT_DEPTH levels of nesting things differ. */
#define VALUE_LIMIT_DEPTH 128
bool value_equal(struct value a, struct value b, uint64_t *steps);
void value_spend(uint64_t *steps, uint64_t count);

bool value_truth(struct value value);
bool value_same(struct value a, struct value b); /* `is sameas` */

const char *value_type_name(struct value value);   /* "str", as Python's type(x).__name__ */
const char *value_object_name(struct value value); /* "str object", as jinja2's messages have it */

#endif
