#include "common/cli/cluster_file.h"

#include "common/base/json/json.h"
#include "common/base/json/json_quote.h"
#include "common/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE_BYTES   262144
#define KEPT_LOG_FOLDERS 8 /* kept for clusters that ended */

enum status cluster_folder(char path[CLUSTER_PATH_BYTES], struct error *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int length = runtime && *runtime == '/'
                     ? snprintf(path, CLUSTER_PATH_BYTES, "%s/baton", runtime)
                     : snprintf(path, CLUSTER_PATH_BYTES, "/tmp/baton-%u", (unsigned)getuid());
    if (length >= CLUSTER_PATH_BYTES)
        return error_set(err, STATUS_LIMIT, "XDG_RUNTIME_DIR is too long");
    if (mkdir(path, 0700) && errno != EEXIST)
        return error_set(err, STATUS_IO, "cannot make the folder %s: %s", path, strerror(errno));
    struct stat info;
    if (lstat(path, &info))
        return error_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode) || info.st_uid != getuid() || (info.st_mode & 022))
        return error_set(err, STATUS_INVALID,
                         "%s must be a folder that only you can write to: remove it, or set "
                         "XDG_RUNTIME_DIR",
                         path);
    return STATUS_OK;
}

static void add_field(struct str *out, const char *before, const char *key, const char *value)
{
    str_addf(out, "%s\"%s\": ", before, key);
    json_quote(out, value, strlen(value));
}

static void format(const struct cluster_file *file, struct str *out)
{
    str_addf(out, "{\"pid\": %d", (int)file->pid);
    add_field(out, ", ", "grpc", file->grpc);
    add_field(out, ", ", "http", file->http);
    add_field(out, ", ", "openai", file->openai);
    add_field(out, ", ", "logs", file->logs);
    str_add(out, ", \"processes\": [");
    for (size_t i = 0; i < file->count; i++) {
        const struct cluster_member *member = &file->members[i];
        add_field(out, i ? ", {" : "{", "name", member->name);
        add_field(out, ", ", "role", member->role);
        str_addf(out, ", \"pid\": %d", (int)member->pid);
        add_field(out, ", ", "address", member->address);
        add_field(out, ", ", "metrics", member->metrics);
        str_addf(out, ", \"restarts\": %u}", member->restarts);
    }
    str_add(out, "], \"models\": [");
    for (size_t i = 0; i < file->models.count; i++) {
        add_field(out, i ? ", {" : "{", "name", file->models.items[i].name);
        add_field(out, ", ", "dir", file->models.items[i].dir);
        str_add(out, "}");
    }
    str_add(out, "]}\n");
}

enum status cluster_file_write(const struct cluster_file *file, const char *path, struct error *err)
{
    char temporary[CLUSTER_PATH_BYTES + 32];
    snprintf(temporary, sizeof temporary, "%s.%d.tmp", path, (int)getpid());
    struct str text;
    str_init(&text, MAX_FILE_BYTES);
    format(file, &text);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool written = fd >= 0 && write(fd, text.data, text.length) == (ssize_t)text.length;
    if (fd >= 0 && close(fd))
        written = false;
    enum status status = STATUS_OK;
    if (!written || rename(temporary, path)) {
        status = error_set(err, STATUS_IO, "cannot write %s: %s", path, strerror(errno));
        if (fd >= 0)
            unlink(temporary);
    }
    str_deinit(&text);
    return status;
}

static enum status copy_field(const struct json_value *object, const char *key, char *target,
                              size_t size, struct error *err)
{
    const char *text;
    TRY(json_get_string(object, key, &text, NULL, err));
    if (!str_copy(target, size, text))
        return error_set(err, STATUS_LIMIT, "%s is too long", key);
    return STATUS_OK;
}

static enum status get_pid(const struct json_value *object, pid_t *pid, struct error *err)
{
    int64_t value;
    TRY(json_get_i64(object, "pid", 1, INT32_MAX, &value, err));
    *pid = (pid_t)value;
    return STATUS_OK;
}

static enum status read_member(const struct json_value *object, struct cluster_member *member,
                               struct error *err)
{
    TRY(copy_field(object, "name", member->name, sizeof member->name, err));
    TRY(copy_field(object, "role", member->role, sizeof member->role, err));
    TRY(copy_field(object, "address", member->address, sizeof member->address, err));
    TRY(copy_field(object, "metrics", member->metrics, sizeof member->metrics, err));
    int64_t restarts;
    TRY(json_get_i64(object, "restarts", 0, UINT32_MAX, &restarts, err));
    member->restarts = (uint32_t)restarts;
    return get_pid(object, &member->pid, err);
}

