#include "common/worker/worker_config.h"

#include "common/base/assert.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/engine/engine_choices.h"
#include "common/net/http/http_server.h"
#include "common/net/membership/worker_message.h"
#include "common/net/rpc/rpc.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const compute_names[] = {"fast", "f32", NULL};
static const char *const policy_names[] = {"fcfs", "srpf", "mlfq", NULL}; /* enum policy_kind */
static const char *const transport_names[] = {"auto", "shm", "tcp", "cuda", "rdma", NULL};

#define AT(field) CONFIG_AT(struct worker_config, field)

/* One for each worker, and one more while it reconnects. */
#define KV_CONNECTIONS "512"
static_assert(2 * CLUSTER_MAX_PEERS == 512, "KV_CONNECTIONS follows");

/* Settings that are checked alone are read again when all are right. */
static enum status graphs_check(const char *text, struct error *err)
{
    struct step_bucket_sizes sizes;
    return step_bucket_sizes_parse(text, &sizes, err);
}

static const struct config_setting settings[] = {
    {.name = "name",
     .type = CONFIG_STRING,
     AT(name),
     .required = true,
     .value = "NAME",
     .help = "Name of this worker, unique in the cluster, the same after a restart",
     .check = worker_name_check},
    {.name = "router",
     .type = CONFIG_STRING,
     AT(router),
     .required = true,
     .value = "HOST:PORT",
     .help = "Address of the router",
     .check = rpc_check_target},
    {.name = "model",
     .type = CONFIG_STRING,
     AT(model),
     .required = true,
     .value = "DIR",
     .help = "Folder of the model, in Hugging Face's layout"},
    {.name = "model-name",
     .type = CONFIG_STRING,
     AT(model_name),
     .default_text = "",
     .value = "NAME",
     .help = "Name that clients use; empty: the folder's name"},
    {.name = "listen",
     .type = CONFIG_STRING,
     AT(listen),
     .default_text = "127.0.0.1:0",
     .value = "HOST:PORT",
     .help = "Address of the gRPC server that the router and peers dial; port 0: any free one",
     .check = rpc_check_listen},
    {.name = "advertise",
     .type = CONFIG_STRING,
     AT(advertise),
     .default_text = "",
     .value = "HOST[:PORT]",
     .help = "HOST or HOST:PORT that the router and peers dial instead. Empty: the address of "
             "--listen, or this machine's on the way to the router where that is every "
             "interface"},
    LINK_TLS_ROWS(struct worker_config, internal_tls),
    {.name = "metrics-listen",
     .type = CONFIG_STRING,
     AT(metrics_listen),
     .default_text = "127.0.0.1:0",
     .value = "HOST:PORT",
     .help = "Address of /metrics and /healthz",
     .check = http_check_listen},
    {.name = "allowed-hosts",
     .type = CONFIG_STRING,
     AT(allowed_hosts),
     .default_text = "",
     .value = "NAME,...",
     .help = "Names by which browsers and others may call metrics-listen where it is on loopback, "
             "besides localhost and loopback addresses; *: all",
     .check = http_check_hosts},
    TLS_SETTINGS_ROWS(struct worker_config, metrics_tls, "metrics-tls",
                      "clients of /metrics and /healthz"),
    {.name = "engine",
     .type = CONFIG_ENUM,
     AT(engine),
     .default_text = "model",
     .choices = engine_kind_names,
     .help = "The model, or a mock without weights for planning and tests: its steps take the time "
             "of --profile, and its answers mean nothing"},
    {.name = "profile",
     .type = CONFIG_STRING,
     AT(profile),
     .default_text = "",
     .value = "NAME|FILE",
     .help = "Costs of the mock engine's steps, and its KV capacity and link: the name of one that "
             "is built in, or a JSON file",
     .check = profile_check},
    {.name = "compute",
     .type = CONFIG_ENUM,
     AT(compute),
     .default_text = "fast",
     .choices = compute_names,
     .help = "Arithmetic: bf16 with fp32 sums, or fp32 throughout (the reference)"},
    {.name = "weights",
     .type = CONFIG_ENUM,
     AT(weights),
     .default_text = "auto",
     .choices = weight_choice_names,
     .help = "Weights of matrices: as the model folder holds them, or quantized at load"},
    {.name = "weight-cache",
     .type = CONFIG_STRING,
     AT(weight_cache),
     .default_text = "off",
     .value = "off|beside|DIR",
     .help = "Keep weights as they are packed for this machine, beside the model or in a folder: "
             "the next start maps them"},
    {.name = "kv",
     .type = CONFIG_ENUM,
     AT(kv),
     .default_text = "auto",
     .choices = kv_choice_names,
     .help = "Keys and values: floats of the arithmetic's own type, or int8 with a scale for each "
             "token of a head"},
    {.name = "device",
     .type = CONFIG_STRING,
     AT(device),
     .default_text = "auto",
     .value = DEVICE_FORMS,
     .help = "Device that computes; auto takes the first GPU that this build can use, else the "
             "CPU, and logs why. deferred and deferred-late are checks without a GPU: the CPU "
             "behind queues, with memory that the host can't touch",
     .check = engine_check_device},
    {.name = "device-graphs",
     .type = CONFIG_STRING,
     AT(device_graphs),
     .default_text = "auto",
     .value = "auto|off|ROWS,...",
     .help = "Numbers of rows of which a GPU's steps of answers are recorded at start, as CUDA "
             "graphs, and launched whole (decode workers); a step of fewer is padded. An answer "
             "has one, and one for each draft. auto: up to max-batch-sequences answers",
     .check = graphs_check},
    {.name = "isa",
     .type = CONFIG_ENUM,
     AT(isa),
     .default_text = "auto",
     .choices = isa_names,
     .help = "Instruction set of the fast path; auto takes the best that the CPU reports, the "
             "others insist"},
    {.name = "threads",
     .type = CONFIG_U64,
     AT(threads),
     .default_text = "1",
     .min = "1",
     .max = "256",
     .help = "Compute threads"},
    {.name = "cpus",
     .type = CONFIG_STRING,
     AT(cpus),
     .default_text = "",
     .value = "N,N,...",
     .help = "Cores to pin the compute threads to (0,1,...); empty: not pinned"},
    {.name = "spin",
     .type = CONFIG_BOOL,
     AT(spin),
     .default_text = "true",
     .help = "Idle compute threads spin between the operations of a step, where each can have a "
             "core of its own. No: on a machine that others use too"},
    {.name = "chunk-tokens",
     .type = CONFIG_U64,
     AT(chunk_tokens),
     .default_text = "0",
     .min = "0",
     .max = "65536",
     .unit = "tokens",
     .help = "Prompt rows of one step at most. 0: 512, and on a prefill worker no more than this "
             "machine needs to be busy, as measured at start; on a GPU as many as it needs, from "
             "512 to 2048"},
    {.name = "chunk-time",
     .type = CONFIG_DURATION,
     AT(chunk_us),
     .default_text = "200ms",
     .min = "0",
     .max = "10m",
     .help = "How long prompt rows may hold up the answers of a step, as far as 16 rows take no "
             "longer. 0: as long as chunk-tokens takes"},
    {.name = "prompts-first",
     .type = CONFIG_BOOL,
     AT(prompts_first),
     .default_text = "false",
     .help = "Answers wait while a prompt has rows left, as in engines without chunked prefill. "
             "With chunk-tokens as large as the longest prompt, prompts are whole steps. For "
             "comparisons: it holds answers up"},
    {.name = "max-sequences",
     .type = CONFIG_U64,
     AT(max_sequences),
     .default_text = "64",
     .min = "1",
     .max = "1024",
     .help = "Requests held at the same time, in any state"},
    {.name = "max-batch-sequences",
     .type = CONFIG_U64,
     AT(max_batch_sequences),
     .default_text = "0",
     .min = "0",
     .max = "1024",
     .help = "Requests that one step computes at most; 0: max-sequences"},
    {.name = "max-batch-tokens",
     .type = CONFIG_U64,
     AT(max_batch_tokens),
     .default_text = "0",
     .min = "0",
     .max = "65536",
     .unit = "rows",
     .help = "Rows of one step at most, one for each answer first, then prompts; 0: "
             "max-batch-sequences + chunk-tokens"},
    {.name = "draft-tokens",
     .type = CONFIG_U64,
     AT(draft_tokens),
     .default_text = "0",
     .min = "0",
     .max = "16",
     .unit = "tokens",
     .help = "Tokens that a step of an answer may draw beside its next one, where the text so far "
             "says how it may go on (prompt lookup). Answers stay the same; 0: none"},
    {.name = "batch-policy",
     .type = CONFIG_ENUM,
     AT(batch_policy),
     .default_text = "fcfs",
     .choices = policy_names,
     .help = "Order in which requests get rows and blocks: first come first served, shortest "
             "remaining prefill, "
             "or queues by what a request has used (skip-join MLFQ)"},
    {.name = "starve-limit",
     .type = CONFIG_DURATION,
     AT(starve_us),
     .default_text = "1s",
     .min = "0",
     .max = "10m",
     .help = "A request that waits so long for rows goes before all that the policy prefers"},
    {.name = "overtake-limit",
     .type = CONFIG_DURATION,
     AT(overtake_us),
     .default_text = "1s",
     .min = "0",
     .max = "10m",
     .help =
         "How long a request that waits for KV blocks may be overtaken by requests that fit. 0: "
         "by none of them, but srpf and mlfq still order the waiting ones, for starve-limit at "
         "most"},
    {.name = "prefix-cache",
     .type = CONFIG_BOOL,
     AT(prefix_cache),
     .default_text = "true",
     .help = "Keep the KV blocks of prompts and answers while there is room, for prompts that "
             "begin alike"},
    {.name = "prefix-eviction",
     .type = CONFIG_ENUM,
     AT(prefix_eviction),
     .default_text = "lcbfu",
     .choices = eviction_policies,
     .help = "Which kept blocks are given up first: those asked for seldom and cheap to compute, "
             "or those not asked for longest"},
    {.name = "device-memory-share",
     .type = CONFIG_DOUBLE,
     AT(device_memory_share),
     .default_text = "0",
     .min = "0",
     .max = "1",
     .help = "The most of the device's whole memory that this worker takes, so that workers can "
             "share a device: one that needs more doesn't start. 0: all that is available"},
    {.name = "swap-share",
     .type = CONFIG_DOUBLE,
     AT(swap_share),
     .default_text = "0.25",
     .min = "0",
     .max = "16",
     .help = "Host memory for KV blocks of preempted requests, as a share of the KV pool. 0: "
             "none, and what they had is computed again"},
    {.name = "constraint-memory",
     .type = CONFIG_BYTES,
     AT(constraint_bytes),
     .default_text = "256MiB",
     .min = "1MiB",
     .max = "64GiB",
     .help = "Memory for compiled schemas, expressions and choices, and the sets of tokens worked "
             "out for them. Running requests hold theirs; others are kept while there is room"},
    {.name = "block-tokens",
     .type = CONFIG_U64,
     AT(block_tokens),
     .default_text = "32",
     .min = "8",
     .max = "256",
     .unit = "tokens",
     .help = "Tokens of a KV block, a power of two; equal on all workers"},
    {.name = "kv-tokens",
     .type = CONFIG_U64,
     AT(kv_tokens),
     .default_text = "32768",
     .min = "256",
     .max = "1073741824",
     .unit = "tokens",
     .help = "Size of the KV pool; with --engine mock and not given: the profile's"},
    {.name = "context",
     .type = CONFIG_U64,
     AT(context),
     .default_text = "0",
     .min = "0",
     .max = "16777216",
     .unit = "tokens",
     .help = "Prompt and answer at most; 0: the model's own limit"},
    {.name = "transport",
     .type = CONFIG_ENUM,
     AT(transport),
     .default_text = "auto",
     .choices = transport_names,
     .help = "Lane of the KV bytes; a lane asked for by name is not replaced by another. rdma was "
             "never run"},
    {.name = "interface",
     .type = CONFIG_STRING,
     AT(interface),
     .default_text = "lo",
     .value = "DEVICE[:PORT]",
     .help =
         "Place where the KV lane listens: a network device or a numeric address, with :PORT for a "
         "fixed port",
     .check = kv_transport_check_interface},
    {.name = "kv-socket",
     .type = CONFIG_STRING,
     AT(kv_socket),
     .default_text = "",
     .value = "PATH",
     .help = "Unix socket at which readers of this machine get a GPU's KV pool (lane cuda), one of "
             "its own for each worker: on a volume that containers share. Empty: a name of no file",
     .check = kv_transport_check_socket},
    {.name = "mixed-numerics",
     .type = CONFIG_BOOL,
     AT(mixed_numerics),
     .default_text = "false",
     .help = "Let workers of different numerics hand KV over to each other, such as GPUs to CPUs. "
             "Answers then depend on which worker computed what; on the router and all workers"},
    {.name = "kv-connections",
     .type = CONFIG_U64,
     AT(kv_connections),
     .default_text = KV_CONNECTIONS,
     .min = "1",
     .max = "65536",
     .help = "Connections of the KV lane at most: one for each decode worker, and strangers"},
    {.name = "kv-faults",
     .type = CONFIG_STRING,
     AT(kv_faults),
     .default_text = "",
     .help = "For tests: faults injected into reads of KV bytes by a seed (seed=7,drop=0.01,"
             "delay=0.1:20ms,duplicate=...,corrupt=...,reorder=...,lost=...); empty: none",
     .check = kv_transport_check_faults},
    {.name = "lease",
     .type = CONFIG_DURATION,
     AT(lease_us),
     .default_text = "10s",
     .min = "1s",
     .max = "10m",
     .help =
         "How long a prefill worker keeps blocks that no reader asks for, once they are computed"},
    {.name = "heartbeat",
     .type = CONFIG_DURATION,
     AT(heartbeat_us),
     .default_text = "1s",
     .min = "50ms",
     .max = "1m",
     .help = "How often a decode worker extends its leases"},
    {.name = "read-timeout",
     .type = CONFIG_DURATION,
     AT(read_timeout_us),
     .default_text = "5s",
     .min = "50ms",
     .max = "10m",
     .help = "Deadline of one read of KV bytes; then the link is closed by force"},
    {.name = "peer-timeout",
     .type = CONFIG_DURATION,
     AT(peer_timeout_us),
     .default_text = "1s",
     .min = "50ms",
     .max = "10m",
     .help = "How long a decode worker tries to reach a prefill worker again before its handoffs "
             "are lost"},
    {.name = "hello-timeout",
     .type = CONFIG_DURATION,
     AT(hello_timeout_us),
     .default_text = "5s",
     .min = "50ms",
     .max = "10m",
     .help = "How soon a router, or a decode worker, that opened a stream must say hello on it"},
    {.name = "drain-timeout",
     .type = CONFIG_DURATION,
     AT(drain_timeout_us),
     .default_text = "30s",
     .min = "0",
     .max = "1h",
     .help = "How long SIGTERM waits for requests to end"},
    {.name = "failed-steps",
     .type = CONFIG_U64,
     AT(failed_steps),
     .default_text = "5",
     .min = "0",
     .max = "1000000",
     .help = "The worker exits after so many steps in a row that its engine could not compute, so "
             "that it is started again; 0: it goes on"},
    {.name = "step-stall",
     .type = CONFIG_DURATION,
     AT(step_stall_us),
     .default_text = "30s",
     .min = "0",
     .max = "1h",
     .help = "How long a step may take until /healthz answers 503: it hangs; 0: any time"},
    {.name = "test-protocol-version",
     .type = CONFIG_U64,
     AT(test_protocol),
     .default_text = "0",
     .min = "0",
     .max = "1000000",
     .help = "For tests: the only version of the protocol between Baton's processes that this "
             "worker speaks; 0: all that it knows"},
    {.name = "ready-fd",
     .type = CONFIG_U64,
     AT(ready_fd),
     .default_text = "0",
     .min = "0",
     .max = "65535",
     .help = "Inherited file descriptor that gets one JSON line when the worker is ready; 0: none"},
    {.name = "log-level",
     .type = CONFIG_STRING,
     AT(log_level),
     .default_text = "info",
     .value = "debug|info|warn|error",
     .help = "Least level that is logged"},
};

