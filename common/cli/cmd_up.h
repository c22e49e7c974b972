/* `baton up`: one router and N + M workers on this machine, until Ctrl-C. */
#ifndef BATON_CLI_CMD_UP_H
#define BATON_CLI_CMD_UP_H

int cmd_up(int argc, char **argv);

#endif
