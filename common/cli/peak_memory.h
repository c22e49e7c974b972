/* The most memory that this process has had at a time: of its own, and of files that it maps and
 * has read. */
#ifndef BATON_CLI_PEAK_MEMORY_H
#define BATON_CLI_PEAK_MEMORY_H

#include <stdint.h>

/* From now on; where the kernel doesn't let it begin anew, from the start. */
void peak_memory_begin(void);
uint64_t peak_memory_bytes(void); /* 0: not known here */

#endif
