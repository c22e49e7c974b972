/* Statements at work. */
#include "common/language/template/python_text.h"
#include "common/language/template/run.h"

#include <stdio.h>
#include <string.h>

static void unpack(struct run *run, const struct node *target, struct value value)
{
    if (!value_is_sequence(value) && value.kind != VALUE_STRING && value.kind != VALUE_DICT &&
        value.kind != VALUE_UNDEFINED) {
        run_fail(run, "cannot unpack non-iterable %s object", value_type_name(value));
        return;
    }
    struct run_items items = run_iterate(run, value);
    size_t wanted = target->items.count;
    if (run_failed(run))
        return;
    if (items.count > wanted)
        run_fail(run, "too many values to unpack (expected %zu)", wanted);
    else if (items.count < wanted)
        run_fail(run, "not enough values to unpack (expected %zu, got %zu)", wanted, items.count);
    size_t i = 0;
    for (const struct node *item = target->items.first; item && !run_failed(run); item = item->next)
        assign(run, item, items.items[i++]);
}

void assign(struct run *run, const struct node *target, struct value value)
{
    if (run_failed(run))
        return;
    if (target->kind == NODE_NAME) {
        scope_set(run, run->scope, target->name, value);
    } else if (target->kind == NODE_ATTRIBUTE) {
        struct value object = evaluate(run, target->member.object);
        if (object.kind == VALUE_NAMESPACE)
            run_dict_put(run, object.dict, value_literal(target->member.name), value);
        else
            run_fail(run, "cannot assign attribute on non-namespace object");
    } else {
        unpack(run, target, value);
    }
}

struct value capture(struct run *run, const struct node *body, struct scope *scope)
{
    struct text_builder builder, *out = run->out;
    struct scope *around = run->scope;
    if (!scope)
        return value_none();
    run_builder(run, &builder);
    run->out = &builder;
    run->scope = scope;
    execute(run, body);
    run->scope = around;
    run->out = out;
    return run_finish(run, &builder);
}

/* --- loops --- */

/* Returns the items for which the loop's "if" holds. */
static struct run_items select_items(struct run *run, const struct node *node,
                                     struct run_items items)
{
    struct value_sequence *kept = run_sequence(run, "list", items.count);
    struct scope *around = run->scope;
    for (size_t i = 0; i < items.count && !run_failed(run); i++) {
        run->scope = run_scope(run, around);
        if (!run->scope)
            break;
        assign(run, node->loop.target, items.items[i]);
        if (value_truth(evaluate(run, node->loop.test)))
            kept->items[kept->count++] = items.items[i];
    }
    run->scope = around;
    return run_failed(run) ? (struct run_items){0} : (struct run_items){kept->items, kept->count};
}

/* Returns whether the body ran to its end. */
static bool run_once(struct run *run, const struct node *node, struct value_loop *loop)
{
    struct scope *around = run->scope;
    run->scope = run_scope(run, around);
    if (run->scope) {
        scope_set(run, run->scope, run->template->loop,
                  (struct value){.kind = VALUE_LOOP, .loop = loop});
        assign(run, node->loop.target, loop->items[loop->index]);
        execute(run, node->loop.body);
    }
    run->scope = around;
    return run->flow == RUN_ON;
}

static void execute_in_scope(struct run *run, const struct node *body)
{
    struct scope *around = run->scope;
    run->scope = run_scope(run, around);
    if (run->scope)
        execute(run, body);
    run->scope = around;
}

static void execute_for(struct run *run, const struct node *node)
{
    struct run_items items = run_iterate(run, evaluate(run, node->loop.iterable));
    if (node->loop.test && !run_failed(run))
        items = select_items(run, node, items);
    struct value_loop *loop = run_take(run, sizeof *loop);
    bool completed = false; /* as jinja2: "else" runs unless an iteration did */
    if (!loop)
        return;
    *loop = (struct value_loop){.items = items.items, .count = items.count};
    for (; loop->index < loop->count && !run_failed(run); loop->index++) {
        completed |= run_once(run, node, loop);
        if (run->flow == RUN_BREAK) {
            run->flow = RUN_ON;
            break;
        }
        run->flow = RUN_ON;
    }
    if (!completed && node->loop.otherwise)
        execute_in_scope(run, node->loop.otherwise);
}

