/* `baton bench schedule`: what planning a step costs, without an engine. */
#ifndef BATON_CLI_CMD_BENCH_SCHEDULE_H
#define BATON_CLI_CMD_BENCH_SCHEDULE_H

int cmd_bench_schedule(int argc, char **argv);

#endif
