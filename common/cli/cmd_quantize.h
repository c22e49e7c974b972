/* `baton quantize`: a model folder of floats becomes one of int8 or int4 weights. */
#ifndef BATON_CLI_CMD_QUANTIZE_H
#define BATON_CLI_CMD_QUANTIZE_H

int cmd_quantize(int argc, char **argv);

#endif
