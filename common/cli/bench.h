/* Parts that the benchmarks share: medians, facts about the CPU and memory, and the place of the
 * figures. */
#ifndef BATON_CLI_BENCH_H
#define BATON_CLI_BENCH_H

#include "common/base/str.h"
#include "common/engine/model/whole_file.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A measurement was disturbed if its threads had a CPU for less than this share of the time. */
#define BENCH_QUIET     0.96
#define BENCH_DISTURBED "other programs ran, or threads were more than CPUs"

/* Sorts the values, ascending, and returns the middle one; of an even count, the mean of the two in
 * the middle. count > 0. One disturbed round doesn't move it. */
double median(double *values, size_t count);

/* --- facts --- */

#define CPU_FACTS_NAME_BYTES 128

/* Writes the first CPU's name, as far as it fits: "AMD EPYC, family 25, model 17". "": not
 * known. */
void cpu_facts_name(char *name, size_t size);
/* Does the same from a text in the form of /proc/cpuinfo. */
void cpu_facts_read_name(FILE *cpuinfo, char *name, size_t size);
/* Returns the size of the third level of cache. 0: not known. */
uint64_t cpu_facts_cache_bytes(void);

/* Starts the measurement of the process's peak memory anew. If the kernel refuses, the peak counts
 * from the process's start. */
void peak_memory_begin(void);
/* Returns the peak of the process's memory, with files that it maps and has read. 0: not known. */
uint64_t peak_memory_bytes(void);

/* --- figures ---
 *
 * The place of a measurement's figures: a file, "-" (standard output), a pipe or a device, or ""
 * (none). It is opened before the measurement, so that an hour's work can't fail to be written. A
 * file keeps its old contents until new figures are whole. If SIGINT, SIGTERM, SIGQUIT or SIGPIPE
 * end the program, no other file is left.
 *
 * Owner: one thread, one file at a time. Failures: one sentence with the path. */
struct figures_file {
    const char *path;        /* as it was given */
    char target[PATH_MAX];   /* the file behind links */
    struct whole_file whole; /* the next contents of a file */
    bool is_file;
    FILE *stream; /* not NULL: standard output, a pipe, a device */
};

/* The caller owns `path`, which outlives the file. */
enum status figures_file_open(struct figures_file *file, const char *path,
                              struct error *err) WARN_UNUSED;
/* Puts unfinished figures into a file, any number of times. Other places wait for the whole. */
enum status figures_file_put_so_far(struct figures_file *file, const struct str *text,
                                    struct error *err) WARN_UNUSED;
/* Puts all figures, once. */
enum status figures_file_put(struct figures_file *file, const struct str *text,
                             struct error *err) WARN_UNUSED;
/* A file into which nothing was put keeps its old contents. */
void figures_file_close(struct figures_file *file);

#endif
