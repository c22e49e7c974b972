/* Templates in the part of Jinja that published chat templates use, rendered as jinja2 3.1 renders
 * them when transformers sets it up: trim_blocks, lstrip_blocks, break and continue, the sandbox
 * that lets nothing be changed, tojson as json.dumps with ensure_ascii=False, raise_exception,
 * strftime_now. docs/chat-templates.md lists what there is and what differs.
 *
 * What a template asks for and this can't do is refused when it is compiled, with its line. While
 * it runs a template may use so many steps, so much memory and so deep a nesting; a Python error is
 * a failure with Python's sentence.
 *
 * Every byte of the outcome says whether it came from the caller's strings: see value.h and
 * template_output.
 *
 * PURE: no clock (the caller says what time it is), no I/O. A compiled template is immutable: any
 * number of threads render it at once, each with its own arena. */
#ifndef BATON_LANGUAGE_TEMPLATE_TEMPLATE_H
#define BATON_LANGUAGE_TEMPLATE_TEMPLATE_H

#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/language/template/value.h"

#define TEMPLATE_LIMIT_SOURCE  (256u << 10) /* bytes */
#define TEMPLATE_LIMIT_PARSED  (64u << 20)  /* bytes of a compiled one */
#define TEMPLATE_LIMIT_NESTING 64           /* of blocks and expressions, each, in the source */
#define TEMPLATE_LIMIT_DEPTH   500          /* of what runs inside each other */
#define TEMPLATE_LIMIT_STEPS                                                                       \
    10000000 /* nodes run, values compared, and 64 bytes looked at or written */
#define TEMPLATE_LIMIT_RANGE   100000 /* items of range(): jinja2's sandbox has it, too */
#define TEMPLATE_LIMIT_MESSAGE 4096   /* bytes of raise_exception's */

struct template;

/* STATUS_INVALID (not a template), STATUS_UNSUPPORTED (this can't do it) or STATUS_LIMIT; the
 * sentence starts with the line. */
enum status template_compile(const char *source, size_t length, struct template **template,
                             struct error *err) WARN_UNUSED;
void template_destroy(struct template *template); /* NULL is fine */
/* Whether the name occurs in the template, as a variable or otherwise. */
bool template_names(const struct template *template, const char *name);
/* Whether it has a loop over a variable, attribute or item of that name. */
bool template_loops_over(const struct template *template, const char *name);
/* Whether it asks if a variable, attribute or item of that name is none, or is not. */
bool template_asks_for_none(const struct template *template, const char *name);

struct template_variable {
    const char *name;
    struct value value;
};

/* What strftime_now shows: local time, without a time zone as Python's datetime.now(). */
struct template_time {
    int year, month, day; /* 1..9999, 1..12, 1..31 */
    int hour, minute, second, microsecond;
};

struct template_output {
    struct value text;    /* a string; in the arena */
    struct value message; /* of a failure: the whole sentence, as Python's str(exception) */
    unsigned line;        /* of a failure */
    bool raised;          /* the template itself refused: raise_exception */
};

/* Values and the output lie in `arena`, whose limit is the run's. STATUS_OK; STATUS_INVALID:
 * `output->message` (and `err`) say what went wrong; STATUS_LIMIT: steps, depth, memory. */
enum status template_render(const struct template *template, struct arena *arena,
                            const struct template_variable *variables, size_t count,
                            struct template_time now, struct template_output *output,
                            struct error *err) WARN_UNUSED;

#endif
