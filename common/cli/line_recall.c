#include "common/cli/line_recall.h"

#include <histedit.h>
#include <string.h>

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

size_t line_recall_find(const struct line_recall *recall, const char *part, size_t back)
{
    for (const char *line; (line = line_history_back(recall->typed, back)); back++)
        if (strstr(line, part))
            return back;
    return 0;
}
