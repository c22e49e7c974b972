/* The answer to a request of `baton bench serve`: when its tokens came, and how it ended. Reads
 * OpenAI's streams (server-sent events) as their bytes come. Pure: times are the caller's,
 * nanoseconds of a monotonic clock.
 *
 * A chunk brings a token if its choice has text, or, of a completion, is not finished yet: a token
 * may complete no character. A chunk that only names the role brings none. (vLLM's benchmark counts
 * every chunk with a choice.) */
#ifndef BATON_CLI_LOAD_ANSWER_H
#define BATON_CLI_LOAD_ANSWER_H

#include "common/base/str.h"

#include <stdint.h>

#define LOAD_MAX_EVENT_BYTES (4u << 20)
#define LOAD_MAX_ITLS        (1u << 22)

struct load_answer {
    uint64_t due_ns, ready_ns, sent_ns; /* the caller's; ready: due, and within the limit */
    uint64_t first_ns, last_ns;         /* the first and last chunk with a token; 0: none came */
    uint64_t end_ns;
    uint32_t chunks;                      /* with a token */
    uint32_t input_tokens, output_tokens; /* the server's usage; without it 0 and the chunks */
    bool has_usage, finished, keeps_text;
    float *itls; /* seconds between chunks [chunks - 1] */
    uint32_t itl_capacity;
    struct str text;   /* if keeps_text */
    char reason[48];   /* "": fine; otherwise a short name: "overloaded", "http 500", "timeout" */
    char message[200]; /* the sentence behind it */
};

/* An answer that still comes. */
struct load_reader {
    struct load_answer *answer;
    bool chat;
    int status;
    struct str line; /* an unfinished line, or the body of a refusal */
};

void load_answer_init(struct load_answer *answer, bool keeps_text);
void load_answer_deinit(struct load_answer *answer);
/* Notes that a token came, and its text. */
void load_answer_token(struct load_answer *answer, const char *text, size_t length,
                       uint64_t now_ns);
/* Marks it as failed, unless it is already. */
void load_answer_fail(struct load_answer *answer, const char *reason, const char *message);

void load_reader_init(struct load_reader *reader, struct load_answer *answer, bool chat);
void load_reader_deinit(struct load_reader *reader);
/* Takes bytes of an answer with HTTP's status `status`. */
void load_reader_take(struct load_reader *reader, int status, const char *bytes, size_t count,
                      uint64_t now_ns);
/* The answer is over. A refusal, a stream that wasn't finished or that had no token has failed. */
void load_reader_end(struct load_reader *reader, int status, uint64_t now_ns);

#endif
