/* The values of a template at work, as Python has them: values of names, expressions and arguments.
 *
 * A value is copied freely. Its pointers lead into the run's arena, or to what outlives the run:
 * the template and the caller's request. The pointed-to data never changes once made, except for
 * namespaces and iterators. Pure; one thread a run.
 *
 * Every byte of a string records whether it came from the request: `is_input` for the whole string,
 * or `marks`, one byte a byte, where a string has both kinds. Operations on strings keep this. */
#ifndef BATON_LANGUAGE_TEMPLATE_VALUE_H
#define BATON_LANGUAGE_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

enum value_kind {
    VALUE_ABSENT, /* no value: a missing argument */
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
    bool is_input;  /* string without marks: all of it came from the request */
    bool is_markup; /* string: `safe`, so that "+" escapes the other string */
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
        struct value_dict *dict; /* dict or namespace */
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
    const char *type; /* type name in Python */
    bool spent;       /* the iterator was read */
    int64_t range[3]; /* range: start, stop, step */
};

struct value_entry {
    struct value key, value;
};

struct value_dict { /* in the order of insertion */
    struct value_entry *entries;
    size_t count, capacity;
};

struct value_undefined {
    struct value name;
    const char *owner;   /* type of the object that lacks the attribute; NULL: a variable */
    const char *message; /* replaces the sentence from name and owner; NULL: none */
    bool unsafe;         /* the sandbox hides the attribute */
};

struct value_method { /* a bound method of a built-in type */
    struct value self;
    const struct method *method;
};

struct value value_none(void);
struct value value_bool(bool boolean);
struct value value_int(int64_t integer);
struct value value_float(double real);
/* These keep the pointers, and copy nothing. */
struct value value_string(const char *bytes, size_t length, bool is_input);
struct value value_literal(const char *text); /* NUL-terminated, from the template */
struct value value_sequence(enum value_kind kind, struct value_sequence *sequence);
struct value value_dict(struct value_dict *dict);

/* Returns a part of a string, by bytes. */
struct value value_part(struct value string, size_t from, size_t to);

bool value_is_sequence(struct value value); /* the union's member is `sequence` */
bool value_is_number(struct value value);   /* bools are numbers, as in Python */
double value_as_double(struct value number);
/* Returns whether it is a string with these bytes. */
bool value_is_text(struct value value, const char *text);

/* Return NULL when the arena is full. `items` has room for `capacity` values. */
struct value_sequence *value_sequence_make(struct arena *arena, const char *type, size_t capacity);
struct value_dict *value_dict_make(struct arena *arena, size_t capacity);
/* Return false when the arena is full. `add` takes a key that is known to be new. `put` replaces
 * the value of a key that is there, which keeps its place. */
bool value_dict_add(struct arena *arena, struct value_dict *dict, struct value key,
                    struct value value);
bool value_dict_put(struct arena *arena, struct value_dict *dict, struct value key,
                    struct value value, uint64_t *steps);

/* The following functions compare, and take the cost from *steps. At 0 steps they find nothing and
 * nothing is equal. The caller then gives up. */
const struct value *value_dict_find(const struct value_dict *dict, struct value key,
                                    uint64_t *steps); /* NULL: not found */
/* Python's ==. Values nested deeper than VALUE_LIMIT_DEPTH differ. */
#define VALUE_LIMIT_DEPTH 128
bool value_equal(struct value a, struct value b, uint64_t *steps);
void value_spend(uint64_t *steps, uint64_t count);

bool value_truth(struct value value);
bool value_same(struct value a, struct value b); /* `is sameas` */

const char *value_type_name(struct value value);   /* "str", Python's type(x).__name__ */
const char *value_object_name(struct value value); /* "str object", as in jinja2's messages */

/* A string under construction in an arena: its bytes, and marks once it has bytes from the request
 * and others. At `limit` bytes, or when the arena is full, it keeps its bytes and is `full`. */
struct text_builder {
    struct arena *arena;
    char *bytes;
    uint8_t *marks; /* NULL while is_input holds for all bytes */
    size_t length, capacity, limit;
    bool is_input;
    bool full;
};

void text_builder_init(struct text_builder *builder, struct arena *arena, size_t limit);
void text_builder_add(struct text_builder *builder, const char *bytes, size_t length,
                      bool is_input);
void text_builder_literal(struct text_builder *builder, const char *text); /* NUL-terminated */
void text_builder_string(struct text_builder *builder, struct value string);
/* Appends a character of the same kind (is_input) as the byte of `string` at `at`. */
void text_builder_character(struct text_builder *builder, uint32_t code, struct value string,
                            size_t at);
void text_builder_fill(struct text_builder *builder, char byte, size_t count, bool is_input);
/* Returns a string in the builder's memory. */
struct value text_builder_finish(const struct text_builder *builder);

/* Returns whether the byte at `at` came from the request. */
bool text_is_input(struct value string, size_t at);

#endif
