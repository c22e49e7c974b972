/* One call of a client: a prompt, the choices that answer it, and all that they share. Over gRPC a
 * call is one Generate or GenerateOnce. Over HTTP each prompt of a body is a call; the calls of one
 * body are a group, and their client is told one end.
 *
 * States, each named after the event that leads to it:
 *
 *   CALL_ADMITTED   dispatch_admit   The call is counted. Its door reserves places and fills it.
 *   CALL_SUBMITTED  dispatch_submit  It is in the inbox, and belongs to the dispatcher.
 *   CALL_RUNNING    call_begin       Its first choice runs. The others follow the first token.
 *   CALL_ENDED      call_end         `why` is decided: the last choice ended well, one failed, or
 *                                    call_begin refused the call. Its client is told at the end of
 *                                    the turn.
 *   CALL_HELD       call_tell        It ended well. Its client is told with the rest of the group.
 *   CALL_SETTLED    call_settle      Quota, places, counters, logs and traces are settled. The
 *                                    client can't know yet.
 *   CALL_TOLD       call_tell        The client has been told. The choices are freed.
 *
 *   ADMITTED --> SUBMITTED --> RUNNING --> ENDED -------------> SETTLED --> TOLD --> released
 *                       \        refused    ^ \                  ^
 *                        +------------------+  +----> HELD ------+
 *
 * Two events come in any state:
 *
 *   state           the client's side closes          another call of the group is told its end
 *   CALL_ADMITTED   released                          -
 *   CALL_SUBMITTED  can't happen: its message is      can't happen: the calls of a group begin
 *                   first in the inbox                together
 *   CALL_RUNNING    an open choice is cancelled:      the same, with the reason that the client is
 *                   CALL_ENDED                        told: CALL_ENDED, then CALL_SETTLED
 *   CALL_ENDED      released at the end of the turn   CALL_SETTLED
 *   CALL_HELD       CALL_SETTLED, released            CALL_SETTLED, told with it
 *   CALL_SETTLED    released at the end of the turn   -
 *   CALL_TOLD       released                          -
 *
 * Memory: dispatch_admit allocates a call with two references. The door drops its own with
 * call_unref. The dispatcher drops its own when the call is released: after the client's side has
 * closed, and the call was told or never submitted. A call holds one reference to its client until
 * then.
 *
 * Threads: until dispatch_submit the call belongs to the thread of its door, then to the dispatcher
 * in its turns (dispatch.h). `references` and `closing` belong to any thread. */
#ifndef BATON_ROUTER_DISPATCH_CALL_H
#define BATON_ROUTER_DISPATCH_CALL_H

#include "common/base/domain/constraint_source.h"
#include "common/base/due_heap.h"
#include "common/net/rpc/rpc.h"
#include "proto/worker.pb-c.h"
#include "router/dispatch/answer_deltas.h"
#include "router/dispatch/inbox.h"
#include "router/ops/access.h"
#include "router/ops/decision_ring.h"
#include "router/ops/request_trace.h"
#include "router/planner/placement.h"
#include "router/planner/request_life.h"
#include "router/request_parse.h"

#include <stdatomic.h>
#include <sys/queue.h>

enum call_state {
    CALL_ADMITTED,  /* dispatch_admit */
    CALL_SUBMITTED, /* dispatch_submit */
    CALL_RUNNING,   /* call_begin */
    CALL_ENDED,     /* call_end */
    CALL_HELD,      /* call_tell, where the rest of the group still runs */
    CALL_SETTLED,   /* call_settle */
    CALL_TOLD,      /* call_tell */
};

struct call;
struct request;

/* A door, as the dispatcher sees it. Every function except ref and unref is called in a turn, and
 * none blocks. `delta` and `prompt_logprobs` are for calls that are streamed (not call->once). The
 * first three return STATUS_LIMIT where the client doesn't read, STATUS_CANCELLED where it left. */
struct call_client_ops {
    /* Sends what the choice has produced since the last time. */
    enum status (*delta)(struct request *request);
    /* Sends logprobs of the prompt's tokens from `first` on, which call->prompt_echo has taken. */
    enum status (*prompt_logprobs)(struct call *call, uint32_t first,
                                   const struct token_logprobs *logprobs, uint32_t count);
    /* Sends the rest of a choice that ended well with request->finish. If `last`, also sends the
     * parts after all choices (usage, timing), but not the status. */
    enum status (*choice)(struct request *request, bool last);
    /* Ends the answer, exactly once for each group. All books are settled. The sentence is used
     * only with a reason. */
    void (*status)(void *handle, enum reason reason, const char *sentence);
    /* Names the time after which an overloaded router is likely to have room. Comes right before
     * `status`. NULL: the door doesn't tell. */
    void (*retry_after)(void *handle, uint32_t seconds);
    /* Tells a client that has heard nothing for long that its call is alive. Called when the call
     * begins, and at each time that this returned. UINT64_MAX: don't call again. NULL: not
     * needed. */
    uint64_t (*keep_alive)(void *handle, uint64_t now_us);
    /* Cuts off a client that doesn't read the status. Returns the bytes that were unsent. NULL: the
     * door itself bounds what is unread, and calls are closed as soon as they are told. */
    size_t (*break_off)(void *handle, enum reason reason, const char *sentence);
    void (*ref)(void *handle);
    void (*unref)(void *handle);
};

