#include "common/language/template/template.h"

#include "common/base/arena.h"
#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/base/utf8.h"
#include "common/language/template/ast.h"
#include "common/language/template/filters.h"
#include "common/language/template/parser.h"
#include "common/language/template/run.h"

#include <stdlib.h>
#include <string.h>

static bool intern_own(struct template *template)
{
    const struct {
        const char **place, *name;
        size_t length;
    } own[] = {{&template->loop, "loop", 4},
               {&template->caller, "caller", 6},
               {&template->varargs, "varargs", 7},
               {&template->kwargs, "kwargs", 6}};
    bool good = true;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        *own[i].place =
            names_intern(&template->names, &template->arena, own[i].name, own[i].length);
        good &= *own[i].place != NULL;
    }
    return good;
}

static enum status compile(struct template *template, const char *source, size_t length,
                           struct error *err)
{
    struct token *tokens;
    size_t bad_offset;
    if (length > TEMPLATE_LIMIT_SOURCE)
        return error_set(err, STATUS_LIMIT, "a template of %zu bytes is over the limit of %u",
                         length, TEMPLATE_LIMIT_SOURCE);
    if (!utf8_valid(source, length, &bad_offset))
        return error_set(err, STATUS_INVALID, "the template isn't valid UTF-8 at byte %zu",
                         bad_offset);
    if (!intern_own(template))
        return error_set(err, STATUS_LIMIT, "no memory for a template");
    TRY(lexer_run(source, length, &template->arena, &tokens, err));
    return parser_run(tokens, template, err);
}

enum status template_compile(const char *source, size_t length, struct template **template,
                             struct error *err)
{
    struct template *made = calloc(1, sizeof *made);
    ASSERT(made);
    arena_init(&made->arena, TEMPLATE_LIMIT_PARSED);
    enum status status = compile(made, source, length, err);
    if (status != STATUS_OK) {
        template_destroy(made);
        return status;
    }
    *template = made;
    return STATUS_OK;
}

void template_destroy(struct template *template)
{
    if (!template)
        return;
    arena_deinit(&template->arena);
    free(template);
}

bool template_names(const struct template *template, const char *name)
{
    return names_find(&template->names, name) != NULL;
}

static enum status finish(const struct run *run, struct template_output *output, struct error *err)
{
    if (run->status == STATUS_OK) {
        *output = (struct template_output){.text = text_builder_finish(run->out)};
        return STATUS_OK;
    }
    *output =
        (struct template_output){.message = run->message, .line = run->line, .raised = run->raised};
    struct value_text message = run->message.text;
    int shown = message.length < 300 ? (int)message.length : 300;
    return error_set(err, run->status, "line %u of the template: %.*s", run->line, shown,
                     message.bytes);
}

enum status template_render(const struct template *template, struct arena *arena,
                            const struct template_variable *variables, size_t count,
                            struct template_time now, struct template_output *output,
                            struct error *err)
{
    struct text_builder out;
    struct scope globals = {0};
    struct run run = {.template = template,
                      .arena = arena,
                      .scope = &globals,
                      .out = &out,
                      .now = now,
                      .steps = TEMPLATE_LIMIT_STEPS};
    run_builder(&run, &out);
    for (size_t i = 0; i < count; i++) {
        const char *name = names_find(&template->names, variables[i].name);
        if (name)
            scope_set(&run, &globals, name, variables[i].value);
    }
    execute(&run, template->body);
    return finish(&run, output, err);
}

/* --- names --- */

struct name {
    struct name *next;
    size_t length;
    char text[];
};

static size_t bucket_of(const char *bytes, size_t length)
{
    return hash_bytes(bytes, length, HASH_SEED) % NAMES_BUCKETS;
}

static struct name *look(const struct names *names, const char *bytes, size_t length)
{
    struct name *name = names->buckets[bucket_of(bytes, length)];
    while (name && (name->length != length || memcmp(name->text, bytes, length) != 0))
        name = name->next;
    return name;
}

const char *names_intern(struct names *names, struct arena *arena, const char *bytes, size_t length)
{
    struct name *name = look(names, bytes, length);
    if (name)
        return name->text;
    name = arena_take(arena, sizeof *name + length + 1);
    if (!name)
        return NULL;
    struct name **bucket = &names->buckets[bucket_of(bytes, length)];
    name->length = length;
    memcpy(name->text, bytes, length);
    name->next = *bucket;
    *bucket = name;
    return name->text;
}

const char *names_find(const struct names *names, const char *name)
{
    struct name *found = look(names, name, strlen(name));
    return found ? found->text : NULL;
}

/* --- questions of common/language/chat --- */

/* Returns whether a node is a variable, attribute or item of this name, with or without filters. */
static bool is_named(const struct node *node, const char *name)
{
    while (node && node->kind == NODE_FILTER)
        node = node->filter.input;
    if (!node)
        return false;
    if (node->kind == NODE_NAME)
        return !strcmp(node->name, name);
    if (node->kind == NODE_ATTRIBUTE)
        return !strcmp(node->member.name, name);
    return node->kind == NODE_ITEM && node->member.key->kind == NODE_CONSTANT &&
           value_is_text(node->member.key->value, name);
}

static bool loops(const struct node *body, const char *name);

/* The parser bounds the nesting of blocks, and so the recursion. */
static bool one_loops(const struct node *node, const char *name)
{
    switch (node->kind) {
    case NODE_FOR:
        return is_named(node->loop.iterable, name) || loops(node->loop.body, name) ||
               loops(node->loop.otherwise, name);
    case NODE_IF:
        /* the if and its elifs */
        for (; node && node->kind == NODE_IF; node = node->branch.otherwise)
            if (loops(node->branch.body, name))
                return true;
        return loops(node, name);
    case NODE_SET_BLOCK:
    case NODE_FILTER_BLOCK: return loops(node->set.body, name);
    case NODE_MACRO: return loops(node->macro->body, name);
    case NODE_CALL_BLOCK: return loops(node->call_block.macro->body, name);
    case NODE_WITH: return loops(node->with.body, name);
    case NODE_SCOPE: return loops(node->body, name);
    default: return false;
    }
}

static bool loops(const struct node *body, const char *name)
{
    for (; body; body = body->next)
        if (one_loops(body, name))
            return true;
    return false;
}

bool template_loops_over(const struct template *template, const char *name)
{
    return loops(template->body, name);
}

bool template_asks_for_none(const struct template *template, const char *name)
{
    const struct predicate *none = predicate_find("none", strlen("none"));
    for (const struct node *test = template->last_test; test; test = test->test.earlier)
        if (test->test.predicate == none && is_named(test->test.input, name))
            return true;
    return false;
}