/* --- macros --- */

/* Sets parameters from the arguments in order, then by name, then from their defaults. */
static void bind_parameters(struct run *run, const struct node_macro *macro,
                            const struct macro_call *call, bool *used)
{
    static const char missing[] = "parameter '%s' was not provided";
    size_t index = 0;
    for (const struct parameter *p = macro->parameters; p; p = p->next, index++) {
        struct value value = {.kind = VALUE_ABSENT};
        if (index < call->count)
            value = call->arguments[index];
        for (size_t i = 0; i < call->keyword_count && value.kind == VALUE_ABSENT; i++) {
            if (keyword_is(&call->keywords[i], p->name)) {
                value = call->keywords[i].value;
                used[i] = true;
            }
        }
        if (value.kind == VALUE_ABSENT && p->default_value) {
            value = evaluate(run, p->default_value);
        } else if (value.kind == VALUE_ABSENT) {
            size_t size = sizeof missing + strlen(p->name);
            char *message = run_take(run, size);
            if (!message)
                return;
            snprintf(message, size, missing, p->name);
            value = run_undefined_saying(run, message);
        }
        scope_set(run, run->scope, p->name, value);
    }
}

/* Sets "caller", "varargs" and "kwargs" where the body uses them. Fails for an argument that has no
 * use. */
static void bind_rest(struct run *run, const struct node_macro *macro,
                      const struct macro_call *call, bool *used)
{
    struct value caller = run_undefined_saying(run, "No caller defined");
    struct value_dict *others = run_dict(run, call->keyword_count);
    for (size_t i = 0; i < call->keyword_count && others; i++) {
        const struct keyword *keyword = &call->keywords[i];
        if (used[i])
            continue;
        if (macro->uses_caller && keyword_is(keyword, "caller"))
            caller = keyword->value;
        else if (macro->uses_kwargs)
            run_dict_put(run, others, value_string(keyword->name, keyword->length, false),
                         keyword->value);
        else if (keyword_is(keyword, "caller"))
            run_fail(run,
                     "macro '%s' was invoked with two values for the special caller argument. "
                     "This is most likely a bug.",
                     macro->name);
        else
            run_fail(run, "macro '%s' takes no keyword argument '%.*s'", macro->name,
                     (int)keyword->length, keyword->name);
    }
    size_t extra = call->count > macro->parameter_count ? call->count - macro->parameter_count : 0;
    if (extra && !macro->uses_varargs)
        run_fail(run, "macro '%s' takes not more than %zu argument(s)", macro->name,
                 macro->parameter_count);
    struct value_sequence *varargs = run_sequence(run, "tuple", extra);
    if (!varargs)
        return;
    while (varargs->count < extra) {
        varargs->items[varargs->count] = call->arguments[macro->parameter_count + varargs->count];
        varargs->count++;
    }
    if (macro->uses_caller)
        scope_set(run, run->scope, run->template->caller, caller);
    if (macro->uses_kwargs)
        scope_set(run, run->scope, run->template->kwargs, value_dict(others));
    if (macro->uses_varargs)
        scope_set(run, run->scope, run->template->varargs, value_sequence(VALUE_TUPLE, varargs));
}

struct value call_macro(struct run *run, const struct value_macro *made,
                        const struct macro_call *call)
{
    struct scope *around = run->scope, *inside = run_scope(run, made->scope);
    bool *used = run_take(run, call->keyword_count + 1);
    if (!inside || !used)
        return value_none();
    run->scope = inside;
    bind_parameters(run, made->macro, call, used);
    bind_rest(run, made->macro, call, used);
    struct value text = capture(run, made->macro->body, inside);
    run->scope = around;
    return text;
}

