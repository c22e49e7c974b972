/* What a template does with something of a name: template_loops_over, template_asks_for_none. */
#include "common/language/template/predicates.h"
#include "common/language/template/template_parts.h"

#include <string.h>

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

/* Blocks are nested no deeper than the parser lets them. */
static bool one_loops(const struct node *node, const char *name)
{
    switch (node->kind) {
    case NODE_FOR:
        return is_named(node->loop.iterable, name) || loops(node->loop.body, name) ||
               loops(node->loop.otherwise, name);
    case NODE_IF:
        for (; node && node->kind == NODE_IF; node = node->branch.otherwise) /* and its elifs */
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
