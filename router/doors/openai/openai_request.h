/* Turns a body of POST /v1/completions or /v1/chat/completions into baton.v1 messages. They then
 * pass the one validator (request_parse.h) as if they had come by gRPC. PURE.
 *
 * Lenient: accepts nulls, unknown members, one stop or several, content as text or as parts. A
 * known parameter that isn't offered is refused by name (unsupported_parameter) if ignoring it
 * would change the answer. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_REQUEST_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_REQUEST_H

#include "common/base/arena.h"
#include "common/base/json/json.h"
#include "common/language/text/reasoning_splitter.h"
#include "router/doors/openai/openai_error.h"
#include "router/request_parse.h"

struct openai_fields; /* openai_fields.h */

#define OPENAI_MAX_DEPTH    64  /* nested JSON values */
#define OPENAI_MAX_PROMPTS  128 /* in one body */
#define OPENAI_MAX_CHOICES  128 /* n times the prompts of one body */
#define OPENAI_MAX_MESSAGES 4096
#define OPENAI_MAX_TOOLS    128
#define OPENAI_MAX_NAME     64 /* bytes of a function's name */

enum openai_kind { OPENAI_COMPLETION, OPENAI_CHAT };

enum openai_tool_choice {
    OPENAI_TOOLS_NONE,     /* no tools, or tool_choice is "none": the template gets none */
    OPENAI_TOOLS_AUTO,     /* the model chooses */
    OPENAI_TOOLS_REQUIRED, /* the answer must call one or more of them */
    OPENAI_TOOLS_NAMED,    /* the answer must call `tool_name` */
};

struct openai_prompt {
    struct text text; /* .bytes NULL: `ids` */
    const uint32_t *ids;
    size_t id_count;
};

struct openai_request {
    struct arena arena; /* the fields below point into it, or into `json` */
    struct json *json;
    enum openai_kind kind;
    Baton__V1__GenerateRequest message; /* all of it except the input */
    Baton__V1__Sampling sampling;
    Baton__V1__Stop stop;
    Baton__V1__Output output;
    Baton__V1__SloObjective objective; /* part of `message`, if the body has one */
    Baton__V1__TokenIds ids;           /* set by openai_request_message */

    const struct openai_prompt *prompts; /* for a completion */
    size_t prompt_count;                 /* 1 for a chat */
    uint32_t choices;                    /* n: answers to each prompt */
    bool echo;
    bool stream, include_usage, continuous_usage;
    bool logprobs;
    uint32_t top_logprobs;
    bool return_token_ids; /* vLLM's: of the prompt and of the answer */

    /* For a chat: */
    const struct json_value *messages;
    bool other_roles; /* a message has a role that only some templates write */
    const struct json_value *tools, *documents, *template_arguments; /* NULL: none */
    bool add_generation_prompt, continue_final_message;
    enum openai_tool_choice tool_choice;
    const char *tool_name;
    bool one_call;                   /* parallel_tool_calls: false */
    bool separate_reasoning;         /* SGLang's; false: content has the reasoning, with its tags */
    bool include_reasoning;          /* vLLM's; false: reasoning is left out of the answer */
    struct reasoning_tags reasoning; /* by openai_begin_reasoning; empty: none is separated */
    Baton__V1__Reasoning behind;     /* part of the constraint */

    Baton__V1__Constraint constraint; /* part of `message`, if it has one */
    Baton__V1__Choices choices_of_text;
    Baton__V1__ToolCalls tool_calls;
    const char *constraint_param; /* the parameter that asks for the constraint; static */

    struct request_fields fields; /* the body's names for fields of the message */
    char ids_field[32];           /* one of them: "prompt", or "prompt[1]" */
};

/* False: *refusal says why, and there is nothing to deinit. `body` isn't kept. */
bool openai_request_read(struct openai_request *request, enum openai_kind kind, const char *body,
                         size_t length, size_t max_bytes, struct openai_refusal *refusal);
void openai_request_deinit(struct openai_request *request);

/* Returns the message with `prompt`: one of `prompts`, or the output of a chat's template. The
 * message and request->fields are valid until the next call. */
const Baton__V1__GenerateRequest *openai_request_message(struct openai_request *request,
                                                         const struct openai_prompt *prompt);

/* Lets an answer without max_tokens fill the context, up to the limit of one answer. Call it after
 * request_parse and before request_fit. */
void openai_request_fill(const struct request_model *model, size_t prompt_tokens,
                         struct request_params *params);

/* Writes the parameter that a refusal of the validator is about; "" if it is about none. */
void openai_request_param(enum openai_kind kind, enum reason reason, const char *sentence,
                          char param[OPENAI_PARAM_BYTES]);

/* --- parts of openai_request_read, in openai_sampling.c (openai_read_chat: openai_chat.h) --- */
/* Reads sampling, stop, output, n. */
void openai_read_sampling(const struct openai_fields *fields, struct openai_request *request);
/* Reads the structure that the answer must have, by the names of OpenAI and of vLLM. */
void openai_read_format(const struct openai_fields *fields, struct openai_request *request);

#endif
