/* A body of POST /v1/completions or /v1/chat/completions becomes baton.v1 messages, which then pass
 * the one validator (request_parse.h) as if they had come by gRPC. PURE.
 *
 * Lenient with what comes: nulls, members that nobody knows, one stop or several, content as text
 * or as parts. What is known and not offered is refused by name (unsupported_parameter), never
 * passed over, if it would change the answer. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_REQUEST_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_REQUEST_H

#include "common/base/arena.h"
#include "common/base/json/json.h"
#include "common/language/chat/chat_template.h"
#include "router/doors/openai/openai_error.h"
#include "router/request_parse.h"

#define OPENAI_MAX_DEPTH    64  /* of JSON */
#define OPENAI_MAX_PROMPTS  128 /* in one body */
#define OPENAI_MAX_CHOICES  128 /* n for all its prompts together */
#define OPENAI_MAX_MESSAGES 4096
#define OPENAI_MAX_TOOLS    128
#define OPENAI_MAX_NAME     64 /* of a function, in bytes */

enum openai_kind { OPENAI_COMPLETION, OPENAI_CHAT };

/* A choice of the model's; what can be asked for of tools. */
enum openai_tool_choice {
    OPENAI_TOOLS_NONE, /* no tools, or they are not to be called: the template sees none */
    OPENAI_TOOLS_AUTO,
    OPENAI_TOOLS_REQUIRED, /* any of them */
    OPENAI_TOOLS_NAMED,    /* `tool_name` */
};

struct openai_prompt {
    const char *text; /* NULL: ids */
    const uint32_t *ids;
    size_t id_count;
};

struct openai_request {
    struct arena arena; /* what is below points into it, or into the JSON */
    struct json *json;
    enum openai_kind kind;
    Baton__V1__GenerateRequest message; /* all but the input */
    Baton__V1__Sampling sampling;
    Baton__V1__Stop stop;
    Baton__V1__Output output;
    Baton__V1__TokenIds ids; /* of openai_request_message */

    const struct openai_prompt *prompts; /* of a completion */
    size_t prompt_count;                 /* 1 for a chat */
    uint32_t choices;                    /* n: answers to each prompt */
    bool echo;
    bool stream, include_usage, continuous_usage;
    bool logprobs;
    uint32_t top_logprobs;
    bool return_token_ids; /* vLLM's: of prompt and answer */

    /* Of a chat. */
    const struct json_value *messages;
    const struct json_value *tools, *documents, *template_arguments; /* NULL: none */
    bool add_generation_prompt, continue_final_message;
    enum openai_tool_choice tool_choice;
    const char *tool_name;
    bool one_call; /* parallel_tool_calls: false */

    Baton__V1__Constraint constraint; /* of the message, where it asks for one */
    Baton__V1__Choices choices_of_text;
    Baton__V1__ToolCalls tool_calls;
    const char *constraint_param; /* the parameter that asks for it */

    struct request_fields fields; /* how the body calls what is in the message */
    char ids_field[32];           /* of it: "prompt", or one of several, "prompt[1]" */
};

/* False: *refusal says why, and there is nothing to deinit. */
bool openai_request_read(struct openai_request *request, enum openai_kind kind, const char *body,
                         size_t length, size_t max_bytes, struct openai_refusal *refusal);
void openai_request_deinit(struct openai_request *request);

/* The message with this prompt: one of `prompts`, or what a chat's template gave. Valid until the
 * next call, as request->fields for it. */
const Baton__V1__GenerateRequest *openai_request_message(struct openai_request *request,
                                                         const struct openai_prompt *prompt);

/* A chat without max_tokens may fill the context, up to what one answer may have at most. After
 * request_parse, before request_fit. */
void openai_request_fill(const struct openai_request *request, const struct request_model *model,
                         size_t prompt_tokens, struct request_params *params);

/* What a chat's template gets: for chat_record_write. Points into the body. */
struct chat_request openai_chat_request(const struct openai_request *request);

/* Which parameter a refusal of the validator is about; "" where that isn't one. */
void openai_request_param(enum openai_kind kind, enum reason reason, const char *sentence,
                          char param[OPENAI_PARAM_BYTES]);

#endif
