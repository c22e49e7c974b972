#include "common/cli/line_editor.h"

#include "common/base/utf8.h"
#include "common/cli/terminal.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A paste comes between two keys of its own (xterm's "bracketed paste"). */
#define PASTES_APART    "\033[?2004h"
#define PASTES_AS_TYPED "\033[?2004l"
#define PASTE_END       L"\033[201~"

#define ESCAPE      0x1b
#define KEY_REST_MS 500 /* as readline's keyseq-timeout */
#define CTRL_D      4   /* typed while the terminal took lines, it is read as a NUL */

struct line_editor {
    EditLine *edit;
    struct line_recall recall;
    const char *prompt;
    int signal_fd;
    bool pasting, too_long;
    bool has_modes;   /* the keys are vi's */
    bool typed_ahead; /* the next key is the line's first, and came before the terminal was ours */
    enum line_event why; /* the line ended without Enter; LINE_NONE: it didn't */
    bool has_ahead;
    wchar_t ahead;                                 /* a key that was read too early */
    wchar_t paste[LINE_EDITOR_MAX_CHARACTERS + 1]; /* ends with 0 */
    struct str line;
};

/* Keys that libedit has no functions for, as most terminals send them. */
static const char *const keys[][2] = {
    {"\033[1~", "ed-move-to-beg"},      {"\033[4~", "ed-move-to-end"},
    {"\033[7~", "ed-move-to-beg"},      {"\033[8~", "ed-move-to-end"},
    {"\033[3~", "ed-delete-next-char"}, {"\033[1;5C", "em-next-word"},
    {"\033[1;5D", "ed-prev-word"},      {"\033[1;3C", "em-next-word"},
    {"\033[1;3D", "ed-prev-word"},      {"\033[2~", "ed-unassigned"},
    {"\033[5~", "ed-unassigned"},       {"\033[6~", "ed-unassigned"},
};

/* Keys of our functions. They win over ~/.editrc. */
static const char *const own_keys[][2] = {
    {"\033[200~", "take-paste"}, {"^R", "search"},         {"\033[A", "take-older"},
    {"\033[B", "take-newer"},    {"\033OA", "take-older"}, {"\033OB", "take-newer"},
    {"^P", "take-older"},        {"^N", "take-newer"},
};

/* The same in vi's command mode. */
static const char *const command_keys[][2] = {
    {"k", "take-older"}, {"j", "take-newer"}, {"/", "search"}, {"^R", "search"}};

/* Our keys that terminals send as Escape and more characters. Among vi's keys Escape alone ends a
 * mode: libedit gets each of these keys as one control character that no keyboard has. */
static const struct {
    const wchar_t *rest, *whole, *what;
} long_keys[] = {
    {L"[200~", L"\x81", L"take-paste"}, {L"[A", L"\x82", L"take-older"},
    {L"OA", L"\x82", L"take-older"},    {L"[B", L"\x83", L"take-newer"},
    {L"OB", L"\x83", L"take-newer"},
};
#define LONG_KEYS (sizeof long_keys / sizeof *long_keys)

/* --- output --- */

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
        line_screen_clear(editor->edit, editor->prompt);
        el_set(editor->edit, EL_REFRESH);
        break;
    }
}

/* --- keys --- */

/* False: the line ends here. */
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

/* Skips bytes that belong to no character. False: the line ends here. */
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

static bool has_room(struct line_editor *editor, size_t count)
{
    const LineInfoW *line = el_wline(editor->edit);
    return (size_t)(line->lastchar - line->buffer) + count <= LINE_EDITOR_MAX_CHARACTERS;
}

/* True: these characters behind Escape begin a long key. *whole is set once they are all of it, to
 * the character that libedit gets for it. */
static bool begins_long_key(const wchar_t *taken, size_t count, const wchar_t **whole)
{
    bool begins = false;
    for (size_t i = 0; i < LONG_KEYS; i++) {
        if (wcsncmp(long_keys[i].rest, taken, count) != 0)
            continue;
        begins = true;
        if (!long_keys[i].rest[count])
            *whole = long_keys[i].whole;
    }
    return begins;
}

/* Reads the key that Escape begins. Returns Escape if it is none of the long keys; its characters
 * are still to come then. Escape is a key by itself if nothing came right behind it. A long key
 * gets KEY_REST_MS to come whole. */
