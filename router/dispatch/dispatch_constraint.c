/* A request whose constraint nobody has compiled yet has its place in the queue, and is passed over
 * there until it is known to be fine. */
#include "common/base/domain/content_hash.h"
#include "common/base/str.h"
#include "router/dispatch/address_owner.h"
#include "router/dispatch/dispatch_internal.h"

#include <string.h>

static void fail(struct dispatch *dispatch, struct request *request, enum terminal_status status,
                 enum reason reason, const char *sentence)
{
    struct life_actions actions;
    str_copy(request->refusal, sizeof request->refusal, sentence);
    request_life_on_fail(&request->life, status, reason_name(reason), &actions);
    request_execute(dispatch, request, &actions);
}

/* Who takes turns: all keys of a tenant are one; without keys an address is. */
static uint64_t owner_of(const struct request *request)
{
    const char *tenant = access_tenant(request->grant);
    return *tenant ? content_hash(tenant, strlen(tenant)) : address_owner(request->trace.peer);
}

void request_ask_constraint(struct dispatch *dispatch, struct request *request)
{
    struct error err;
    if (!request->constraint || !dispatch->config.checks)
        return;
    request->constraint_owner = owner_of(request);
    switch (constraint_checks_ask(dispatch->config.checks, request->constraint,
                                  request->constraint_owner, &err)) {
    case CONSTRAINT_UNKNOWN:
    case CONSTRAINT_FINE: break;
    case CONSTRAINT_PENDING: request->constraint_waits = true; break;
    case CONSTRAINT_REFUSED:
        fail(dispatch, request, TERMINAL_INVALID, REASON_INVALID_CONSTRAINT, err.text);
        break;
    case CONSTRAINT_CROWDED:
        fail(dispatch, request, TERMINAL_OVERLOADED, REASON_OVERLOADED,
             "too many constraints wait to be compiled");
        break;
    }
}

void request_drop_constraint(struct dispatch *dispatch, struct request *request)
{
    if (request->constraint_waits)
        constraint_checks_withdraw(dispatch->config.checks, request->constraint,
                                   request->constraint_owner);
    request->constraint_waits = false;
}

void request_constraint_checked(struct dispatch *dispatch, struct constraint_checked *checked)
{
    struct request *next;
    for (struct request *request = TAILQ_FIRST(&dispatch->all); request; request = next) {
        next = TAILQ_NEXT(request, all_link);
        if (!request->constraint_waits ||
            !constraint_source_equal(request->constraint, checked->source))
            continue;
        request->constraint_waits = false;
        dispatch->place_needed = true;
        if (checked->verdict == CONSTRAINT_REFUSED)
            fail(dispatch, request, TERMINAL_INVALID, REASON_INVALID_CONSTRAINT, checked->err.text);
    }
    constraint_checks_taken(dispatch->config.checks);
    constraint_checked_free(checked);
}
