/* An object's edges. */
#include "common/base/assert.h"
#include "common/base/utf8.h"
#include "common/language/constrain/schema_compiler.h"
#include "common/language/constrain/schema_properties.h"

#include <stdlib.h>
#include <string.h>

/* ':' and the value. */
static void put_value(struct schema_properties *object, uint32_t from, uint32_t rule, uint32_t to)
{
    uint32_t ready = schema_put_separator(object->compiler, from, ':');
    grammar_add_call(object->compiler->grammar, ready, rule, to);
}

static void put_property(struct schema_properties *object, const struct schema_property *property,
                         uint32_t from, uint32_t to)
{
    struct grammar *grammar = object->compiler->grammar;
    uint32_t name = grammar_add_state(grammar, from), end = grammar_add_state(grammar, from);
    uint32_t behind = grammar_add_state(grammar, from);
    grammar_add_bytes(grammar, from, '"', '"', name);
    characters_put_text(&object->compiler->characters, true, property->name, strlen(property->name),
                        name, end);
    grammar_add_bytes(grammar, end, '"', '"', behind);
    put_value(object, behind, property->rule, to);
}

/* The names that are taken, as a tree of characters; a name that isn't among them leaves it
 * somewhere. */
struct name_tree {
    struct schema_properties *object;
    const struct schema_property **sorted;
    uint32_t other, end; /* where a name left the tree; where it ends */
};

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct schema_property *const *)a)->name,
                  (*(const struct schema_property *const *)b)->name);
}

/* The names first..last agree up to `at`; `from` is behind that. Recursion takes a level a
 * character. */
static void put_other_names(struct name_tree *tree, size_t first, size_t last, size_t at,
                            uint32_t from)
{
    struct characters *characters = &tree->object->compiler->characters;
    struct grammar *grammar = characters->grammar;
    struct charset others;
    grammar_spend(grammar, 1 + last - first);
    charset_init(&others);
    bool ends = first < last && !tree->sorted[first]->name[at];
    first += ends;
    if (!ends)
        grammar_add_jump(grammar, from, tree->end);
    for (size_t i = first; i < last && !grammar->full;) {
        const char *name = tree->sorted[i]->name;
        struct utf8_char here = utf8_next(name + at, strlen(name + at));
        size_t next = i + 1;
        while (next < last && !strncmp(tree->sorted[next]->name + at, name + at, here.length))
            next++;
        struct charset one;
        charset_init(&one);
        charset_add(&one, here.code, here.code);
        charset_add(&others, here.code, here.code);
        uint32_t inside = grammar_add_state(grammar, from);
        characters_put(characters, true, &one, from, inside);
        charset_deinit(&one);
        put_other_names(tree, i, next, at + here.length, inside);
        i = next;
    }
    charset_normalise(&others);
    charset_complement(&others);
    characters_put(characters, true, &others, from, tree->other);
    charset_deinit(&others);
}

static void put_unnamed(struct schema_properties *object, uint32_t name, uint32_t end)
{
    struct grammar *grammar = object->compiler->grammar;
    struct name_tree tree = {.object = object,
                             .sorted = calloc(object->count + 1, sizeof *tree.sorted),
                             .other = grammar_add_state(grammar, name),
                             .end = end};
    ASSERT(tree.sorted);
    for (size_t i = 0; i < object->count; i++)
        tree.sorted[i] = &object->list[i];
    qsort(tree.sorted, object->count, sizeof *tree.sorted, by_name);
    put_other_names(&tree, 0, object->count, 0, name);
    free(tree.sorted);
    struct charset all;
    charset_init(&all);
    charset_add(&all, 0, CHARSET_LAST);
    charset_normalise(&all);
    characters_put(&object->compiler->characters, true, &all, tree.other, tree.other);
    charset_deinit(&all);
    grammar_add_jump(grammar, tree.other, end);
}

static enum status put_matching(struct schema_properties *object, uint32_t name, uint32_t end)
{
    struct text_automaton automaton;
    struct error why;
    enum status status = text_automaton_build(object->names, &automaton, &why);
    if (status != STATUS_OK)
        return schema_fail(object->compiler, object->names_path, object->names_keyword, status,
                           "%s", why.text);
    if (automaton.state_count)
        characters_put_automaton(&object->compiler->characters, true, &automaton, name, end);
    text_automaton_deinit(&automaton);
    return STATUS_OK;
}

