#include "common/worker/worker.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/language/model_config/model_config.h"

#include <malloc.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MODULE             "worker"
#define CHUNK_LEAST_TOKENS 128 /* with fewer rows the kernels don't reach their speed */

/* Reads the profile, takes its capacity, and saves memory. Every worker has noise of its own, the
 * same at each start. */
static enum status settle_mock(struct worker_config *config, struct error *err)
{
    if (config->engine != ENGINE_MOCK)
        return STATUS_OK;
    TRY(profile_read(config->profile, &config->mock, err));
    config->mock.noise_seed ^= hash_bytes(config->name, strlen(config->name), HASH_SEED);
    if (!config->kv_tokens_given)
        config->kv_tokens = (uint32_t)config->mock.kv_tokens;
    /* Many of them share a machine, and none is in a hurry. The lane shm takes 5 MB a process. */
    if (config->transport == KV_LANE_AUTO)
        config->transport = KV_LANE_TCP;
    (void)mallopt(M_ARENA_MAX, 1);
    return STATUS_OK;
}

static enum status open_engine(struct worker *worker, struct error *err)
{
    const struct worker_config *config = &worker->config;
    TRY(settle_mock(&worker->config, err));
    worker->block_count = config->kv_tokens / config->block_tokens;
    /* On a prefill worker all blocks are pinned for readers: no request is preempted. */
    worker->swap_blocks = worker->ops->role == ROLE_PREFILL
                              ? 0
                              : (uint32_t)(worker->block_count * config->swap_share);
    struct engine_config engine = {
        .kind = config->engine,
        .profile = config->engine == ENGINE_MOCK ? &config->mock : NULL,
        .model_dir = config->model,
        .weights = config->weights,
        .kv = config->kv,
        .weight_cache = config->weight_cache,
        .kernels = {.device = config->device,
                    .f32 = config->compute == COMPUTE_F32,
                    .isa = config->isa,
                    .threads = config->threads,
                    .cpus = config->cpu_count ? config->cpu_list : NULL,
                    .may_spin = config->spin},
        .block_tokens = config->block_tokens,
        .block_count = worker->block_count,
        .swap_blocks = worker->swap_blocks,
        .max_rows = config->max_batch_tokens,
        .max_sequences = config->max_batch_sequences,
        .context_limit = config->context,
    };
    TRY(engine_open(&engine, &worker->engine, err));
    worker->block_bytes = kv_layout_block_bytes(engine_layout(worker->engine));
    return STATUS_OK;
}

static enum status open_transport(struct worker *worker, struct error *err)
{
    struct kv_transport_config config = {
        .kind = KV_TRANSPORT_REMOTE,
        .lane = worker->config.transport,
        .pool_bytes = engine_pool_bytes(worker->engine),
        .max_reads = worker->config.max_sequences, /* one for each sink */
        .bind_interface = worker->config.interface,
        .advertise = worker->config.advertised.host,
        .max_connections = worker->config.kv_connections,
        .faults = worker->config.kv_faults,
    };
    if (worker->config.engine == ENGINE_MOCK) {
        const struct step_profile *profile = &worker->config.mock;
        double tokens = worker->config.block_tokens;
        config.pace = (struct kv_pace){.bytes_per_second = profile->link_bytes_per_second,
                                       .scale = tokens * (double)profile->kv_bytes_per_token /
                                                (double)worker->block_bytes,
                                       .latency_us = profile->link_latency_us};
    }
    TRY(kv_transport_open(&config, &worker->transport, err));
    return engine_attach_pool(worker->engine, kv_transport_pool(worker->transport), err);
}

/* Settles the prompt rows of a step. On a prefill worker more rows than keep the machine busy would
 * only make readers and the next prompts wait. So it measures the machine's arithmetic and its
 * reading speed, by a pass over the weights. */
static void settle_chunk(struct worker *worker)
{
    uint32_t *chunk = &worker->config.chunk_tokens;
    if (*chunk)
        return;
    *chunk = WORKER_CHUNK_TOKENS;
    if (worker->ops->role != ROLE_PREFILL)
        return;
    struct engine_limits limits = engine_measure_limits(worker->engine);
    uint32_t rows = cost_model_saturation_rows(engine_shape(worker->engine), limits.weight_bytes,
                                               limits.read_gbs, limits.peak_gflops);
    uint32_t block = worker->config.block_tokens; /* readers hear of whole blocks */
    if (rows && rows < CHUNK_LEAST_TOKENS)
        *chunk = block > CHUNK_LEAST_TOKENS ? block : CHUNK_LEAST_TOKENS;
    else if (rows && rows < WORKER_CHUNK_TOKENS)
        *chunk = (rows + block - 1) / block * block;
    log_info(MODULE,
             "msg=\"rows that fill a step are measured\" rows=%u read_gbs=%.1f peak_gflops=%.0f "
             "chunk_tokens=%u",
             rows, limits.read_gbs, limits.peak_gflops, *chunk);
}

/* The CPUs of this process. Computing pins this thread (kernels/cpu/pool.h), and threads that it
 * starts later inherit its CPUs. They shall have all CPUs of the process, and not share one with
 * the steps. */
struct own_cpus {
    cpu_set_t set;
    bool known;
};

static void unpin(const struct own_cpus *cpus)
{
    if (cpus->known)
        (void)sched_setaffinity(0, sizeof cpus->set, &cpus->set);
}