static struct value make_macro(struct run *run, const struct node_macro *macro)
{
    struct value_macro *made = run_take(run, sizeof *made);
    if (!made)
        return value_none();
    *made = (struct value_macro){.macro = macro, .scope = run->scope};
    return (struct value){.kind = VALUE_MACRO, .macro = made};
}

static void execute_call_block(struct run *run, const struct node *node)
{
    const struct node *call_node = node->call_block.call;
    struct macro_call call;
    struct value callee = evaluate(run, call_node->call.callee);
    call_arguments(run, call_node->call.arguments, &call);
    struct keyword *keywords = run_take(run, (call.keyword_count + 1) * sizeof *keywords);
    if (!keywords)
        return;
    for (size_t i = 0; i < call.keyword_count; i++)
        keywords[i] = call.keywords[i];
    keywords[call.keyword_count++] =
        (struct keyword){"caller", 6, make_macro(run, node->call_block.macro)};
    call.keywords = keywords;
    struct value text = call_value(run, callee, &call);
    if (!run_failed(run))
        python_str(run, run->out, text);
}

/* --- the others --- */

static struct value captured(struct run *run, const struct node *node)
{
    struct value text = capture(run, node->set.body, run_scope(run, run->scope));
    if (!node->set.value || run_failed(run))
        return text;
    run->block_text = text;
    return evaluate(run, node->set.value);
}

/* Evaluates all values in the scope around the block. */
static void execute_with(struct run *run, const struct node *node)
{
    struct scope *around = run->scope, *inside = run_scope(run, around);
    for (const struct node *item = node->with.items.first; item && inside; item = item->next->next)
        scope_set(run, inside, item->name, evaluate(run, item->next));
    run->scope = inside;
    if (inside)
        execute(run, node->with.body);
    run->scope = around;
}

static void execute_if(struct run *run, const struct node *node)
{
    while (node && node->kind == NODE_IF && !run_failed(run)) {
        bool holds = value_truth(evaluate(run, node->branch.test));
        if (run_failed(run))
            return;
        if (holds) {
            execute(run, node->branch.body);
            return;
        }
        const struct node *next = node->branch.otherwise;
        if (!next || next->kind != NODE_IF || next->next) {
            execute(run, next);
            return;
        }
        node = next; /* elif, or an else that is only an if */
    }
}

static void output(struct run *run, struct value value)
{
    size_t before = run->out->length;
    if (run_failed(run))
        return;
    python_str(run, run->out, value);
    if (run->out->full)
        run_limit(run, "the template takes too much memory");
    run_spend(run, (run->out->length - before) / 64);
}

static void execute_one(struct run *run, const struct node *node)
{
    switch (node->kind) {
    case NODE_TEXT: output(run, node->value); break;
    case NODE_OUTPUT: output(run, evaluate(run, node->operand)); break;
    case NODE_IF: execute_if(run, node); break;
    case NODE_FOR: execute_for(run, node); break;
    case NODE_SET: assign(run, node->set.target, evaluate(run, node->set.value)); break;
    case NODE_SET_BLOCK: assign(run, node->set.target, captured(run, node)); break;
    case NODE_MACRO:
        scope_set(run, run->scope, node->macro->name, make_macro(run, node->macro));
        break;
    case NODE_CALL_BLOCK: execute_call_block(run, node); break;
    case NODE_FILTER_BLOCK: output(run, captured(run, node)); break;
    case NODE_WITH: execute_with(run, node); break;
    case NODE_SCOPE: execute_in_scope(run, node->body); break;
    case NODE_BREAK: run->flow = RUN_BREAK; break;
    case NODE_CONTINUE: run->flow = RUN_CONTINUE; break;
    default: break; /* an expression isn't a statement */
    }
}

void execute(struct run *run, const struct node *body)
{
    if (run->depth == TEMPLATE_LIMIT_DEPTH) {
        run_limit(run, "the template nests too deeply");
        return;
    }
    run->depth++;
    for (; body && !run_failed(run) && run->flow == RUN_ON; body = body->next) {
        run_spend(run, 1);
        run->line = body->line;
        execute_one(run, body);
    }
    run->depth--;
}
