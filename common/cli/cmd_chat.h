/* `baton chat`: a conversation in the terminal. */
#ifndef BATON_CLI_CMD_CHAT_H
#define BATON_CLI_CMD_CHAT_H

int cmd_chat(int argc, char **argv);

#endif
