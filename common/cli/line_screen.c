#include "common/cli/line_screen.h"

#include "common/base/utf8.h"
#include "common/cli/line_editor.h"
#include "common/cli/terminal.h"

#include <histedit.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* As libedit shows it, from `column` on. A tab ends with its row. */
static size_t columns_of(wchar_t character, size_t column, size_t columns)
{
    int width = wcwidth(character);
    if (character == L'\t')
        return column + 8 - column % 8 > columns ? columns - column : 8 - column % 8;
    if (width >= 0)
        return (size_t)width;
    if (character < 0x100)
        return sizeof "^X" - 1;
    return (character > 0xffff ? sizeof "\\U+12345" : sizeof "\\U+1234") - 1;
}

/* On one row. */
static size_t prompt_columns(const char *prompt)
{
    size_t columns = 0, left = strlen(prompt);
    bool visible = true;
    while (left) {
        struct utf8_char next = utf8_next(prompt, left);
        bool turns = *prompt == *LINE_EDITOR_INVISIBLE;
        visible ^= turns;
        if (visible && !turns)
            columns += columns_of((wchar_t)next.code, columns, SIZE_MAX);
        prompt += next.length;
        left -= next.length;
    }
    return columns;
}

size_t line_screen_rows(EditLine *edit, const char *prompt, const wchar_t *end)
{
    size_t columns = terminal_columns(), column = prompt_columns(prompt);
    size_t rows = column / columns;
    column %= columns;
    for (const wchar_t *at = el_wline(edit)->buffer; at < end; at++) {
        size_t width = *at == L'\n' ? 0 : columns_of(*at, column, columns);
        column += width;
        if (*at == L'\n' || column >= columns) {
            bool split = wcwidth(*at) < 0; /* over two rows */
            column = *at == L'\n' || column == columns ? 0 : split ? column - columns : width;
            rows++;
        }
    }
    return rows;
}

void line_screen_clear(EditLine *edit, const char *prompt)
{
    size_t rows = line_screen_rows(edit, prompt, el_wline(edit)->cursor);
    if (rows)
        printf("\033[%zuA", rows);
    fputs("\r\033[J", stdout);
    fflush(stdout);
}
