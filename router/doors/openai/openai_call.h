/* One HTTP request for completions while the dispatcher works on it: its prompts, each a request of
 * the dispatcher's with this as its client, their choices, and the one answer that they make
 * together, streamed or whole.
 *
 * References: one of whoever made it, one for each admitted prompt until its `gone` message was
 * handled, one for each request, one of the exchange's watcher. Threads: made on the HTTP loop that
 * got the request, which also runs the watcher; everything between belongs to the dispatch thread.
 * A prompt leaves the dispatcher as soon as it has ended: what a client doesn't read is then the
 * HTTP server's matter, which bounds it in bytes and time. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_CALL_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_CALL_H

#include "router/doors/openai/openai_answer.h"
#include "router/doors/openai/openai_api.h"
#include "router/request_id.h"

#include <stdatomic.h>

struct openai_call;

struct openai_call_prompt {
    struct client_gone gone; /* first */
    struct openai_call *call;
    uint32_t index;
    atomic_bool admitted; /* and its `gone` not posted */
    bool held; /* it has ended well, and the whole answer waits for others. The dispatch thread's */
};

struct openai_call_choice {
    struct openai_call *call;
    struct openai_whole whole; /* .choice of a stream, too */
    struct tool_parser parser; /* where there are tools */
    struct openai_usage usage; /* so far */
    struct openai_token_ids prompt;
    bool echoed; /* in a stream */
};

struct openai_call {
    atomic_uint references;
    struct openai_api *api;
    struct http_exchange *exchange;
    struct openai_answer answer;
    size_t model; /* index of served_models */
    char name[REQUEST_ID_BYTES];
    bool stream, has_parser, one_tool_call; /* the latter: more than one aren't told */
    bool has_bias;                          /* logit_bias was given */
    const char *constraint_param; /* static: what asked for the constraint; NULL: nothing */
    atomic_bool client_left;

    /* The dispatch thread's. */
    bool started, over;  /* the stream's head, or the whole answer, went out */
    enum reason why;     /* what the client was told; REASON_NONE: nothing yet, or all is well */
    uint32_t open_count; /* of prompts that haven't ended well */
    uint64_t heard_us;   /* when the client was sent something last; 0: never */
    struct openai_usage usage;
    struct str frames; /* that a turn makes */
    struct str body;   /* the whole answer, once it is made */

    const struct openai_whole **wholes;  /* [choice_count] of the choices, for openai_object */
    const char **tool_names;             /* of the parsers; ours, in one piece */
    uint32_t prompt_count, choices_each; /* n */
    uint32_t choice_count;               /* of all */
    struct openai_call_choice *choices;
    struct openai_call_prompt prompts[];
};

/* For all prompts of the request. `model`: index of served_models. NULL: no memory. */
struct openai_call *openai_call_create(struct openai_api *api, struct http_exchange *exchange,
                                       const struct openai_request *request, size_t model,
                                       const char *name);
void openai_call_ref(struct openai_call *call);
void openai_call_unref(struct openai_call *call);

/* Room for every prompt at the dispatcher's, or none. */
enum reason openai_call_admit(struct openai_call *call, struct error *err);
/* The places that it was admitted to, before its client is told why nothing was submitted. */
void openai_call_give_back(struct openai_call *call);
/* All that was admitted and isn't submitted yet, or is, goes: nothing was
 * begun, or the client left. */
void openai_call_leave(struct openai_call *call, enum rpc_code code);
/* From now on the client's leaving ends the requests. False: it has left. */
bool openai_call_watch(struct openai_call *call);

struct request_client openai_call_client(struct openai_call *call, uint32_t prompt);

#endif
