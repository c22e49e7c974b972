#include "common/base/failpoint.h"

#include "common/base/assert.h"
#include "common/base/failpoint_names.h"
#include "common/base/log.h"
#include "common/base/request_id.h"
#include "common/base/str.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FAILPOINTS 32
#define MAX_SPEC_BYTES 4096
#define PAUSE_LIMIT_MS 60000
#define HANG_LIMIT_MS  (INT_MAX - PAUSE_POLL_MS) /* 24 days */
#define PAUSE_POLL_MS  2

enum action { ACTION_KILL, ACTION_STOP, ACTION_PAUSE, ACTION_HANG, ACTION_FAIL, ACTION_LOG };
static const char *const action_names[] = {"kill", "stop", "pause", "hang", "fail", "log"};

struct failpoint_name {
    const char *name;
    bool can_fail;
};
#define ROW(name, can_fail, what) {name, can_fail},
static const struct failpoint_name known_names[] = {FAILPOINT_NAMES(ROW)};
#undef ROW

struct failpoint {
    const struct failpoint_name *known;
    char subject[REQUEST_MAX_ID_BYTES + 1]; /* "": any */
    enum action action;
    uint64_t at; /* 0: every hit */
    uint64_t hits;
};

/* The armed failpoints. A new specification replaces them as a whole. */
struct failpoint_set {
    size_t count;
    struct failpoint points[MAX_FAILPOINTS];
};

bool failpoint_armed;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the following variables */
static struct failpoint_set armed;
static struct stat seen_file; /* spec_path at the last reading */
static char spec_path[512];
/* Set once. log_path "": no hit is recorded. */
static char log_path[512], process_name[64];

static const struct failpoint_name *find_known(const char *name)
{
    for (size_t i = 0; i < sizeof known_names / sizeof *known_names; i++)
        if (!strcmp(known_names[i].name, name))
            return &known_names[i];
    return NULL;
}

static enum status parse_action(char *text, struct failpoint *point, struct error *err)
{
    char *at = strchr(text, '@');
    if (at) {
        *at++ = 0;
        if (!strcmp(at, "*"))
            point->at = 0;
        else if (!str_to_u64(at, 1, UINT32_MAX, &point->at))
            return error_set(err, STATUS_INVALID, "BATON_FAILPOINTS: '%s' is not a count", at);
    }
    size_t i = 0;
    while (i < sizeof action_names / sizeof *action_names && strcmp(text, action_names[i]))
        i++;
    if (i == sizeof action_names / sizeof *action_names)
        return error_set(err, STATUS_INVALID,
                         "BATON_FAILPOINTS: unknown action '%s' (kill, stop, pause, hang, fail, "
                         "log)",
                         text);
    point->action = (enum action)i;
    if (point->action == ACTION_FAIL && !point->known->can_fail)
        return error_set(err, STATUS_INVALID,
                         "BATON_FAILPOINTS: nothing fails at '%s': use another action",
                         point->known->name);
    return STATUS_OK;
}

static enum status parse_one(char *spec, struct failpoint_set *set, struct error *err)
{
    char *equals = strchr(spec, '='), *colon = strchr(spec, ':'), *slash = strchr(spec, '/');
    if (slash > equals)
        slash = NULL; /* a slash in the action, which makes the action invalid */
    if (colon > equals || (slash && colon > slash))
        colon = NULL; /* a colon in the action, or in the subject, which is any text */
    if (slash)
        equals = strrchr(slash, '=');
    if (!equals || set->count == MAX_FAILPOINTS)
        return error_set(
            err, STATUS_INVALID,
            "BATON_FAILPOINTS: '%s' is not [PROCESS:]NAME[/SUBJECT]=ACTION[@N] (at most %d)", spec,
            MAX_FAILPOINTS);
    *equals = 0;
    if (colon)
        *colon = 0;
    char *name = colon ? colon + 1 : spec;
    struct failpoint point = {.at = 1};
    if (slash)
        *slash = 0;
    if (slash && (!slash[1] || !str_copy(point.subject, sizeof point.subject, slash + 1)))
        return error_set(err, STATUS_INVALID,
                         "BATON_FAILPOINTS: the subject of '%s' is empty or longer than %zu bytes",
                         name, sizeof point.subject - 1);
    point.known = find_known(name);
    if (!point.known)
        return error_set(
            err, STATUS_INVALID,
            "BATON_FAILPOINTS: there is no failpoint '%s'; docs/operations/failpoints.md lists "
            "them",
            name);
    TRY(parse_action(equals + 1, &point, err));
    if (!colon || !strcmp(spec, process_name)) /* otherwise only checked */
        set->points[set->count++] = point;
    return STATUS_OK;
}

static enum status parse_all(char *text, struct failpoint_set *set, struct error *err)
{
    *set = (struct failpoint_set){0};
    char *save = NULL;
    for (char *one = strtok_r(text, ",\n", &save); one; one = strtok_r(NULL, ",\n", &save))
        TRY(parse_one(one, set, err));
    return STATUS_OK;
}

