/* Input lines within a limit: of a FILE, for the commands that take JSON, and of a file descriptor,
 * for a thread that also waits for other things. */
#ifndef BATON_CLI_INPUT_LINES_H
#define BATON_CLI_INPUT_LINES_H

#include "common/base/str.h"

#include <stdio.h>

/* Reads up to `delimiter`, which is left out, or to the end of input. EOF as delimiter reads all.
 * False: the input had ended before. It stops beyond the text's limit and truncates `text`, which
 * input_lines_check reports; the rest of the input is not to be read then. */
bool input_lines_read(FILE *file, int delimiter, struct str *text);
/* STATUS_IO: standard input failed. STATUS_LIMIT: `text` was truncated. */
enum status input_lines_check(const struct str *text, struct error *err) WARN_UNUSED;

/* --- lines of a descriptor --- */

#define LINE_READER_MAX_BYTES (1u << 20)

/* LINE_INTERRUPTED: Ctrl-C; a line_reader never returns it. */
enum line_event { LINE_NONE, LINE_WHOLE, LINE_TOO_LONG, LINE_INTERRUPTED, LINE_END };

struct line_reader {
    int fd;
    struct str buffer;
    size_t taken; /* bytes of the buffer that the last line had */
    bool dropping, ended;
};

void line_reader_init(struct line_reader *reader, int fd);
void line_reader_deinit(struct line_reader *reader);
/* Returns a line that was read already: call it until LINE_NONE before waiting for the descriptor.
 * *line has no line feed, ends at a NUL, and is valid until the next call. LINE_TOO_LONG: a line
 * over LINE_READER_MAX_BYTES was dropped up to its end. */
enum line_event line_reader_next(struct line_reader *reader, const char **line);
/* Reads once. The descriptor must be readable. */
void line_reader_fill(struct line_reader *reader);

#endif
