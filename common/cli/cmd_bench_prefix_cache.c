#include "common/cli/commands.h"

#include "common/base/config/config.h"
#include "common/base/json/json_quote.h"
#include "common/base/str.h"
#include "common/cli/prefix_trace.h"

#include <stdio.h>
#include <string.h>

#define MAX_CAPACITY_TOKENS (1u << 28)
#define JSON_LIMIT_BYTES    (64u << 10)

struct settings {
    struct config_list capacities;
    uint32_t block_tokens, even_tokens;
    bool json;
};

/* These are 1,000, 10,000 and 30,000 of the trace's own blocks. */
static const uint32_t default_capacities[] = {512000, 5120000, 15360000};
#define DEFAULT_CAPACITIES (sizeof default_capacities / sizeof *default_capacities)

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting table[] = {
    {"capacity", CONFIG_LIST, AT(capacities), .value = "TOKENS",
     .help = "Size of the cache, instead of 512000, 5120000 and 15360000"},
    {"block", CONFIG_U64, AT(block_tokens), "512", "1", "512", "tokens",
     .help = "Tokens per KV block; divides the trace's 512"},
    {"even-tokens", CONFIG_U64, AT(even_tokens), "26624", "0", "16777216", "tokens",
     .help = "Position at which attention costs a row as much as all the rest, 0: attention is "
             "free; of the 8B Llama 3 shape 26624, of the 1.1B one 10752, of the 70B one 52224"},
    {"json", CONFIG_BOOL, AT(json), "false", .help = "A JSON object a line instead of a table"},
};
static const struct config_program program = {
    .name = "baton bench prefix-cache",
    .summary =
        "Plays traces of prompts (Mooncake's format, JSON lines) against the workers' prefix cache "
        "and\nprints the hits of each eviction policy: the share of prompt tokens, and of "
        "the prefill's cost.",
    .usage = "TRACE...",
    .settings = table,
    .setting_count = sizeof table / sizeof *table,
    .min_positionals = 1,
    .max_positionals = CONFIG_MAX_POSITIONALS,
};

struct bench {
    const struct settings *settings;
    const char *path;
    const struct prefix_trace *trace;
    uint32_t capacities[CONFIG_MAX_LIST];
    size_t capacity_count;
};

static double hit_percent(const struct bench *bench, const struct prefix_replay_result *result)
{
    return 100.0 * (double)result->hit_tokens / (double)bench->trace->token_count;
}

static double saved_percent(const struct prefix_replay_result *result)
{
    return 100.0 * result->saved_cost / result->cost;
}

static void print_json(const struct bench *bench, const char *policy, uint32_t capacity,
                       const struct prefix_replay_result *result)
{
    struct str line;
    str_init(&line, JSON_LIMIT_BYTES);
    str_add(&line, "{\"trace\": ");
    json_quote(&line, bench->path, strlen(bench->path));
    str_addf(&line,
             ", \"policy\": \"%s\", \"capacity_tokens\": %u, \"block_tokens\": %u, "
             "\"even_tokens\": %u, \"prompts\": %u, \"prompt_tokens\": %llu, \"hit_tokens\": %llu, "
             "\"hit_percent\": %.3f, \"saved_percent\": %.3f, \"evicted_blocks\": %llu, "
             "\"too_long\": %u}\n",
             policy, capacity, bench->settings->block_tokens, bench->settings->even_tokens,
             bench->trace->prompt_count, (unsigned long long)bench->trace->token_count,
             (unsigned long long)result->hit_tokens, hit_percent(bench, result),
             saved_percent(result), (unsigned long long)result->evicted_blocks, result->too_long);
    fputs(line.data, stdout);
    str_deinit(&line);
}

static struct prefix_replay_config config_of(const struct bench *bench, uint32_t capacity,
                                             enum eviction_policy policy)
{
    return (struct prefix_replay_config){.capacity_tokens = capacity,
                                         .block_tokens = bench->settings->block_tokens,
                                         .even_tokens = bench->settings->even_tokens,
                                         .policy = policy};
}