static wchar_t long_key(struct line_editor *editor)
{
    wchar_t taken[8] = {0};
    const wchar_t *whole = NULL;
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    size_t count = 0;
    while (!whole && poll(&input, 1, count ? KEY_REST_MS : 0) > 0 &&
           read_character(editor, &taken[count]) && begins_long_key(taken, ++count, &whole)) {
    }
    if (whole)
        return *whole;
    editor->recall.escape_begins = count;
    if (count) { /* the last may be an Escape too */
        editor->has_ahead = true;
        editor->ahead = taken[count - 1];
        taken[count - 1] = 0;
        if (count > 1)
            el_wpush(editor->edit, taken);
    }
    return ESCAPE;
}

/* Reads a key for libedit: 1, or 0 if the line ends here. A full line takes no more characters, and
 * is too long at its end. */
static int read_key(EditLine *edit, wchar_t *key)
{
    struct line_editor *editor = editor_of(edit);
    const LineInfoW *line = el_wline(edit);
    if (line->cursor > line->lastchar) /* libedit keeps a mark from another line */
        el_cursor(edit, (int)(line->lastchar - line->cursor));
    while (editor->has_ahead || read_character(editor, key)) {
        if (editor->has_ahead)
            *key = editor->ahead;
        editor->has_ahead = false;
        if (editor->typed_ahead && !*key)
            *key = CTRL_D;
        editor->typed_ahead = false;
        if (*key == ESCAPE && editor->has_modes && !editor->pasting)
            *key = long_key(editor);
        if (editor->pasting || line_is_control(*key) || has_room(editor, 1))
            return 1;
        editor->too_long = true;
    }
    return 0;
}

/* --- pastes --- */

/* Reads a paste up to the key at its end, without control characters. False: the input ended first.
 * *count is the paste's length; only LINE_EDITOR_MAX_CHARACTERS are kept. */
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
        if (line_is_control(character) && !feed && character != L'\t')
            continue;
        if (*count < LINE_EDITOR_MAX_CHARACTERS)
            editor->paste[*count] = feed ? L'\n' : character;
        ++*count;
    }
    *count -= sizeof end / sizeof *end - 2; /* the end's key, except its control character */
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

/* --- typed lines --- */

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

static unsigned char search(EditLine *edit, int key)
{
    struct line_editor *editor = editor_of(edit);
    (void)key;
    return line_recall_search(&editor->recall, edit, &editor->prompt);
}

/* --- open, read, close --- */

void line_editor_locale(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

/* Binds the keys and reads ~/.editrc. True: the keys are vi's. */
static bool bind_keys(EditLine *edit)
{
    const char *mode = "emacs";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        el_set(edit, EL_BIND, keys[i][0], keys[i][1], NULL);
    el_source(edit, NULL); /* there need not be one */
    el_get(edit, EL_EDITOR, &mode);
    bool has_modes = !strcmp(mode, "vi");
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        if (!has_modes || *own_keys[i][0] != ESCAPE)
            el_set(edit, EL_BIND, own_keys[i][0], own_keys[i][1], NULL);
    if (!has_modes)
        return false;
    for (size_t i = 0; i < LONG_KEYS; i++) {
        el_wset(edit, EL_BIND, long_keys[i].whole, long_keys[i].what, NULL);
        el_wset(edit, EL_BIND, L"-a", long_keys[i].whole, long_keys[i].what, NULL);
    }
    for (size_t i = 0; i < sizeof command_keys / sizeof *command_keys; i++)
        el_set(edit, EL_BIND, "-a", command_keys[i][0], command_keys[i][1], NULL);
    return true;
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
    editor->has_modes = bind_keys(edit);
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
    line_recall_init(&editor->recall, typed);
    editor->signal_fd = signal_fd;
    str_init(&editor->line, LINE_READER_MAX_BYTES);
    set_up(editor);
    return editor;
}

void line_editor_close(struct line_editor *editor)
{
    if (!editor)
        return;
    el_end(editor->edit);
    str_deinit(&editor->line);
    line_recall_deinit(&editor->recall);
    free(editor);
}

/* Checks the line and adds it to the history. Keys that ~/.editrc binds to libedit's own history
 * may leave NULs in a long line; `text` ends at the first. */
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
        size_t below = line_screen_rows(editor->edit, editor->prompt, left->lastchar) -
                       line_screen_rows(editor->edit, editor->prompt, left->cursor);
        if (below)
            printf("\033[%zuB", below);
        if (editor->why != LINE_INTERRUPTED || left->lastchar == left->buffer)
            return editor->why;
        show("\n");
    }
}
