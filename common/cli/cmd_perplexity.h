/* `baton perplexity`: how well a model foretells a text, in this process, no server. */
#ifndef BATON_CLI_CMD_PERPLEXITY_H
#define BATON_CLI_CMD_PERPLEXITY_H

int cmd_perplexity(int argc, char **argv);

#endif