static enum status read_models(const struct json_value *root, struct model_list *models,
                               struct error *err)
{
    const struct json_value *array;
    if (!json_find(root, "models"))
        return STATUS_OK;
    TRY(json_get_array(root, "models", &array, err));
    models->count = json_count(array);
    if (models->count > MODEL_LIST_MAX)
        return error_set(err, STATUS_LIMIT, "more than %d models", MODEL_LIST_MAX);
    for (size_t i = 0; i < models->count; i++) {
        struct model_entry *model = &models->items[i];
        TRY(copy_field(json_at(array, i), "name", model->name, sizeof model->name, err));
        TRY(copy_field(json_at(array, i), "dir", model->dir, sizeof model->dir, err));
    }
    return STATUS_OK;
}

static enum status read_root(const struct json_value *root, struct cluster_file *file,
                             struct error *err)
{
    const struct json_value *processes;
    TRY(get_pid(root, &file->pid, err));
    TRY(copy_field(root, "grpc", file->grpc, sizeof file->grpc, err));
    TRY(copy_field(root, "http", file->http, sizeof file->http, err));
    TRY(copy_field(root, "openai", file->openai, sizeof file->openai, err));
    TRY(copy_field(root, "logs", file->logs, sizeof file->logs, err));
    TRY(json_get_array(root, "processes", &processes, err));
    file->count = json_count(processes);
    if (file->count > CLUSTER_MAX_PROCESSES)
        return error_set(err, STATUS_LIMIT, "more than %d processes", CLUSTER_MAX_PROCESSES);
    for (size_t i = 0; i < file->count; i++)
        TRY(read_member(json_at(processes, i), &file->members[i], err));
    return read_models(root, &file->models, err);
}

enum status cluster_file_read(const char *path, struct cluster_file *file, struct error *err)
{
    struct json *json;
    const struct json_limits limits = {.max_bytes = MAX_FILE_BYTES, .max_depth = 8};
    TRY(json_read_file(path, limits, &json, err));
    struct cluster_file read = {0};
    enum status status = read_root(json_root(json), &read, err);
    json_destroy(json);
    if (status != STATUS_OK)
        return error_prefix(err, status, "%s", path);
    *file = read;
    return STATUS_OK;
}

static enum status path_of(pid_t pid, char path[CLUSTER_PATH_BYTES], struct error *err)
{
    char folder[CLUSTER_PATH_BYTES];
    TRY(cluster_folder(folder, err));
    if (snprintf(path, CLUSTER_PATH_BYTES, "%s/cluster-%d.json", folder, (int)pid) >=
        CLUSTER_PATH_BYTES)
        return error_set(err, STATUS_LIMIT, "XDG_RUNTIME_DIR is too long");
    return STATUS_OK;
}

enum status cluster_file_publish(const struct cluster_file *file, struct error *err)
{
    char path[CLUSTER_PATH_BYTES];
    TRY(path_of(file->pid, path, err));
    return cluster_file_write(file, path, err);
}

static bool is_dead(pid_t pid)
{
    return kill(pid, 0) && errno == ESRCH;
}

static bool newer(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* The clusters of a run folder. */
struct found {
    size_t count;
    pid_t newest; /* 0: none */
    pid_t others[8];
};

/* Finds the live processes with files "cluster-PID.json" in `folder`. */
static struct found find_in(const char *folder)
{
    struct found found = {0};
    DIR *dir = opendir(folder);
    if (!dir)
        return found;
    struct timespec best = {0};
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct stat info;
        int pid, end = 0;
        if (sscanf(entry->d_name, "cluster-%d.json%n", &pid, &end) != 1 || !end ||
            entry->d_name[end] || pid <= 0)
            continue;
        if (is_dead(pid) || fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW))
            continue;
        pid_t other = pid;
        if (!found.newest || newer(&info.st_mtim, &best)) {
            best = info.st_mtim;
            other = found.newest;
            found.newest = pid;
        }
        if (other && found.count - 1 < sizeof found.others / sizeof *found.others)
            found.others[found.count - 1] = other;
        found.count++;
    }
    closedir(dir);
    return found;
}

/* Writes "pid 12 127.0.0.1:4001, ..." with the address that a flag can name: the HTTP door's, or
 * gRPC's. */
