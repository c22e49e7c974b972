/* `baton bench transfer`: how fast KV moves between two processes of this machine, and what it
 * costs, per lane and run size, beside plain memcpy and a raw TCP socket in the same run. */
#ifndef BATON_CLI_CMD_BENCH_TRANSFER_H
#define BATON_CLI_CMD_BENCH_TRANSFER_H

int cmd_bench_transfer(int argc, char **argv);

#endif
