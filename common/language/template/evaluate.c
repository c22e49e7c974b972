/* Expressions at work, and calls. */
#include "common/language/template/filters.h"
#include "common/language/template/methods.h"
#include "common/language/template/python_text.h"
#include "common/language/template/run.h"

#include <string.h>

bool keyword_is(const struct keyword *keyword, const char *name)
{
    return keyword->length == strlen(name) && !memcmp(keyword->name, name, keyword->length);
}

/* Counts arguments, with those in "*" and "**". */
struct tally {
    size_t plain, keywords;
};

static struct value evaluate_argument(struct run *run, const struct argument *argument,
                                      struct tally *tally)
{
    struct value value = evaluate(run, argument->value);
    if (argument->kind == ARGUMENT_STAR) {
        struct run_items items = run_iterate(run, value);
        struct value_sequence *made = run_sequence(run, "list", 0);
        if (!made)
            return value_none();
        made->items = (struct value *)items.items;
        made->count = items.count;
        tally->plain += items.count;
        return value_sequence(VALUE_LIST, made);
    }
    if (argument->kind == ARGUMENT_STAR_STAR) {
        if (value.kind != VALUE_DICT)
            return run_fail(run, "argument after ** must be a mapping, not %s",
                            value_type_name(value));
        tally->keywords += value.dict->count;
    }
    tally->plain += argument->kind == ARGUMENT_PLAIN;
    tally->keywords += argument->kind == ARGUMENT_KEYWORD;
    return value;
}

static void add_keywords(struct run *run, struct macro_call *call, const struct value_dict *dict)
{
    for (size_t i = 0; i < dict->count; i++) {
        struct value key = dict->entries[i].key;
        if (key.kind != VALUE_STRING) {
            run_fail(run, "keywords must be strings");
            return;
        }
        call->keywords[call->keyword_count++] =
            (struct keyword){key.text.bytes, key.text.length, dict->entries[i].value};
    }
}

static void add_argument(struct run *run, struct macro_call *call, const struct argument *argument,
                         struct value value)
{
    switch (argument->kind) {
    case ARGUMENT_PLAIN: call->arguments[call->count++] = value; break;
    case ARGUMENT_KEYWORD:
        call->keywords[call->keyword_count++] =
            (struct keyword){argument->keyword, strlen(argument->keyword), value};
        break;
    case ARGUMENT_STAR:
        if (value.sequence->count)
            memcpy(call->arguments + call->count, value.sequence->items,
                   value.sequence->count * sizeof value);
        call->count += value.sequence->count;
        break;
    case ARGUMENT_STAR_STAR: add_keywords(run, call, value.dict); break;
    }
}

void call_arguments(struct run *run, const struct argument *arguments, struct macro_call *call)
{
    struct tally tally = {0};
    size_t count = 0;
    *call = (struct macro_call){0};
    for (const struct argument *a = arguments; a; a = a->next)
        count++;
    if (count == 0)
        return;
    struct value *values = run_take(run, count * sizeof *values);
    size_t i = 0;
    for (const struct argument *a = arguments; a && values && !run_failed(run); a = a->next)
        values[i++] = evaluate_argument(run, a, &tally);
    call->arguments = run_take(run, (tally.plain + 1) * sizeof *call->arguments);
    call->keywords = run_take(run, (tally.keywords + 1) * sizeof *call->keywords);
    i = 0;
    for (const struct argument *a = arguments; a && !run_failed(run); a = a->next)
        add_argument(run, call, a, values[i++]);
}

bool call_bind(struct run *run, const struct macro_call *call, const char *function,
               const char *const *names, struct value *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = i < call->count ? call->arguments[i] : (struct value){.kind = VALUE_ABSENT};
    if (call->count > count)
        run_fail(run, "%s() takes at most %zu arguments (%zu given)", function, count, call->count);
    for (size_t k = 0; k < call->keyword_count; k++) {
        const struct keyword *keyword = &call->keywords[k];
        size_t i = 0;
        while (i < count && !keyword_is(keyword, names[i]))
            i++;
        if (i == count)
            run_fail(run, "%s() got an unexpected keyword argument '%.*s'", function,
                     (int)keyword->length, keyword->name);
        else if (values[i].kind != VALUE_ABSENT)
            run_fail(run, "%s() got multiple values for argument '%s'", function, names[i]);
        else
            values[i] = keyword->value;
    }
    return !run_failed(run);
}

