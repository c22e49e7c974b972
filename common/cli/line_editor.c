#include "common/cli/line_editor.h"

#include "common/base/utf8.h"
#include "common/cli/line_recall.h"
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

#define CTRL_G    7
#define CTRL_H    8
#define CTRL_R    0x12
#define ESCAPE    0x1b
#define BACKSPACE 0x7f
#define CTRL_D    4 /* one that came while the terminal took lines is a NUL when it takes keys */

#define MAX_SOUGHT_BYTES 256 /* more is not taken */

struct line_editor {
    EditLine *edit;
    struct line_recall recall;
    const char *prompt;
    int signal_fd;
    bool pasting, too_long;
    bool typed_ahead; /* the next key is the line's first, and came before the terminal was ours */
    enum line_event why; /* the line ends without Enter; LINE_NONE: it doesn't */
    wchar_t paste[LINE_EDITOR_MAX_CHARACTERS + 1]; /* 0 behind it */
    struct str sought, search_prompt;
    struct str line;
};

/* --- what is shown --- */

static void show(const char *text)
{
    fputs(text, stdout);
    fflush(stdout);
}

static struct line_editor *editor_of(EditLine *edit)
{
    struct line_editor *editor;
    el_get(edit, EL_CLIENTDATA, &editor);
    return editor;
}

static char *prompt_of(EditLine *edit)
{
    return (char *)editor_of(edit)->prompt;
}

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

