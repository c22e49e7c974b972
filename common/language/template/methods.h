/* What Python's str, dict, list, tuple and jinja2's loop can be asked to do with a dot. */
#ifndef BATON_LANGUAGE_TEMPLATE_METHODS_H
#define BATON_LANGUAGE_TEMPLATE_METHODS_H

#include "common/language/template/run.h"

struct method;

/* NULL: values of this kind have no such attribute. */
const struct method *method_find(enum value_kind kind, const char *name);
/* One that would change a list or a dict: the sandbox keeps it. */
bool method_changes(const struct method *method);
/* Python has it, and this doesn't, whatever it is called on. */
bool method_is_unsupported(const char *name);

struct value method_apply(struct run *run, const struct value_method *bound,
                          const struct call *call);

#endif
