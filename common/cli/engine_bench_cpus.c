#include "common/cli/engine_bench_cpus.h"

#include "common/base/str.h"

#include <sched.h>
#include <stdio.h>

/* "0-3,8" */
static void add_cpus(struct str *out, const cpu_set_t *set)
{
    for (int first = 0; first < CPU_SETSIZE; first++) {
        int last = first;
        if (!CPU_ISSET(first, set))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        str_addf(out, last > first ? "%s%d-%d" : "%s%d", out->length ? "," : "", first, last);
        first = last;
    }
}

enum status engine_bench_check_cpus(const char *given, uint32_t threads, uint32_t first_cpu,
                                    struct error *err)
{
    cpu_set_t allowed;
    uint32_t cpu = first_cpu, end = first_cpu + threads;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return STATUS_OK;
    while (cpu < end && CPU_ISSET(cpu, &allowed))
        cpu++;
    if (cpu == end)
        return STATUS_OK;
    struct str cpus;
    str_init(&cpus, 256);
    add_cpus(&cpus, &allowed);
    enum status status = error_set(
        err, STATUS_INVALID,
        "--threads %s from --first-cpu %u need CPU %u, but this process may run on %s alone: fewer "
        "threads, another --first-cpu, or --no-pin",
        given, first_cpu, cpu, cpus.data);
    str_deinit(&cpus);
    return status;
}

void engine_bench_warn_of_threads(const char *program, uint32_t threads)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    uint32_t count = (uint32_t)CPU_COUNT(&allowed);
    if (threads > count)
        fprintf(stderr,
                "%s: %u threads, but this process may run on %u CPU%s: they take turns, and what "
                "they can do at best is told as if each had a CPU\n",
                program, threads, count, count == 1 ? "" : "s");
}
