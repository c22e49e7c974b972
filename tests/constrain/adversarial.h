/* Constraints that somebody might send to keep others waiting: such as take many steps to compile,
 * and such as are compiled, but leave many nodes of a vocabulary to be looked at for each set of
 * tokens. For tests and the benchmark. */
#ifndef BATON_TESTS_CONSTRAIN_ADVERSARIAL_H
#define BATON_TESTS_CONSTRAIN_ADVERSARIAL_H

#include "common/base/domain/constraint_source.h"

struct adversarial {
    const char *name;
    enum constraint_kind kind;
    char *text; /* freed by adversarial_free */
};

#define ADVERSARIAL_MAX 32

/* Each may be refused or compiled. The count. */
size_t adversarial_to_compile(struct adversarial list[ADVERSARIAL_MAX]);
/* Each is compiled. */
size_t adversarial_to_mask(struct adversarial list[ADVERSARIAL_MAX]);
void adversarial_free(struct adversarial *list, size_t count);

/* `before`, then `part` so many times with `between`, then `after`. Each # in the part is its
 * number. To be freed. */
char *adversarial_repeated(const char *before, const char *part, const char *between, size_t count,
                           const char *after);

#endif
