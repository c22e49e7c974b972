/* Reports changes of files that settings name while a process runs. A thread looks at them
 * (file_watch.h) and reports a change after it has settled. A certificate and its key that are
 * written one after the other are thus read together, and a half-written file is seldom read. The
 * reader checks what it reads all the same. */
#ifndef BATON_BASE_RELOAD_H
#define BATON_BASE_RELOAD_H

#include "common/base/file_watch.h"

#define RELOAD_INTERVAL_US 250000u

struct reload;

struct reload_config {
    const char *paths[4]; /* NULL and "": none; at most FILE_WATCH_MAX_PATH_BYTES */
    uint64_t interval_us; /* 0: RELOAD_INTERVAL_US */
    /* Called on reload's thread, when a look finds no further change since the last. The bytes may
     * be the same again. Read the files once after reload_start, too: changes are reported from
     * then on. */
    void (*changed)(void *context);
    void *context;
};

/* STATUS_LIMIT: too long a path, no memory. STATUS_IO: the thread can't be started. */
enum status reload_start(const struct reload_config *config, struct reload **reload,
                         struct error *err) WARN_UNUSED;
/* Joins the thread, so that `changed` is not running afterwards. NULL is fine. */
void reload_stop(struct reload *reload);

#endif
