/* Answers in OpenAI's shape, as text: whole objects, the chunks of a stream, and what is in both.
 * PURE: ids and times are the caller's.
 *
 * A stream: each frame is "data: {...}\n\n", with LF alone; the role comes with the first text, not
 * before it, so that the first chunk is the first token; the chunk of usage, with no choices, only
 * if asked for; then "data: [DONE]". Every chunk names its object, id and model. Where usage was
 * asked for, the other chunks have "usage": null, or with continuous_usage_stats the usage so far.
 *
 * Token ids are told as vLLM tells them: the answer's in its choice, a completion's prompt's too,
 * that of a chat beside the choices; of a stream the prompt's are in each choice's first chunk. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_ANSWER_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_ANSWER_H

#include "common/base/domain/sampling.h"
#include "common/base/str.h"
#include "router/doors/openai/openai_request.h"
#include "router/doors/openai/tool_parser.h"

#define OPENAI_ID_BYTES   160 /* "chatcmpl-", a request id, and an end */
#define OPENAI_DONE       "data: [DONE]\n\n"
#define OPENAI_KEEP_ALIVE ": keep-alive\n\n" /* a comment: no event */

/* What is the same in everything that one request is answered. */
struct openai_answer {
    enum openai_kind kind;
    const char *request_id; /* the answer's id is made of it */
    const char *model;      /* the name as it is served */
    uint64_t created_s;     /* Unix time */
    bool include_usage, continuous_usage, logprobs, token_ids;
    enum tool_format tools; /* ids of Mistral's calls have 9 characters */
    bool tool_named; /* by the client: an answer that calls it has merely ended, as OpenAI says */
};

struct openai_usage {
    uint32_t prompt_tokens, completion_tokens;
};

struct openai_token_ids {
    const uint32_t *ids; /* [count] */
    size_t count;
};

/* One token with what is told of it. */
struct openai_token {
    const char *bytes; /* as text; often not whole UTF-8 */
    size_t length;
    float logprob;
    bool has_logprob; /* the first token of a prompt has none */
    size_t top_count;
    const struct openai_token *top; /* their `top` is not looked at */
};

/* A choice in a stream: what was told of it. */
struct openai_choice {
    uint32_t index;
    bool begun;            /* its role was told */
    uint32_t calls;        /* tool calls, so far */
    uint32_t tokens_shown; /* in logprobs */
    size_t characters;     /* of text, so far: text_offset */
};

/* What came for one choice. */
struct openai_piece {
    const char *text; /* may be "" */
    size_t length;
    const struct openai_token *tokens; /* of logprobs */
    size_t token_count;
    struct openai_token_ids ids, prompt; /* where they are told; the latter with the first piece */
    const struct tool_event *event; /* instead of text: TOOL_CALL or TOOL_ARGUMENTS; NULL: none */
    struct openai_usage usage;      /* so far, for continuous_usage */
};

/* --- a stream: each appends whole frames --- */
void openai_chunk(struct str *out, const struct openai_answer *answer, struct openai_choice *choice,
                  const struct openai_piece *piece);
/* The last one of a choice. */
void openai_chunk_end(struct str *out, const struct openai_answer *answer,
                      struct openai_choice *choice, enum finish_reason finish,
                      const struct openai_usage *usage);
void openai_chunk_usage(struct str *out, const struct openai_answer *answer,
                        const struct openai_usage *usage);
/* An error after the status has left: the frame that SDKs raise. */
void openai_chunk_error(struct str *out, enum reason reason, const char *sentence);

/* --- one object --- */
struct openai_whole {
    struct openai_choice choice;
    struct str text;
    struct str calls;           /* JSON of them: openai_whole_event */
    struct str logprobs;        /* JSON, with openai_whole_tokens; empty: none */
    struct str ids, prompt_ids; /* likewise, with openai_whole_ids */
    enum finish_reason finish;
};
void openai_whole_init(struct openai_whole *whole, uint32_t index, size_t limit_bytes);
void openai_whole_deinit(struct openai_whole *whole);
/* TOOL_TEXT is text. */
void openai_whole_event(struct openai_whole *whole, const struct openai_answer *answer,
                        const struct tool_event *event);
/* All tokens of the answer at once; choice.characters: of the text before them. */
void openai_whole_tokens(struct openai_whole *whole, const struct openai_answer *answer,
                         const struct openai_token *tokens, size_t count);
void openai_whole_ids(struct openai_whole *whole, const struct openai_token_ids *prompt,
                      const struct openai_token_ids *ids);
bool openai_whole_truncated(const struct openai_whole *whole);
void openai_object(struct str *out, const struct openai_answer *answer,
                   const struct openai_whole *const *choices, size_t count,
                   const struct openai_usage *usage);

/* Whether there was no room for more: "length". */
bool openai_finish_cut(enum finish_reason finish);
/* "stop", "length", "tool_calls". */
const char *openai_finish_name(enum finish_reason finish, bool has_calls);
/* "call_..." of 24 characters, or 9 where Mistral's template wants them: the same for the same
 * request, choice and call. */
void openai_call_id(const struct openai_answer *answer, uint32_t choice, uint32_t call,
                    char id[32]);

#endif
