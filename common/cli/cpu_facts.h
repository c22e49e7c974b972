/* What Linux tells of the CPU, beside figures that were measured on it. */
#ifndef BATON_CLI_CPU_FACTS_H
#define BATON_CLI_CPU_FACTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CPU_FACTS_NAME_BYTES 128

/* "AMD EPYC, family 25, model 17": the first CPU's, as far as it fits. "": not known here. */
void cpu_facts_name(char *name, size_t size);
/* The same from a text in /proc/cpuinfo's form. */
void cpu_facts_read_name(FILE *cpuinfo, char *name, size_t size);
/* Of the third level of cache; 0: not known here. */
uint64_t cpu_facts_cache_bytes(void);

#endif
