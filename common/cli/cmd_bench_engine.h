/* `baton bench engine`: prefill and decode speed of the whole forward pass, in this process, no
 * server. */
#ifndef BATON_CLI_CMD_BENCH_ENGINE_H
#define BATON_CLI_CMD_BENCH_ENGINE_H

int cmd_bench_engine(int argc, char **argv);

#endif
