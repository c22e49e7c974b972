/* One HTTP request for completions while the dispatcher works on it. Each of its prompts is a call
 * of the dispatcher; together they are a group with this as client. All their choices make one
 * answer, streamed or whole.
 *
 * References: of the maker, of each call until it is released, and of the exchange's watcher. The
 * last one dropped frees this, and drops the calls.
 * Threads: made on the thread that reads the body, the HTTP loop that got the request or a reader
 * of large ones. The loop runs the watcher. From its submission on it belongs to the dispatcher's
 * turn. A call leaves the dispatcher as soon as it is told: the HTTP
 * server bounds in bytes and time what a client doesn't read. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_CALL_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_CALL_H

#include "router/doors/openai/openai_answer.h"
#include "router/doors/openai/openai_api.h"
#include "router/request_id.h"

#include <stdatomic.h>

struct openai_call_choice {
    struct openai_call *call;
    struct openai_whole whole; /* its .choice is used of a stream, too */
    struct tool_parser parser; /* call->has_parser */
    struct openai_usage usage; /* so far */
    struct openai_token_ids prompt;
    bool echoed; /* in a stream */
};

struct openai_call {
    atomic_uint references;
    struct openai_api *api;
    struct http_exchange *exchange;
    struct openai_answer answer;
    size_t model;    /* index of served_models */
    uint64_t tenant; /* its calls' */
    char name[REQUEST_ID_BYTES];
    bool stream, has_parser;
    bool one_tool_call;           /* further tool calls are dropped */
    bool has_bias;                /* logit_bias was given */
    const char *constraint_param; /* static: the parameter that asked for the constraint, or NULL */
    atomic_bool client_left;

    /* The turn's. */
    bool started;           /* the stream's head went out */
    uint64_t heard_us;      /* when the client was sent something last; 0: never */
    uint32_t retry_after_s; /* for a client that is refused; 0: as is usual for the reason */
    struct openai_usage usage;
    struct str frames; /* made in this turn */
    struct str body;   /* the whole answer, once it is made */

    const struct openai_whole **wholes; /* [choice_count], the choices', for openai_object */
    const char **tool_names;            /* for the parsers, in one piece of memory */
    uint32_t prompt_count, choices_each, choice_count;
    struct openai_call_choice *choices; /* [choice_count], those of the first prompt first */
    struct call *calls[];               /* [prompt_count]; NULL: not admitted */
};

/* Makes one for all prompts of the request. `model`: index of served_models. NULL: no memory. */
struct openai_call *openai_call_create(struct openai_api *api, struct http_exchange *exchange,
                                       const struct openai_request *request, size_t model,
                                       const char *name);
void openai_call_unref(struct openai_call *call);

/* Admits a call for each prompt, and reserves its places. Otherwise `err`, and some may be
 * admitted. */
enum reason openai_call_admit(struct openai_call *call, struct error *err);
/* Gives back the places and grants of all calls, before the client is told why none was
 * submitted. */
void openai_call_give_back(struct openai_call *call);
/* Closes all calls: the client has left, or none was submitted. */
void openai_call_leave(struct openai_call *call, enum rpc_code code);
/* From now on the submitted calls are closed when the exchange is over. False: it is over, and the
 * caller closes them. */
bool openai_call_watch(struct openai_call *call);

/* --- openai_call_choice.c: parts of the answer. A stream's go into call->frames as chunks, others
 * into the choice's part of the whole object. Nothing is sent; frames that got too long are
 * `truncated`. In a turn. --- */
/* Takes an event of the parser. `context` is the choice. */
void openai_call_choice_event(void *context, const struct tool_event *event);
/* Adds logprobs of prompt tokens from `first` on, to a stream. */
void openai_call_choice_prompt_logprobs(struct openai_call_choice *choice, const struct call *call,
                                        uint32_t first, const struct token_logprobs *logprobs,
                                        uint32_t count);
/* Adds tokens of the answer, to a stream. */
void openai_call_choice_delta(struct openai_call_choice *choice, const struct request *request,
                              const struct stream_delta *taken);
/* Adds the last tokens of a stream, or all of a whole answer; it ended with request->finish.
 * STATUS_LIMIT: the whole answer is too large, or there is no memory. */
enum status openai_call_choice_end(struct openai_call_choice *choice, const struct request *request,
                                   const struct stream_delta *taken) WARN_UNUSED;

#endif
