#include "common/cli/line_editor.h"

#include "common/base/utf8.h"
#include "common/cli/terminal.h"
#include "common/cli/terminal_signals.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Text that is pasted comes between two keys of its own (xterm's "bracketed paste"). */
#define PASTES_APART    "\033[?2004h"
#define PASTES_AS_TYPED "\033[?2004l"
#define PASTE_BEGIN     "\033[200~"
#define PASTE_END       L"\033[201~"

#define CTRL_D 4 /* one that came while the terminal took lines is a NUL when it takes keys */

struct line_editor {
    EditLine *edit;
    struct line_history *typed;
    const char *prompt;
    int signal_fd;
    bool pasting, too_long;
    bool typed_ahead; /* the next key is the line's first, and came before the terminal was ours */
    enum line_event why; /* the line ends without Enter; LINE_NONE: it doesn't */
    wchar_t paste[LINE_EDITOR_MAX_CHARACTERS + 1]; /* 0 behind it */
    struct str line;
};

/* --- what is shown --- */

static void show(const char *text)
{
    fputs(text, stdout);
    fflush(stdout);
}

static char *prompt_of(EditLine *edit)
{
    struct line_editor *editor;
    el_get(edit, EL_CLIENTDATA, &editor);
    return (char *)editor->prompt;
}

static size_t prompt_columns(const char *prompt)
{
    size_t columns = 0;
    bool visible = true;
    for (; *prompt; prompt++) {
        bool turns = *prompt == *LINE_EDITOR_INVISIBLE;
        visible ^= turns;
        columns += visible && !turns;
    }
    return columns;
}

/* Rows of the screen from the prompt's to that of the line's character `end`. */
static size_t rows_to(const struct line_editor *editor, const wchar_t *end)
{
    size_t columns = terminal_columns(), column = prompt_columns(editor->prompt), rows = 0;
    for (const wchar_t *at = el_wline(editor->edit)->buffer; at < end; at++) {
        int width = wcwidth(*at);
        column += width > 0 ? (size_t)width : 0;
        if (*at == L'\n' || column >= columns) {
            column = *at == L'\n' || column == columns ? 0 : (size_t)width;
            rows++;
        }
    }
    return rows;
}

/* To the row of the prompt, and all from there on again. */
static void draw_again(struct line_editor *editor)
{
    size_t rows = rows_to(editor, el_wline(editor->edit)->cursor);
    if (rows)
        printf("\033[%zuA", rows);
    show("\r\033[J");
    el_set(editor->edit, EL_REFRESH);
}

/* --- signals --- */

static void give_terminal(struct line_editor *editor)
{
    el_set(editor->edit, EL_PREP_TERM, 0);
    show(PASTES_AS_TYPED);
}

static void take_terminal(struct line_editor *editor)
{
    el_set(editor->edit, EL_PREP_TERM, 1);
    show(PASTES_APART "\r\033[J");
    el_resize(editor->edit);
    el_set(editor->edit, EL_REFRESH);
}

static void take_signal(struct line_editor *editor)
{
    switch (terminal_signals_take(editor->signal_fd)) {
    case TERMINAL_NOTHING: break;
    case TERMINAL_INTERRUPT: editor->why = LINE_INTERRUPTED; break;
    case TERMINAL_END: editor->why = LINE_END; break;
    case TERMINAL_STOP:
        give_terminal(editor);
        terminal_signals_stop();
        take_terminal(editor);
        break;
    case TERMINAL_CONTINUE: /* the terminal may be as a shell left it */
        give_terminal(editor);
        take_terminal(editor);
        break;
    case TERMINAL_RESIZE:
        el_resize(editor->edit);
        draw_again(editor);
        break;
    }
}

/* --- keys --- */

/* False: there is none to come. */
static bool read_byte(struct line_editor *editor, char *byte)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = editor->signal_fd, .events = POLLIN}};
        poll(fds, 2, -1);
        if (fds[1].revents)
            take_signal(editor);
        if (editor->why != LINE_NONE)
            return false;
        if (!fds[0].revents)
            continue;
        ssize_t count = read(STDIN_FILENO, byte, 1);
        if (count > 0)
            return true;
        if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
            editor->why = LINE_END; /* the terminal is gone */
            return false;
        }
    }
}

/* Bytes that belong to no character are passed over. */
static bool read_character(struct line_editor *editor, wchar_t *character)
{
    char bytes[4];
    for (size_t count = 0; read_byte(editor, &bytes[count]);) {
        struct utf8_char next = utf8_next(bytes, ++count);
        while (next.kind == UTF8_BROKEN && (count -= next.length)) {
            memmove(bytes, bytes + next.length, count);
            next = utf8_next(bytes, count);
        }
        if (next.kind == UTF8_WHOLE) {
            *character = (wchar_t)next.code;
            return true;
        }
    }
    return false;
}

static bool is_control(wchar_t character)
{
    return character < 0x20 || (character >= 0x7f && character < 0xa0);
}

static bool has_room(struct line_editor *editor, size_t count)
{
    const LineInfoW *line = el_wline(editor->edit);
    return (size_t)(line->lastchar - line->buffer) + count <= LINE_EDITOR_MAX_CHARACTERS;
}

