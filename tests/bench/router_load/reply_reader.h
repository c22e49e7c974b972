/* Reads one reply of HTTP/1.1 at a time from a trusted server, as bytes come: its status, its end,
 * and the number of a stream's events with an object so far. */
#ifndef BATON_TESTS_BENCH_REPLY_READER_H
#define BATON_TESTS_BENCH_REPLY_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reply_state {
    REPLY_HEAD,       /* its last line came -> BODY, CHUNK_SIZE, OVER */
    REPLY_BODY,       /* all of it came -> OVER */
    REPLY_CHUNK_SIZE, /* a size came -> CHUNK, or CHUNK_END where it is 0 */
    REPLY_CHUNK,      /* all of it came -> CHUNK_SIZE */
    REPLY_CHUNK_END,  /* the blank line came -> OVER */
    REPLY_OVER,
};

struct reply_reader {
    enum reply_state state;
    char line[4096]; /* the head, or a chunk's size */
    size_t line_length;
    uint64_t left; /* bytes of the body or the chunk */
    int status;
    uint32_t events;
    char start[7]; /* the first bytes of a stream's line */
    size_t column;
};

void reply_reader_init(struct reply_reader *reader);
/* Takes bytes until the reply is over. Returns how many it took. */
size_t reply_reader_take(struct reply_reader *reader, const char *bytes, size_t count);

#endif
