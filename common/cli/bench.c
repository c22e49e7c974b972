#include "common/cli/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* --- facts --- */

/* Returns the value of a line "key   : value", without its end. NULL: the line has another key. */
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
    while (fgets(line, sizeof line, cpuinfo) &&
           *line != '\n') /* an empty line ends the first CPU */
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

/* Reads it from /sys: glibc's sysconf is wrong by a factor of ten on some AMD CPUs. */
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

void peak_memory_begin(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file)
        return;
    (void)fputs("5", file); /* VmHWM becomes VmRSS */
    fclose(file);
}

uint64_t peak_memory_bytes(void)
{
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (!file)
        return 0;
    while (!kib && fgets(line, sizeof line, file))
        (void)sscanf(line, "VmHWM: %" SCNu64, &kib);
    fclose(file);
    return kib << 10;
}

/* --- figures --- */

/* The handler's temporary file, one at a time. `is_ours` is set after its name, and cleared before
 * the file gets its final name. */
static atomic_bool is_ours;
static char begun[WHOLE_FILE_PATH_BYTES];

/* Removes the temporary file, and ends the program at once as without a handler: a step may take
 * minutes. Runs on any thread. */
static void take_away(int number)
{
    if (atomic_load(&is_ours))
        unlink(begun);
    raise(number); /* ends the program, since SA_RESETHAND has reset the handler */
}

static enum status begin(struct figures_file *file, struct error *err)
{
    enum status status = whole_file_begin(&file->whole, file->target, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "cannot open %s", file->whole.temporary);
    str_copy(begun, sizeof begun, file->whole.temporary);
    atomic_store(&is_ours, true);
    return STATUS_OK;
}

enum status figures_file_open(struct figures_file *file, const char *path, struct error *err)
{
    static const int stops[] = {SIGINT, SIGTERM, SIGQUIT, SIGPIPE};
    struct stat found;
    *file = (struct figures_file){.path = path, .whole = {.fd = -1}};
    if (!strcmp(path, "-")) {
        file->stream = stdout;
    } else if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) {
        file->stream = fopen(path, "we");
        if (!file->stream)
            return error_set(err, STATUS_IO, "cannot open %s: %s", path, strerror(errno));
    } else if (*path) {
        if (!realpath(path, file->target))
            snprintf(file->target, sizeof file->target, "%s", path);
        file->is_file = true;
        /* A signal that doesn't end the program stays so: an ignored one (behind a shell's &), and
         * SIGHUP, for which UCX has a handler before main. */
        struct sigaction action = {.sa_handler = take_away, .sa_flags = (int)SA_RESETHAND}, before;
        sigfillset(&action.sa_mask);
        for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
            if (sigaction(stops[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
                sigaction(stops[i], &action, NULL);
        TRY(begin(file, err));
    }
    return STATUS_OK;
}

enum status figures_file_put_so_far(struct figures_file *file, const struct str *text,
                                    struct error *err)
{
    if (!file->is_file)
        return STATUS_OK;
    TRY(figures_file_put(file, text, err));
    return begin(file, err); /* its place can't be lost meanwhile */
}

enum status figures_file_put(struct figures_file *file, const struct str *text, struct error *err)
{
    if (file->is_file) {
        enum status status = whole_file_put(&file->whole, text->data, text->length, 0, err);
        if (status == STATUS_OK) {
            atomic_store(&is_ours, false);
            status = whole_file_end(&file->whole, err);
        }
        return status == STATUS_OK ? status
                                   : error_prefix(err, status, "cannot write %s", file->path);
    }
    if (!file->stream)
        return STATUS_OK;
    bool written = fwrite(text->data, 1, text->length, file->stream) == text->length;
    if (fflush(file->stream) != 0 || !written)
        return error_set(err, STATUS_IO, "cannot write %s: %s", file->path, strerror(errno));
    return STATUS_OK;
}

void figures_file_close(struct figures_file *file)
{
    atomic_store(&is_ours, false);
    whole_file_drop(&file->whole);
    if (file->stream && file->stream != stdout)
        fclose(file->stream);
}
