#include "common/base/standard_output.h"
#include "common/cli/commands.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static void print_commands(FILE *stream, const char *program, const struct command *table,
                           size_t count)
{
    fprintf(stream, "Usage: %s COMMAND [...]\n\n", program);
    for (size_t i = 0; i < count; i++)
        fprintf(stream, "  %-14s %s\n", table[i].name, table[i].summary);
    fprintf(stream, "\n%s COMMAND --help says more.\n", program);
}

/* `others`: words of other servers' programs, each with ours behind it, and NULL; NULL: none. */
static int run_command(const char *program, const struct command *table, size_t count,
                       const char *const *others, int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < count; i++)
        if (!strcmp(word, table[i].name))
            return table[i].run(argc - 1, argv + 1);
    if (!strcmp(word, "help") && argc > 2) {
        char *asked[] = {argv[0], argv[2], "--help", NULL};
        return run_command(program, table, count, others, 3, asked);
    }
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help")) {
        print_commands(stdout, program, table, count);
        return 0;
    }
    if (!strcmp(word, "--version")) {
        printf("%s %s\n", program, BATON_VERSION);
        return 0;
    }
    while (others && *others && strcmp(word, *others))
        others += 2;
    bool known = others && *others;
    if (*word)
        fprintf(stderr, "%s: unknown command '%s'%s%s%s\n", program, word,
                known ? ", did you mean " : "", known ? others[1] : "", known ? "?" : "");
    print_commands(stderr, program, table, count);
    return 2;
}

static int cmd_key(int argc, char **argv)
{
    static const struct command table[] = {
        {"new", "a key for a client, and the line for the router's file of keys", cmd_key_new},
    };
    return run_command("baton key", table, COUNT(table), NULL, argc, argv);
}

static int cmd_bench(int argc, char **argv)
{
    static const struct command table[] = {
        {"engine", "prefill and decode of a model, without a server", cmd_bench_engine},
        {"prefix-cache", "hit rates of the prefix cache on traces of prompts",
         cmd_bench_prefix_cache},
        {"schedule", "the cost of planning a step", cmd_bench_schedule},
        {"serve", "a running server under load: latencies, throughput, goodput", cmd_bench_serve},
        {"transfer", "KV moved between two processes", cmd_bench_transfer},
    };
    return run_command("baton bench", table, COUNT(table), NULL, argc, argv);
}

int cli_main(int argc, char **argv)
{
    static const struct command table[] = {
        {"up", "start a cluster on this machine, and stop it with Ctrl-C", cmd_up},
        {"generate", "ask the cluster for text", cmd_generate},
        {"chat", "talk with the cluster's model", cmd_chat},
        {"status", "show the cluster's workers and SLO classes", cmd_status},
        {"top", "watch workers, queues, tokens a second, TTFT and TPOT", cmd_top},
        {"trace", "show where one request spent its time", cmd_trace},
        {"explain", "show why one request went to its workers, or was rejected", cmd_explain},
        {"tokenize", "text to token ids", cmd_tokenize},
        {"detokenize", "token ids to text", cmd_detokenize},
        {"chat-template", "the prompt that a chat request becomes", cmd_chat_template},
        {"quantize", "a model folder with int8 or int4 weights", cmd_quantize},
        {"perplexity", "how well a model predicts a text", cmd_perplexity},
        {"key", "make API keys", cmd_key},
        {"bench", "put load on a running server, or measure this machine", cmd_bench},
    };
    static const char *const others[] = {"complete", "generate", "launch", "up",    "ps",
                                         "status",   "run",      "chat",   "serve", "up",
                                         "start",    "up",       NULL};
    struct error err;
    standard_output_open();
    int code = run_command("baton", table, COUNT(table), others, argc, argv);
    if (standard_output_flush(&err) == STATUS_OK || code != 0) /* a failure has been reported */
        return code;
    fprintf(stderr, "baton: %s\n", err.text);
    return 1;
}
