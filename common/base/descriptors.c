#include "common/base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t descriptors_raise(uint64_t needed)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return 0;
    rlim_t most = needed > DESCRIPTORS_MAX ? needed : DESCRIPTORS_MAX;
    rlim_t wanted = limit.rlim_max < most ? limit.rlim_max : most;
    rlim_t before = limit.rlim_cur;
    if (wanted <= before)
        return before;
    limit.rlim_cur = wanted;
    return setrlimit(RLIMIT_NOFILE, &limit) ? before : wanted;
}

uint64_t descriptors_divide(uint64_t limit, uint64_t own, struct descriptor_use *uses, size_t count)
{
    uint64_t needed = own, left = limit > own ? limit - own : 0;
    size_t open = 0; /* uses that aren't settled */
    for (size_t i = 0; i < count; i++) {
        uses[i].places = 0;
        needed += uses[i].wanted * uses[i].each;
        open += uses[i].wanted > 0;
    }
    for (bool settled = true; settled;) {
        uint64_t part = open ? left / open : 0;
        settled = false;
        for (size_t i = 0; i < count; i++) {
            struct descriptor_use *use = &uses[i];
            if (use->places || !use->wanted || use->wanted * use->each > part)
                continue;
            use->places = use->wanted;
            left -= use->wanted * use->each;
            open--;
            settled = true;
        }
    }
    for (size_t i = 0; i < count; i++) {
        struct descriptor_use *use = &uses[i];
        if (!use->wanted || use->places)
            continue;
        use->places = left / open / use->each;
        if (!use->places)
            use->places = 1;
    }
    return needed;
}

int descriptors_spare(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int descriptors_turn_away(int *spare, int door)
{
    if (*spare < 0)
        *spare = descriptors_spare();
    if (*spare < 0)
        return errno;
    close(*spare);
    int fd = accept4(door, NULL, NULL, SOCK_CLOEXEC), failure = errno;
    if (fd >= 0)
        close(fd);
    *spare = descriptors_spare();
    return fd >= 0 ? 0 : failure;
}
