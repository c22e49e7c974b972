/* `baton trace`: where one request spent its time. */
#ifndef BATON_CLI_CMD_TRACE_H
#define BATON_CLI_CMD_TRACE_H

int cmd_trace(int argc, char **argv);

#endif
