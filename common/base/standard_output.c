#include "common/base/standard_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void standard_output_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        /* The mode is the wrong one, so that reading or writing fails as on a closed stream. The
         * least free number is `fd`. */
        bool closed = fcntl(fd, F_GETFD) < 0 && errno == EBADF;
        if (closed && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return;
    }
}

enum status standard_output_flush(struct error *err)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return STATUS_OK;
    return error_set(err, STATUS_IO, "standard output: %s",
                     errno ? strerror(errno) : "an earlier part could not be written");
}
