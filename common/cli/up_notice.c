#include "common/cli/up_notice.h"

#include "common/base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* It is removed and replaced: not what was never such a file. And its folder is looked at now, not
 * when the cluster has started. */
enum status up_notice_check(const struct up_settings *settings, struct error *err)
{
    const char *path = settings->ready_file;
    struct stat found;
    char folder[CLUSTER_PATH_BYTES];
    if (!*path)
        return STATUS_OK;
    if (!lstat(path, &found) && !S_ISREG(found.st_mode))
        return error_set(err, STATUS_INVALID,
                         "--ready-file %s: that is there and no regular file; give the name of a "
                         "file to be written",
                         path);
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    snprintf(folder, sizeof folder, "%.*s.", (int)length, path);
    if (access(folder, W_OK | X_OK))
        return error_set(err, STATUS_INVALID,
                         "--ready-file %s: cannot write into its folder: %s; give the name of a "
                         "file to be written",
                         path, strerror(errno));
    return STATUS_OK;
}

/* Other commands run in other folders. A path that has no room is left out. */
static void describe_models(const struct up_notice *notice, struct model_list *models)
{
    const struct model_list *list = &notice->settings->list;
    models->count = list->count;
    for (size_t i = 0; i < list->count; i++) {
        char *path = realpath(list->items[i].dir, NULL);
        str_copy(models->items[i].name, sizeof models->items[i].name, notice->models[i].name);
        if (!path || !str_copy(models->items[i].dir, sizeof models->items[i].dir, path))
            *models->items[i].dir = 0;
        free(path);
    }
}

struct cluster_file up_notice_describe(const struct up_notice *notice)
{
    const struct cluster_member *router = &notice->cluster->processes[0].member;
    struct cluster_file file = {.pid = getpid(), .count = notice->cluster->count};
    str_copy(file.grpc, sizeof file.grpc, router->address);
    str_copy(file.http, sizeof file.http, router->metrics);
    str_copy(file.openai, sizeof file.openai, router->front);
    str_copy(file.logs, sizeof file.logs, notice->log_dir);
    for (size_t i = 0; i < notice->cluster->count; i++)
        file.members[i] = notice->cluster->processes[i].member;
    describe_models(notice, &file.models);
    return file;
}

enum status up_notice_publish(const struct up_settings *settings, const struct cluster_file *file,
                              struct error *err)
{
    TRY(cluster_file_publish(file, err));
    return *settings->ready_file ? cluster_file_write(file, settings->ready_file, err) : STATUS_OK;
}

void up_notice_withdraw(const struct up_settings *settings)
{
    cluster_file_withdraw(getpid());
    if (*settings->ready_file)
        unlink(settings->ready_file);
}
