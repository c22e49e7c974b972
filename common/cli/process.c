#include "common/cli/process.h"

#include "common/base/assert.h"
#include "common/base/json/json.h"
#include "common/base/log.h"
#include "common/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_READY_FD 3 /* the pipe in the child */
#define EXEC_FAILED    127
#define LOG_TAIL_BYTES 4096

/* Runs in the child between fork and exec, where only some calls are safe. */
static _Noreturn void become(char *const *argv, char *const *environment, const int fds[2],
                             pid_t parent)
{
    /* The terminal's Ctrl-C is for the parent. One that came before this process had its own group
     * is dropped. SIGTERM may come from the parent, and stays. */
    setpgid(0, 0);
    signal(SIGINT, signal(SIGINT, SIG_IGN));
    signal(SIGHUP, signal(SIGHUP, SIG_IGN));
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXEC_FAILED);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool placed = null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 &&
                  dup2(fds[1], STDERR_FILENO) >= 0 && dup2(fds[1], STDOUT_FILENO) >= 0 &&
                  dup2(fds[0], CHILD_READY_FD) >= 0;
    if (placed && fds[0] == CHILD_READY_FD)
        placed = fcntl(CHILD_READY_FD, F_SETFD, 0) == 0;
    if (placed)
        execve(argv[0], argv, environment);
    static const char message[] = "cannot execute this program\n";
    ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
    (void)written;
    _exit(EXEC_FAILED);
}

/* Returns our environment with the plan's variables replaced or added. The caller frees the list,
 * not its strings. */
static char **merge_environment(const struct process_plan *plan)
{
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **merged = calloc(count + plan->environment_count + 1, sizeof *merged);
    ASSERT(merged);
    for (size_t i = 0; i < count; i++) {
        bool replaced = false;
        for (size_t j = 0; j < plan->environment_count; j++) {
            size_t length = strcspn(plan->environment[j], "=") + 1;
            replaced |= !strncmp(environ[i], plan->environment[j], length);
        }
        if (!replaced)
            merged[kept++] = environ[i];
    }
    for (size_t j = 0; j < plan->environment_count; j++)
        merged[kept++] = (char *)plan->environment[j];
    return merged;
}

enum status process_start(const struct process_plan *plan, struct process *process,
                          struct error *err)
{
    ASSERT(plan->argc + 3 <= PROCESS_MAX_ARGUMENTS);
    char *argv[PROCESS_MAX_ARGUMENTS];
    memcpy(argv, plan->argv, plan->argc * sizeof *argv);
    argv[plan->argc] = (char *)"--ready-fd";
    argv[plan->argc + 1] = (char *)"3";
    argv[plan->argc + 2] = NULL;
    if (access(argv[0], X_OK))
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", argv[0], strerror(errno));
    int pipe_fds[2];
    int log_fd = plan->log_path
                     ? open(plan->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
                     : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, CHILD_READY_FD + 1);
    if (log_fd < 0)
        return error_set(err, STATUS_IO, "cannot open the log %s: %s",
                         plan->log_path ? plan->log_path : "(standard error)", strerror(errno));
    if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK)) {
        close(log_fd);
        return error_set(err, STATUS_IO, "pipe: %s", strerror(errno));
    }
    char **environment = merge_environment(plan);
    const int fds[2] = {pipe_fds[1], log_fd};
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become(argv, environment, fds, parent);
    int fork_error = errno;
    free(environment);
    close(pipe_fds[1]);
    close(log_fd);
    if (pid < 0) {
        close(pipe_fds[0]);
        return error_set(err, STATUS_IO, "fork: %s", strerror(fork_error));
    }
    *process = (struct process){.state = PROCESS_STARTING, .ready_fd = pipe_fds[0]};
    process->member.pid = pid;
    str_copy(process->member.name, sizeof process->member.name, plan->name);
    str_copy(process->member.role, sizeof process->member.role, plan->role);
    str_copy(process->log_path, sizeof process->log_path, plan->log_path ? plan->log_path : "");
    return STATUS_OK;
}

static enum status parse_ready_line(struct process *process, struct error *err)
{
    struct json *json;
    const struct json_limits limits = {.max_bytes = sizeof process->line, .max_depth = 4};
    const char *address, *metrics, *registry = "", *front = "";
    TRY(json_parse(process->line, process->line_length, limits, &json, err));
    const struct json_value *root = json_root(json);
    enum status status = json_get_string(root, "address", &address, NULL, err);
    if (status == STATUS_OK)
        status = json_get_string(root, "metrics", &metrics, NULL, err);
    if (status == STATUS_OK && json_find(root, "registry"))
        status = json_get_string(root, "registry", &registry, NULL, err);
    else if (status == STATUS_OK)
        registry = address;
    if (status == STATUS_OK && json_find(root, "http"))
        status = json_get_string(root, "http", &front, NULL, err);
    struct cluster_member *member = &process->member;
    if (status == STATUS_OK && (!str_copy(member->front, sizeof member->front, front) ||
                                !str_copy(member->address, sizeof member->address, address) ||
                                !str_copy(member->metrics, sizeof member->metrics, metrics) ||
                                !str_copy(member->registry, sizeof member->registry, registry)))
        status = error_set(err, STATUS_LIMIT, "an address is too long");
    if (status == STATUS_OK) {
        process->state = PROCESS_READY;
        process->was_ready = true;
    }
    json_destroy(json);
    return status;
}