/* Rows of the screen from the prompt's to that of the line's character `end`. */
static size_t rows_to(const struct line_editor *editor, const wchar_t *end)
{
    size_t columns = terminal_columns(), column = prompt_columns(editor->prompt);
    size_t rows = column / columns;
    column %= columns;
    for (const wchar_t *at = el_wline(editor->edit)->buffer; at < end; at++) {
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

/* From the row of the prompt on. */
static void clear_drawn(struct line_editor *editor)
{
    size_t rows = rows_to(editor, el_wline(editor->edit)->cursor);
    if (rows)
        printf("\033[%zuA", rows);
    show("\r\033[J");
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
        clear_drawn(editor);
        el_set(editor->edit, EL_REFRESH);
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
    struct line_editor *editor = editor_of(edit);
    const LineInfoW *line = el_wline(edit);
    if (line->cursor > line->lastchar) /* a mark is left by libedit where it was in another line */
        el_cursor(edit, (int)(line->lastchar - line->cursor));
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
    struct line_editor *editor = editor_of(edit);
    size_t count;
    (void)key;
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

/* --- lines that were typed --- */

static unsigned char take_older(EditLine *edit, int key)
{
    struct line_recall *recall = &editor_of(edit)->recall;
    (void)key;
    return line_recall_show(recall, edit, recall->back + 1) ? CC_REFRESH : CC_ERROR;
}

static unsigned char take_newer(EditLine *edit, int key)
{
    struct line_recall *recall = &editor_of(edit)->recall;
    (void)key;
    return recall->back && line_recall_show(recall, edit, recall->back - 1) ? CC_REFRESH : CC_ERROR;
}

/* Shows the line that is `back`, or that there is none. */
static void draw_search(struct line_editor *editor, size_t back)
{
    bool any = back || !editor->sought.length;
    clear_drawn(editor);
    if (back)
        line_recall_show(&editor->recall, editor->edit, back);
    str_clear(&editor->search_prompt);
    str_addf(&editor->search_prompt, "(%s) %s: ", any ? "search" : "in no line",
             editor->sought.data);
    editor->prompt = editor->search_prompt.data;
    el_set(editor->edit, EL_REFRESH);
}

/* Changes what is sought by a key. False: it is none of a search. */
static bool edit_sought(struct str *sought, wchar_t key)
{
    if (key == CTRL_H || key == BACKSPACE) {
        while (sought->length && ((unsigned char)sought->data[--sought->length] & 0xc0) == 0x80) {
        }
        sought->data[sought->length] = 0;
        return true;
    }
    if (is_control(key))
        return false;
    char bytes[4];
    size_t count = utf8_put((uint32_t)key, bytes);
    if (sought->length + count <= sought->limit)
        str_append(sought, bytes, count);
    return true;
}

/* The key that ends it does what it does elsewhere; Ctrl-G brings back the line from which it began, Escape ends it. */
static unsigned char search(EditLine *edit, int key)
{
    struct line_editor *editor = editor_of(edit);
    const char *prompt = editor->prompt;
    size_t begin = editor->recall.back, found = 0;
    wchar_t next;
    int count;
    (void)key;
    str_clear(&editor->sought);
    draw_search(editor, 0);
    while ((count = el_wgetc(edit, &next)) == 1) {
        bool again = next == CTRL_R;
        if (!again && !edit_sought(&editor->sought, next))
            break;
        size_t from = again ? editor->recall.back + 1 : 1;
        found = editor->sought.length ? line_recall_find(&editor->recall, editor->sought.data, from)
                                      : 0;
        draw_search(editor, found);
    }
    clear_drawn(editor);
    if (count == 1 && next == CTRL_G)
        line_recall_show(&editor->recall, edit, begin);
    editor->prompt = prompt;
    el_set(edit, EL_REFRESH);
    if (count != 1)
        return CC_EOF;
    bool alone = next == ESCAPE && poll(&(struct pollfd){STDIN_FILENO, POLLIN, 0}, 1, 0) <= 0;
    if (next != CTRL_G && !alone)
        el_wpush(edit, (wchar_t[]){next, 0});
    return CC_NORM;
}

/* --- open, read, close --- */

/* Keys that libedit doesn't know by itself, as most terminals send them. */
static const char *const keys[][2] = {
    {"\033[1~", "ed-move-to-beg"},      {"\033[4~", "ed-move-to-end"},
    {"\033[7~", "ed-move-to-beg"},      {"\033[8~", "ed-move-to-end"},
    {"\033[3~", "ed-delete-next-char"}, {"\033[1;5C", "em-next-word"},
    {"\033[1;5D", "ed-prev-word"},      {"\033[1;3C", "em-next-word"},
    {"\033[1;3D", "ed-prev-word"},      {"\033[2~", "ed-unassigned"},
    {"\033[5~", "ed-unassigned"},       {"\033[6~", "ed-unassigned"},
};

/* Also for those who bind others in ~/.editrc. */
static const char *const own_keys[][2] = {
    {PASTE_BEGIN, "take-paste"}, {"^R", "search"},         {"\033[A", "take-older"},
    {"\033[B", "take-newer"},    {"\033OA", "take-older"}, {"\033OB", "take-newer"},
    {"^P", "take-older"},        {"^N", "take-newer"},
};

void line_editor_locale(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

/* With vi's keys Escape is a key by itself, and the rest of a sequence comes to the other map. */
static void bind_own(EditLine *edit, const char *key, const char *what)
{
    const char *mode = "emacs";
    el_get(edit, EL_EDITOR, &mode);
    if (*key == ESCAPE && !strcmp(mode, "vi"))
        el_set(edit, EL_BIND, "-a", key + 1, what, NULL);
    else
        el_set(edit, EL_BIND, key, what, NULL);
}

static void set_up(struct line_editor *editor)
{
    EditLine *edit = editor->edit;
    el_set(edit, EL_CLIENTDATA, editor);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_PROMPT_ESC, prompt_of, *LINE_EDITOR_INVISIBLE);
    el_set(edit, EL_GETCFN, read_key);
    el_wset(edit, EL_ADDFN, L"take-paste", L"Inserts what is pasted", take_paste);
    el_wset(edit, EL_ADDFN, L"take-older", L"The line typed before this", take_older);
    el_wset(edit, EL_ADDFN, L"take-newer", L"The line typed after this", take_newer);
    el_wset(edit, EL_ADDFN, L"search", L"The last line with what is typed now", search);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        el_set(edit, EL_BIND, keys[i][0], keys[i][1], NULL);
    el_source(edit, NULL); /* there need not be one */
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        bind_own(edit, own_keys[i][0], own_keys[i][1]);
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
    editor->recall.typed = typed;
    editor->signal_fd = signal_fd;
    str_init(&editor->line, LINE_READER_MAX_BYTES);
    str_init(&editor->sought, MAX_SOUGHT_BYTES);
    str_init(&editor->search_prompt, MAX_SOUGHT_BYTES + 32);
    set_up(editor);
    return editor;
}

void line_editor_close(struct line_editor *editor)
{
    if (!editor)
        return;
    el_end(editor->edit);
    str_deinit(&editor->line);
    str_deinit(&editor->sought);
    str_deinit(&editor->search_prompt);
    free(editor);
}

/* Keys that ~/.editrc binds to libedit's own history may leave NULs in a long line, of which `text` ends at the first. */
static enum line_event take_line(struct line_editor *editor, const char *text, size_t count,
                                 const char **line)
{
    const LineInfoW *edited = el_wline(editor->edit);
    size_t length = strlen(text), feed = length && text[length - 1] == '\n';
    size_t characters = (size_t)(edited->lastchar - edited->buffer) - feed;
    if (editor->too_long || length != count || characters > LINE_EDITOR_MAX_CHARACTERS)
        return LINE_TOO_LONG;
    str_clear(&editor->line);
    str_append(&editor->line, text, length - feed);
    line_history_add(editor->recall.typed, editor->line.data);
    *line = editor->line.data;
    return LINE_WHOLE;
}

enum line_event line_editor_read(struct line_editor *editor, const char **line)
{
    for (;;) {
        editor->why = LINE_NONE;
        editor->too_long = false;
        editor->recall.back = 0;
        editor->typed_ahead = poll(&(struct pollfd){STDIN_FILENO, POLLIN, 0}, 1, 0) > 0;
        show(PASTES_APART);
        int count;
        const char *text = el_gets(editor->edit, &count);
        show(PASTES_AS_TYPED);
        if (editor->why == LINE_NONE)
            return text && count > 0 ? take_line(editor, text, (size_t)count, line) : LINE_END;
        const LineInfoW *left = el_wline(editor->edit);
        size_t below = rows_to(editor, left->lastchar) - rows_to(editor, left->cursor);
        if (below)
            printf("\033[%zuB", below);
        if (editor->why != LINE_INTERRUPTED || left->lastchar == left->buffer)
            return editor->why;
        show("\n");
    }
}
