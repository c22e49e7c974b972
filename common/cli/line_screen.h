/* Where on the screen libedit has drawn a line that is edited. `prompt` is the one that it has
 * drawn; where the terminal has another width since then, rows are counted by the new one. One
 * thread. */
#ifndef BATON_CLI_LINE_SCREEN_H
#define BATON_CLI_LINE_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

struct editline; /* libedit's EditLine */

/* From the prompt's row to that of the line's character `end`. */
size_t line_screen_rows(struct editline *edit, const char *prompt, const wchar_t *end);
/* Clears all from the prompt's row on, and leaves the cursor there. */
void line_screen_clear(struct editline *edit, const char *prompt);

/* A key, and no text. */
static inline bool line_is_control(wchar_t character)
{
    return character < 0x20 || (character >= 0x7f && character < 0xa0);
}

#endif
