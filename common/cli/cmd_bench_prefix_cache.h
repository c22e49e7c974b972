/* `baton bench prefix-cache`: hit rates of the prefix cache on traces of prompts, in this process,
 * no server and no model. */
#ifndef BATON_CLI_CMD_BENCH_PREFIX_CACHE_H
#define BATON_CLI_CMD_BENCH_PREFIX_CACHE_H

int cmd_bench_prefix_cache(int argc, char **argv);

#endif
