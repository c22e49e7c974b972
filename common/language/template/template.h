/* Templates in the part of Jinja that published chat templates use. They render as in jinja2 3.1
 * with transformers' settings: trim_blocks, lstrip_blocks, break and continue, the sandbox in which
 * values never change, tojson as json.dumps with ensure_ascii=False, raise_exception, strftime_now.
 * docs/chat-templates.md lists the supported part and the differences.
 *
 * template_compile refuses a template with an unsupported construct, and names its line. A running
 * template has limits of steps, memory and nesting. A Python error is a failure with Python's
 * sentence.
 *
 * Every byte of the output records whether it came from the caller's strings: see value.h and
 * template_output.
 *
 * PURE: no clock (the caller passes the time), no I/O. A compiled template is immutable: any number
 * of threads render it at once, each with its own arena. */
#ifndef BATON_LANGUAGE_TEMPLATE_TEMPLATE_H
#define BATON_LANGUAGE_TEMPLATE_TEMPLATE_H

#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/language/template/value.h"

#define TEMPLATE_LIMIT_SOURCE  (256u << 10) /* bytes */
#define TEMPLATE_LIMIT_PARSED  (64u << 20)  /* bytes of a compiled template */
#define TEMPLATE_LIMIT_NESTING 64           /* blocks, and also expressions, in the source */
#define TEMPLATE_LIMIT_DEPTH   500          /* nested evaluations while running */
/* Nodes run, values compared, and units of 64 bytes read or written. */
#define TEMPLATE_LIMIT_STEPS   10000000
#define TEMPLATE_LIMIT_RANGE   100000 /* items of range(), as in jinja2's sandbox */
#define TEMPLATE_LIMIT_MESSAGE 4096   /* bytes of raise_exception's message */

struct template;

/* STATUS_INVALID: not a template. STATUS_UNSUPPORTED: an unsupported construct. STATUS_LIMIT: too
 * large. The sentence starts with the line. */
enum status template_compile(const char *source, size_t length, struct template **template,
                             struct error *err) WARN_UNUSED;
void template_destroy(struct template *template); /* NULL is fine */
/* Returns whether the name occurs in the template, as a variable or otherwise. */
bool template_names(const struct template *template, const char *name);
/* Returns whether it has a loop over a variable, attribute or item of that name. */
bool template_loops_over(const struct template *template, const char *name);
/* Returns whether it tests if a variable, attribute or item of that name is (not) none. */
bool template_asks_for_none(const struct template *template, const char *name);

struct template_variable {
    const char *name;
    struct value value;
};

/* The time for strftime_now: local, without a time zone, as Python's datetime.now(). */
struct template_time {
    int year, month, day; /* 1..9999, 1..12, 1..31 */
    int hour, minute, second, microsecond;
};

struct template_output {
    struct value text;    /* a string; in the arena */
    struct value message; /* after a failure: the whole sentence, as Python's str(exception) */
    unsigned line;        /* line of the failure */
    bool raised;          /* the template called raise_exception */
};

/* Values and the output lie in `arena`. Its limit is the run's limit of memory. STATUS_INVALID:
 * `output->message` and `err` hold the failure. STATUS_LIMIT: steps, depth, memory. */
enum status template_render(const struct template *template, struct arena *arena,
                            const struct template_variable *variables, size_t count,
                            struct template_time now, struct template_output *output,
                            struct error *err) WARN_UNUSED;

#endif
