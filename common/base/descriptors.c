#include "common/base/descriptors.h"

#include <sys/resource.h>

uint64_t descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return 0;
    rlim_t wanted = limit.rlim_max < DESCRIPTORS_MAX ? limit.rlim_max : DESCRIPTORS_MAX;
    rlim_t before = limit.rlim_cur;
    if (wanted <= before)
        return before;
    limit.rlim_cur = wanted;
    return setrlimit(RLIMIT_NOFILE, &limit) ? before : wanted;
}
