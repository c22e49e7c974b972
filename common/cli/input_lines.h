/* Lines of standard input or a file within a limit, for the commands that take JSON. */
#ifndef BATON_CLI_INPUT_LINES_H
#define BATON_CLI_INPUT_LINES_H

#include "common/base/str.h"

#include <stdio.h>

/* Reads up to `delimiter` (which is left out) or the end; EOF reads all. False at the end of input.
 * Beyond the text's limit it stops, truncated, which input_lines_check tells: what is left isn't to
 * be read. */
bool input_lines_read(FILE *file, int delimiter, struct str *text);
/* STATUS_IO where standard input failed, STATUS_LIMIT where `text` is not all of it. */
enum status input_lines_check(const struct str *text, struct error *err) WARN_UNUSED;

#endif