struct value call_value(struct run *run, struct value callee, const struct macro_call *call)
{
    if (run_failed(run))
        return value_none();
    switch (callee.kind) {
    case VALUE_FUNCTION: return function_apply(run, callee.function, call);
    case VALUE_MACRO: return call_macro(run, callee.macro, call);
    case VALUE_METHOD: return method_apply(run, callee.method, call);
    case VALUE_UNDEFINED: return run_fail_undefined(run, callee);
    case VALUE_LOOP:
        return run_fail(run, "The loop must have the 'recursive' marker to be called recursively.");
    default: return run_fail(run, "'%s' object is not callable", value_type_name(callee));
    }
}

static struct value evaluate_name(struct run *run, const char *name)
{
    for (const struct scope *scope = run->scope; scope; scope = scope->outer)
        for (const struct variable *v = scope->variables; v; v = v->next)
            if (v->name == name)
                return v->value;
    const struct template_function *function = function_find(name);
    if (function)
        return (struct value){.kind = VALUE_FUNCTION, .function = function};
    return run_undefined(run, name);
}

static struct value evaluate_item(struct run *run, const struct node *node)
{
    struct value object = evaluate(run, node->member.object);
    const struct node *key = node->member.key;
    if (key->kind != NODE_SLICE) {
        struct value at = evaluate(run, key);
        return run_failed(run) ? value_none() : get_item(run, object, at);
    }
    struct value bounds[3];
    const struct node *const parts[3] = {key->slice.start, key->slice.stop, key->slice.step};
    for (int i = 0; i < 3; i++)
        bounds[i] = parts[i] ? evaluate(run, parts[i]) : value_none();
    return run_failed(run) ? value_none() : get_slice(run, object, bounds);
}

static struct value evaluate_list(struct run *run, const struct node *node, enum value_kind kind)
{
    struct value_sequence *made =
        run_sequence(run, kind == VALUE_LIST ? "list" : "tuple", node->items.count);
    if (!made)
        return value_none();
    for (const struct node *item = node->items.first; item; item = item->next)
        made->items[made->count++] = evaluate(run, item);
    return value_sequence(kind, made);
}

static struct value evaluate_dict(struct run *run, const struct node *node)
{
    struct value_dict *made = run_dict(run, node->items.count / 2);
    for (const struct node *key = node->items.first; key && made; key = key->next->next) {
        struct value name = evaluate(run, key);
        if (name.kind == VALUE_LIST || name.kind == VALUE_DICT)
            return run_fail(run, "unhashable type: '%s'", value_type_name(name));
        run_dict_put(run, made, name, evaluate(run, key->next));
    }
    return run_failed(run) ? value_none() : value_dict(made);
}

/* Joins strings in a row at once: a + b + c copies each of them once. */
static struct value evaluate_sum(struct run *run, const struct node *node)
{
    const struct node *item = node->items.first;
    struct value sum = evaluate(run, item);
    struct text_builder builder;
    bool building = false;
    while ((item = item->next) && !run_failed(run)) {
        struct value next = evaluate(run, item);
        if (sum.kind == VALUE_STRING && next.kind == VALUE_STRING && !sum.is_markup &&
            !next.is_markup) {
            if (!building) {
                run_builder(run, &builder);
                text_builder_string(&builder, sum);
                building = true;
            }
            text_builder_string(&builder, next);
            continue;
        }
        if (building)
            sum = run_finish(run, &builder);
        building = false;
        sum = run_failed(run) ? value_none() : add(run, sum, next);
    }
    return building ? run_finish(run, &builder) : sum;
}

static struct value evaluate_concat(struct run *run, const struct node *node)
{
    struct text_builder builder;
    run_builder(run, &builder);
    for (const struct node *item = node->items.first; item && !run_failed(run); item = item->next)
        python_str(run, &builder, evaluate(run, item));
    return run_finish(run, &builder);
}

