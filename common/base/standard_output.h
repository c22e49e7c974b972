/* Standard output of a command. Reports when a part of the output is lost. One thread. */
#ifndef BATON_BASE_STANDARD_OUTPUT_H
#define BATON_BASE_STANDARD_OUTPUT_H

#include "common/base/status.h"

/* Opens each standard stream that the parent closed, as one that fails. Otherwise a file or socket
 * that is opened later gets its number, and the text that is printed. Call first in main. */
void standard_output_open(void);
/* Flushes the output. STATUS_IO: a part of it, now or earlier, could not be written. */
enum status standard_output_flush(struct error *err) WARN_UNUSED;

#endif
