#include "kernels/cpu/host_memory.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 4096

/* The number behind `key` in a file of "key value" lines; `missing` where there is none. */
static uint64_t number_in(const char *path, const char *key, uint64_t missing)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return missing;
    char line[256];
    uint64_t number = missing, found;
    size_t length = strlen(key);
    while (number == missing && fgets(line, sizeof line, file))
        if (strncmp(line, key, length) == 0 && sscanf(line + length, "%" SCNu64, &found) == 1)
            number = found;
    fclose(file);
    return number;
}

static uint64_t cgroup_number(const char *cgroup, const char *name, const char *key,
                              uint64_t missing)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", cgroup, name);
    return number_in(path, key, missing);
}

/* What is left of one cgroup's limit ("max", which is no number, is none); its page cache can be
 * dropped. */
static uint64_t left_in_cgroup(const char *cgroup)
{
    uint64_t limit = cgroup_number(cgroup, "memory.max", "", UINT64_MAX);
    if (limit == UINT64_MAX)
        return UINT64_MAX;
    uint64_t used = cgroup_number(cgroup, "memory.current", "", 0);
    uint64_t cache = cgroup_number(cgroup, "memory.stat", "active_file ", 0) +
                     cgroup_number(cgroup, "memory.stat", "inactive_file ", 0);
    used -= cache < used ? cache : used;
    return used < limit ? limit - used : 0;
}

/* Of this process's cgroup (v2) and all around it. */
static uint64_t left_in_cgroups(void)
{
    char line[PATH_BYTES], *cgroup = NULL;
    uint64_t least = UINT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !cgroup && fgets(line, sizeof line, file))
        if (strncmp(line, "0::/", 4) == 0)
            cgroup = line + 3;
    if (file)
        fclose(file);
    if (!cgroup)
        return UINT64_MAX;
    cgroup[strcspn(cgroup, "\n")] = '\0';
    for (char *end = cgroup + strlen(cgroup); end; end = strrchr(cgroup, '/')) {
        *end = '\0';
        uint64_t left = left_in_cgroup(cgroup);
        least = left < least ? left : least;
    }
    return least;
}

size_t host_memory_available(void)
{
    uint64_t kibibytes = number_in("/proc/meminfo", "MemAvailable:", UINT64_MAX / 1024);
    uint64_t cgroups = left_in_cgroups(), machine = kibibytes * 1024;
    uint64_t least = cgroups < machine ? cgroups : machine;
    return least >= UINT64_MAX / 1024 * 1024 ? SIZE_MAX : (size_t)least;
}
