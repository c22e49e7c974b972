/* `baton generate`: one request over baton.v1, streamed to the terminal or told as one JSON
 * object. */
#ifndef BATON_CLI_CMD_GENERATE_H
#define BATON_CLI_CMD_GENERATE_H

int cmd_generate(int argc, char **argv);

#endif
