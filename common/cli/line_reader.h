/* Lines of a file descriptor, as they come, for a thread that also waits for other things. Bounded:
 * a line that is too long is dropped to its end, and told. */
#ifndef BATON_CLI_LINE_READER_H
#define BATON_CLI_LINE_READER_H

#include "common/base/str.h"

#define LINE_READER_MAX_BYTES (1u << 20)

/* LINE_INTERRUPTED: by Ctrl-C; never of a line_reader. */
enum line_event { LINE_NONE, LINE_WHOLE, LINE_TOO_LONG, LINE_INTERRUPTED, LINE_END };

struct line_reader {
    int fd;
    struct str buffer;
    size_t taken; /* bytes of the buffer that the last line was */
    bool dropping, ended;
};

void line_reader_init(struct line_reader *reader, int fd);
void line_reader_deinit(struct line_reader *reader);
/* What is there already: call it until LINE_NONE before waiting for the descriptor. *line is
 * without its line feed, and valid until the next call. A NUL ends it. */
enum line_event line_reader_next(struct line_reader *reader, const char **line);
/* Reads once; the descriptor is readable. */
void line_reader_fill(struct line_reader *reader);

#endif