static struct value evaluate_binary(struct run *run, const struct node *node)
{
    struct value left = evaluate(run, node->binary.left);
    if (run_failed(run))
        return value_none();
    if (node->kind == NODE_AND)
        return value_truth(left) ? evaluate(run, node->binary.right) : left;
    if (node->kind == NODE_OR)
        return value_truth(left) ? left : evaluate(run, node->binary.right);
    struct value right = evaluate(run, node->binary.right);
    return run_failed(run) ? value_none() : arithmetic(run, node->binary.operator, left, right);
}

/* a < b < c means a < b and b < c, with each evaluated once. */
static struct value evaluate_compare(struct run *run, const struct node *node)
{
    struct value left = evaluate(run, node->compare.first);
    for (const struct comparison *next = node->compare.rest; next; next = next->next) {
        struct value right = evaluate(run, next->operand);
        if (run_failed(run) || !compare(run, next->operator, left, right))
            return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static struct value evaluate_choice(struct run *run, const struct node *node)
{
    struct value test = evaluate(run, node->choice.test);
    if (run_failed(run))
        return value_none();
    if (value_truth(test))
        return evaluate(run, node->choice.yes);
    if (node->choice.no)
        return evaluate(run, node->choice.no);
    return run_undefined_saying(run, "the inline if-expression evaluated to false and no else "
                                     "section was defined.");
}

static struct value evaluate_call(struct run *run, const struct node *node)
{
    struct macro_call call;
    struct value callee = evaluate(run, node->call.callee);
    call_arguments(run, node->call.arguments, &call);
    run->line = node->line;
    return run_failed(run) ? value_none() : call_value(run, callee, &call);
}

static struct value evaluate_filter(struct run *run, const struct node *node)
{
    struct macro_call call;
    struct value input = node->filter.input ? evaluate(run, node->filter.input) : run->block_text;
    call_arguments(run, node->filter.arguments, &call);
    run->line = node->line;
    return run_failed(run) ? value_none() : filter_apply(run, node->filter.filter, input, &call);
}

static struct value evaluate_test(struct run *run, const struct node *node)
{
    struct macro_call call;
    struct value input = evaluate(run, node->test.input);
    call_arguments(run, node->test.arguments, &call);
    run->line = node->line;
    return value_bool(!run_failed(run) && predicate_apply(run, node->test.predicate, input, &call));
}

static struct value evaluate_node(struct run *run, const struct node *node)
{
    struct value operand;
    switch (node->kind) {
    case NODE_CONSTANT: return node->value;
    case NODE_NAME: return evaluate_name(run, node->name);
    case NODE_ATTRIBUTE:
        operand = evaluate(run, node->member.object);
        return run_failed(run) ? value_none() : get_attribute(run, operand, node->member.name);
    case NODE_ITEM: return evaluate_item(run, node);
    case NODE_CALL: return evaluate_call(run, node);
    case NODE_FILTER: return evaluate_filter(run, node);
    case NODE_TEST: return evaluate_test(run, node);
    case NODE_NOT: return value_bool(!value_truth(evaluate(run, node->operand)));
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        operand = evaluate(run, node->operand);
        return run_failed(run) ? value_none() : negate(run, operand, node->kind == NODE_NEGATIVE);
    case NODE_SUM: return evaluate_sum(run, node);
    case NODE_CONCAT: return evaluate_concat(run, node);
    case NODE_ARITHMETIC:
    case NODE_AND:
    case NODE_OR: return evaluate_binary(run, node);
    case NODE_COMPARE: return evaluate_compare(run, node);
    case NODE_CHOICE: return evaluate_choice(run, node);
    case NODE_LIST: return evaluate_list(run, node, VALUE_LIST);
    case NODE_TUPLE: return evaluate_list(run, node, VALUE_TUPLE);
    case NODE_DICT: return evaluate_dict(run, node);
    default: return value_none(); /* statements have no value */
    }
}

struct value evaluate(struct run *run, const struct node *node)
{
    if (run_failed(run))
        return value_none();
    run_spend(run, 1);
    if (run->depth == TEMPLATE_LIMIT_DEPTH)
        return run_limit(run, "the template nests too deeply");
    run->line = node->line;
    run->depth++;
    struct value value = evaluate_node(run, node);
    run->depth--;
    return value;
}
