#include "router/ops/access_file.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOD   "access_log"
#define FLAGS (O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)

static int open_path(const char *path)
{
    return open(path, FLAGS | O_CREAT, 0640);
}

/* Of a pipe or a terminal a description of our own: what we were given is shared with whoever
 * started us, and blocks. */
static int open_standard_error(struct access_file *file)
{
    struct stat status;
    bool known = fstat(STDERR_FILENO, &status) == 0;
    file->is_socket = known && S_ISSOCK(status.st_mode);
    int fd = known && (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))
                 ? open("/proc/self/fd/2", FLAGS)
                 : -1;
    return fd < 0 ? STDERR_FILENO : fd;
}

enum status access_file_open(struct access_file *file, const char *where, struct error *err)
{
    *file = (struct access_file){.fd = -1, .hurry_fd = -1};
    bool to_stderr = !strcmp(where, "stderr");
    if (!to_stderr && !str_copy(file->path, sizeof file->path, where))
        return error_set(err, STATUS_INVALID, "access-log: the path is too long");
    file->hurry_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (file->hurry_fd < 0)
        return error_set(err, STATUS_IO, "access-log: %s", strerror(errno));
    file->fd = to_stderr ? open_standard_error(file) : open_path(file->path);
    if (file->fd >= 0)
        return STATUS_OK;
    enum status status = error_set(err, STATUS_IO, "access-log: cannot write to %s: %s", file->path,
                                   errno == ENXIO ? "nobody reads it" : strerror(errno));
    access_file_close(file);
    return status;
}

void access_file_close(struct access_file *file)
{
    if (file->fd >= 0 && file->fd != STDERR_FILENO)
        close(file->fd);
    if (file->hurry_fd >= 0)
        close(file->hurry_fd);
    file->fd = file->hurry_fd = -1;
}

void access_file_open_again(struct access_file *file)
{
    int fd = *file->path ? open_path(file->path) : -1;
    if (!*file->path)
        return;
    if (fd < 0) {
        log_error(MOD, "path=%s why=\"%s\" msg=\"the access log can't be opened again\"",
                  file->path, strerror(errno));
        return;
    }
    close(file->fd);
    file->fd = fd;
    file->torn = false;
    log_info(MOD, "path=%s msg=\"the access log is opened again\"", file->path);
}

void access_file_hurry(struct access_file *file)
{
    (void)!eventfd_write(file->hurry_fd, 1);
}

/* False: the other end took nothing until the time was over. */
static bool wait_for_room(struct access_file *file)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = file->fd, .events = POLLOUT},
                                {.fd = file->deadline_us ? -1 : file->hurry_fd, .events = POLLIN}};
        uint64_t now_us = clock_now_us();
        uint64_t left_us = now_us < file->deadline_us ? file->deadline_us - now_us : 0;
        int count = poll(fds, 2, file->deadline_us ? (int)((left_us + 999) / 1000) : -1);
        if (count < 0 && errno != EINTR)
            return false;
        if (count > 0 && fds[0].revents)
            return true;
        if (count > 0)
            file->deadline_us = clock_now_us() + ACCESS_FILE_HURRY_US;
        else if (count == 0) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

static bool write_all(struct access_file *file, const char *bytes, size_t count)
{
    while (count) {
        ssize_t now = file->is_socket ? send(file->fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL)
                                      : write(file->fd, bytes, count);
        if (now < 0 && (errno == EAGAIN ? !wait_for_room(file) : errno != EINTR))
            return false;
        if (now > 0) {
            bytes += now;
            count -= (size_t)now;
            file->torn = bytes[-1] != '\n';
        }
    }
    return true;
}

bool access_file_put(struct access_file *file, const char *line, size_t length)
{
    if (file->torn && !write_all(file, "\n", 1))
        return false;
    return write_all(file, line, length);
}
