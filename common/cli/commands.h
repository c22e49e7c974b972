/* The commands of the `baton` program. A command gets its own word as argv[0] and returns the exit
 * code: 0 done, 1 failed (one sentence on stderr), 2 used wrongly. */
#ifndef BATON_CLI_COMMANDS_H
#define BATON_CLI_COMMANDS_H

/* Runs the command that argv[1] names, by the table in cli.c. */
int cli_main(int argc, char **argv);

/* Starts one router and N + M workers on this machine, and stays until Ctrl-C. */
int cmd_up(int argc, char **argv);
/* Makes one request over baton.v1. The answer is streamed, or printed as one JSON object. */
int cmd_generate(int argc, char **argv);
/* Holds a conversation in the terminal. */
int cmd_chat(int argc, char **argv);
/* Prints the router's view of its workers as a table. */
int cmd_status(int argc, char **argv);
/* Shows the cluster again and again. */
int cmd_top(int argc, char **argv);
/* Shows how one request spent its time. */
int cmd_trace(int argc, char **argv);
int cmd_explain(int argc, char **argv);
/* Text to token ids and back by a tokenizer.json, without a cluster. */
int cmd_tokenize(int argc, char **argv);
int cmd_detokenize(int argc, char **argv);
/* Prints the prompt that a chat request becomes, without a cluster. */
int cmd_chat_template(int argc, char **argv);
/* Makes a model folder of int8 or int4 weights from one of floats. */
int cmd_quantize(int argc, char **argv);
/* Measures in this process how well a model predicts a text. */
int cmd_perplexity(int argc, char **argv);
/* `key new`: prints a new key once, and its line for the router's file of keys. The line holds only
 * the key's hash. */
int cmd_key_new(int argc, char **argv);

/* `bench engine`: prefill and decode speed of the whole forward pass, in this process. */
int cmd_bench_engine(int argc, char **argv);
/* `bench prefix-cache`: hit rates of the prefix cache on traces of prompts, without a model. */
int cmd_bench_prefix_cache(int argc, char **argv);
/* `bench schedule`: the cost of planning a step, without an engine or around one. */
int cmd_bench_schedule(int argc, char **argv);
/* `bench serve`: latencies, throughput and goodput of a running server under load. */
int cmd_bench_serve(int argc, char **argv);
/* `bench transfer`: speed and CPU cost of KV moved between two processes, by lane and run size,
 * beside memcpy and a raw TCP socket in the same run. */
int cmd_bench_transfer(int argc, char **argv);

#endif
