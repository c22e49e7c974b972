/* One rendering at work: its scopes, its output, and its use of limits. Inside
 * common/language/template only.
 *
 * A failure is remembered in `status`. From then on every function does nothing and returns none,
 * so that callers need no check between two steps. Loops check run_failed. */
#ifndef BATON_LANGUAGE_TEMPLATE_RUN_H
#define BATON_LANGUAGE_TEMPLATE_RUN_H

#include "common/language/template/ast.h"
#include "common/language/template/value.h"

struct variable {
    const char *name; /* interned */
    struct value value;
    struct variable *next;
};

struct scope {
    struct variable *variables;
    struct scope *outer; /* the block around it in the text, not the caller */
};

struct value_macro {
    const struct node_macro *macro;
    struct scope *scope; /* scope of its definition */
};

struct value_loop {
    const struct value *items;
    size_t count, index;
    struct value changed; /* last arguments of changed(), a tuple; ABSENT: none yet */
};

enum run_flow { RUN_ON, RUN_BREAK, RUN_CONTINUE };

struct run {
    const struct template *template;
    struct arena *arena;
    struct scope *scope;
    struct text_builder *out;
    struct value block_text; /* input of a block's filters */
    struct template_time now;
    uint64_t steps; /* left */
    int depth;
    unsigned line;
    enum run_flow flow;
    enum status status;
    struct value message;
    bool raised;
};

/* Evaluated arguments of a call: of a macro, a function, a filter, a test or a method. */
struct keyword {
    const char *name; /* bytes of a name or a string value: compare with keyword_is */
    size_t length;
    struct value value;
};
struct macro_call {
    struct value *arguments;
    size_t count;
    struct keyword *keywords;
    size_t keyword_count;
};

static inline bool run_failed(const struct run *run)
{
    return run->status != STATUS_OK;
}

/* These remember the first failure, and return none. */
struct value run_fail(struct run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* the sentence is Python's */
struct value run_fail_with(struct run *run, struct value message);
struct value run_limit(struct run *run, const char *what);

void run_spend(struct run *run, uint64_t count); /* steps */
void *run_take(struct run *run, size_t bytes);   /* zeroed; NULL after a failure */
/* Return a container with room for `capacity` values in the arena; NULL after a failure. */
struct value_sequence *run_sequence(struct run *run, const char *type, size_t capacity);
struct value_dict *run_dict(struct run *run, size_t capacity);
void run_dict_put(struct run *run, struct value_dict *dict, struct value key, struct value value);
/* Returns the value of the key, or NULL. */
const struct value *run_dict_find(struct run *run, const struct value_dict *dict, struct value key);
bool run_equal(struct run *run, struct value a, struct value b);

/* Begin and end a string in the arena. Finishing fails if it became too large. */
void run_builder(struct run *run, struct text_builder *builder);
struct value run_finish(struct run *run, struct text_builder *builder);

struct scope *run_scope(struct run *run, struct scope *outer); /* NULL after a failure */
/* Sets a variable in this scope. The name is interned. */
void scope_set(struct run *run, struct scope *scope, const char *name, struct value value);

/* Return undefined values: for a variable, for an attribute or item, for an attribute that the
 * sandbox hides, and with a sentence of its own. */
struct value run_undefined(struct run *run, const char *name);
struct value run_no_member(struct run *run, struct value object, struct value name);
struct value run_unsafe(struct run *run, struct value object, const char *name);
struct value run_undefined_saying(struct run *run, const char *message);
/* Fails because an undefined value is used. */
struct value run_fail_undefined(struct run *run, struct value undefined);

/* The items of an iterable; read-only. Fails for other values. */
struct run_items {
    const struct value *items;
    size_t count;
};
struct run_items run_iterate(struct run *run, struct value value);

/* evaluate.c */
void call_arguments(struct run *run, const struct argument *arguments, struct macro_call *call);
struct value call_value(struct run *run, struct value callee, const struct macro_call *call);
/* Assigns arguments to names, with VALUE_ABSENT for missing ones. False after a failure. */
bool call_bind(struct run *run, const struct macro_call *call, const char *function,
               const char *const *names, struct value *values, size_t count);
bool keyword_is(const struct keyword *keyword, const char *name);
struct value evaluate(struct run *run, const struct node *node);
/* execute.c */
void execute(struct run *run, const struct node *body); /* a list of statements */
/* Sets a name, the names of a tuple, or an attribute of a namespace. */
void assign(struct run *run, const struct node *target, struct value value);
struct value call_macro(struct run *run, const struct value_macro *macro,
                        const struct macro_call *call);
/* Runs the body in its own scope and returns its output. */
struct value capture(struct run *run, const struct node *body, struct scope *scope);
/* members.c */
struct value get_attribute(struct run *run, struct value object, const char *name);
struct value get_item(struct run *run, struct value object, struct value key);
struct value get_slice(struct run *run, struct value object, const struct value bounds[3]);
/* Returns the value of a path "a.b.0", as filters take it. */
struct value get_path(struct run *run, struct value object, struct value path);
/* operators.c */
struct value add(struct run *run, struct value left, struct value right);
struct value arithmetic(struct run *run, enum node_operator sign, struct value left,
                        struct value right);
struct value negate(struct run *run, struct value value, bool negative);
bool compare(struct run *run, enum node_operator sign, struct value left, struct value right);
/* Returns < 0, 0 or > 0. Fails for values that Python doesn't order. */
int order(struct run *run, enum node_operator sign, struct value left, struct value right);
/* Python's sorted: stable, by <, which may fail. */
struct sort_item {
    struct value key, value;
};
void sort_items(struct run *run, struct sort_item *items, size_t count, bool reverse);
/* Returns the entries of a dict sorted by their keys; NULL after a failure. */
const struct value_entry *sort_entries(struct run *run, const struct value_dict *dict);
/* functions.c: NULL when there is none. */
const struct template_function *function_find(const char *name);
struct value function_apply(struct run *run, const struct template_function *function,
                            const struct macro_call *call);

#endif
