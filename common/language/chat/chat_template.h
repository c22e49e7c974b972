/* The chat template of a model: messages to the prompt that it was trained on.
 *
 * A model's folder has it as chat_template.jinja, or in tokenizer_config.json as a string or as a
 * list of named ones ("default", and "tool_use" where there are tools). What begin and end tokens
 * it writes is in tokenizer_config.json.
 *
 * The prompt says of each byte whether it came from the request, so that a special token that a
 * user spells out stays text: chat_encode.h. Roles that everybody knows (chat_role_is_known) count
 * as the template's: "<|" + role + "|>" makes a token.
 *
 * An open one is immutable: any number of threads use it at once. */
#ifndef BATON_LANGUAGE_CHAT_CHAT_TEMPLATE_H
#define BATON_LANGUAGE_CHAT_CHAT_TEMPLATE_H

#include "common/base/arena.h"
#include "common/base/json/json.h"
#include "common/language/template/template.h"
#include "common/language/text/tokenizer.h"

#define CHAT_TEMPLATE_LIMIT_FILE   (8u << 20)   /* bytes of tokenizer_config.json */
#define CHAT_TEMPLATE_LIMIT_NAMED  8            /* templates of a model */
#define CHAT_TEMPLATE_LIMIT_MEMORY (128u << 20) /* bytes of one rendering, prompt and all */
#define CHAT_TEMPLATE_LIMIT_TEXT   (16u << 20)  /* bytes of a prompt */
#define CHAT_TEMPLATE_LIMIT_KWARGS 64

struct chat_template;

/* STATUS_NOT_FOUND: the folder has none. Else as template_compile, or STATUS_IO; the sentence
 * starts with the file. */
enum status chat_template_open(const char *folder, struct chat_template **chat,
                               struct error *err) WARN_UNUSED;
/* A template in a file of its own, without special tokens. */
enum status chat_template_open_file(const char *path, struct chat_template **chat,
                                    struct error *err) WARN_UNUSED;
void chat_template_close(struct chat_template *chat); /* NULL is fine */

/* Of the one that is used with tools: what it writes for a call says how the model writes one. */
const char *chat_template_source(const struct chat_template *chat);

struct chat_request {
    const struct json_value *messages;  /* an array of objects with a "role" */
    const struct json_value *tools;     /* an array; NULL: none */
    const struct json_value *documents; /* an array; NULL: none */
    const struct json_value
        *kwargs;           /* an object of further variables (enable_thinking); NULL: none */
    const char *bos, *eos; /* instead of the model's; NULL: those */
    bool add_generation_prompt;
    bool continue_final_message; /* the prompt ends where the last message's text does */
    /* As OpenAI's clients send messages, and templates don't take them: arguments of tool calls
     * that are strings of JSON become objects, an assistant's content that is null or left out
     * becomes "" (where it calls tools: null, if the template asks for none), and content in parts,
     * all of them text, becomes one string where the template knows no parts. */
    bool openai;
    struct template_time now;
};

struct chat_prompt {
    const char *text; /* valid UTF-8, not NUL-terminated */
    size_t length;
    const struct byte_range *inputs; /* what came from the request, in order, not touching */
    size_t input_count;
    struct arena arena; /* holds it all */
};

/* What went wrong, beside `err`. */
struct chat_failure {
    char message[TEMPLATE_LIMIT_MESSAGE + 1]; /* as Python's str(exception), or err's text */
    bool by_template;                         /* it was the template that refused or failed */
};

/* Fills `prompt` on success only; chat_prompt_deinit frees. `failure` may be NULL. STATUS_INVALID:
 * the request, or the template's own refusal; STATUS_LIMIT: too long, too deep, too many steps. */
enum status chat_template_render(const struct chat_template *chat,
                                 const struct chat_request *request, struct chat_prompt *prompt,
                                 struct chat_failure *failure, struct error *err) WARN_UNUSED;
void chat_prompt_deinit(struct chat_prompt *prompt);

bool chat_role_is_known(const char *role, size_t length);

#endif
