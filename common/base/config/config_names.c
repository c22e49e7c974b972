#include "common/base/config/config_parts.h"

#include "common/base/utf8.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define PREFIX          "BATON_"
#define MAX_NAME_BYTES  64
#define MAX_ENVIRONMENT 4096 /* variables that are checked */
#define LEAST_BEGINNING 3    /* letters that identify a name */

/* Lists the variables of all programs together, because `baton up` hands its environment to all of
 * them. tests/unit/test_settings.py compares the list with their tables. */
static const char *const known[] = {
    "BATON_ACCESS_LOG",
    "BATON_ADVERTISE",
    "BATON_ALLOWED_HOSTS",
    "BATON_API_KEYS",
    "BATON_API_KEY_FILE",
    "BATON_APPEND_RESULT",
    "BATON_BACKEND",
    "BATON_BASE_URL",
    "BATON_BATCH",
    "BATON_BATCH_POLICY",
    "BATON_BLOCK",
    "BATON_BLOCK_TOKENS",
    "BATON_BREAKER_FAILURES",
    "BATON_BURSTINESS",
    "BATON_CHOICE",
    "BATON_CHOICES",
    "BATON_CHUNK",
    "BATON_CHUNK_TIME",
    "BATON_CHUNK_TOKENS",
    "BATON_CLASSES",
    "BATON_CLIENT_BUFFER",
    "BATON_CLIENT_BUFFERS",
    "BATON_CLIENT_HANDSHAKE",
    "BATON_CLIENT_IDLE",
    "BATON_CLIENT_KEEPALIVE",
    "BATON_CLIENT_LINGER",
    "BATON_COLUMNS",
    "BATON_COMPUTE",
    "BATON_CONFIG",
    "BATON_CONSTRAINT_MEMORY",
    "BATON_CONTEXT",
    "BATON_CPUS",
    "BATON_CRC",
    "BATON_CUDA_DRIVER",
    "BATON_CUDA_EMULATED",
    "BATON_CV",
    "BATON_DATASET_NAME",
    "BATON_DATASET_PATH",
    "BATON_DEATHS",
    "BATON_DECISIONS",
    "BATON_DECISION_SAMPLE",
    "BATON_DECODE",
    "BATON_DEFAULT_DEADLINE",
    "BATON_DEPTH",
    "BATON_DEVICE",
    "BATON_DEVICE_GRAPHS",
    "BATON_DEVICE_MEMORY_SHARE",
    "BATON_DISABLE_SHUFFLE",
    "BATON_DISABLE_TQDM",
    "BATON_DRAFT_TOKENS",
    "BATON_DRAIN_TIMEOUT",
    "BATON_ECHO",
    "BATON_ENDPOINT",
    "BATON_ENGINE",
    "BATON_EVEN_TOKENS",
    "BATON_EXTRA_BODY",
    "BATON_FAILED_STEPS",
    "BATON_FAILPOINTS",
    "BATON_FAILPOINTS_ALLOW",
    "BATON_FAILPOINT_LOG",
    "BATON_FIRST_CPU",
    "BATON_FORCE_LOCAL_PREFILL",
    "BATON_FREQUENCY_PENALTY",
    "BATON_HEARTBEAT",
    "BATON_HELLO_TIMEOUT",
    "BATON_HISTORY",
    "BATON_HTTP",
    "BATON_HTTP_CORS_ORIGINS",
    "BATON_HTTP_KEEPALIVE",
    "BATON_HTTP_LISTEN",
    "BATON_HTTP_THREADS",
    "BATON_ID",
    "BATON_IGNORE_EOS",
    "BATON_INPUT_LEN",
    "BATON_INSECURE_REGISTRY",
    "BATON_INTERFACE",
    "BATON_INTERNAL_TLS",
    "BATON_INTERNAL_TLS_CA",
    "BATON_INTERNAL_TLS_CERT",
    "BATON_INTERNAL_TLS_KEY",
    "BATON_INTERNAL_TLS_NAME",
    "BATON_INTERVAL",
    "BATON_ISA",
    "BATON_JSON",
    "BATON_JSONL",
    "BATON_KV",
    "BATON_KV_CONNECTIONS",
    "BATON_KV_FAULTS",
    "BATON_KV_SOCKET",
    "BATON_KV_TOKENS",
    "BATON_LABEL",
    "BATON_LANE",
    "BATON_LAST",
    "BATON_LEASE",
    "BATON_LISTEN",
    "BATON_LIVENESS_TIMEOUT",
    "BATON_LOCAL_PREFILL_WAIT",
    "BATON_LOGITS_HASH",
    "BATON_LOGPROBS",
    "BATON_LOG_DIR",
    "BATON_LOG_LEVEL",
    "BATON_MAX_BATCH_SEQUENCES",
    "BATON_MAX_BATCH_TOKENS",
    "BATON_MAX_CONCURRENCY",
    "BATON_MAX_CONNECTIONS",
    "BATON_MAX_CONNECTIONS_PER_ADDRESS",
    "BATON_MAX_QUEUE",
    "BATON_MAX_REQUESTS",
    "BATON_MAX_REQUEST_TOKENS",
    "BATON_MAX_SEQUENCES",
    "BATON_MAX_TEXT",
    "BATON_MAX_TOKENS",
    "BATON_MAX_WORKERS",
    "BATON_MESSAGE_TIMEOUT",
    "BATON_METRICS_LISTEN",
    "BATON_METRICS_TLS_CERT",
    "BATON_METRICS_TLS_CLIENT_CA",
    "BATON_METRICS_TLS_KEY",
    "BATON_METRIC_PERCENTILES",
    "BATON_MIB",
    "BATON_MIN_P",
    "BATON_MIN_TOKENS",
    "BATON_MIXED_NUMERICS",
    "BATON_MODEL",
    "BATON_MODEL_DIR",
    "BATON_MODEL_NAME",
    "BATON_MULTI_TURN_BRANCHES",
    "BATON_MULTI_TURN_INPUT_LEN",
    "BATON_MULTI_TURN_OUTPUT_LEN",
    "BATON_MULTI_TURN_SYSTEM_LEN",
    "BATON_MULTI_TURN_THINK_TIME",
    "BATON_MULTI_TURN_TURNS",
    "BATON_NAME",
    "BATON_NUM_PROMPTS",
    "BATON_NUM_WARMUPS",
    "BATON_ONCE",
    "BATON_OTLP_ENDPOINT",
    "BATON_OTLP_TLS_CA",
    "BATON_OTLP_TLS_CERT",
    "BATON_OTLP_TLS_KEY",
    "BATON_OTLP_TLS_NAME",
    "BATON_OUT",
    "BATON_OUTPUT_LEN",
    "BATON_OVERSAMPLE",
    "BATON_OVERTAKE_LIMIT",
    "BATON_PEER_TIMEOUT",
    "BATON_PERCENTILE_METRICS",
    "BATON_PIECES",
    "BATON_PIN",
    "BATON_PLACEMENT_POLICY",
    "BATON_PLAIN",
    "BATON_POOL_PERCENT",
    "BATON_PORT",
    "BATON_PREFILL",
    "BATON_PREFIX_CACHE",
    "BATON_PREFIX_EVICTION",
    "BATON_PREFIX_INDEX_BLOCKS",
    "BATON_PREFIX_REPETITION_NUM_PREFIXES",
    "BATON_PREFIX_REPETITION_OUTPUT_LEN",
    "BATON_PREFIX_REPETITION_PREFIX_LEN",
    "BATON_PREFIX_REPETITION_SUFFIX_LEN",
    "BATON_PRESENCE_PENALTY",
    "BATON_PRIORITIES",
    "BATON_PRIORITY",
    "BATON_PROFILE",
    "BATON_PROMPTS_FIRST",
    "BATON_PROMPT_LOGPROBS",
    "BATON_PROXY_ADDRESSES",
    "BATON_RAMP_UP_END_RPS",
    "BATON_RAMP_UP_START_RPS",
    "BATON_RAMP_UP_STRATEGY",
    "BATON_RANDOM_INPUT_LEN",
    "BATON_RANDOM_OUTPUT_LEN",
    "BATON_RANDOM_PREFIX_LEN",
    "BATON_RANDOM_RANGE_RATIO",
    "BATON_RANDOM_WEIGHTS",
    "BATON_READY_CHECK_TIMEOUT_SEC",
    "BATON_READY_FD",
    "BATON_READY_FILE",
    "BATON_READ_TIMEOUT",
    "BATON_REASONING",
    "BATON_RECEIVE_MEMORY",
    "BATON_REGISTRY_LISTEN",
    "BATON_REPETITION_PENALTY",
    "BATON_REQUESTS_PER_MINUTE",
    "BATON_REQUEST_ID",
    "BATON_REQUEST_ID_PREFIX",
    "BATON_REQUEST_RATE",
    "BATON_REQUEST_TIMEOUT",
    "BATON_RESTART",
    "BATON_RESTART_WAIT",
    "BATON_RESULT_DIR",
    "BATON_RESULT_FILENAME",
    "BATON_RETRIES",
    "BATON_RETRY_BUDGET",
    "BATON_ROUNDS",
    "BATON_ROUTER",
    "BATON_RPC_THREADS",
    "BATON_RUNNING",
    "BATON_SAVE_DETAILED",
    "BATON_SAVE_RESULT",
    "BATON_SEED",
    "BATON_SELF_TIMED",
    "BATON_SERVED_MODEL_NAME",
    "BATON_SERVER",
    "BATON_SHAREGPT_OUTPUT_LEN",
    "BATON_SKIP_SPECIAL",
    "BATON_SKIP_TOKENIZER_INIT",
    "BATON_SLO_CLASS",
    "BATON_SLO_DEFAULT",
    "BATON_SPECIAL",
    "BATON_SPIN",
    "BATON_START_TIMEOUT",
    "BATON_STARVE_LIMIT",
    "BATON_STEPS",
    "BATON_STEP_STALL",
    "BATON_STEP_TIMEOUT",
    "BATON_SWAP_SHARE",
    "BATON_SYSTEM",
    "BATON_TEMPERATURE",
    "BATON_TENANT",
    "BATON_TEST_PROTOCOL_VERSION",
    "BATON_THREADS",
    "BATON_TIMED_TRACE_SEC_MULTIPLIER",
    "BATON_TIMEOUT",
    "BATON_TLS_CA",
    "BATON_TLS_CERT",
    "BATON_TLS_CLIENT_CA",
    "BATON_TLS_KEY",
    "BATON_TLS_NAME",
    "BATON_TOKENIZER",
    "BATON_TOKENS_PER_MINUTE",
    "BATON_TOKEN_TIMEOUT",
    "BATON_TOP_K",
    "BATON_TOP_P",
    "BATON_TRACE_REQUESTS",
    "BATON_TRANSPORT",
    "BATON_TYPE",
    "BATON_UNCONFIRMED_TOKENS",
    "BATON_VERBOSE",
    "BATON_WEIGHTS",
    "BATON_WEIGHT_CACHE",
    "BATON_WINDOW",
    "BATON_WORKER_KEEPALIVE",
    "BATON_WORKER_TTL",
    "BATON_WORKER_WAIT",
};
/* Variables of the build and of the tests. */
static const char *const foreign[] = {"BATON_BUILD",  "BATON_DATA", "BATON_LONG",
                                      "BATON_PYTHON", "BATON_SIM_", "BATON_TEST_"};

