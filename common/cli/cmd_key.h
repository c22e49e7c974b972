/* `baton key new`: a key for a client, shown once, and the line for the router's file of keys,
 * which holds only its hash. */
#ifndef BATON_CLI_CMD_KEY_H
#define BATON_CLI_CMD_KEY_H

int cmd_key_new(int argc, char **argv);

#endif
