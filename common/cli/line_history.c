#include "common/cli/line_history.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* False: there is no place for it. */
static bool find_path(char *path, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (state && *state == '/')
        length = snprintf(path, size, "%s/baton/chat_history", state);
    else if (home && *home == '/')
        length = snprintf(path, size, "%s/.local/state/baton/chat_history", home);
    return length > 0 && (size_t)length + sizeof ".tmp" <= size;
}

void line_history_open(struct line_history *typed, bool keep)
{
    HistEvent event;
    struct stat info;
    *typed = (struct line_history){.lines = history_init()};
    if (!typed->lines)
        return;
    history(typed->lines, &event, H_SETSIZE, LINE_HISTORY_MAX_LINES);
    history(typed->lines, &event, H_SETUNIQUE, 1);
    if (!keep || !find_path(typed->path, sizeof typed->path))
        typed->path[0] = 0;
    else if (!stat(typed->path, &info) && S_ISREG(info.st_mode) &&
             info.st_size <= (off_t)LINE_HISTORY_MAX_FILE_BYTES)
        history(typed->lines, &event, H_LOAD, typed->path); /* what is no history is passed over */
}

void line_history_add(struct line_history *typed, const char *line)
{
    HistEvent event;
    if (!typed->lines || !*line || strlen(line) > LINE_HISTORY_MAX_LINE_BYTES)
        return;
    history(typed->lines, &event, H_ENTER, line);
    typed->changed = true;
}

/* The folders on the way to the file. */
static void make_folders(char *path)
{
    for (char *end = strchr(path + 1, '/'); end; end = strchr(end + 1, '/')) {
        *end = 0;
        mkdir(path, 0700); /* whether they are there, the file tells */
        *end = '/';
    }
}

static enum status save(struct line_history *typed, struct error *err)
{
    char temporary[sizeof typed->path + sizeof ".tmp"];
    HistEvent event;
    snprintf(temporary, sizeof temporary, "%s.tmp", typed->path);
    make_folders(typed->path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool written = file && history(typed->lines, &event, H_SAVE_FP, file) >= 0;
    if (file && fclose(file))
        written = false;
    if (written && !rename(temporary, typed->path))
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
