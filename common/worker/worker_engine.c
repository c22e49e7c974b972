#include "common/worker/worker.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/base/u32.h"
#include "common/language/model_config/model_config.h"

#include <malloc.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MODULE             "worker"
#define CHUNK_LEAST_TOKENS 128 /* with fewer rows the kernels don't reach their speed */
#define GPU_CHUNK_UNIT     256 /* rows that a GPU's tiles divide; a whole number of blocks */

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
        .kernels = {.device = config->device_kind,
                    .ordinal = config->device_ordinal,
                    .f32 = config->compute == COMPUTE_F32,
                    .isa = config->isa,
                    .threads = config->threads,
                    .cpus = config->cpu_count ? config->cpu_list : NULL,
                    .may_spin = config->spin},
        .block_tokens = config->block_tokens,
        .block_count = worker->block_count,
        .swap_blocks = worker->swap_blocks,
        .memory_share = config->device_memory_share,
        .max_rows = config->max_batch_tokens,
        .gpu_rows = config->chunk_tokens || config->batch_tokens_given
                        ? 0
                        : config->max_batch_sequences + WORKER_GPU_CHUNK_TOKENS,
        .max_sequences = config->max_batch_sequences,
        .draft_tokens = worker->ops->role == ROLE_PREFILL ? 0 : config->draft_tokens,
        .context_limit = config->context,
        /* Prefill workers have no steps of answers. */
        .recorded = worker->ops->role == ROLE_PREFILL ? (struct step_bucket_sizes){.chosen = true}
                                                      : config->recorded,
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
        .layout = engine_layout(worker->engine),
        .max_reads = worker->config.max_sequences, /* one for each sink */
        .bind_interface = worker->config.interface,
        .advertise = worker->config.advertised.host,
        .socket = worker->config.kv_socket,
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
    if (!engine_has_device_memory(worker->engine)) {
        TRY(kv_transport_open(&config, &worker->transport, err));
        return engine_attach_pool(worker->engine, kv_transport_pool(worker->transport), err);
    }
    TRY(engine_attach_pool(worker->engine, NULL, err));
    config.copier = engine_pool_copier(worker->engine);
    return kv_transport_open(&config, &worker->transport, err);
}

/* Settles the prompt rows of a step. More rows than keep the machine busy would only make readers,
 * the next prompts and answers wait. So a prefill worker, and any on a GPU, measures the machine's
 * arithmetic and its reading speed, by a pass over the weights. A GPU needs more rows than a CPU;
 * their time beside answers is bounded by chunk_us. The engine keeps memory for the rows alone that
 * a step may have then. */
static enum status settle_chunk(struct worker *worker, struct error *err)
{
    struct worker_config *config = &worker->config;
    const bool gpu = engine_device(worker->engine) == DEVICE_CUDA;
    uint32_t most = WORKER_CHUNK_TOKENS, block = config->block_tokens, rows = 0;
    if (gpu || (!config->chunk_tokens && worker->ops->role == ROLE_PREFILL)) {
        worker->limits = engine_measure_limits(worker->engine);
        rows = cost_model_saturation_rows(engine_shape(worker->engine), worker->limits.weight_bytes,
                                          worker->limits.read_gbs, worker->limits.peak_gflops);
    }
    if (gpu && !rows) /* prompts beside answers will have few rows for long */
        log_warn(
            MODULE,
            "msg=\"the GPU could not be measured: the first steps are planned by the speed of a "
            "CPU\" read_gbs=%.1f peak_gflops=%.0f",
            worker->limits.read_gbs, worker->limits.peak_gflops);
    if (config->chunk_tokens)
        return STATUS_OK;
    if (gpu)
        most = min_u32(WORKER_GPU_CHUNK_TOKENS, max_u32(most, engine_max_rows(worker->engine) -
                                                                  config->max_batch_sequences));
    config->chunk_tokens =
        gpu ? cost_model_chunk_rows(rows, GPU_CHUNK_UNIT, WORKER_CHUNK_TOKENS, most,
                                    WORKER_CHUNK_TOKENS)
            : cost_model_chunk_rows(rows, block, /* readers hear of whole blocks */
                                    max_u32(block, CHUNK_LEAST_TOKENS), most, most);
    if (gpu && !config->batch_tokens_given)
        config->max_batch_tokens = config->max_batch_sequences + config->chunk_tokens;
    if (worker->limits.isa)
        log_info(MODULE,
                 "msg=\"rows that fill a step are measured\" rows=%u read_gbs=%.1f "
                 "peak_gflops=%.0f chunk_tokens=%u",
                 rows, worker->limits.read_gbs, worker->limits.peak_gflops, config->chunk_tokens);
    return engine_keep_rows(worker->engine, config->max_batch_tokens, err);
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
    TRY(settle_chunk(worker, err));
    unpin(&cpus);
    TRY(open_transport(worker, err));
    unpin(&cpus);
    return STATUS_OK;
}

/* Costs before the first step. A mock knows them; its blocks stand for larger ones. A GPU's follow
 * from what was measured. */
static struct cost_model first_costs(const struct worker *worker)
{
    const struct cost_rates rates = {.read_gbs = worker->limits.read_gbs,
                                     .peak_gflops = worker->limits.peak_gflops,
                                     .weight_bytes = worker->limits.weight_bytes,
                                     .block_bytes = worker->block_bytes,
                                     .block_tokens = worker->config.block_tokens};
    struct cost_model cost = engine_device(worker->engine) == DEVICE_CUDA
                                 ? cost_model_of_rates(engine_shape(worker->engine), &rates)
                                 : cost_model_estimate(engine_shape(worker->engine),
                                                       worker->block_bytes, worker->config.threads);
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

/* On the step thread, or the one that watches the device. */
static void on_broken(void *context, bool lost)
{
    struct worker *worker = context;
    if (lost)
        atomic_store(&worker->device_lost, true);
    eventfd_write(worker->broken_fd, 1);
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
        .prompts_first = worker->config.prompts_first,
        .max_sequences = worker->config.max_sequences,
        .max_batch_sequences = worker->config.max_batch_sequences,
        .max_batch_tokens = worker->config.max_batch_tokens,
        .draft_tokens = worker->ops->role == ROLE_PREFILL ? 0 : worker->config.draft_tokens,
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
    TRY(step_loop_start(&config, &worker->steps, err));
    worker->device =
        (struct worker_device){.engine = worker->engine, .lost = on_broken, .context = worker};
    return worker_device_start(&worker->device, worker->metrics.metrics, err);
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
