#include "common/cli/line_recall.h"

#include "common/base/utf8.h"
#include "common/cli/line_screen.h"

#include <histedit.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define MAX_SOUGHT_BYTES 256 /* more is not taken */

#define CTRL_G    7
#define CTRL_H    8
#define CTRL_R    0x12
#define ESCAPE    0x1b
#define BACKSPACE 0x7f

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

static bool keep_written(struct line_recall *recall, const LineInfoW *line)
{
    size_t count = (size_t)(line->lastchar - line->buffer);
    if (count > LINE_EDITOR_MAX_CHARACTERS)
        return false;
    wmemcpy(recall->written, line->buffer, count);
    recall->written[count] = 0;
    return true;
}

bool line_recall_show(struct line_recall *recall, EditLine *edit, size_t back)
{
    const LineInfoW *line = el_wline(edit);
    const char *text = back ? line_history_back(recall->typed, back) : NULL;
    if ((back && !text) || (!recall->back && !keep_written(recall, line)))
        return false;
    el_cursor(edit, (int)(line->lastchar - line->cursor));
    el_deletestr(edit, (int)(line->lastchar - line->buffer));
    if (text)
        el_insertstr(edit, text);
    else
        el_winsertstr(edit, recall->written);
    recall->back = back;
    return true;
}

/* How far back the nearest line with what is sought in it is, at least `back` (1 at least); 0:
 * there is none. */
static size_t find(const struct line_recall *recall, size_t back)
{
    for (const char *line; (line = line_history_back(recall->typed, back)); back++)
        if (strstr(line, recall->sought.data))
            return back;
    return 0;
}

/* Shows the line that is `back`, or that there is none. */
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

/* Changes what is sought by a key. False: it is none of a search. */
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
        found = recall->sought.length ? find(recall, again ? recall->back + 1 : 1) : 0;
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
