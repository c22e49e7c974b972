/* What an answer must look like, as a request asks for it: read and compiled once before the request is taken, so that what can't be kept is
 * refused at the door, with a sentence that names the keyword. Workers compile it for themselves: what travels is its source. Both doors
 * call this.
 *
 * Those that were compiled well are remembered, by a hash: the next request with the same one costs a look. Any thread. */
#ifndef BATON_ROUTER_REQUEST_CONSTRAINT_H
#define BATON_ROUTER_REQUEST_CONSTRAINT_H

#include "common/domain/constraint_source.h"
#include "router/request_parse.h"

#define CONSTRAINT_CHECKS_MAX 1024 /* that are remembered; the one not asked for longest goes */

struct constraint_checks;

struct constraint_checks *constraint_checks_create(void);         /* NULL: no memory */
void constraint_checks_destroy(struct constraint_checks *checks); /* NULL is fine */

/* *source: the caller's, to be freed; NULL where the message asks for nothing. `checks` NULL: nothing is remembered. */
enum reason request_constraint_read(struct constraint_checks *checks,
                                    const Baton__V1__Constraint *message,
                                    const struct request_model *model,
                                    struct constraint_source **source,
                                    struct error *err) WARN_UNUSED;

struct constraint_checks_counts {
    uint64_t found, compiled;
};
struct constraint_checks_counts constraint_checks_counts(struct constraint_checks *checks);

#endif
