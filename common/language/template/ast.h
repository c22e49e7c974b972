/* A parsed template: nodes and names in its arena, read-only once made. Names are interned: equal
 * names are one pointer. Inside common/language/template only. */
#ifndef BATON_LANGUAGE_TEMPLATE_AST_H
#define BATON_LANGUAGE_TEMPLATE_AST_H

#include "common/language/template/template.h"
#include "common/language/template/value.h"

#include <stddef.h>

struct arena;
struct name;

#define NAMES_BUCKETS 256

struct names {
    struct name *buckets[NAMES_BUCKETS];
};

/* Returns the one pointer for this name, NUL-terminated. NULL: the arena is full. */
const char *names_intern(struct names *names, struct arena *arena, const char *bytes,
                         size_t length);
const char *names_find(const struct names *names, const char *name); /* NULL: not in the template */

struct filter;
struct predicate;
struct node;

struct node_list {
    struct node *first, **tail; /* linked by node.next */
    size_t count;
};

enum node_kind {
    /* expressions */
    NODE_CONSTANT,   /* value */
    NODE_NAME,       /* name */
    NODE_ATTRIBUTE,  /* object.name */
    NODE_ITEM,       /* object[key] */
    NODE_SLICE,      /* slice; the key of a NODE_ITEM */
    NODE_CALL,       /* call */
    NODE_FILTER,     /* filter; input is NULL in filter blocks and block sets */
    NODE_TEST,       /* test */
    NODE_NOT,        /* operand */
    NODE_NEGATIVE,   /* operand */
    NODE_POSITIVE,   /* operand */
    NODE_SUM,        /* items: a + b + c, from the left */
    NODE_CONCAT,     /* items: a ~ b ~ c */
    NODE_ARITHMETIC, /* binary: - * / // % ** */
    NODE_AND,        /* binary */
    NODE_OR,         /* binary */
    NODE_COMPARE,    /* compare */
    NODE_CHOICE,     /* choice: yes if test else no; `no` may be NULL */
    NODE_LIST,       /* items */
    NODE_TUPLE,      /* items */
    NODE_DICT,       /* items: key, value, key, value */
    /* statements */
    NODE_TEXT,         /* value */
    NODE_OUTPUT,       /* operand */
    NODE_IF,           /* branch */
    NODE_FOR,          /* loop */
    NODE_SET,          /* set: target = value */
    NODE_SET_BLOCK,    /* set: target, filters in value or NULL, body */
    NODE_MACRO,        /* macro */
    NODE_CALL_BLOCK,   /* call_block */
    NODE_FILTER_BLOCK, /* set: filters in value, body */
    NODE_WITH,         /* with: items are target, value, target, value */
    NODE_SCOPE,        /* body: {% generation %} */
    NODE_BREAK,
    NODE_CONTINUE,
};

enum node_operator {
    OPERATOR_SUBTRACT,
    OPERATOR_MULTIPLY,
    OPERATOR_DIVIDE,
    OPERATOR_FLOOR_DIVIDE,
    OPERATOR_MODULO,
    OPERATOR_POWER,
    OPERATOR_EQUAL,
    OPERATOR_NOT_EQUAL,
    OPERATOR_LESS,
    OPERATOR_LESS_EQUAL,
    OPERATOR_GREATER,
    OPERATOR_GREATER_EQUAL,
    OPERATOR_IN,
    OPERATOR_NOT_IN,
};

struct argument {
    enum { ARGUMENT_PLAIN, ARGUMENT_KEYWORD, ARGUMENT_STAR, ARGUMENT_STAR_STAR } kind;
    const char *keyword;
    struct node *value;
    struct argument *next;
};

struct comparison {
    enum node_operator operator;
    struct node *operand;
    struct comparison *next;
};

struct parameter {
    const char *name;
    struct node *default_value; /* NULL: none */
    struct parameter *next;
};

struct node_macro {
    const char *name; /* a call block's is "caller" */
    struct parameter *parameters;
    size_t parameter_count;
    struct node *body;
    bool uses_caller, uses_varargs, uses_kwargs;
};

struct node {
    enum node_kind kind;
    unsigned line;
    struct node *next; /* in its list */
    union {
        struct value value;
        const char *name;
        struct node *operand;
        struct node *body;
        struct node_list items;
        struct node_macro *macro;
        struct {
            struct node *object, *key;
            const char *name;
        } member;
        struct {
            struct node *start, *stop, *step; /* NULL: left out */
        } slice;
        struct {
            struct node *callee;
            struct argument *arguments;
        } call;
        struct {
            struct node *input;
            const struct filter *filter;
            struct argument *arguments;
        } filter;
        struct {
            struct node *input;
            const struct predicate *predicate;
            struct argument *arguments;
            const struct node *earlier; /* the template's test before this one; NULL: none */
        } test;
        struct {
            enum node_operator operator;
            struct node *left, *right;
        } binary;
        struct {
            struct node *first;
            struct comparison *rest;
        } compare;
        struct {
            struct node *test, *yes, *no;
        } choice;
        struct {
            struct node *test, *body, *otherwise;
        } branch;
        struct {
            struct node *target, *iterable, *test, *body, *otherwise;
        } loop;
        struct {
            struct node *target, *value, *body;
        } set;
        struct {
            struct node *call;
            struct node_macro *macro;
        } call_block;
        struct {
            struct node_list items;
            struct node *body;
        } with;
    };
};

struct template
{
    struct arena arena;
    struct names names;
    struct node *body;
    const struct node *last_test; /* list of all tests, linked by test.earlier; NULL: none */
    /* Interned names of variables that the run sets. */
    const char *loop, *caller, *varargs, *kwargs;
};

#endif
