/* Standard output of a command, whose reader must learn when a part of it is missing. One
 * thread. */
#ifndef BATON_BASE_STANDARD_OUTPUT_H
#define BATON_BASE_STANDARD_OUTPUT_H

#include "common/base/status.h"

/* Takes the place of a standard stream that was closed by who started us with one that fails, so
 * that no file or socket that is opened later gets its number, and what is printed. First of all in
 * main. */
void standard_output_open(void);
/* Writes out what was printed so far. STATUS_IO: some of it, now or earlier, was not to be
 * written. */
enum status standard_output_flush(struct error *err) WARN_UNUSED;

#endif