/* Returns the number of letters to change, insert or delete (Levenshtein). */
static size_t distance(const char *a, const char *b)
{
    size_t row[MAX_NAME_BYTES + 1], width = strlen(b);
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < width; j++) {
            size_t changed = diagonal + (a[i] != b[j]);
            size_t shorter = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = changed < shorter ? changed : shorter;
        }
    }
    return row[width];
}

/* Returns the only candidate that begins with `name`. */
static const char *completed(const char *name, const char *const *candidates, size_t count)
{
    size_t length = strlen(name), found = 0;
    const char *whole = NULL;
    for (size_t i = 0; i < count && length >= LEAST_BEGINNING; i++)
        if (!strncmp(candidates[i], name, length)) {
            whole = candidates[i];
            found++;
        }
    return found == 1 ? whole : NULL;
}

const char *config_names_nearest(const char *name, const char *const *candidates, size_t count)
{
    size_t length = strlen(name), best = length / 4 + 2;
    const char *nearest = completed(name, candidates, count);
    if (length > MAX_NAME_BYTES || nearest)
        return nearest;
    for (size_t i = 0; i < count; i++) {
        size_t far = strlen(candidates[i]) <= MAX_NAME_BYTES ? distance(name, candidates[i]) : best;
        if (far < best) {
            best = far;
            nearest = candidates[i];
        }
    }
    return nearest;
}