const struct config_setting *worker_config_row(const char *name)
{
    size_t i = 0, count = sizeof settings / sizeof *settings;
    while (i < count && strcmp(settings[i].name, name))
        i++;
    ASSERT(i < count);
    return &settings[i];
}

/* Replaces each 0 by the value that follows from other settings. The engine is opened for the
 * sums. */
static enum status settle_batches(struct worker_config *config, struct error *err)
{
    if (!config->max_batch_sequences || config->max_batch_sequences > config->max_sequences)
        config->max_batch_sequences = config->max_sequences;
    uint32_t chunk = config->chunk_tokens ? config->chunk_tokens : WORKER_CHUNK_TOKENS;
    config->batch_tokens_given = config->max_batch_tokens != 0;
    if (!config->max_batch_tokens)
        config->max_batch_tokens = config->max_batch_sequences + chunk;
    if (config->max_batch_tokens > config->max_batch_sequences)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "--max-batch-tokens is %u, and a step of %u answers (--max-batch-sequences) "
                     "would leave no row for prompts: more rows, or fewer answers",
                     config->max_batch_tokens, config->max_batch_sequences);
}

/* Checks that a mock has a profile, and nothing else has one. */
static enum status check_mock(const struct worker_config *config, struct error *err)
{
    if (config->engine == ENGINE_MOCK && !*config->profile)
        return error_set(err, STATUS_INVALID,
                         "--engine mock needs --profile NAME|FILE: with instant no step takes "
                         "time, and --profile '?' lists the others");
    if (config->engine != ENGINE_MOCK && *config->profile)
        return error_set(err, STATUS_INVALID, "--profile %.80s is for --engine mock alone",
                         config->profile);
    return STATUS_OK;
}