static void describe_others(const struct found *found, bool http, char *text, size_t size)
{
    const size_t capacity = sizeof found->others / sizeof *found->others;
    struct cluster_file *other = malloc(sizeof *other); /* large for a stack */
    size_t used = 0, shown = 0;
    *text = 0;
    for (size_t i = 0; other && i + 1 < found->count && i < capacity && used < size; i++) {
        char path[CLUSTER_PATH_BYTES];
        struct error err;
        if (path_of(found->others[i], path, &err) != STATUS_OK ||
            cluster_file_read(path, other, &err) != STATUS_OK)
            continue; /* it has ended meanwhile */
        used += (size_t)snprintf(text + used, size - used, "%spid %d %s", shown++ ? ", " : "",
                                 (int)other->pid, http ? other->http : other->grpc);
    }
    if (found->count > capacity + 1 && used < size)
        snprintf(text + used, size - used, " and %zu more", found->count - 1 - capacity);
    free(other);
}

enum status cluster_file_find(const char *flag, struct cluster_file *file, struct error *err)
{
    char path[CLUSTER_PATH_BYTES];
    TRY(cluster_folder(path, err));
    struct found found = find_in(path);
    if (!found.newest)
        return error_set(err, STATUS_NOT_FOUND,
                         "no cluster of yours is running here: start one with `baton up`, or name "
                         "one with %s HOST:PORT",
                         flag);
    TRY(path_of(found.newest, path, err));
    TRY(cluster_file_read(path, file, err));
    describe_others(&found, !strcmp(flag, "--http"), file->others, sizeof file->others);
    return STATUS_OK;
}

void cluster_file_note(const struct cluster_file *file, const char *flag)
{
    if (*file->others)
        fprintf(stderr,
                "baton: several clusters of yours run here: this is about the newest, pid %d, gRPC "
                "%s, HTTP %s; others: %s; name one with %s HOST:PORT\n",
                (int)file->pid, file->grpc, file->http, file->others, flag);
}

void cluster_file_withdraw(pid_t pid)
{
    char path[CLUSTER_PATH_BYTES];
    struct error err;
    if (path_of(pid, path, &err) == STATUS_OK)
        unlink(path);
}

const char *cluster_file_model_dir(const struct cluster_file *file, const char *name)
{
    for (size_t i = 0; i < file->models.count; i++)
        if (*name ? !strcmp(file->models.items[i].name, name) : file->models.count == 1)
            return file->models.items[i].dir;
    return "";
}

/* --- sweeping --- */

/* A log folder of a cluster that ended. The newest are kept. */
struct old_logs {
    char name[16];
    struct timespec modified;
};

static void remove_folder(int parent_fd, const char *name)
{
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            unlinkat(fd, entry->d_name, 0);
    closedir(dir);
    unlinkat(parent_fd, name, AT_REMOVEDIR);
}

/* Puts one more folder among the newest, and removes the oldest if they are too many. */
static void keep_newest(int parent_fd, struct old_logs kept[KEPT_LOG_FOLDERS], size_t *count,
                        struct old_logs found)
{
    if (*count < KEPT_LOG_FOLDERS) {
        kept[(*count)++] = found;
        return;
    }
    struct old_logs *oldest = &found;
    for (size_t i = 0; i < *count; i++)
        if (newer(&oldest->modified, &kept[i].modified))
            oldest = &kept[i];
    struct old_logs removed = *oldest;
    *oldest = found;
    remove_folder(parent_fd, removed.name);
}

void cluster_file_sweep(void)
{
    char folder[CLUSTER_PATH_BYTES];
    struct error err;
    DIR *dir = cluster_folder(folder, &err) == STATUS_OK ? opendir(folder) : NULL;
    if (!dir)
        return;
    struct old_logs kept[KEPT_LOG_FOLDERS];
    size_t kept_count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct stat info;
        uint64_t log_pid;
        int pid = 0; /* in the name of a cluster's file, whole or being written */
        int tls_pid, end = 0;
        struct old_logs logs;
        if (sscanf(entry->d_name, "cluster-%d.json", &pid) == 1 && pid > 0 && is_dead((pid_t)pid))
            unlinkat(dirfd(dir), entry->d_name, 0);
        if (sscanf(entry->d_name, "%d.tls%n", &tls_pid, &end) == 1 && end && !entry->d_name[end] &&
            tls_pid > 0 && is_dead((pid_t)tls_pid))
            remove_folder(dirfd(dir), entry->d_name);
        if (pid || !str_to_u64(entry->d_name, 1, INT32_MAX, &log_pid) || !is_dead((pid_t)log_pid) ||
            fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) ||
            !S_ISDIR(info.st_mode) || !str_copy(logs.name, sizeof logs.name, entry->d_name))
            continue;
        logs.modified = info.st_mtim;
        keep_newest(dirfd(dir), kept, &kept_count, logs);
    }
    closedir(dir);
}