/* One property that no schema names. */
static enum status put_other(struct schema_properties *object, uint32_t from, uint32_t to)
{
    struct grammar *grammar = object->compiler->grammar;
    uint32_t name = grammar_add_state(grammar, from), end = grammar_add_state(grammar, from);
    uint32_t behind = grammar_add_state(grammar, from);
    grammar_add_bytes(grammar, from, '"', '"', name);
    grammar_add_bytes(grammar, end, '"', '"', behind);
    put_value(object, behind, object->rule, to);
    if (object->names)
        return put_matching(object, name, end);
    put_unnamed(object, name, end);
    return STATUS_OK;
}

/* No property is named: so many of them, any order. */
static enum status put_map(struct schema_properties *object, uint32_t open, uint32_t to)
{
    struct grammar *grammar = object->compiler->grammar;
    const struct schema_facts *facts = object->facts;
    uint32_t max = facts->max_properties;
    if (max != UINT32_MAX && max > SCHEMA_MAX_ITEMS)
        max = SCHEMA_MAX_ITEMS;
    if (!facts->min_properties)
        grammar_add_bytes(grammar, open, '}', '}', to);
    if (!max)
        return STATUS_OK;
    /* `key` is before a name, `behind` behind a value. Counted: a pair of them for each
     * property. */
    uint32_t key = grammar_add_state(grammar, open);
    grammar_add_jump(grammar, open, key);
    uint32_t rounds = max == UINT32_MAX ? 1 : max;
    for (uint32_t i = 0; i < rounds && !grammar->full; i++) {
        uint32_t behind = grammar_add_state(grammar, open);
        TRY(put_other(object, key, behind));
        grammar_add_bytes(grammar, behind, '}', '}', to);
        if (max != UINT32_MAX && i + 1 == rounds)
            break;
        uint32_t next = schema_put_separator(object->compiler, behind, ',');
        if (max == UINT32_MAX)
            grammar_add_jump(grammar, next, key);
        key = next;
    }
    return STATUS_OK;
}

/* Before property i with nothing written yet (`first`), and behind a comma (`later`). */
static enum status put_named(struct schema_properties *object, uint32_t open, uint32_t to)
{
    struct grammar *grammar = object->compiler->grammar;
    size_t required_left = object->required_count;
    uint32_t first = open, later = GRAMMAR_NONE;
    if (!required_left)
        grammar_add_bytes(grammar, open, '}', '}', to);
    for (size_t i = 0; i < object->count && !grammar->full; i++) {
        const struct schema_property *property = &object->list[i];
        uint32_t key = grammar_add_state(grammar, open);
        uint32_t done = grammar_add_state(grammar, open);
        uint32_t next_first = GRAMMAR_NONE;
        put_property(object, property, key, done);
        required_left -= property->required;
        if (!required_left)
            grammar_add_bytes(grammar, done, '}', '}', to);
        if (first != GRAMMAR_NONE)
            grammar_add_jump(grammar, first, key);
        if (first != GRAMMAR_NONE && !property->required) {
            next_first = grammar_add_state(grammar, open);
            grammar_add_jump(grammar, first, next_first);
        }
        if (later != GRAMMAR_NONE)
            grammar_add_jump(grammar, later, key);
        uint32_t next_later = schema_put_separator(object->compiler, done, ',');
        if (later != GRAMMAR_NONE && !property->required)
            grammar_add_jump(grammar, later, next_later);
        first = next_first;
        later = next_later;
    }
    if (!object->open)
        return STATUS_OK;
    uint32_t key = grammar_add_state(grammar, open), done = grammar_add_state(grammar, open);
    if (first != GRAMMAR_NONE)
        grammar_add_jump(grammar, first, key);
    if (later != GRAMMAR_NONE)
        grammar_add_jump(grammar, later, key);
    TRY(put_other(object, key, done));
    grammar_add_bytes(grammar, done, '}', '}', to);
    grammar_add_jump(grammar, schema_put_separator(object->compiler, done, ','), key);
    return STATUS_OK;
}

static enum status put_edges(struct schema_properties *object, uint32_t from, uint32_t to)
{
    TRY(schema_properties_read(object));
    uint32_t open = grammar_add_state(object->compiler->grammar, from);
    grammar_add_bytes(object->compiler->grammar, from, '{', '{', open);
    return object->open && !object->count ? put_map(object, open, to) : put_named(object, open, to);
}

enum status schema_put_object(struct schema_compiler *compiler, const struct schema_facts *facts,
                              uint32_t from, uint32_t to)
{
    struct schema_properties object = {.compiler = compiler, .facts = facts};
    enum status status = put_edges(&object, from, to);
    schema_properties_deinit(&object);
    return status;
}