static enum status run_unlimited(const struct bench *bench, struct error *err)
{
    struct prefix_replay_config config = config_of(bench, 0, EVICTION_LRU);
    struct prefix_replay_result result;
    TRY(prefix_replay_unlimited(bench->trace, &config, &result, err));
    if (bench->settings->json) {
        print_json(bench, "unlimited", 0, &result);
        return STATUS_OK;
    }
    printf("%s: %u prompts of %llu tokens; blocks of %u tokens\n", bench->path,
           bench->trace->prompt_count, (unsigned long long)bench->trace->token_count,
           bench->settings->block_tokens);
    printf("%16s %16s %16s\n", "", "hits, tokens", "saved, prefill");
    printf("%16s %8s %7s %8s %7s\n", "capacity, tokens", eviction_policies[EVICTION_LCBFU],
           eviction_policies[EVICTION_LRU], eviction_policies[EVICTION_LCBFU],
           eviction_policies[EVICTION_LRU]);
    printf("%16s %15.2f%% %15.2f%%\n", "unlimited", hit_percent(bench, &result),
           saved_percent(&result));
    return STATUS_OK;
}

static enum status run_capacity(const struct bench *bench, uint32_t capacity, struct error *err)
{
    struct prefix_replay_result results[EVICTION_POLICIES];
    for (int i = 0; i < EVICTION_POLICIES; i++) {
        struct prefix_replay_config config = config_of(bench, capacity, (enum eviction_policy)i);
        TRY(prefix_replay(bench->trace, &config, &results[i], err));
        if (bench->settings->json)
            print_json(bench, eviction_policies[i], capacity, &results[i]);
    }
    if (bench->settings->json)
        return STATUS_OK;
    const struct prefix_replay_result *lcbfu = &results[EVICTION_LCBFU];
    const struct prefix_replay_result *lru = &results[EVICTION_LRU];
    printf("%16u %7.2f%% %6.2f%% %7.2f%% %6.2f%%\n", capacity, hit_percent(bench, lcbfu),
           hit_percent(bench, lru), saved_percent(lcbfu), saved_percent(lru));
    if (lru->too_long)
        printf("%16s longer than that: %u prompts, which count as misses\n", "", lru->too_long);
    return STATUS_OK;
}

static enum status run_trace(struct bench *bench, struct error *err)
{
    struct prefix_trace trace;
    prefix_trace_init(&trace);
    bench->trace = &trace;
    enum status status = prefix_trace_read(&trace, bench->path, err);
    if (status == STATUS_OK)
        status = run_unlimited(bench, err);
    for (size_t i = 0; status == STATUS_OK && i < bench->capacity_count; i++)
        status = run_capacity(bench, bench->capacities[i], err);
    prefix_trace_deinit(&trace);
    return status;
}

static enum status read_capacities(struct bench *bench, struct error *err)
{
    const struct settings *settings = bench->settings;
    if (PREFIX_TRACE_BLOCK_TOKENS % settings->block_tokens)
        return error_set(err, STATUS_INVALID, "--block %u does not divide %d",
                         settings->block_tokens, PREFIX_TRACE_BLOCK_TOKENS);
    for (size_t i = 0; i < settings->capacities.count; i++) {
        uint64_t tokens;
        if (!str_to_u64(settings->capacities.items[i], settings->block_tokens, MAX_CAPACITY_TOKENS,
                        &tokens))
            return error_set(
                err, STATUS_INVALID, "--capacity %s: must be a number of tokens from %u to %u",
                settings->capacities.items[i], settings->block_tokens, MAX_CAPACITY_TOKENS);
        bench->capacities[bench->capacity_count++] = (uint32_t)tokens;
    }
    if (bench->capacity_count == 0) {
        memcpy(bench->capacities, default_capacities, sizeof default_capacities);
        bench->capacity_count = DEFAULT_CAPACITIES;
    }
    return STATUS_OK;
}

int cmd_bench_prefix_cache(int argc, char **argv)
{
    struct settings settings = {0};
    struct config_result result;
    struct error err;
    config_load_or_exit(&program, argc, argv, &settings, &result);
    struct bench bench = {.settings = &settings};
    if (read_capacities(&bench, &err) != STATUS_OK) {
        fprintf(stderr, "%s: %s\n", program.name, err.text);
        return 2;
    }
    for (size_t i = 0; i < result.positional_count; i++) {
        bench.path = result.positionals[i];
        if (run_trace(&bench, &err) != STATUS_OK) {
            fprintf(stderr, "%s: %s\n", program.name, err.text);
            return 1;
        }
    }
    return 0;
}
