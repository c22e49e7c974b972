#include "common/cli/line_history.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPORARY ".XXXXXX" /* behind the path: a name of its own for each program that writes */

/* False: there is no place for it. */
static bool find_path(char *path, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (state && *state == '/')
        length = snprintf(path, size, "%s/baton/chat_history", state);
    else if (home && *home == '/')
        length = snprintf(path, size, "%s/.local/state/baton/chat_history", home);
    return length > 0 && (size_t)length < size;
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

const char *line_history_back(struct line_history *typed, size_t back)
{
    HistEvent event = {0};
    int found = typed->lines ? history(typed->lines, &event, H_FIRST) : -1;
    while (found >= 0 && --back)
        found = history(typed->lines, &event, H_NEXT);
    return found < 0 ? NULL : event.str;
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

/* Closes the file. False: not all is there, and errno says why. */
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
    make_folders(typed->path);
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
