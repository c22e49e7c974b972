/* Has files that settings name read again when they changed, while a process runs: a thread that
 * looks at them (file_watch.h) and tells when a change has settled, so that a certificate and its
 * key that are written one after the other are read together, and a half-written file seldom. Who
 * reads checks what he reads all the same.
 */
#ifndef BATON_BASE_RELOAD_H
#define BATON_BASE_RELOAD_H

#include "common/base/file_watch.h"

#define RELOAD_INTERVAL_US 250000u

struct reload;

struct reload_config {
    const char *paths[4]; /* NULL and "": none; at most FILE_WATCH_MAX_PATH_BYTES */
    uint64_t interval_us; /* 0: RELOAD_INTERVAL_US */
    /* On a thread of its own, when nothing has changed any more since the last look; it may be the
     * same bytes again. Read the files once after the start, too: what changes from the start on is
     * told. */
    void (*changed)(void *context);
    void *context;
};

/* STATUS_LIMIT: too long a path, no memory; STATUS_IO: no thread to be had. */
enum status reload_start(const struct reload_config *config, struct reload **reload,
                         struct error *err) WARN_UNUSED;
/* Joins the thread: `changed` is not running afterwards. NULL is fine. */
void reload_stop(struct reload *reload);

#endif