struct call_client {
    const struct call_client_ops *ops;
    void *handle;
};

TAILQ_HEAD(call_list, call);

/* The calls of one client that are told one end. The first call holds it; the others have a
 * reference to the first. */
struct call_group {
    struct call_list calls; /* except released ones */
    uint32_t open_count;    /* calls that have not ended well */
    bool told;
    enum reason why; /* told: with it */
};

/* The prompt as the client hears it: its text (echo), and the logprobs of its tokens, as the worker
 * that computes it sends them. The answer comes after all of it. */
struct prompt_echo {
    bool echo; /* and not sent yet */
    struct str text;
    uint32_t next, end; /* logprobs of tokens [next, end) are still to come */
    /* [end - 1], of tokens 1 .. next. NULL: a streamed call sends them at once */
    struct token_logprobs *kept;
};

/* The life's reason for a request that ends before its deadline because that can't be met. */
#define REQUEST_LATE "late"

/* States of a choice, each after the event that leads to it. */
enum choice_state {
    CHOICE_OPEN,   /* call_fill */
    CHOICE_CLOSED, /* close_choice, or the call is refused: not yet in metrics, logs and traces */
    CHOICE_SHOWN,  /* show_end: in all of them */
};

/* One choice of a call, in a place of its own. */
struct request {
    struct call *call;
    uint32_t choice; /* index in call->choices */
    uint64_t id;     /* the dispatcher's, in messages of workers */
    struct request_life life;
    struct request_trace trace;
    struct request_timing timing;
    struct answer_course course;     /* its answer's */
    struct slo_prediction predicted; /* when it was placed first; 0: not known */
    struct answer_deltas out;
    uint32_t *emitted;
    uint32_t emitted_count, emitted_capacity;
    enum finish_reason finish;        /* ended: how */
    struct placement_request placing; /* its place in the queue, and its share of the books */
    struct life_action place;         /* waiting: PLACE or PLACE_DECODE */
    enum request_state counted_state; /* in the gauges */
    bool dirty;                       /* has something for `delta` */
    enum choice_state state;
    bool prefilled; /* this attempt's prompt is computed: no work for the prefill worker any more */
    bool confirmed; /* this attempt's handoff is done */
    bool held;      /* waits for the retry budget, and then for its place */
    struct {        /* during this attempt the queue of this worker was empty, so it isn't in it */
        uint64_t worker;
        uint32_t attempt;
    } left_queue;
    struct due due; /* no earlier than that the life has anything to do, or the client is told so */
    Baton__Worker__V1__Handle handle; /* from the last accepted Opened; owns .blocks */
    uint32_t opened_attempt;  /* its Opened waits for the prompt's logprobs; 0: none waits */
    char source_address[128]; /* the worker's that holds the handle */
    struct admission_request admission; /* how it was judged */
    uint32_t retry_after_s;             /* it was rejected: when to come back */
    /* Serials of its newest decisions in the log. */
    uint32_t decision_count;
    uint64_t decisions[DECISION_RING_MAX_SHOWN];
    enum route_lack lack;   /* why the last placement pass had no worker for it */
    struct route_kind kind; /* weights and numerics of the workers that gave the first token */
    char refusal[448];      /* the sentence of the worker or the placement that refused it */
    char failure[256];      /* the sentence of the worker that could not compute a step of it */
    TAILQ_ENTRY(request) all_link, dirty_link, held_link;
};
TAILQ_HEAD(request_list, request);

struct call {
    struct inbox_message submitted; /* first: INBOX_CALL, for all calls of the group */
    struct inbox_message closed;    /* INBOX_CALL_CLOSED */
    atomic_uint references;
    atomic_bool closing; /* `closed` is posted, or not needed any more */
    enum rpc_code code;  /* how the client's side ended; written before `closed` is posted */

