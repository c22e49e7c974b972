/* When figures say as much of who shares the CPUs as of what was measured. */
#ifndef BATON_CLI_BENCH_QUIET_H
#define BATON_CLI_BENCH_QUIET_H

/* Of the time that threads had a CPU: below, they were disturbed. */
#define BENCH_QUIET     0.96
#define BENCH_DISTURBED "other programs ran, or threads were more than CPUs"

#endif
