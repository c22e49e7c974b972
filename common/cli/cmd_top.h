/* `baton top`: the cluster, again and again. */
#ifndef BATON_CLI_CMD_TOP_H
#define BATON_CLI_CMD_TOP_H

int cmd_top(int argc, char **argv);

#endif
