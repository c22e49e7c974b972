/* The chat template of a model. It makes a prompt of messages, in the form of the model's training.
 *
 * A model's folder has it as chat_template.jinja, or in tokenizer_config.json as a string or a list
 * of named templates: "default", and "tool_use" for requests with tools. tokenizer_config.json also
 * names the begin and end tokens.
 *
 * The prompt records for each byte whether it came from the request, so that a special token that a
 * user spells out stays text (chat_encode). Known roles (user, assistant, ...) count as the
 * template's text: "<|" + role + "|>" makes a token.
 *
 * An open template is immutable: any number of threads use it at once. */
#ifndef BATON_LANGUAGE_CHAT_CHAT_TEMPLATE_H
#define BATON_LANGUAGE_CHAT_CHAT_TEMPLATE_H

#include "common/base/arena.h"
#include "common/base/json/json.h"
#include "common/language/chat/chat_forms.h"
#include "common/language/template/template.h"
#include "common/language/text/tokenizer.h"

#define CHAT_TEMPLATE_LIMIT_FILE   (8u << 20)   /* bytes of tokenizer_config.json */
#define CHAT_TEMPLATE_LIMIT_NAMED  8            /* templates of one model */
#define CHAT_TEMPLATE_LIMIT_MEMORY (128u << 20) /* bytes of one rendering, with its prompt */
#define CHAT_TEMPLATE_LIMIT_TEXT   (16u << 20)  /* bytes of a prompt */
#define CHAT_TEMPLATE_LIMIT_KWARGS 64

struct chat_template;

/* STATUS_NOT_FOUND: the folder has no template. Otherwise fails as template_compile, or with
 * STATUS_IO. The sentence starts with the file. */
enum status chat_template_open(const char *folder, struct chat_template **chat,
                               struct error *err) WARN_UNUSED;
/* Opens a template in a file of its own, without special tokens. */
enum status chat_template_open_file(const char *path, struct chat_template **chat,
                                    struct error *err) WARN_UNUSED;
void chat_template_close(struct chat_template *chat); /* NULL is fine */

/* Returns whether the source of any of the templates has `text` in it. */
bool chat_template_mentions(const struct chat_template *chat, const char *text);
/* Returns how the template writes calls and reasoning, which lives as long as the template. */
const struct chat_forms *chat_template_forms(const struct chat_template *chat);

struct chat_request {
    const struct json_value *messages;  /* an array of objects with a "role" */
    const struct json_value *tools;     /* an array; NULL: none */
    const struct json_value *documents; /* an array; NULL: none */
    const struct json_value *kwargs;    /* further variables (enable_thinking); NULL: none */
    const char *bos, *eos;              /* replace the model's; NULL: the model's */
    bool add_generation_prompt;
    bool continue_final_message; /* the prompt ends with the last message's text */
    /* Adapts messages of OpenAI's clients to templates. Arguments of tool calls that are strings of
     * JSON become objects. An assistant's content that is null or missing becomes "" (null in a
     * call of tools, if the template tests for none). Arguments are text where the template needs
     * it (chat_forms). Content in parts, all of them text, becomes one string if the template
     * supports no parts. */
    bool openai;
    bool text_arguments; /* with `openai`: arguments stay strings, or become strings */
    struct template_time now;
};

struct chat_prompt {
    const char *text; /* valid UTF-8, not NUL-terminated */
    size_t length;
    const struct byte_range *inputs; /* bytes from the request, in order, not touching */
    size_t input_count;
    struct arena arena; /* owns all of it */
};

/* The failure of a rendering, besides `err`. */
struct chat_failure {
    char message[TEMPLATE_LIMIT_MESSAGE + 1]; /* as Python's str(exception), or err's text */
    bool by_template;                         /* the template refused or failed */
};

/* Fills `prompt` on success only; chat_prompt_deinit frees it. `failure` may be NULL.
 * STATUS_INVALID: a wrong request, or the template's own refusal. STATUS_LIMIT: too long, too deep,
 * too many steps. */
enum status chat_template_render(const struct chat_template *chat,
                                 const struct chat_request *request, struct chat_prompt *prompt,
                                 struct chat_failure *failure, struct error *err) WARN_UNUSED;
void chat_prompt_deinit(struct chat_prompt *prompt);

/* Encodes a prompt as token ids. Fails as tokenizer_encode.
 *
 * Special tokens come only from the template's text: those that a message spells out are encoded as
 * text. Added tokens that aren't special, such as Qwen's <think>, are recognized everywhere,
 * because models write them themselves and clients send them back. The template writes its own
 * begin token, so that the tokenizer's is not added. */
enum status chat_encode(const struct tokenizer *tokenizer, const struct chat_prompt *prompt,
                        struct token_ids *ids, struct error *err) WARN_UNUSED;

#endif
