#include "tests/bench/router_load/reply_reader.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void reply_reader_init(struct reply_reader *reader)
{
    reader->state = REPLY_HEAD;
    reader->line_length = 0;
    reader->left = 0;
    reader->status = 0;
    reader->events = 0;
    reader->column = 0;
}

static void read_head(struct reply_reader *reader)
{
    bool chunked = false;
    reader->status = reader->line_length > 12 ? atoi(reader->line + 9) : 0;
    for (const char *line = strstr(reader->line, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (!strncasecmp(line, "content-length:", 15))
            reader->left = strtoull(line + 15, NULL, 10);
        else if (!strncasecmp(line, "transfer-encoding:", 18))
            chunked = true;
    }
    reader->line_length = 0;
    if (chunked)
        reader->state = REPLY_CHUNK_SIZE;
    else
        reader->state = reader->left ? REPLY_BODY : REPLY_OVER;
}

/* Lines of events that hold an object: "data: {...". */
static void count_events(struct reply_reader *reader, const char *bytes, size_t count)
{
    while (count) {
        const char *end = memchr(bytes, '\n', count);
        size_t length = end ? (size_t)(end - bytes) : count;
        for (size_t i = 0; i < length && reader->column < 7; i++)
            reader->start[reader->column++] = bytes[i];
        if (!end)
            return;
        reader->events += reader->column == 7 && !memcmp(reader->start, "data: {", 7);
        reader->column = 0;
        bytes += length + 1;
        count -= length + 1;
    }
}

/* Adds to the line up to its end, or the head's; true: it is whole. */
static bool take_line(struct reply_reader *reader, char byte, const char *end)
{
    size_t length = strlen(end);
    if (reader->line_length + 1 < sizeof reader->line)
        reader->line[reader->line_length++] = byte;
    reader->line[reader->line_length] = 0;
    return reader->line_length >= length &&
           !memcmp(reader->line + reader->line_length - length, end, length);
}

static void take_size(struct reply_reader *reader)
{
    bool ended = reader->line_length == 2; /* the line behind the last chunk, or a chunk */
    bool last = reader->state == REPLY_CHUNK_END;
    if (ended) {
        reader->state = last ? REPLY_OVER : REPLY_CHUNK_SIZE;
    } else {
        reader->left = strtoull(reader->line, NULL, 16);
        reader->state = reader->left ? REPLY_CHUNK : REPLY_CHUNK_END;
    }
    reader->line_length = 0;
}

size_t reply_reader_take(struct reply_reader *reader, const char *bytes, size_t count)
{
    size_t at = 0;
    while (at < count && reader->state != REPLY_OVER) {
        if (reader->state == REPLY_HEAD) {
            if (take_line(reader, bytes[at++], "\r\n\r\n"))
                read_head(reader);
        } else if (reader->state == REPLY_CHUNK_SIZE || reader->state == REPLY_CHUNK_END) {
            if (take_line(reader, bytes[at++], "\r\n"))
                take_size(reader);
        } else {
            size_t part = count - at < reader->left ? count - at : (size_t)reader->left;
            count_events(reader, bytes + at, part);
            at += part;
            reader->left -= part;
            if (!reader->left)
                reader->state = reader->state == REPLY_BODY ? REPLY_OVER : REPLY_CHUNK_SIZE;
        }
    }
    return at;
}