/* Parses `cpus` into cpu_list. */
static enum status settle_cpus(struct worker_config *config, struct error *err)
{
    char copy[sizeof config->cpus];
    memcpy(copy, config->cpus, sizeof copy);
    char *save = NULL;
    for (char *one = strtok_r(copy, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
        uint64_t cpu;
        if (config->cpu_count == WORKER_MAX_CPUS || !str_to_u64(one, 0, 4095, &cpu))
            return error_set(err, STATUS_INVALID, "--cpus: '%s' is not a core's number", one);
        config->cpu_list[config->cpu_count++] = (int)cpu;
    }
    if (config->cpu_count && config->cpu_count < config->threads)
        return error_set(err, STATUS_INVALID, "--cpus names %u cores for %u --threads",
                         config->cpu_count, config->threads);
    return STATUS_OK;
}

/* Checks settings that involve more than one number, or a list. */
static void check(const void *settings_given, struct str *mistakes)
{
    struct worker_config tried = *(const struct worker_config *)settings_given, *config = &tried;
    struct error err;
    if (config->block_tokens & (config->block_tokens - 1))
        config_mistake(mistakes,
                       error_set(&err, STATUS_INVALID,
                                 "--block-tokens must be a power of two, got %u",
                                 config->block_tokens),
                       &err);
    bool f32 = config->compute == COMPUTE_F32;
    config_mistake(mistakes, check_mock(config, &err), &err);
    config_mistake(mistakes, engine_check_weights(f32, config->weights, MODEL_FLOAT, &err), &err);
    config_mistake(mistakes, engine_check_kv(f32, config->kv, &err), &err);
    config_mistake(mistakes, kernels_check_isa(f32, config->isa, &err), &err);
    config_mistake(mistakes, settle_batches(config, &err), &err);
    config_mistake(mistakes, link_tls_check(&config->internal_tls, &err), &err);
    config_mistake(mistakes, tls_settings_check(&config->metrics_tls, "metrics-tls", &err), &err);
    if (*config->kv_faults && !failpoint_allowed())
        config_mistake(mistakes,
                       error_set(&err, STATUS_INVALID,
                                 "--kv-faults is given, but this is a release build: set "
                                 "BATON_FAILPOINTS_ALLOW=1 to mean it"),
                       &err);
    if (config->test_protocol && !failpoint_allowed())
        config_mistake(mistakes,
                       error_set(&err, STATUS_INVALID,
                                 "--test-protocol-version is given, but this is a release build: "
                                 "set BATON_FAILPOINTS_ALLOW=1 to mean it"),
                       &err);
    struct advertise advertise;
    if (*config->advertise)
        config_mistake(mistakes, advertise_parse(config->advertise, &advertise, &err), &err);
    enum log_level level;
    if (!log_level_parse(config->log_level, &level))
        config_mistake(mistakes,
                       error_set(&err, STATUS_INVALID,
                                 "--log-level must be debug, info, warn or error, got '%s'",
                                 config->log_level),
                       &err);
    config_mistake(mistakes, settle_cpus(config, &err), &err);
}

void worker_config_load(enum worker_role role, int argc, char **argv, struct worker_config *config)
{
    bool prefill = role == ROLE_PREFILL;
    struct config_setting own[sizeof settings / sizeof *settings];
    memcpy(own, settings, sizeof settings);
    /* Settings of the other role are hidden, but taken, so that one file or environment does for
     * all workers. */
    static const char *const of_decode[] = {"heartbeat",  "read-timeout", "peer-timeout",
                                            "swap-share", "chunk-time",   "prompts-first"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (size_t j = 0; prefill && j < sizeof of_decode / sizeof *of_decode; j++)
            own[i].hidden |= !strcmp(own[i].name, of_decode[j]);
    struct config_program program = {
        .name = prefill ? "baton-prefill" : "baton-decode",
        .summary = prefill ? "Reads prompts and hands their KV cache to decode workers."
                           : "Pulls KV caches from prefill workers and writes the answers.",
        .settings = own,
        .setting_count = sizeof own / sizeof *own,
        .check = check,
    };
    struct config_result result;
    *config = (struct worker_config){0};
    config_load_or_exit(&program, argc, argv, config, &result);
    struct error err;
    bool settles = settle_batches(config, &err) == STATUS_OK &&
                   settle_cpus(config, &err) == STATUS_OK &&
                   device_parse(*config->device ? config->device : "auto", &config->device_kind,
                                &config->device_ordinal, &err) == STATUS_OK &&
                   step_bucket_sizes_parse(*config->device_graphs ? config->device_graphs : "auto",
                                           &config->recorded, &err) == STATUS_OK;
    ASSERT(settles); /* it was checked */
    config->kv_tokens_given = config_given(&program, &result, "kv-tokens");
    enum log_level level;
    if (log_level_parse(config->log_level, &level))
        log_init(config->name, level);
    config_log(&program, config, &result);
}
