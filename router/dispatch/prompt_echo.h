/* What a client is told of its own prompt: the prompt itself (echo), and the logprobs of its
 * tokens, as the worker that computes it sends them. The answer comes after all of that. Owner: the
 * dispatch thread, once made. Refuses: sending. */
#ifndef BATON_ROUTER_DISPATCH_PROMPT_ECHO_H
#define BATON_ROUTER_DISPATCH_PROMPT_ECHO_H

#include "common/base/domain/logprobs.h"
#include "common/base/status.h"
#include "common/base/str.h"
#include "common/language/text/detokenizer.h"

#include <stdbool.h>

struct prompt_echo_config {
    bool echo, logprobs;
    bool keep;        /* what comes is kept until it is read; else the caller passes it on */
    const char *text; /* NULL: of the ids, as far as there is a tokenizer */
    const struct tokenizer *tokenizer;
    bool skip_special_tokens;
    const uint32_t *ids; /* [count] */
    uint32_t count;
};

struct prompt_echo {
    bool echo; /* and not told yet */
    struct str text;
    uint32_t next, end; /* tokens whose logprobs are still to come */
    bool keep;
    struct token_logprobs *kept; /* [end - 1]: of tokens 1 .. next; NULL: not kept */
};

/* STATUS_LIMIT: memory, or a text over ANSWER_DELTAS_MAX_TEXT_BYTES. */
enum status prompt_echo_init(struct prompt_echo *out,
                             const struct prompt_echo_config *config) WARN_UNUSED;
void prompt_echo_deinit(struct prompt_echo *out);

bool prompt_echo_waits(const struct prompt_echo *out);
/* Those of the next `count` tokens. False: these are not the next, or there are not so many. */
bool prompt_echo_take(struct prompt_echo *out, uint32_t first,
                      const struct token_logprobs *logprobs, uint32_t count);

#endif
