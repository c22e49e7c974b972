/* The tests of Jinja: what may stand behind "is". */
#ifndef BATON_LANGUAGE_TEMPLATE_PREDICATES_H
#define BATON_LANGUAGE_TEMPLATE_PREDICATES_H

#include "common/language/template/run.h"

struct predicate;

const struct predicate *predicate_find(const char *name, size_t length); /* NULL: there is none */
bool predicate_apply(struct run *run, const struct predicate *predicate, struct value value,
                     const struct call *call);

#endif