/* For libedit: 1, or 0 where the line ends here. A line that is full takes no more, and counts as too long at its end. */
static int read_key(EditLine *edit, wchar_t *key)
{
    struct line_editor *editor;
    el_get(edit, EL_CLIENTDATA, &editor);
    while (read_character(editor, key)) {
        if (editor->typed_ahead && !*key)
            *key = CTRL_D;
        editor->typed_ahead = false;
        if (editor->pasting || is_control(*key) || has_room(editor, 1))
            return 1;
        editor->too_long = true;
    }
    return 0;
}

/* --- pastes --- */

/* To the key behind it, without control characters. False: it doesn't end. *count may be over what
 * there is room for, of which no more is kept. */
static bool read_paste(struct line_editor *editor, size_t *count)
{
    static const wchar_t end[] = PASTE_END;
    size_t matched = 0;
    wchar_t character;
    for (*count = 0; end[matched];) {
        if (el_wgetc(editor->edit, &character) != 1)
            return false;
        matched = character == end[matched] ? matched + 1 : character == end[0];
        bool feed = character == L'\r' || character == L'\n';
        if (is_control(character) && !feed && character != L'\t')
            continue;
        if (*count < LINE_EDITOR_MAX_CHARACTERS)
            editor->paste[*count] = feed ? L'\n' : character;
        ++*count;
    }
    *count -= sizeof end / sizeof *end - 2; /* its key, but for the control character */
    return true;
}

static unsigned char take_paste(EditLine *edit, int key)
{
    struct line_editor *editor;
    size_t count;
    (void)key;
    el_get(edit, EL_CLIENTDATA, &editor);
    editor->pasting = true;
    bool whole = read_paste(editor, &count);
    editor->pasting = false;
    if (!whole)
        return CC_EOF;
    if (!has_room(editor, count)) {
        editor->too_long = true;
        return CC_ERROR;
    }
    while (count && editor->paste[count - 1] == L'\n')
        count--;
    editor->paste[count] = 0;
    return count && el_winsertstr(edit, editor->paste) ? CC_ERROR : CC_REFRESH;
}

/* --- open, read, close --- */

/* Keys that libedit doesn't know by itself, as most terminals send them. */
static const char *const keys[][2] = {
    {PASTE_BEGIN, "take-paste"},        {"^R", "em-inc-search-prev"},
    {"\033[1~", "ed-move-to-beg"},      {"\033[4~", "ed-move-to-end"},
    {"\033[7~", "ed-move-to-beg"},      {"\033[8~", "ed-move-to-end"},
    {"\033[3~", "ed-delete-next-char"}, {"\033[1;5C", "em-next-word"},
    {"\033[1;5D", "ed-prev-word"},      {"\033[1;3C", "em-next-word"},
    {"\033[1;3D", "ed-prev-word"},      {"\033[2~", "ed-unassigned"},
    {"\033[5~", "ed-unassigned"},       {"\033[6~", "ed-unassigned"},
};

void line_editor_locale(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

struct line_editor *line_editor_open(const char *prompt, struct line_history *typed, int signal_fd)
{
    struct line_editor *editor = calloc(1, sizeof *editor);
    if (!editor)
        return NULL;
    editor->edit = el_init("baton", stdin, stdout, stderr);
    if (!editor->edit) {
        free(editor);
        return NULL;
    }
    editor->prompt = prompt;
    editor->typed = typed;
    editor->signal_fd = signal_fd;
    str_init(&editor->line, LINE_READER_MAX_BYTES);
    el_set(editor->edit, EL_CLIENTDATA, editor);
    el_set(editor->edit, EL_EDITOR, "emacs");
    el_set(editor->edit, EL_PROMPT_ESC, prompt_of, *LINE_EDITOR_INVISIBLE);
    el_set(editor->edit, EL_GETCFN, read_key);
    el_wset(editor->edit, EL_ADDFN, L"take-paste", L"Inserts what is pasted", take_paste);
    if (typed->lines)
        el_set(editor->edit, EL_HIST, history, typed->lines);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        el_set(editor->edit, EL_BIND, keys[i][0], keys[i][1], NULL);
    el_source(editor->edit, NULL); /* there need not be one */
    return editor;
}

void line_editor_close(struct line_editor *editor)
{
    if (!editor)
        return;
    el_end(editor->edit);
    str_deinit(&editor->line);
    free(editor);
}

static enum line_event take_line(struct line_editor *editor, const char *text, int count,
                                 const char **line)
{
    str_clear(&editor->line);
    str_append(&editor->line, text, (size_t)count - (text[count - 1] == '\n'));
    if (editor->too_long)
        return LINE_TOO_LONG;
    line_history_add(editor->typed, editor->line.data);
    *line = editor->line.data;
    return LINE_WHOLE;
}

enum line_event line_editor_read(struct line_editor *editor, const char **line)
{
    for (;;) {
        editor->why = LINE_NONE;
        editor->too_long = false;
        editor->typed_ahead = poll(&(struct pollfd){STDIN_FILENO, POLLIN, 0}, 1, 0) > 0;
        show(PASTES_APART);
        int count;
        const char *text = el_gets(editor->edit, &count);
        show(PASTES_AS_TYPED);
        if (editor->why == LINE_NONE)
            return text && count > 0 ? take_line(editor, text, count, line) : LINE_END;
        const LineInfoW *left = el_wline(editor->edit);
        size_t below = rows_to(editor, left->lastchar) - rows_to(editor, left->cursor);
        if (below)
            printf("\033[%zuB", below);
        if (editor->why != LINE_INTERRUPTED || left->lastchar == left->buffer)
            return editor->why;
        show("\n");
    }
}
