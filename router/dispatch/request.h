/* One answer of a request, from the moment the request is valid to its terminal status. Where a
 * client asks for several (n > 1) each is a request of its own, with its own place, attempts and
 * end; they share the call, whose status is sent when the last has ended or one has failed. The
 * first of them owns what is shared; the others begin with its first token, when the prompt is
 * computed and cached. Made on the rpc thread that received it, then owned by the dispatch thread,
 * which gets it as a message. */
#ifndef BATON_ROUTER_DISPATCH_REQUEST_H
#define BATON_ROUTER_DISPATCH_REQUEST_H

#include "common/base/domain/constraint_source.h"
#include "proto/worker.pb-c.h"
#include "router/dispatch/answer_deltas.h"
#include "router/dispatch/inbox.h"
#include "router/dispatch/prompt_echo.h"
#include "router/dispatch/request_client.h"
#include "router/ops/access.h"
#include "router/ops/request_trace.h"
#include "router/planner/request_life.h"
#include "router/planner/route_policy.h"
#include "router/request_parse.h"

#include <sys/queue.h>

struct client_gone; /* dispatch.h */

struct request {
    struct inbox_message message; /* first: INBOX_REQUEST */
    struct request *first;        /* of its call's answers: itself where there is but one */
    struct request
        *next_prompt; /* of the same call, on its way in: they begin together. NULL: the last */
    uint64_t id;
    char name[REQUEST_MAX_ID_BYTES + 1];
    struct request_client client; /* a reference */
    uint32_t model;               /* index of served_models */
    bool once;                    /* GenerateOnce: one message at the end */
    bool return_timing, return_logits_hash;
    uint32_t *prompt; /* and biases, constraint: of the first */
    uint32_t prompt_count;
    struct sampling sampling;
    /* Not 0: nobody asked for a max_tokens, and this is the most. That of `sampling` is what there
     * is room for where it was placed last; it stays that once an answer of its call has begun. */
    uint32_t open_max_tokens;
    bool prompt_only;          /* its client wants no token: the one that workers draw isn't told */
    struct logit_bias *biases; /* of it; NULL: none */
    struct constraint_source *constraint; /* likewise */
    enum priority priority;
    struct prompt_echo prompt_echo;
    struct answer_deltas out;
    struct request_timing timing;
    uint64_t deadline_us;
    uint8_t cache_salt[ACCESS_SALT_BYTES];
    size_t cache_salt_bytes;

    /* Of the first alone: */
    struct access_grant *grant; /* of all its choices, until request_settle; NULL: nobody's key */
    struct request *others[REQUEST_MAX_CHOICES - 1];
    uint32_t other_count, open_count; /* the latter of all, that have not ended */
    uint32_t completion_tokens;       /* of those that have */
    struct client_gone *call;         /* whose places they have; NULL: they have none any more */
    bool over;                        /* its end is decided; the client is told at the turn's end */
    bool refused;                     /* then: it has not begun */
    enum reason why;                  /* then: with which status */
    struct request *failed;           /* then: whose failure that is; NULL: nobody's */
    bool settled;                     /* then: in all books */
    bool told_later;        /* then: only once its client's side is over, or others' end is told */
    uint64_t keep_alive_us; /* when its client is to hear something; UINT64_MAX: never */

    /* From here on of the dispatch thread alone. */
    struct request_life life;
    struct request_trace trace;
    struct life_action place; /* PLACE or PLACE_DECODE that waits for a worker */
    enum request_state counted_state;
    bool waiting, dirty, ended, released;
    bool constraint_waits;     /* not placed: nobody knows yet whether its constraint can be kept */
    uint64_t constraint_owner; /* then: in whose turn */
    bool gone;                 /* of the first: its call is over too */
    enum finish_reason finish; /* once it has ended well */
    bool unseen; /* it has ended, and is shown when its call has: all of that is answered at once */
    enum finish_reason unseen_finish;
    uint64_t break_us; /* once it has ended: when a client that doesn't read is cut off */
    bool
        /* this attempt's prompt is computed: it is no work for the prefill worker any more */
        prefilled;
    bool confirmed; /* this attempt's handoff is done */
    uint32_t *emitted;
    uint32_t emitted_count, emitted_capacity;
    Baton__Worker__V1__Handle handle; /* of the last accepted Opened; .blocks is ours */
    uint32_t opened_attempt;          /* its Opened waits for the prompt's logprobs; 0: none does */
    char source_address[128];         /* of the worker that holds it */
    enum route_lack lack;             /* why the last placement pass had no worker for it */
    struct route_kind kind; /* of the workers that were placed last before the first token came */
    char refusal[448];      /* the sentence of the worker that refused it, or of the placement */
    char failure[256];      /* that of the worker that could not compute a step of it */
    TAILQ_ENTRY(request) all_link, waiting_link, dirty_link, end_link;
};
TAILQ_HEAD(request_list, request);

struct request_source {
    const struct request_params *params;
    size_t model; /* index of served_models */
    const struct tokenizer *tokenizer;
    const uint32_t *prompt;
    size_t prompt_count;
    const struct constraint_source *constraint; /* NULL: none */
    struct request_client client;               /* a reference is taken */
    struct access_grant *grant; /* the request's once it is made; NULL: nobody's key */
    struct client_gone
        *call; /* its call's, admitted; outlives what is made of it, but for its end */
    const char *model_name, *peer, *traceparent; /* of its trace; NULL: not known */
    bool once;
    uint64_t arrival_us, deadline_us;
};

/* With all its choices. Copies everything; mints id and seed where the client gave none. NULL: no
 * memory. The id is set by dispatch. */
struct request *request_create(const struct request_source *source);
void request_destroy(struct request *request);
/* Of a request that has ended: frees all but what its call's end needs. */
void request_release(struct request *request);

/* The key gets back what the first and its choices have not used: before the client can know of the
 * end, so that it may ask again at once. */
void request_settle(struct request *first);

void request_add_emitted(struct request *request, uint32_t id);
/* False: no memory. */
bool request_keep_handle(struct request *request, const Baton__Worker__V1__Handle *handle);
/* Why it ended, by its life; and the sentence for the client. */
enum reason request_reason(const struct request *request);
void request_sentence(const struct request *request, enum reason reason, uint64_t now_us,
                      struct error *sentence);

#endif
