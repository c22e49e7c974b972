/* `baton chat-template`: what a chat request becomes, without a cluster. */
#ifndef BATON_CLI_CMD_CHAT_TEMPLATE_H
#define BATON_CLI_CMD_CHAT_TEMPLATE_H

int cmd_chat_template(int argc, char **argv);

#endif
