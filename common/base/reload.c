#include "common/base/reload.h"

#include "common/base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct reload {
    struct reload_config config;
    struct file_watch watch; /* the thread's */
    pthread_t thread;
    int stop_fd;
};

static void *reload_main(void *argument)
{
    struct reload *reload = argument;
    struct pollfd stop = {.fd = reload->stop_fd, .events = POLLIN};
    int interval_ms = (int)((reload->config.interval_us + 999) / 1000);
    for (bool pending = false; poll(&stop, 1, interval_ms) <= 0;) {
        bool changed = file_watch_changed(&reload->watch, clock_now_us());
        if (pending && !changed)
            reload->config.changed(reload->config.context);
        pending = changed;
    }
    return NULL;
}

static enum status add_paths(struct reload *reload, struct error *err)
{
    file_watch_init(&reload->watch, 0);
    for (size_t i = 0; i < sizeof reload->config.paths / sizeof *reload->config.paths; i++)
        if (reload->config.paths[i] && *reload->config.paths[i])
            TRY(file_watch_add(&reload->watch, reload->config.paths[i], err));
    return STATUS_OK;
}

enum status reload_start(const struct reload_config *config, struct reload **out, struct error *err)
{
    struct reload *reload = calloc(1, sizeof *reload);
    if (!reload)
        return error_set(err, STATUS_LIMIT, "no memory to watch files");
    reload->config = *config;
    if (!config->interval_us)
        reload->config.interval_us = RELOAD_INTERVAL_US;
    enum status status = add_paths(reload, err);
    if (status != STATUS_OK)
        goto fail_reload;
    reload->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (reload->stop_fd < 0) {
        status = error_set(err, STATUS_IO, "no descriptor to watch files");
        goto fail_reload;
    }
    if (pthread_create(&reload->thread, NULL, reload_main, reload)) {
        status = error_set(err, STATUS_IO, "no thread to watch files");
        goto fail_fd;
    }
    pthread_setname_np(reload->thread, "reload");
    *out = reload;
    return STATUS_OK;

fail_fd:
    close(reload->stop_fd);
fail_reload:
    free(reload);
    return status;
}

void reload_stop(struct reload *reload)
{
    if (!reload)
        return;
    eventfd_write(reload->stop_fd, 1);
    pthread_join(reload->thread, NULL);
    close(reload->stop_fd);
    free(reload);
}
