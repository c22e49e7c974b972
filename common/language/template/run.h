/* One rendering at work: its scopes, its output, and what it has used of its limits. Inside
 * common/language/template only.
 *
 * A failure is remembered in `status`; from then on every function does nothing and gives none, so
 * that nobody has to look between two steps. Loops look at run_failed. */
#ifndef BATON_LANGUAGE_TEMPLATE_RUN_H
#define BATON_LANGUAGE_TEMPLATE_RUN_H

#include "common/language/template/template_parts.h"
#include "common/language/template/text_builder.h"

struct variable {
    const char *name; /* interned */
    struct value value;
    struct variable *next;
};

struct scope {
    struct variable *variables;
    struct scope *outer; /* by where the block stands, not by who calls */
};

struct value_macro {
    const struct node_macro *macro;
    struct scope *scope; /* where it was made */
};

struct value_loop {
    const struct value *items;
    size_t count, index;
    struct value changed; /* what changed() was last given, a tuple; ABSENT: nothing yet */
};

enum run_flow { RUN_ON, RUN_BREAK, RUN_CONTINUE };

struct run {
    const struct template *template;
    struct arena *arena;
    struct scope *scope;
    struct text_builder *out;
    struct value block_text; /* what the filters of a block get */
    struct template_time now;
    uint64_t steps; /* left */
    int depth;
    unsigned line;
    enum run_flow flow;
    enum status status;
    struct value message;
    bool raised;
};

/* Arguments of a call, evaluated. */
struct keyword {
    const char *name; /* NUL-terminated, or a string value's bytes: compare with keyword_is */
    size_t length;
    struct value value;
};
struct call {
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
    __attribute__((format(printf, 2, 3))); /* in Python's words */
struct value run_fail_with(struct run *run, struct value message);
struct value run_limit(struct run *run, const char *what);

void run_spend(struct run *run, uint64_t count); /* steps */
void *run_take(struct run *run, size_t bytes);   /* zeroed; NULL after failing */
struct value_sequence *run_sequence(struct run *run, const char *type, size_t capacity);
struct value_dict *run_dict(struct run *run, size_t capacity);
void run_dict_put(struct run *run, struct value_dict *dict, struct value key, struct value value);
const struct value *run_dict_find(struct run *run, const struct value_dict *dict, struct value key);
bool run_equal(struct run *run, struct value a, struct value b);

void run_builder(struct run *run, struct text_builder *builder);
struct value run_finish(struct run *run, struct text_builder *builder);

struct scope *run_scope(struct run *run, struct scope *outer); /* NULL after failing */
void scope_set(struct run *run, struct scope *scope, const char *name, struct value value);

/* Undefined values: of a variable, of an attribute or item, or with a sentence of its own. */
struct value run_undefined(struct run *run, const char *name);
struct value run_no_member(struct run *run, struct value object, struct value name);
struct value run_unsafe(struct run *run, struct value object, const char *name);
struct value run_undefined_saying(struct run *run, const char *message);
/* The failure of using one. */
struct value run_fail_undefined(struct run *run, struct value undefined);

/* What a value gives when it is iterated over; `items` are read-only. Fails for what can't be. */
struct run_items {
    const struct value *items;
    size_t count;
};
struct run_items run_iterate(struct run *run, struct value value);

/* evaluate.c */
struct value evaluate(struct run *run, const struct node *node);
/* execute.c */
void execute(struct run *run, const struct node *body); /* a list */
void assign(struct run *run, const struct node *target, struct value value);
struct value call_macro(struct run *run, const struct value_macro *macro, const struct call *call);
/* Runs the body in a scope of its own, and gives what it writes. */
struct value capture(struct run *run, const struct node *body, struct scope *scope);
/* members.c */
struct value get_attribute(struct run *run, struct value object, const char *name);
struct value get_item(struct run *run, struct value object, struct value key);
struct value get_slice(struct run *run, struct value object, const struct value bounds[3]);
/* "a.b.0" from the inside, as filters take it. */
struct value get_path(struct run *run, struct value object, struct value path);
/* operators.c */
struct value add(struct run *run, struct value left, struct value right);
struct value arithmetic(struct run *run, enum node_operator sign, struct value left,
                        struct value right);
struct value negate(struct run *run, struct value value, bool negative);
bool compare(struct run *run, enum node_operator sign, struct value left, struct value right);
/* < 0, 0, > 0; fails for what Python doesn't order. */
int order(struct run *run, enum node_operator sign, struct value left, struct value right);
/* calls.c */
void call_arguments(struct run *run, const struct argument *arguments, struct call *call);
struct value call_value(struct run *run, struct value callee, const struct call *call);
/* Puts arguments where the names say, and leaves VALUE_ABSENT where there is none. False after
 * failing. */
bool call_bind(struct run *run, const struct call *call, const char *function,
               const char *const *names, struct value *values, size_t count);
bool keyword_is(const struct keyword *keyword, const char *name);
/* functions.c: NULL where there is none. */
const struct template_function *function_find(const char *name);
struct value function_apply(struct run *run, const struct template_function *function,
                            const struct call *call);

#endif
