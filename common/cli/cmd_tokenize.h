/* `baton tokenize` and `baton detokenize`: text to token ids and back by a tokenizer.json, without
 * a cluster. */
#ifndef BATON_CLI_CMD_TOKENIZE_H
#define BATON_CLI_CMD_TOKENIZE_H

int cmd_tokenize(int argc, char **argv);
int cmd_detokenize(int argc, char **argv);

#endif
