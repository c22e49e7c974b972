#include "common/cli/input_lines.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

bool input_lines_read(FILE *file, int delimiter, struct str *text)
{
    int c;
    str_clear(text);
    while ((c = getc_unlocked(file)) != EOF && c != delimiter && !text->truncated)
        str_append(text, &(char){(char)c}, 1);
    return c != EOF || text->length > 0;
}

enum status input_lines_check(const struct str *text, struct error *err)
{
    if (ferror(stdin))
        return error_set(err, STATUS_IO, "standard input: %s", strerror(errno));
    if (text->truncated)
        return error_set(err, STATUS_LIMIT, "the input is over the limit of %zu bytes",
                         text->limit);
    return STATUS_OK;
}

/* --- lines of a descriptor --- */

void line_reader_init(struct line_reader *reader, int fd)
{
    *reader = (struct line_reader){.fd = fd};
    str_init(&reader->buffer, LINE_READER_MAX_BYTES + 1);
}

void line_reader_deinit(struct line_reader *reader)
{
    str_deinit(&reader->buffer);
}

void line_reader_fill(struct line_reader *reader)
{
    char bytes[16384];
    size_t room = reader->buffer.limit - reader->buffer.length;
    ssize_t count = read(reader->fd, bytes, room < sizeof bytes ? room : sizeof bytes);
    if (count > 0)
        str_append(&reader->buffer, bytes, (size_t)count);
    else if (count == 0 || (errno != EINTR && errno != EAGAIN))
        reader->ended = true;
}

enum line_event line_reader_next(struct line_reader *reader, const char **line)
{
    struct str *buffer = &reader->buffer;
    str_remove_front(buffer, reader->taken);
    reader->taken = 0;
    char *end = memchr(buffer->data, '\n', buffer->length);
    if (!end && buffer->length > LINE_READER_MAX_BYTES) {
        str_clear(buffer);
        reader->dropping = true;
    }
    if (!end && reader->ended && (buffer->length || reader->dropping)) /* no line feed at the end */
        end = buffer->data + buffer->length;
    if (!end)
        return reader->ended ? LINE_END : LINE_NONE;
    size_t length = (size_t)(end - buffer->data);
    reader->taken = length < buffer->length ? length + 1 : length;
    *end = 0;
    bool whole = !reader->dropping;
    reader->dropping = false;
    *line = buffer->data;
    return whole ? LINE_WHOLE : LINE_TOO_LONG;
}
