#include "common/base/failpoint.h"

#include "common/base/str.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_FAILPOINTS 16
#define PAUSE_LIMIT_MS 60000
#define PAUSE_POLL_MS  10

enum action { ACTION_KILL, ACTION_STOP, ACTION_PAUSE, ACTION_FAIL, ACTION_LOG };
static const char *const action_names[] = {"kill", "stop", "pause", "fail", "log"};

struct failpoint {
    char name[64];
    enum action action;
    uint64_t at; /* 0: every hit */
    uint64_t hits;
};

bool failpoint_armed;
static struct failpoint failpoints[MAX_FAILPOINTS];
static size_t failpoint_count;
static char log_path[512]; /* "": nothing is recorded */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static enum status parse_one(const char *process, char *spec, struct error *err)
{
    char *colon = strchr(spec, ':');
    if (colon) {
        *colon = 0;
        if (strcmp(spec, process))
            return STATUS_OK; /* meant for another process */
        spec = colon + 1;
    }
    char *equals = strchr(spec, '=');
    if (!equals || failpoint_count == MAX_FAILPOINTS)
        return error_set(err, STATUS_INVALID,
                         "BATON_FAILPOINTS: '%s' is not [PROCESS:]NAME=ACTION[@N] (at most %d)",
                         spec, MAX_FAILPOINTS);
    *equals = 0;
    struct failpoint *point = &failpoints[failpoint_count];
    *point = (struct failpoint){.at = 1};
    char *at = strchr(equals + 1, '@');
    if (at) {
        *at++ = 0;
        if (!strcmp(at, "*"))
            point->at = 0;
        else if (!str_to_u64(at, 1, UINT32_MAX, &point->at))
            return error_set(err, STATUS_INVALID, "BATON_FAILPOINTS: '%s' is not a count", at);
    }
    for (size_t i = 0; i < sizeof action_names / sizeof *action_names; i++)
        if (!strcmp(equals + 1, action_names[i])) {
            point->action = (enum action)i;
            str_copy(point->name, sizeof point->name, spec);
            failpoint_count++;
            return STATUS_OK;
        }
    return error_set(err, STATUS_INVALID, "BATON_FAILPOINTS: unknown action '%s'", equals + 1);
}

bool failpoint_allowed(void)
{
#ifdef BATON_RELEASE
    const char *allow = getenv("BATON_FAILPOINTS_ALLOW");
    return allow && *allow;
#else
    return true;
#endif
}

enum status failpoint_init(const char *process, struct error *err)
{
    const char *log = getenv("BATON_FAILPOINT_LOG");
    str_copy(log_path, sizeof log_path, log ? log : "");
    const char *spec = getenv("BATON_FAILPOINTS");
    if (!spec || !*spec)
        return STATUS_OK;
    if (!failpoint_allowed())
        return error_set(err, STATUS_INVALID,
                         "BATON_FAILPOINTS is set, but this is a release build: set "
                         "BATON_FAILPOINTS_ALLOW=1 to mean it");
    char copy[1024];
    if (!str_copy(copy, sizeof copy, spec))
        return error_set(err, STATUS_INVALID, "BATON_FAILPOINTS is longer than %zu bytes",
                         sizeof copy - 1);
    char *save = NULL;
    for (char *one = strtok_r(copy, ",", &save); one; one = strtok_r(NULL, ",", &save))
        TRY(parse_one(process, one, err));
    failpoint_armed = failpoint_count > 0;
    return STATUS_OK;
}

void failpoint_note(const char *name, const char *action, uint64_t hit)
{
    if (!*log_path)
        return;
    char line[160];
    int length = snprintf(line, sizeof line, "%s %s %llu %d\n", name, action,
                          (unsigned long long)hit, (int)getpid());
    int fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    ssize_t written = write(fd, line, (size_t)length);
    (void)written;
    close(fd);
}

static void pause_until_go(const struct failpoint *point)
{
    char path[640];
    snprintf(path, sizeof path, "%s.%s.go", log_path, point->name);
    for (int waited_ms = 0; waited_ms < PAUSE_LIMIT_MS && access(path, F_OK);
         waited_ms += PAUSE_POLL_MS)
        poll(NULL, 0, PAUSE_POLL_MS);
}

bool failpoint_hit(const char *name)
{
    struct failpoint *point = NULL;
    uint64_t hit = 0;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < failpoint_count && !point; i++)
        if (!strcmp(failpoints[i].name, name))
            point = &failpoints[i];
    if (point)
        hit = ++point->hits;
    pthread_mutex_unlock(&mutex);
    if (!point || (point->at && hit != point->at))
        return false;
    failpoint_note(point->name, action_names[point->action], hit);
    switch (point->action) {
    case ACTION_KILL: kill(getpid(), SIGKILL); break;
    case ACTION_STOP: kill(getpid(), SIGSTOP); break;
    case ACTION_PAUSE: pause_until_go(point); break;
    case ACTION_FAIL: return true;
    case ACTION_LOG: break;
    }
    return false;
}