    enum call_state state;
    bool client_closed;     /* `closed` was handled */
    enum reason why;        /* CALL_ENDED and later; REASON_NONE: it ended well */
    struct request *failed; /* the choice that failed; NULL: none did */
    struct call_client client;
    struct call *first;      /* the group's first call, perhaps this one */
    struct call_group group; /* the first call's is the one that is used */
    uint32_t index;          /* its place in the group */
    TAILQ_ENTRY(call) group_link;
    TAILQ_ENTRY(call) link; /* dispatch->ended or ->closing */
    uint64_t keep_alive_us; /* when `keep_alive` is due; UINT64_MAX: never */
    struct due break_off;   /* CALL_TOLD: when a client that doesn't read is cut off */

    size_t model;               /* index of served_models, with the places */
    uint32_t place_count;       /* places of the model that it holds, one for each choice */
    uint64_t place_tenant;      /* these places count as its */
    struct access_grant *grant; /* until the call is settled; NULL: no key, or settled */
    /* The owner of its turns, where tenants take turns: its key's tenant, or its client's address
     * (constraint_owner_of). The door sets it once the call is admitted, otherwise call_fill. */
    uint64_t tenant;

    /* Filled by call_fill. */
    char name[REQUEST_MAX_ID_BYTES + 1];
    bool once; /* all of the answer is sent at its end */
    bool return_timing, return_logits_hash;
    bool has_stops;   /* stop strings, which workers don't know */
    bool prompt_only; /* the client wants no token; the one that workers draw is dropped */
    enum priority priority;
    uint32_t slo_class;             /* index of the router's classes; SLO_NONE: none */
    struct slo_objective objective; /* its class's, as the request loosens it */
    uint64_t arrival_us, deadline_us;
    uint32_t *prompt; /* [prompt_count] */
    uint32_t prompt_count;
    struct prompt_names names; /* the prompt's blocks, from its first placement on */
    struct sampling sampling;  /* for all choices; .choice is not used */
    /* Limit of the answer if the client set no max_tokens; 0: it did. sampling.max_tokens is then
     * the room on the worker that was placed last. The first token fixes it. */
    uint32_t open_max_tokens;
    struct logit_bias *biases;            /* sampling's; NULL: none */
    struct constraint_source *constraint; /* NULL: none */
    bool constraint_waits;                /* not placed until it is known whether it can be kept */
    struct prompt_echo prompt_echo;
    uint8_t cache_salt[ACCESS_SALT_BYTES];
    size_t cache_salt_bytes;
    uint32_t choice_count, open_count; /* open: that have not ended */
    /* Sums over the choices that ended well. */
    uint32_t completion_tokens, reasoning_tokens;
    uint32_t cached_tokens; /* prompt tokens that its first worker found in its prefix cache */
    bool cached_known;
    struct request *choices; /* [choice_count]; NULL: not filled, or told */
};

struct call_source {
    const struct request_params *params;
    const struct tokenizer *tokenizer;
    const uint32_t *prompt; /* [prompt_count] */
    size_t prompt_count;
    const struct constraint_source *constraint;  /* NULL: none */
    const struct reasoning_tags *reasoning;      /* NULL: the answer is one text */
    struct access_grant *grant;                  /* NULL: none */
    const char *model_name, *peer, *traceparent; /* for traces; NULL: not known */
    bool once;
    uint64_t arrival_us, deadline_us;
};

/* Takes a reference to the client. CALL_ADMITTED, with both references. NULL: no memory. */
struct call *call_open(struct call_client client);
void call_unref(struct call *call);
/* Makes calls[0 .. count) one group, in this order. */
void call_make_group(struct call *const *calls, size_t count);
/* Copies the request into an admitted call that holds places, and takes the grant over. Draws an id
 * and a seed where the client gave none. False: no memory; the grant stays the caller's. */
bool call_fill(struct call *call, const struct call_source *source) WARN_UNUSED;
/* Gives back what the key reserved and the choices have not used. */
void call_settle_grant(struct call *call);
/* Frees the choices and all that only they need. Settles the grant. */
void call_empty(struct call *call);
/* Leaves the group, and drops the reference to the client and the dispatcher's to the call. */
void call_release(struct call *call);

/* True: logprobs of the prompt are still to come. */
bool prompt_echo_waits(const struct prompt_echo *echo);
/* Takes the logprobs of the next `count` tokens. False: `first` is not the next one, or there are
 * fewer tokens. */
bool prompt_echo_take(struct prompt_echo *echo, uint32_t first,
                      const struct token_logprobs *logprobs, uint32_t count);

void request_add_emitted(struct request *request, uint32_t id);
/* False: no memory. */
bool request_keep_handle(struct request *request, const Baton__Worker__V1__Handle *handle);
/* Returns why it ended, as its life has it. */
enum reason request_reason(const struct request *request);
/* Writes the sentence for the client. */
void request_sentence(const struct request *request, enum reason reason, uint64_t now_us,
                      struct error *sentence);

#endif