/* Takes over the file's specifications. A file that is missing or invalid arms nothing. */
static enum status read_file(struct error *err)
{
    char text[MAX_SPEC_BYTES];
    armed.count = 0;
    int fd = open(spec_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &seen_file)) {
        if (fd >= 0)
            close(fd);
        return error_set(err, STATUS_INVALID, "BATON_FAILPOINTS: can't read %s", spec_path);
    }
    ssize_t length = read(fd, text, sizeof text);
    close(fd);
    if (length < 0 || length == (ssize_t)sizeof text)
        return error_set(err, STATUS_INVALID, "BATON_FAILPOINTS: %s is longer than %zu bytes",
                         spec_path, sizeof text - 1);
    text[length] = 0;
    struct failpoint_set set;
    TRY(parse_all(text, &set, err));
    armed = set;
    return STATUS_OK;
}

static void read_file_if_new(void)
{
    struct stat now;
    struct error err;
    if (!*spec_path || stat(spec_path, &now) ||
        (now.st_ino == seen_file.st_ino && now.st_size == seen_file.st_size &&
         now.st_mtim.tv_sec == seen_file.st_mtim.tv_sec &&
         now.st_mtim.tv_nsec == seen_file.st_mtim.tv_nsec))
        return;
    if (read_file(&err) != STATUS_OK)
        log_error("failpoint", "msg=\"%s\"", err.text);
}

bool failpoint_allowed(void)
{
#ifdef BATON_RELEASE
    const char *allow = getenv("BATON_FAILPOINTS_ALLOW");
    return allow && !strcmp(allow, "1");
#else
    return true;
#endif
}

enum status failpoint_init(const char *process, struct error *err)
{
    failpoint_armed = false;
    *spec_path = 0;
    const char *log = getenv("BATON_FAILPOINT_LOG");
    str_copy(log_path, sizeof log_path, log ? log : "");
    str_copy(process_name, sizeof process_name, process);
    const char *spec = getenv("BATON_FAILPOINTS");
    if (!spec || !*spec)
        return STATUS_OK;
    if (!failpoint_allowed())
        return error_set(err, STATUS_INVALID,
                         "BATON_FAILPOINTS is set, but this is a release build: set "
                         "BATON_FAILPOINTS_ALLOW=1 to mean it");
    char text[MAX_SPEC_BYTES];
    if (!str_copy(text, sizeof text, spec))
        return error_set(err, STATUS_INVALID, "BATON_FAILPOINTS is longer than %zu bytes",
                         sizeof text - 1);
    if (*spec == '@') {
        if (!str_copy(spec_path, sizeof spec_path, spec + 1))
            return error_set(err, STATUS_INVALID, "BATON_FAILPOINTS: the path is too long");
        TRY(read_file(err));
    } else {
        TRY(parse_all(text, &armed, err));
    }
    failpoint_armed = *spec_path || armed.count > 0;
    char quoted[512];
    if (failpoint_armed)
        log_warn("failpoint", "msg=\"armed: this process fails where it is told to\" spec=%s",
                 log_quote(spec, quoted, sizeof quoted));
    return STATUS_OK;
}

void failpoint_note(const char *name, const char *action, uint64_t hit)
{
    if (!*log_path)
        return;
    char line[256];
    int length = snprintf(line, sizeof line, "%s %s %llu %d %s\n", name, action,
                          (unsigned long long)hit, (int)getpid(), process_name);
    int fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    ssize_t written = write(fd, line, (size_t)length);
    (void)written;
    close(fd);
}

/* Holds up the calling thread alone. */
static void wait_for_go(const char *name, int limit_ms)
{
    char path[640];
    snprintf(path, sizeof path, "%s.%s.go", log_path, name);
    for (int waited_ms = 0; waited_ms < limit_ms && access(path, F_OK); waited_ms += PAUSE_POLL_MS)
        poll(NULL, 0, PAUSE_POLL_MS);
}

/* Counts the hit. False: no action at this hit. */
static bool take_hit(const char *name, const char *subject, struct failpoint *taken)
{
    struct failpoint *point = NULL;
    pthread_mutex_lock(&mutex);
    read_file_if_new();
    for (size_t i = 0; i < armed.count && !point; i++)
        if (!strcmp(armed.points[i].known->name, name) &&
            (!*armed.points[i].subject || !strcmp(armed.points[i].subject, subject)))
            point = &armed.points[i];
    bool due = point && (++point->hits == point->at || !point->at);
    if (due)
        *taken = *point;
    pthread_mutex_unlock(&mutex);
    return due;
}

bool failpoint_hit(const char *name, const char *subject)
{
    ASSERT(find_known(name));
    struct failpoint point;
    if (!take_hit(name, subject, &point))
        return false;
    failpoint_note(name, action_names[point.action], point.hits);
    switch (point.action) {
    /* The signal goes to this thread, so that it runs no further. */
    case ACTION_KILL: raise(SIGKILL); break;
    case ACTION_STOP: raise(SIGSTOP); break;
    case ACTION_PAUSE: wait_for_go(name, PAUSE_LIMIT_MS); break;
    case ACTION_HANG: wait_for_go(name, HANG_LIMIT_MS); break;
    case ACTION_FAIL: return true;
    case ACTION_LOG: break;
    }
    return false;
}
