#include "common/cli/process.h"

#include "common/base/assert.h"
#include "common/base/json/json.h"
#include "common/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The descriptor of the pipe in the child. */
#define CHILD_READY_FD 3
#define EXEC_FAILED    127
#define LOG_TAIL_BYTES 4096

/* In the child, between fork and exec: only calls that are safe there. */
static _Noreturn void become(char *const *argv, char *const *environment, const int fds[2],
                             pid_t parent)
{
    /* The terminal's Ctrl-C is for the parent: what came before this process had a group of its own
     * is dropped. SIGTERM may be the parent's own wish, and stays. */
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

static size_t length_of_name(const char *assignment)
{
    return strcspn(assignment, "=");
}

/* Our environment with the plan's variables replaced or added. Free the list, not its strings. */
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
            size_t length = length_of_name(plan->environment[j]) + 1;
            replaced |= !strncmp(environ[i], plan->environment[j], length);
        }
        if (!replaced)
            merged[kept++] = environ[i];
    }
    for (size_t j = 0; j < plan->environment_count; j++)
        merged[kept++] = (char *)plan->environment[j];
    return merged;
}

static enum status open_log(const struct process_plan *plan, int *fd, struct error *err)
{
    *fd = plan->log_path ? open(plan->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
                         : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, CHILD_READY_FD + 1);
    if (*fd >= 0)
        return STATUS_OK;
    return error_set(err, STATUS_IO, "cannot open the log %s: %s",
                     plan->log_path ? plan->log_path : "(standard error)", strerror(errno));
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
    int pipe_fds[2], log_fd;
    TRY(open_log(plan, &log_fd, err));
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

static enum status understand(struct process *process, struct error *err)
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
    enum status status = whole ? understand(process, err)
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
    char *end = strrchr(tail, '\n'); /* what is behind it is being written */
    if (end)
        *end = 0;
    const char *newline = end ? strrchr(tail, '\n') : NULL;
    const char *message = end ? strstr(newline ? newline : tail, "msg=\"") : NULL;
    snprintf(text, size, "%s", message ? message : "");
}

/* The sentence that a line tells; NULL: it tells no end. Ends the line where the sentence ends. */
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