enum status worker_engine_open(struct worker *worker, struct error *err)
{
    struct own_cpus cpus;
    cpus.known = !sched_getaffinity(0, sizeof cpus.set, &cpus.set);
    unsigned threads = worker->config.threads, cpu_count = cpus.known ? CPU_COUNT(&cpus.set) : 0;
    if (cpu_count && threads > cpu_count) /* threads wait for each other in every operation */
        log_warn(MODULE,
                 "msg=\"more compute threads than CPUs that they may run on: that is slower than "
                 "--threads %u\" threads=%u cpus=%u",
                 cpu_count, threads, cpu_count);
    TRY(open_engine(worker, err));
    uint32_t limit = engine_context(worker->engine);
    if (worker->config.context > limit)
        log_warn(
            MODULE,
            "msg=\"--context is above the model's own limit, which holds\" context=%u limit=%u",
            worker->config.context, limit);
    unpin(&cpus);
    TRY(open_transport(worker, err));
    settle_chunk(worker);
    unpin(&cpus);
    return STATUS_OK;
}

/* Costs before the first step. A mock knows them; its blocks stand for larger ones. */
static struct cost_model first_costs(const struct worker *worker)
{
    struct cost_model cost = cost_model_estimate(engine_shape(worker->engine), worker->block_bytes,
                                                 worker->config.threads);
    const struct step_profile *profile = &worker->config.mock;
    if (worker->config.engine != ENGINE_MOCK || profile->prefill.prefill_row_us <= 0 ||
        profile->decode.decode_row_us <= 0)
        return cost;
    cost.prefill_row_us = profile->prefill.prefill_row_us;
    cost.prefill_position_us = profile->prefill.prefill_position_us;
    cost.step_us = profile->decode.step_us;
    cost.decode_row_us = profile->decode.decode_row_us;
    double swap_us = step_profile_swap_us(profile, worker->config.block_tokens);
    if (swap_us > 0)
        cost.swap_bytes_per_us = (double)worker->block_bytes / swap_us;
    return cost;
}

/* On the step thread. */
static void on_broken(void *context)
{
    eventfd_write(((struct worker *)context)->broken_fd, 1);
}

enum status worker_engine_start(struct worker *worker, struct error *err)
{
    struct constraint_host_config constraints = {.model_dir = worker->config.model,
                                                 .vocab = engine_shape(worker->engine)->vocab,
                                                 .max_bytes = worker->config.constraint_bytes,
                                                 .lazy = worker->config.engine == ENGINE_MOCK};
    constraints.end_ids = engine_end_ids(worker->engine, &constraints.end_count);
    TRY(constraint_host_create(&constraints, &worker->constraints, err));
    struct step_loop_config config = {
        .engine = worker->engine,
        .constraints = worker->constraints,
        .chunk_tokens = worker->config.chunk_tokens,
        .chunk_us = worker->config.chunk_us,
        .max_sequences = worker->config.max_sequences,
        .max_batch_sequences = worker->config.max_batch_sequences,
        .max_batch_tokens = worker->config.max_batch_tokens,
        .block_count = worker->block_count,
        .swap_blocks = worker->swap_blocks,
        .policy = worker->config.batch_policy,
        .starve_us = worker->config.starve_us,
        .overtake_us = worker->config.overtake_us,
        .grow = true,
        .prefix_cache = worker->config.prefix_cache,
        .eviction = worker->config.prefix_eviction,
        .cost = first_costs(worker),
        .cpu = worker->config.cpu_count ? worker->config.cpu_list[0] : -1,
        .sends_reports = true,
        .failed_limit = worker->config.failed_steps,
        .broken = on_broken,
        .broken_context = worker,
        .stall_us = worker->config.step_stall_us,
    };
    return step_loop_start(&config, &worker->steps, err);
}

enum status worker_engine_info(struct worker *worker, struct error *err)
{
    const struct worker_config *config = &worker->config;
    struct worker_info *info = &worker->info;
    if (*config->model_name)
        str_copy(info->model, sizeof info->model, config->model_name);
    else
        TRY(model_folder_name(config->model, info->model, sizeof info->model, err));
    str_copy(info->name, sizeof info->name, config->name);
    info->role = worker->ops->role;
    info->incarnation = rng_entropy();
    info->model_hash = engine_model_hash(worker->engine);
    info->layout_hash = kv_layout_hash(engine_layout(worker->engine));
    info->numerics_id = engine_numerics_id(worker->engine);
    str_copy(info->numerics_name, sizeof info->numerics_name, engine_numerics_name(worker->engine));
    str_copy(info->isa, sizeof info->isa, engine_isa(worker->engine));
    info->block_tokens = config->block_tokens;
    info->block_count = worker->block_count;
    info->context = engine_context(worker->engine);
    info->vocab = engine_shape(worker->engine)->vocab;
    info->config_hash = model_file_hash(config->model, "config.json");
    info->tokenizer_hash = model_file_hash(config->model, "tokenizer.json");
    info->started_ms = clock_unix_us() / 1000;
    info->process_id = (uint32_t)getpid();
    info->max_sequences = config->max_sequences;
    info->protocol_least = info->protocol_newest = config->test_protocol;
    return STATUS_OK;
}

void worker_engine_log_sizes(const struct worker *worker)
{
    log_info(
        MODULE,
        "msg=\"sizes\" kv_pool_mib=%zu kv_blocks=%u swap_blocks=%u block_tokens=%u block_kib=%zu "
        "max_sequences=%u batch_sequences=%u batch_tokens=%u chunk_tokens=%u context=%u "
        "threads=%u numerics=%s",
        engine_pool_bytes(worker->engine) >> 20, worker->block_count, worker->swap_blocks,
        worker->config.block_tokens, worker->block_bytes >> 10, worker->config.max_sequences,
        worker->config.max_batch_sequences, worker->config.max_batch_tokens,
        worker->config.chunk_tokens, worker->info.context, worker->config.threads,
        worker->info.numerics_name);
}
