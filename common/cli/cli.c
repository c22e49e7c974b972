#include "common/cli/cli.h"

#include "common/base/standard_output.h"
#include "common/cli/cmd_bench_engine.h"
#include "common/cli/cmd_bench_prefix_cache.h"
#include "common/cli/cmd_bench_schedule.h"
#include "common/cli/cmd_bench_transfer.h"
#include "common/cli/cmd_chat.h"
#include "common/cli/cmd_chat_template.h"
#include "common/cli/cmd_generate.h"
#include "common/cli/cmd_key.h"
#include "common/cli/cmd_perplexity.h"
#include "common/cli/cmd_quantize.h"
#include "common/cli/cmd_status.h"
#include "common/cli/cmd_tokenize.h"
#include "common/cli/cmd_top.h"
#include "common/cli/cmd_trace.h"
#include "common/cli/cmd_up.h"

#include <stdio.h>
#include <string.h>

struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
};

static int cmd_bench(int argc, char **argv);
static int cmd_key(int argc, char **argv);

static const struct command commands[] = {
    {"up", "start a cluster on this machine, and stop it with Ctrl-C", cmd_up},
    {"generate", "ask the cluster for text", cmd_generate},
    {"chat", "talk with the cluster's model", cmd_chat},
    {"status", "show the cluster's workers", cmd_status},
    {"top", "watch workers, queues, tokens a second, TTFT and TPOT", cmd_top},
    {"trace", "show where one request spent its time", cmd_trace},
    {"tokenize", "text to token ids", cmd_tokenize},
    {"detokenize", "token ids to text", cmd_detokenize},
    {"chat-template", "the prompt that a chat request becomes", cmd_chat_template},
    {"quantize", "a model folder with int8 or int4 weights", cmd_quantize},
    {"perplexity", "how well a model foretells a text", cmd_perplexity},
    {"key", "make API keys", cmd_key},
    {"bench", "measure this machine", cmd_bench},
};
static const struct command key_commands[] = {
    {"new", "a key for a client, and the line for the router's file of keys", cmd_key_new},
};
static const struct command bench_commands[] = {
    {"engine", "prefill and decode of a model, without a server", cmd_bench_engine},
    {"prefix-cache", "what the prefix cache would hit of traces of prompts",
     cmd_bench_prefix_cache},
    {"schedule", "what planning a step costs", cmd_bench_schedule},
    {"transfer", "KV moved between two processes", cmd_bench_transfer},
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static void print_commands(FILE *stream, const char *program, const struct command *table,
                           size_t count)
{
    fprintf(stream, "Usage: %s COMMAND [...]\n\n", program);
    for (size_t i = 0; i < count; i++)
        fprintf(stream, "  %-14s %s\n", table[i].name, table[i].summary);
    fprintf(stream, "\n%s COMMAND --help tells more.\n", program);
}

/* As other servers call it; "": none. */
static const char *meant(const char *word)
{
    static const char *const others[][2] = {{"complete", "generate"}, {"launch", "up"},
                                            {"ps", "status"},         {"run", "chat"},
                                            {"serve", "up"},          {"start", "up"}};
    for (size_t i = 0; i < COUNT(others); i++)
        if (!strcmp(word, others[i][0]))
            return others[i][1];
    return "";
}

static int run_command(const char *program, const struct command *table, size_t count, int argc,
                       char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < count; i++)
        if (!strcmp(word, table[i].name))
            return table[i].run(argc - 1, argv + 1);
    if (!strcmp(word, "help") && argc > 2) {
        char *asked[] = {argv[0], argv[2], "--help", NULL};
        return run_command(program, table, count, 3, asked);
    }
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help")) {
        print_commands(stdout, program, table, count);
        return 0;
    }
    if (!strcmp(word, "--version")) {
        printf("%s %s\n", program, BATON_VERSION);
        return 0;
    }
    const char *other = table == commands ? meant(word) : "";
    if (*word)
        fprintf(stderr, "%s: unknown command '%s'%s%s%s\n", program, word,
                *other ? ", did you mean " : "", other, *other ? "?" : "");
    print_commands(stderr, program, table, count);
    return 2;
}

static int cmd_key(int argc, char **argv)
{
    return run_command("baton key", key_commands, COUNT(key_commands), argc, argv);
}

static int cmd_bench(int argc, char **argv)
{
    return run_command("baton bench", bench_commands, COUNT(bench_commands), argc, argv);
}

int cli_main(int argc, char **argv)
{
    struct error err;
    standard_output_open();
    int code = run_command("baton", commands, COUNT(commands), argc, argv);
    if (standard_output_flush(&err) == STATUS_OK || code != 0) /* else it has said why already */
        return code;
    fprintf(stderr, "baton: %s\n", err.text);
    return 1;
}
