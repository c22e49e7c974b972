/* The `baton` program: one table of commands. Each command is `int cmd_NAME(int argc, char **argv)`
 * in cmd_NAME.c, declared in its own header; argv[0] is the command's word. It returns the exit
 * code: 0 done, 1 failed (one sentence on stderr), 2 used wrongly. */
#ifndef BATON_CLI_CLI_H
#define BATON_CLI_CLI_H

int cli_main(int argc, char **argv);

#endif
