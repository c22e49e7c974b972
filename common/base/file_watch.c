#include "common/base/file_watch.h"

#include "common/base/clock.h"
#include "common/base/str.h"

#include <sys/stat.h>

/* The kernel moves the clock of a file's times only a few hundred times a second. */
#define FRESH_NS 100000000u

static uint64_t nanoseconds(struct timespec time)
{
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static struct file_mark look(const char *path)
{
    uint64_t now_ns = clock_unix_us() * 1000u;
    struct stat found;
    if (stat(path, &found))
        return (struct file_mark){0};
    return (struct file_mark){.there = true,
                              .fresh = nanoseconds(found.st_ctim) + FRESH_NS > now_ns,
                              .device = (uint64_t)found.st_dev,
                              .inode = (uint64_t)found.st_ino,
                              .size = (uint64_t)found.st_size,
                              .modified_ns = nanoseconds(found.st_mtim),
                              .changed_ns = nanoseconds(found.st_ctim)};
}

static bool is_same(const struct file_mark *a, const struct file_mark *b)
{
    return a->there == b->there && a->device == b->device && a->inode == b->inode &&
           a->size == b->size && a->modified_ns == b->modified_ns && a->changed_ns == b->changed_ns;
}

void file_watch_init(struct file_watch *watch, uint64_t interval_us)
{
    *watch = (struct file_watch){.interval_us = interval_us};
}

enum status file_watch_add(struct file_watch *watch, const char *path, struct error *err)
{
    if (watch->count == FILE_WATCH_MAX_FILES)
        return error_set(err, STATUS_LIMIT, "'%s' is one file more than the %d that can be watched",
                         path, FILE_WATCH_MAX_FILES);
    if (!str_copy(watch->paths[watch->count], FILE_WATCH_MAX_PATH_BYTES, path))
        return error_set(err, STATUS_LIMIT,
                         "the path '%.64s...' is longer than the %d bytes that can be watched",
                         path, FILE_WATCH_MAX_PATH_BYTES - 1);
    watch->marks[watch->count] = look(path);
    watch->count++;
    return STATUS_OK;
}

bool file_watch_changed(struct file_watch *watch, uint64_t now_us)
{
    if (now_us < watch->next_us)
        return false;
    watch->next_us = now_us + watch->interval_us;
    bool changed = false;
    for (size_t i = 0; i < watch->count; i++) {
        struct file_mark mark = look(watch->paths[i]);
        changed |= !is_same(&mark, &watch->marks[i]) || (watch->marks[i].fresh && !mark.fresh);
        watch->marks[i] = mark;
    }
    return changed;
}