/* Flags of vLLM, SGLang, llama.cpp and similar servers, and their names in Baton. The first that
 * the program has counts. */
static const struct {
    const char *name, *ours[4];
} others[] = {
    {"address", {"listen", "server"}},
    {"api-key", {"api-keys", "api-key-file"}},
    {"block-size", {"block-tokens"}},
    {"chunked-prefill-size", {"chunk-tokens"}},
    {"context-length", {"context"}},
    {"ctx-size", {"context"}},
    {"dtype", {"compute"}},
    {"enable-prefix-caching", {"prefix-cache"}},
    {"gpu-memory-utilization", {"kv-tokens"}},
    {"host", {"listen", "http-listen", "server"}},
    {"http-port", {"http-listen"}},
    {"kv-cache-dtype", {"kv"}},
    {"max-model-len", {"context"}},
    {"max-new-tokens", {"max-tokens"}},
    {"max-num-batched-tokens", {"chunk-tokens"}},
    {"max-num-seqs", {"max-sequences"}},
    {"max-running-requests", {"max-sequences"}},
    {"model-path", {"model"}},
    {"n", {"choices"}},
    {"n-predict", {"max-tokens"}},
    {"quantization", {"weights"}},
    {"served-model-name", {"model-name"}},
    {"system-prompt", {"system"}},
    {"ssl-certfile", {"tls-cert"}},
    {"ssl-keyfile", {"tls-key"}},
    {"url", {"server"}},
};

