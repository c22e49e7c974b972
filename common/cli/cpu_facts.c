#include "common/cli/cpu_facts.h"

#include <inttypes.h>
#include <string.h>

/* What stands behind the colon of a line "key   : value"; NULL: it is another one's. */
static char *value_of(char *line, const char *key)
{
    size_t length = strlen(key);
    if (strncmp(line, key, length))
        return NULL;
    char *value = line + length + strspn(line + length, " \t");
    if (*value != ':')
        return NULL;
    value += 1 + strspn(value + 1, " \t");
    value[strcspn(value, "\n")] = 0;
    return value;
}

void cpu_facts_read_name(FILE *cpuinfo, char *name, size_t size)
{
    static const struct {
        const char *key, *shown;
    } wanted[] = {{"model name", ""}, {"cpu family", "family "}, {"model", "model "}};
    enum { WANTED = sizeof wanted / sizeof *wanted };
    char line[256], found[WANTED][sizeof line] = {{0}};
    while (fgets(line, sizeof line, cpuinfo) && *line != '\n') /* an empty line ends the first */
        for (int i = 0; i < WANTED; i++) {
            const char *value = value_of(line, wanted[i].key);
            if (value)
                strcpy(found[i], value);
        }
    size_t length = 0;
    *name = 0;
    for (int i = 0; i < WANTED && length < size; i++)
        if (*found[i])
            length += (size_t)snprintf(name + length, size - length, "%s%s%s", length ? ", " : "",
                                       wanted[i].shown, found[i]);
}

void cpu_facts_name(char *name, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    *name = 0;
    if (!file)
        return;
    cpu_facts_read_name(file, name, size);
    fclose(file);
}

/* glibc's sysconf is off by ten on some AMD CPUs. */
uint64_t cpu_facts_cache_bytes(void)
{
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
    uint64_t kib = 0;
    if (!file)
        return 0;
    if (fscanf(file, "%8" SCNu64 "K", &kib) != 1)
        kib = 0;
    fclose(file);
    return kib << 10;
}
