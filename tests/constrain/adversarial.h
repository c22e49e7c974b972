/* Constraints that a hostile client might send to keep others waiting. Some take many steps to
 * compile. Others compile, but make the walk for each set of tokens visit many nodes of a
 * vocabulary. For tests and the benchmark. */
#ifndef BATON_TESTS_CONSTRAIN_ADVERSARIAL_H
#define BATON_TESTS_CONSTRAIN_ADVERSARIAL_H

#include "common/base/domain/constraint_source.h"

struct adversarial {
    const char *name;
    enum constraint_kind kind;
    char *text; /* freed by adversarial_free */
};

#define ADVERSARIAL_MAX 32

/* Fills `list` and returns the count. Each may be refused or compiled. */
size_t adversarial_to_compile(struct adversarial list[ADVERSARIAL_MAX]);
/* The same. Each compiles. */
size_t adversarial_to_mask(struct adversarial list[ADVERSARIAL_MAX]);
void adversarial_free(struct adversarial *list, size_t count);

/* Returns `before`, then `part` `count` times with `between`, then `after`. Each # in a part
 * becomes its number. The caller frees it. */
char *adversarial_repeated(const char *before, const char *part, const char *between, size_t count,
                           const char *after);

#endif
