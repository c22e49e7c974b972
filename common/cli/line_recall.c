#include "common/cli/line_editor.h"

#include "common/base/utf8.h"
#include "common/cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPORARY ".XXXXXX" /* appended to the path: each program writes to its own file */

#define MAX_SOUGHT_BYTES 256 /* further text of a search is ignored */
#define CTRL_G           7
#define CTRL_H           8
#define CTRL_R           0x12
#define ESCAPE           0x1b
#define BACKSPACE        0x7f

void line_history_open(struct line_history *typed, bool keep)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    HistEvent event;
    struct stat info;
    *typed = (struct line_history){.lines = history_init()};
    if (!typed->lines)
        return;
    history(typed->lines, &event, H_SETSIZE, LINE_HISTORY_MAX_LINES);
    history(typed->lines, &event, H_SETUNIQUE, 1);
    int length = 0;
    if (keep && state && *state == '/')
        length = snprintf(typed->path, sizeof typed->path, "%s/baton/chat_history", state);
    else if (keep && home && *home == '/')
        length =
            snprintf(typed->path, sizeof typed->path, "%s/.local/state/baton/chat_history", home);
    if (length <= 0 || (size_t)length >= sizeof typed->path)
        typed->path[0] = 0;
    else if (!stat(typed->path, &info) && S_ISREG(info.st_mode) &&
             info.st_size <= (off_t)LINE_HISTORY_MAX_FILE_BYTES)
        history(typed->lines, &event, H_LOAD, typed->path); /* skips another format */
}

void line_history_add(struct line_history *typed, const char *line)
{
    HistEvent event;
    if (!typed->lines || !*line || strlen(line) > LINE_HISTORY_MAX_LINE_BYTES)
        return;
    history(typed->lines, &event, H_ENTER, line);
    typed->changed = true;
}

const char *line_history_back(struct line_history *typed, size_t back)
{
    HistEvent event = {0};
    int found = typed->lines ? history(typed->lines, &event, H_FIRST) : -1;
    while (found >= 0 && --back)
        found = history(typed->lines, &event, H_NEXT);
    return found < 0 ? NULL : event.str;
}

/* Writes the lines and closes the file. False: not all was written, and errno has the reason. */
static bool write_lines(struct line_history *typed, FILE *file)
{
    HistEvent event;
    errno = 0;
    bool written = history(typed->lines, &event, H_SAVE_FP, file) >= 0;
    written = !fflush(file) && !ferror(file) && written;
    int why = errno;
    if (fclose(file) && written) {
        written = false;
        why = errno;
    }
    errno = why ? why : EIO;
    return written;
}

static enum status save(struct line_history *typed, struct error *err)
{
    char temporary[sizeof typed->path + sizeof TEMPORARY];
    snprintf(temporary, sizeof temporary, "%s" TEMPORARY, typed->path);
    for (char *end = strchr(typed->path + 1, '/'); end; end = strchr(end + 1, '/')) {
        *end = 0;
        mkdir(typed->path, 0700); /* a failure shows when the file is opened */
        *end = '/';
    }
    int fd = mkostemp(temporary, O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file && write_lines(typed, file) && !rename(temporary, typed->path))
        return STATUS_OK;
    enum status status =
        error_set(err, STATUS_IO, "lines are not kept for the next start: cannot write %s: %s",
                  typed->path, strerror(errno));
    if (fd >= 0)
        unlink(temporary);
    return status;
}

enum status line_history_close(struct line_history *typed, struct error *err)
{
    enum status status = typed->changed && *typed->path ? save(typed, err) : STATUS_OK;
    if (typed->lines)
        history_end(typed->lines);
    *typed = (struct line_history){0};
    return status;
}

/* --- recall --- */

void line_recall_init(struct line_recall *recall, struct line_history *typed)
{
    recall->typed = typed;
    recall->back = 0;
    str_init(&recall->sought, MAX_SOUGHT_BYTES);
    str_init(&recall->search_prompt, MAX_SOUGHT_BYTES + 32);
}

void line_recall_deinit(struct line_recall *recall)
{
    str_deinit(&recall->sought);
    str_deinit(&recall->search_prompt);
}

bool line_recall_show(struct line_recall *recall, EditLine *edit, size_t back)
{
    const LineInfoW *line = el_wline(edit);
    const char *text = back ? line_history_back(recall->typed, back) : NULL;
    size_t count = (size_t)(line->lastchar - line->buffer);
    if ((back && !text) || (!recall->back && count > LINE_EDITOR_MAX_CHARACTERS))
        return false;
    if (!recall->back) {
        wmemcpy(recall->written, line->buffer, count);
        recall->written[count] = 0;
    }
    el_cursor(edit, (int)(line->lastchar - line->cursor));
    el_deletestr(edit, (int)count);
    if (text)
        el_insertstr(edit, text);
    else
        el_winsertstr(edit, recall->written);
    recall->back = back;
    return true;
}

/* Shows the line that is `back` lines back. 0: none contains the sought text. */
static void draw_search(struct line_recall *recall, EditLine *edit, size_t back,
                        const char **prompt)
{
    bool any = back || !recall->sought.length;
    line_screen_clear(edit, *prompt);
    if (back)
        line_recall_show(recall, edit, back);
    str_clear(&recall->search_prompt);
    str_addf(&recall->search_prompt, "(%s) %s: ", any ? "search" : "in no line",
             recall->sought.data);
    *prompt = recall->search_prompt.data;
    el_set(edit, EL_REFRESH);
}

/* Applies a key to the sought text. False: the key doesn't belong to a search. */
static bool edit_sought(struct str *sought, wchar_t key)
{
    if (key == CTRL_H || key == BACKSPACE) {
        while (sought->length && ((unsigned char)sought->data[--sought->length] & 0xc0) == 0x80) {
        }
        sought->data[sought->length] = 0;
        return true;
    }
    if (line_is_control(key))
        return false;
    char bytes[4];
    size_t count = utf8_put((uint32_t)key, bytes);
    if (sought->length + count <= sought->limit)
        str_append(sought, bytes, count);
    return true;
}

unsigned char line_recall_search(struct line_recall *recall, EditLine *edit, const char **prompt)
{
    const char *before = *prompt;
    size_t begin = recall->back, found = 0;
    wchar_t next;
    int count;
    str_clear(&recall->sought);
    draw_search(recall, edit, 0, prompt);
    while ((count = el_wgetc(edit, &next)) == 1) {
        bool again = next == CTRL_R;
        if (!again && !edit_sought(&recall->sought, next))
            break;
        const char *line = NULL;
        found = again ? recall->back + 1 : 1;
        while (recall->sought.length && (line = line_history_back(recall->typed, found)) &&
               !strstr(line, recall->sought.data))
            found++;
        found = line ? found : 0;
        draw_search(recall, edit, found, prompt);
    }
    line_screen_clear(edit, *prompt);
    if (count == 1 && next == CTRL_G)
        line_recall_show(recall, edit, begin);
    *prompt = before;
    el_set(edit, EL_REFRESH);
    if (count != 1)
        return CC_EOF;
    bool alone = next == ESCAPE && !recall->escape_begins &&
                 poll(&(struct pollfd){STDIN_FILENO, POLLIN, 0}, 1, 0) <= 0;
    if (next != CTRL_G && !alone)
        el_wpush(edit, (wchar_t[]){next, 0});
    return CC_NORM;
}

/* --- screen --- */

/* Returns the columns in which libedit shows a character from `column` on. A tab ends at its row's
 * end. */
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
            bool split = wcwidth(*at) < 0; /* libedit shows it on two rows */
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