enum status process_read_ready(struct process *process, struct error *err)
{
    ssize_t count = read(process->ready_fd, process->line + process->line_length,
                         sizeof process->line - process->line_length);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return STATUS_OK;
    size_t before = process->line_length;
    process->line_length += count > 0 ? (size_t)count : 0;
    bool whole = memchr(process->line + before, '\n', process->line_length - before) != NULL;
    bool full = process->line_length == sizeof process->line;
    if (!whole && !full && count > 0)
        return STATUS_OK;
    close(process->ready_fd);
    process->ready_fd = -1;
    if (count <= 0)
        return STATUS_OK;
    enum status status = whole ? parse_ready_line(process, err)
                               : error_set(err, STATUS_LIMIT, "its ready line is too long");
    return status == STATUS_OK ? status : error_prefix(err, status, "%s", process->member.name);
}

bool process_reap(struct process *process)
{
    if (process->state == PROCESS_ENDED ||
        waitpid(process->member.pid, &process->wait_status, WNOHANG) != process->member.pid)
        return false;
    process->state = PROCESS_ENDED;
    if (process->ready_fd >= 0)
        close(process->ready_fd);
    process->ready_fd = -1;
    return true;
}

bool process_ended_in_order(const struct process *process)
{
    int status = process->wait_status;
    return status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

void process_describe_end(const struct process *process, char *text, size_t size)
{
    if (WIFSIGNALED(process->wait_status))
        snprintf(text, size, "was killed by signal %d (%s)", WTERMSIG(process->wait_status),
                 strsignal(WTERMSIG(process->wait_status)));
    else
        snprintf(text, size, "ended with exit code %d", WEXITSTATUS(process->wait_status));
}

void process_log_tail(const struct process *process, char *text, size_t size)
{
    text[0] = 0;
    FILE *stream = *process->log_path ? fopen(process->log_path, "re") : NULL;
    if (!stream)
        return;
    bool cut = fseek(stream, -(long)(size - 1), SEEK_END) == 0;
    if (!cut)
        rewind(stream);
    size_t length = fread(text, 1, size - 1, stream);
    fclose(stream);
    text[length] = 0;
    char *first_whole_line = cut ? strchr(text, '\n') : NULL;
    if (first_whole_line)
        memmove(text, first_whole_line + 1, strlen(first_whole_line + 1) + 1);
}

void process_last_line(const struct process *process, char *text, size_t size)
{
    char tail[LOG_TAIL_BYTES];
    process_log_tail(process, tail, sizeof tail);
    char *end = strrchr(tail, '\n'); /* behind it a line is being written */
    if (end)
        *end = 0;
    const char *newline = end ? strrchr(tail, '\n') : NULL;
    const char *message = end ? strstr(newline ? newline : tail, "msg=\"") : NULL;
    snprintf(text, size, "%s", message ? message : "");
}

/* Returns the sentence of a log line that explains an end, and cuts the line where the sentence
 * ends. NULL: the line explains none. */
static char *sentence_of(char *line)
{
    static const char own[] = "baton-";
    char *colon = strstr(line, ": "), *message = strstr(line, " msg=\"");
    if (!strncmp(line, own, strlen(own)) && colon && strncmp(colon + 2, "warning: ", 9) != 0)
        return colon + 2;
    if (!strstr(line, " level=error ") || !message)
        return NULL;
    char *sentence = message + strlen(" msg=\""), *to = sentence;
    for (const char *from = sentence; *from && *from != '"'; from++)
        *to++ = *from == '\\' && from[1] ? *++from : *from;
    *to = 0;
    return sentence;
}

void process_last_words(const struct process *process, char *text, size_t size)
{
    char tail[LOG_TAIL_BYTES], *save = NULL;
    process_log_tail(process, tail, sizeof tail);
    text[0] = 0;
    for (char *line = strtok_r(tail, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *sentence = sentence_of(line);
        if (sentence)
            snprintf(text, size, "%s", sentence);
    }
}

/* --- restarts --- */

void restart_on_ready(struct restart *restart, uint64_t now_us)
{
    restart->served_us = now_us;
}

bool restart_on_end(struct restart *restart, bool in_order, uint64_t cap_us, uint64_t now_us)
{
    if (restart->served_us && now_us - restart->served_us >= RESTART_HEALTHY_US)
        restart->in_a_row = restart->orderly = 0;
    bool wished = in_order && restart->served_us && restart->orderly < RESTART_ORDERLY;
    restart->served_us = 0;
    uint32_t doubled = 0;
    if (wished)
        restart->orderly++;
    else
        doubled = restart->in_a_row++;
    restart->wait_us = RESTART_FIRST_US;
    while (doubled-- && restart->wait_us < cap_us)
        restart->wait_us *= 2;
    if (restart->wait_us > cap_us)
        restart->wait_us = cap_us;
    restart->due_us = now_us + restart->wait_us;
    return !wished && restart->in_a_row == RESTART_LOOP_ENDS;
}

void restart_on_started(struct restart *restart)
{
    restart->count++;
    restart->due_us = 0;
}

/* --- log echo --- */

#define CHUNK_BYTES (8 * LOG_MAX_LINE_BYTES)

static uint64_t file_bytes(const char *path)
{
    struct stat found;
    return stat(path, &found) ? 0 : (uint64_t)found.st_size;
}

void log_echo_init(struct log_echo *echo, const char *path)
{
    *echo = (struct log_echo){.read_bytes = file_bytes(path)};
}

static void take_line(struct log_echo *echo, struct log_echo_room *room, const char *name,
                      const char *line, size_t length)
{
    /* "ts=... level=warn ...", as log.h writes it. A line feed ends each comparison. */
    const char *level = strncmp(line, "ts=", 3) ? NULL : memchr(line, ' ', length);
    bool whole = !echo->amid_line;
    bool warns = level && !room->errors_only && !strncmp(level, " level=warn ", 12);
    bool fails = level && !strncmp(level, " level=error ", 13);
    echo->amid_line = false;
    if (!whole || !(warns || fails))
        return;
    if (room->lines == LOG_ECHO_LINES) {
        echo->left_out++;
        return;
    }
    room->lines++;
    log_repeat("%s: %.*s", name, (int)length, line);
}

/* Takes the whole lines of a chunk and returns their bytes. A line longer than a chunk is
 * skipped. */
static size_t take_lines(struct log_echo *echo, struct log_echo_room *room, const char *name,
                         const char *chunk, size_t count)
{
    size_t taken = 0;
    for (const char *end; (end = memchr(chunk + taken, '\n', count - taken));) {
        size_t length = (size_t)(end - chunk) - taken;
        take_line(echo, room, name, chunk + taken, length);
        taken += length + 1;
    }
    if (taken || count < CHUNK_BYTES)
        return taken;
    echo->amid_line = true;
    return count;
}

/* Reads up to `bytes`, the size that the file had, and at most one chunk beyond. */
static void read_lines(struct log_echo *echo, struct log_echo_room *room, const char *name,
                       const char *path, uint64_t bytes)
{
    char chunk[CHUNK_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    while (echo->read_bytes < bytes) {
        ssize_t count = pread(fd, chunk, sizeof chunk, (off_t)echo->read_bytes);
        size_t taken = count > 0 ? take_lines(echo, room, name, chunk, (size_t)count) : 0;
        echo->read_bytes += taken;
        if (!taken)
            break;
    }
    close(fd);
}

static void tell_left_out(struct log_echo *echo, const char *name, const char *path)
{
    if (echo->left_out)
        log_repeat("%s: %" PRIu64 " more of level=warn or level=error in %s", name, echo->left_out,
                   path);
    echo->left_out = 0;
}

void log_echo_take(struct log_echo *echo, struct log_echo_room *room, const char *name,
                   const char *path, uint64_t now_us, bool last)
{
    uint64_t bytes = file_bytes(path);
    if (now_us - room->since_us >= LOG_ECHO_WINDOW_US)
        *room = (struct log_echo_room){.errors_only = room->errors_only, .since_us = now_us};
    if (room->lines < LOG_ECHO_LINES)
        tell_left_out(echo, name, path);
    if (bytes < echo->read_bytes) { /* the file was truncated */
        echo->read_bytes = 0;
        echo->amid_line = false;
    }
    if (bytes - echo->read_bytes > LOG_ECHO_BACKLOG_BYTES) {
        /* The newest lines explain why a process ended. The first byte read may be amid a line. */
        echo->passed_bytes += bytes - LOG_ECHO_BACKLOG_BYTES - echo->read_bytes;
        echo->read_bytes = bytes - LOG_ECHO_BACKLOG_BYTES;
        echo->amid_line = true;
    }
    if (echo->passed_bytes && (last || now_us - echo->told_passed_us >= LOG_ECHO_WINDOW_US)) {
        log_repeat("%s: %" PRIu64 " bytes of %s were passed over: it grows faster than it is read",
                   name, echo->passed_bytes, path);
        echo->passed_bytes = 0;
        echo->told_passed_us = now_us;
    }
    if (bytes > echo->read_bytes)
        read_lines(echo, room, name, path, bytes);
    if (last)
        tell_left_out(echo, name, path);
}