static const char *candidate(const char *name, const char *const *candidates, size_t count)
{
    for (size_t i = 0; name && i < count; i++)
        if (!strcmp(candidates[i], name))
            return candidates[i];
    return NULL;
}

const char *config_names_meant(const char *name, const char *const *candidates, size_t count)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(others[i].name, name))
            continue;
        for (size_t k = 0; k < sizeof others->ours / sizeof *others->ours; k++) {
            const char *found = candidate(others[i].ours[k], candidates, count);
            if (found)
                return found;
        }
        return NULL; /* a similar spelling would mean another thing */
    }
    return config_names_nearest(name, candidates, count);
}

const char *config_names_hint(const struct config_program *program, const char *name)
{
    if (!strncmp(name, "no-", 3))
        name += 3;
    for (const struct config_hint *hint = program->hints; hint && hint->name; hint++)
        if (!strcmp(hint->name, name))
            return hint->instead;
    return NULL;
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i], name))
            return true;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (!strncmp(foreign[i], name, strlen(foreign[i])))
            return true;
    return false;
}

/* Returns whether `variable` is the name of `setting` in the environment. */
static bool is_variable_of(const char *variable, const char *setting)
{
    for (variable += strlen(PREFIX); *variable && *setting; variable++, setting++)
        if (*variable != (*setting == '-' ? '_' : toupper((unsigned char)*setting)))
            return false;
    return !*variable && !*setting;
}

const char *config_names_variable(const char *setting)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is_variable_of(known[i], setting))
            return known[i];
    return NULL;
}

/* Compares names without their common prefix. */
static const char *meant_by(const char *name)
{
    const size_t prefix = strlen(PREFIX), count = sizeof known / sizeof *known;
    const char *names[sizeof known / sizeof *known];
    for (size_t i = 0; i < count; i++)
        names[i] = known[i] + prefix;
    return config_names_nearest(name + prefix, names, count);
}

void config_names_check(const char *where, char *const *environment, struct str *warnings)
{
    for (size_t i = 0; i < MAX_ENVIRONMENT && environment[i]; i++) {
        const char *equals = strchr(environment[i], '=');
        char name[MAX_NAME_BYTES + 1];
        if (!equals || strncmp(environment[i], PREFIX, strlen(PREFIX)))
            continue;
        size_t length = (size_t)(equals - environment[i]);
        length = length < MAX_NAME_BYTES ? length : MAX_NAME_BYTES;
        memcpy(name, environment[i], length);
        name[length] = 0;
        utf8_make_printable(name);
        if (is_known(name))
            continue;
        const char *meant = meant_by(name);
        str_addf(warnings, "%s%s is not a setting of Baton%s%s%s\n", where, name,
                 meant ? ", did you mean " PREFIX : "", meant ? meant : "", meant ? "?" : "");
    }
}
