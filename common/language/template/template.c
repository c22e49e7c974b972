#include "common/language/template/template.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"
#include "common/language/template/parser.h"
#include "common/language/template/run.h"

#include <stdlib.h>

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
