/* An answer on its way to the client: tokens go in as workers send them, deltas come out. A delta
 * has everything since the last one. Its texts are whole UTF-8 characters; text that may still
 * become a stop string or a tag of reasoning is held back. Token ids don't wait. Stop strings are
 * looked for behind the reasoning only.
 *
 * The id that ended the answer (end of sequence, stop id) is among the ids, never in the text. Text
 * ends before a stop string; ids and count include the token that completed it. Owner: the
 * dispatcher, in its turns. Sends nothing. */
#ifndef BATON_ROUTER_DISPATCH_ANSWER_DELTAS_H
#define BATON_ROUTER_DISPATCH_ANSWER_DELTAS_H

#include "common/base/domain/logprobs.h"
#include "common/base/domain/sampling.h"
#include "common/base/status.h"
#include "common/base/str.h"
#include "common/language/text/detokenizer.h"
#include "common/language/text/reasoning_splitter.h"
#include "common/language/text/stop_matcher.h"

#include <stdbool.h>

#define ANSWER_DELTAS_MAX_TEXT_BYTES (64u << 20)

struct answer_deltas_config {
    const struct tokenizer *tokenizer; /* NULL: ids only */
    bool skip_special_tokens, return_token_ids, return_logits_hash, return_logprobs;
    const struct text *stops; /* copied; none without a tokenizer */
    size_t stop_count;
    size_t max_text_bytes; /* may wait to be taken; 0: ANSWER_DELTAS_MAX_TEXT_BYTES */
    const struct reasoning_tags *reasoning; /* copied; NULL: the answer is one text */
};

struct answer_deltas {
    const struct tokenizer *tokenizer;
    bool return_token_ids, return_logits_hash, return_logprobs;
    struct detokenizer detokenizer;
    struct reasoning_splitter splitter;
    struct stop_matcher *matcher;
    struct str piece;                  /* scratch: text before the splitter */
    struct str content;                /* scratch: text before the matcher */
    struct str text, reasoning;        /* ready for the next delta */
    struct str taken, taken_reasoning; /* the last delta's */
    uint32_t reasoning_tokens;         /* so far, with the tokens of the tags */
    uint32_t count;                    /* tokens of the answer so far */
    uint32_t first;                    /* tokens [first, count) are not taken yet */
    size_t capacity;
    uint32_t *ids;                   /* [count - first] */
    uint64_t *hashes;                /* [count - first] */
    struct token_logprobs *logprobs; /* [count - first]; NULL: they aren't returned */
    bool ended, overflowed;
    int stop; /* index of the stop string that matched, or STOP_MATCHER_NONE */
};

struct stream_delta { /* points into the answer_deltas, until the next call */
    uint32_t first_index;
    struct text text;      /* the model may say a NUL, too */
    struct text reasoning; /* before the text */
    const uint32_t *ids;
    size_t id_count;
    const uint64_t *hashes;
    size_t hash_count;
    const struct token_logprobs *logprobs;
    size_t logprobs_count;
};

/* STATUS_INVALID: a stop string; STATUS_LIMIT: memory. */
enum status answer_deltas_init(struct answer_deltas *out, const struct answer_deltas_config *config,
                               struct error *err) WARN_UNUSED;
void answer_deltas_deinit(struct answer_deltas *out);

struct stream_token {
    uint32_t id;
    uint64_t logits_hash;
    const struct token_logprobs *logprobs; /* copied; may be NULL unless they are returned */
};
/* Adds the next token. True: its text completed a stop string, and the answer ends. No token may
 * follow an end. */
bool answer_deltas_token(struct answer_deltas *out, const struct stream_token *token,
                         enum finish_reason finish);
/* Ends the answer: text that was held back becomes ready. Returns `finish`, or FINISH_STOP_STRING
 * where that text has a stop string. */
enum finish_reason answer_deltas_end(struct answer_deltas *out, enum finish_reason finish);

/* Takes everything since the last take. False: nothing. */
bool answer_deltas_take(struct answer_deltas *out, struct stream_delta *delta);
/* True: text was lost, because more came than may wait to be taken. The answer must not be
 * given. */
bool answer_deltas_overflowed(const struct answer_deltas *out);
/* Sets *stop to the stop string that matched. False: none did. */
bool answer_deltas_stop(const struct answer_deltas *out, struct text *stop);

#endif
