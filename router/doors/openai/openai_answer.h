/* Answers in OpenAI's shape, as text: whole objects, the chunks of a stream, log probabilities, and
 * models. PURE: the caller passes ids and times.
 *
 * A stream consists of frames "data: {...}\n\n", with LF only. The role comes with the first text,
 * so the first chunk is the first token. Reasoning has chunks of its own, with reasoning_content in
 * the place of content. The chunk of usage, which has no choices, comes only if
 * asked for. "data: [DONE]" is last. Every chunk names its object, id and model. If usage was asked
 * for, the other chunks have "usage": null, or the usage so far with continuous_usage_stats.
 *
 * Token ids are placed as vLLM places them: an answer's ids in its choice, the prompt's ids in the
 * choice of a completion or beside the choices of a chat. In a stream the prompt's ids are in the
 * first chunk of each choice. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_ANSWER_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_ANSWER_H

#include "common/base/domain/logprobs.h"
#include "common/base/domain/sampling.h"
#include "common/base/str.h"
#include "common/language/text/tokenizer.h"
#include "router/doors/openai/openai_request.h"
#include "router/doors/openai/tool_parser.h"

#define OPENAI_ID_BYTES   160 /* "chatcmpl-", a request id, NUL */
#define OPENAI_DONE       "data: [DONE]\n\n"
#define OPENAI_KEEP_ALIVE ": keep-alive\n\n" /* a comment, which clients ignore */

/* The values that all parts of an answer share. */
struct openai_answer {
    enum openai_kind kind;
    const char *request_id; /* the answer's id is derived from it */
    const char *model;      /* the served name */
    uint64_t created_s;     /* Unix time */
    bool include_usage, continuous_usage, logprobs, token_ids;
    enum tool_format tools; /* ids of Mistral's calls have 9 characters */
    bool tool_named;        /* tool_choice named the function: finish_reason is then "stop" */
    bool reasoning;         /* the answer's reasoning is apart: messages have reasoning_content */
};

struct openai_usage {
    uint32_t prompt_tokens, completion_tokens;
    uint32_t cached_tokens;    /* prompt tokens that were not computed again */
    uint32_t reasoning_tokens; /* part of completion_tokens, with the tags' tokens */
};

struct openai_token_ids {
    const uint32_t *ids; /* [count] */
    size_t count;
};

/* One token, as logprobs show it. */
struct openai_token {
    uint32_t id;
    const char *bytes; /* [length] of its text; often not whole UTF-8 */
    size_t length;
    float logprob;
    bool has_logprob; /* false for the first token of a prompt */
    size_t top_count;
    const struct openai_token *top; /* [top_count] the likeliest; their own `top` isn't read */
};

/* The state of one choice in a stream. */
struct openai_choice {
    uint32_t index;
    bool begun;            /* its role was sent */
    bool reasoned;         /* the model has, whether it is shown or not */
    uint32_t calls;        /* tool calls so far */
    uint32_t tokens_shown; /* in logprobs */
    size_t characters;     /* text so far, for text_offset */
};

/* New output of one choice. */
struct openai_piece {
    const char *text; /* [length], may be "" */
    size_t length;
    bool reasoning;                    /* the text is reasoning */
    const struct openai_token *tokens; /* [token_count], for logprobs */
    size_t token_count;
    struct openai_token_ids ids, prompt; /* if they are shown; `prompt` only in the first piece */
    const struct tool_event *event; /* instead of text: TOOL_CALL or TOOL_ARGUMENTS; NULL: none */
    struct openai_usage usage;      /* so far, for continuous_usage */
};

/* --- a stream: each function appends whole frames --- */
void openai_chunk(struct str *out, const struct openai_answer *answer, struct openai_choice *choice,
                  const struct openai_piece *piece);
/* The last chunk of a choice. */
void openai_chunk_end(struct str *out, const struct openai_answer *answer,
                      struct openai_choice *choice, enum finish_reason finish,
                      const struct openai_usage *usage);
void openai_chunk_usage(struct str *out, const struct openai_answer *answer,
                        const struct openai_usage *usage);
/* An error after the HTTP status was sent: the frame that SDKs raise. */
void openai_chunk_error(struct str *out, enum reason reason, const char *sentence);

/* --- one object --- */
/* One choice of it. */
struct openai_whole {
    struct openai_choice choice;
    struct str text, reasoning;
    struct str calls;           /* their JSON, by openai_whole_event */
    struct str logprobs;        /* JSON, by openai_whole_tokens; empty: none */
    struct str ids, prompt_ids; /* JSON, by openai_whole_ids; empty: none */
    enum finish_reason finish;
};
void openai_whole_init(struct openai_whole *whole, uint32_t index, size_t limit_bytes);
void openai_whole_deinit(struct openai_whole *whole);
/* Appends a call, its arguments, or text (TOOL_TEXT). */
void openai_whole_event(struct openai_whole *whole, const struct openai_answer *answer,
                        const struct tool_event *event);
/* Sets the logprobs of the answer from all its tokens. choice.characters must count the text before
 * the first of them. */
void openai_whole_tokens(struct openai_whole *whole, const struct openai_answer *answer,
                         const struct openai_token *tokens, size_t count);
void openai_whole_ids(struct openai_whole *whole, const struct openai_token_ids *prompt,
                      const struct openai_token_ids *ids);
/* A part exceeded limit_bytes. */
bool openai_whole_truncated(const struct openai_whole *whole);
void openai_object(struct str *out, const struct openai_answer *answer,
                   const struct openai_whole *const *choices, size_t count,
                   const struct openai_usage *usage);

/* --- logprobs --- */
/* The texts and logprobs of `ids` [count], in one allocation that the caller frees. NULL: no
 * memory, or `count` is 0. `logprobs` [count]: NULL, or what each token gets. */
struct openai_token *token_texts_make(const struct tokenizer *tokenizer, const uint32_t *ids,
                                      const struct token_logprobs *logprobs, size_t count);
/* A chat's {"content": [...]}. Bytes that form no whole character are U+FFFD in "token", and
 * themselves in "bytes". */
void openai_logprobs_chat(struct str *out, const struct openai_token *tokens, size_t count);
/* A completion's parallel arrays. `offset`: characters of text before the first token; on return,
 * those up to the end of the last. */
void openai_logprobs_completion(struct str *out, const struct openai_token *tokens, size_t count,
                                size_t *offset);
/* Unicode characters of text; each malformed piece (utf8.h) counts as one. */
size_t openai_characters(const char *text, size_t length);

/* --- GET /v1/models and /v1/models/{id} --- */
void openai_model_json(struct str *out, const struct request_model *model, uint64_t created_s);
void openai_models_json(struct str *out, const struct request_model *const *models, size_t count,
                        uint64_t created_s);

/* The answer ended because it had no room for more: finish_reason "length". */
bool openai_finish_cut(enum finish_reason finish);
/* Writes a call's id: "call_" and 24 characters, or 9 characters if Mistral's template needs them.
 * The same request, choice and call always get the same id. */
void openai_call_id(const struct openai_answer *answer, uint32_t choice, uint32_t call,
                    char id[32]);

#endif
