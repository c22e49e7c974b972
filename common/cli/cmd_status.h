/* `baton status`: the router's view of its workers, as a table. */
#ifndef BATON_CLI_CMD_STATUS_H
#define BATON_CLI_CMD_STATUS_H

int cmd_status(int argc, char **argv);

#endif
