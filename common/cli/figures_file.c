#include "common/cli/figures_file.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* For the handler: one file at a time. Set behind its name, and taken back before the file is
 * anybody else's. */
static atomic_bool is_ours;
static char begun[WHOLE_FILE_PATH_BYTES];

/* Steps take minutes: a wish to stop is followed at once, on whatever thread it comes to, as
 * without a handler. */
static void take_away(int number)
{
    if (atomic_load(&is_ours))
        unlink(begun);
    raise(number); /* ends the program behind this handler, which is reset */
}

/* What ends nothing goes on so: what is ignored (behind a shell's &), and SIGHUP, for which UCX has
 * a handler before main. */
static void take_away_when_stopped(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGQUIT, SIGPIPE};
    struct sigaction action = {.sa_handler = take_away, .sa_flags = (int)SA_RESETHAND}, before;
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(numbers[i], &action, NULL);
}

static enum status begin(struct figures_file *file, struct error *err)
{
    enum status status = whole_file_begin(&file->whole, file->target, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "cannot open %s", file->whole.temporary);
    str_copy(begun, sizeof begun, file->whole.temporary);
    atomic_store(&is_ours, true);
    return STATUS_OK;
}

enum status figures_file_open(struct figures_file *file, const char *path, struct error *err)
{
    struct stat found;
    *file = (struct figures_file){.path = path, .whole = {.fd = -1}};
    if (!strcmp(path, "-")) {
        file->stream = stdout;
    } else if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) {
        file->stream = fopen(path, "we");
        if (!file->stream)
            return error_set(err, STATUS_IO, "cannot open %s: %s", path, strerror(errno));
    } else if (*path) {
        if (!realpath(path, file->target))
            snprintf(file->target, sizeof file->target, "%s", path);
        file->is_file = true;
        take_away_when_stopped();
        TRY(begin(file, err));
    }
    return STATUS_OK;
}

static enum status put_whole(struct figures_file *file, const struct str *text, struct error *err)
{
    TRY(whole_file_put(&file->whole, text->data, text->length, 0, err));
    atomic_store(&is_ours, false);
    return whole_file_end(&file->whole, err);
}

enum status figures_file_put_so_far(struct figures_file *file, const struct str *text,
                                    struct error *err)
{
    if (!file->is_file)
        return STATUS_OK;
    TRY(figures_file_put(file, text, err));
    return begin(file, err); /* nobody else takes its place meanwhile */
}

enum status figures_file_put(struct figures_file *file, const struct str *text, struct error *err)
{
    if (file->is_file) {
        enum status status = put_whole(file, text, err);
        return status == STATUS_OK ? status
                                   : error_prefix(err, status, "cannot write %s", file->path);
    }
    if (!file->stream)
        return STATUS_OK;
    bool written = fwrite(text->data, 1, text->length, file->stream) == text->length;
    if (fflush(file->stream) != 0 || !written)
        return error_set(err, STATUS_IO, "cannot write %s: %s", file->path, strerror(errno));
    return STATUS_OK;
}

void figures_file_close(struct figures_file *file)
{
    atomic_store(&is_ours, false);
    whole_file_drop(&file->whole);
    if (file->stream && file->stream != stdout)
        fclose(file->stream);
}
