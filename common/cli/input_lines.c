#include "common/cli/input_lines.h"

#include <errno.h>
#include <string.h>

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
