#include "common/worker/worker.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/net/crypto/certificates.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The numbers of step_load that are shown as they are. */
struct load_row {
    size_t offset; /* in struct step_load */
    const char *name, *help, *labels;
    uint64_t divisor; /* shown: the number / divisor */
};

#define AT(field)        offsetof(struct step_load, field)
#define LABEL_OF_ROLE    "" /* stands for role="..." */
#define PREEMPTIONS_HELP "Requests that gave their KV blocks up, by what happens to the blocks"
#define STEP_TIME_HELP   "Time of the step thread while it had anything to do"
#define DECODE_STEPS_HELP                                                                          \
    "Steps in which each row draws a token, as a recorded graph of the device or launch by launch"
#define DEVICE_TIME_HELP                                                                           \
    "Time of steps that followed another without a pause of the schedule, by the device's clock, " \
    "and of the gaps in front of them"

static const struct load_row gauge_rows[] = {
    {AT(waiting), "baton_num_requests_waiting", "Requests that wait for KV blocks", NULL, 1},
    {AT(running), "baton_num_requests_running", "Requests that are computed", NULL, 1},
    {AT(preempted), "baton_preempted_requests",
     "Requests that gave their KV blocks up and wait to go on", NULL, 1},
    {AT(swapped_blocks), "baton_swapped_kv_blocks",
     "KV blocks of preempted requests in host memory", NULL, 1},
};
static const struct load_row counter_rows[] = {
    {AT(prompt_rows), "baton_prompt_tokens_computed_total",
     "Prompt rows that went through the model here", LABEL_OF_ROLE, 1},
    {AT(decode_rows), "baton_decode_tokens_computed_total",
     "Rows of generated tokens that went through the model here", LABEL_OF_ROLE, 1},
    {AT(drafts), "baton_draft_tokens_total", "Draft tokens that steps had rows for", NULL, 1},
    {AT(drafts_accepted), "baton_draft_tokens_accepted_total",
     "Draft tokens that were the answer's next ones", NULL, 1},
    {AT(preemptions[STEP_SWAPPED]), "baton_preemptions_total", PREEMPTIONS_HELP, "kind=\"swap\"",
     1},
    {AT(preemptions[STEP_DROPPED]), "baton_preemptions_total", PREEMPTIONS_HELP,
     "kind=\"recompute\"", 1},
    {AT(dropped_rows), "baton_preempted_tokens_dropped_total", "Rows that preemptions threw away",
     NULL, 1},
    {AT(prefix_asked_tokens), "baton_prefix_cache_queries_total",
     "Prompt tokens in whole blocks that were looked for", NULL, 1},
    {AT(prefix_hit_tokens), "baton_prefix_cache_hits_total",
     "Prompt tokens in whole blocks that were here and are not computed or read", NULL, 1},
    {AT(prefix_evicted_blocks), "baton_prefix_cache_evicted_blocks_total",
     "Cached KV blocks that were evicted", NULL, 1},
    {AT(steps), "baton_steps_total", "Steps of the engine", NULL, 1},
    {AT(recorded_steps), "baton_decode_steps_total", DECODE_STEPS_HELP, "by=\"graph\"", 1},
    {AT(launched_steps), "baton_decode_steps_total", DECODE_STEPS_HELP, "by=\"launches\"", 1},
    {AT(device_us), "baton_device_microseconds_total", DEVICE_TIME_HELP, "in=\"steps\"", 1},
    {AT(idle_us), "baton_device_microseconds_total", DEVICE_TIME_HELP, "in=\"gaps\"", 1},
    {AT(time_ns[STEP_IN_ENGINE]), "baton_step_microseconds_total", STEP_TIME_HELP, "in=\"engine\"",
     1000},
    {AT(time_ns[STEP_AROUND_IT]), "baton_step_microseconds_total", STEP_TIME_HELP,
     "in=\"schedule\"", 1000},
};
static_assert(sizeof gauge_rows / sizeof *gauge_rows == WORKER_LOAD_GAUGES,
              "worker.h has the number");
static_assert(sizeof counter_rows / sizeof *counter_rows == WORKER_LOAD_COUNTERS,
              "worker.h has the number");

static void register_steps(struct worker_metrics *m, enum worker_role role)
{
    struct metrics *all = m->metrics;
    char label[32];
    for (int i = 0; i < KV_BLOCK_STATES; i++) {
        snprintf(label, sizeof label, "state=\"%s\"", kv_block_state_name((enum kv_block_state)i));
        m->blocks[i] = metrics_gauge(all, "baton_kv_blocks", "KV blocks by state", label);
    }
    m->kv_usage = metrics_gauge(all, "baton_kv_cache_usage_perc",
                                "Share of the KV blocks in use, 0 .. 1", NULL);
    for (size_t i = 0; i < WORKER_LOAD_GAUGES; i++)
        m->load_gauges[i] =
            metrics_gauge(all, gauge_rows[i].name, gauge_rows[i].help, gauge_rows[i].labels);
    snprintf(label, sizeof label, "role=\"%s\"", worker_role_name(role));
    for (size_t i = 0; i < WORKER_LOAD_COUNTERS; i++) {
        const struct load_row *row = &counter_rows[i];
        bool by_role = row->labels && !*row->labels;
        m->load_counters[i] =
            metrics_counter(all, row->name, row->help, by_role ? label : row->labels);
    }
}

static void register_handoffs(struct worker_metrics *m)
{
    struct metrics *all = m->metrics;
    const char *help = "Handoffs that ended here, by status";
    m->handoffs_ok = metrics_counter(all, "baton_handoffs_total", help, "status=\"ok\"");
    m->handoffs_failed = metrics_counter(all, "baton_handoffs_total", help, "status=\"lost\"");
    m->released = metrics_counter(all, "baton_handoffs_total", help, "status=\"released\"");
    help = "KV bytes read from other workers";
    m->bytes_shm = metrics_counter(all, "baton_kv_bytes_moved_total", help, "lane=\"shm\"");
    m->bytes_tcp = metrics_counter(all, "baton_kv_bytes_moved_total", help, "lane=\"tcp\"");
    m->bytes_cuda = metrics_counter(all, "baton_kv_bytes_moved_total", help, "lane=\"cuda\"");
    m->bytes_rdma = metrics_counter(all, "baton_kv_bytes_moved_total", help, "lane=\"rdma\"");
    m->bytes_local = metrics_counter(all, "baton_kv_bytes_moved_total", help, "lane=\"local\"");
    m->stale_messages = metrics_counter(all, "baton_stale_messages_total",
                                        "Messages of older attempts, dropped", NULL);
    m->late_hellos =
        metrics_counter(all, "baton_late_hellos_total",
                        "Streams of routers and decode workers without a hello in time", NULL);
    for (int i = 0; i < KV_FAULT_KINDS; i++) {
        char label[40];
        snprintf(label, sizeof label, "kind=\"%s\"", kv_fault_name((enum kv_fault_kind)i));
        m->faults[i] = metrics_counter(all, "baton_kv_faults_total",
                                       "Faults injected into reads of KV bytes", label);
    }
    for (int i = 1; i < KV_FAILURES; i++) {
        char label[48];
        snprintf(label, sizeof label, "reason=\"%s\"", kv_failure_name((enum kv_failure)i));
        m->reads_failed[i] = metrics_counter(all, "baton_kv_reads_failed_total",
                                             "Reads of KV bytes that failed, by reason", label);
    }
    for (int i = 0; i < KV_REFUSALS; i++) {
        char label[48];
        snprintf(label, sizeof label, "reason=\"%s\"", kv_refusal_name((enum kv_refusal)i));
        m->connections_refused[i] =
            metrics_counter(all, "baton_kv_connections_refused_total",
                            "Connections to the KV lane that were closed, and reads that it "
                            "refused (grant), by reason",
                            label);
    }
}

void worker_metrics_init(struct worker_metrics *m, enum worker_role role)
{
    *m = (struct worker_metrics){.metrics = metrics_create()};
    m->session_up =
        metrics_gauge(m->metrics, "baton_session_up", "1 while the router's session is up", NULL);
    register_steps(m, role);
    register_handoffs(m);
}

void worker_metrics_describe(struct worker_metrics *m, const struct worker_info *info)
{
    char model[sizeof info->model], labels[sizeof model + 40];
    str_copy(model, sizeof model, info->model);
    for (char *c = model; *c; c++) /* a folder's name may hold bytes that a label can't */
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\')
            *c = '_';
    snprintf(labels, sizeof labels, "model_name=\"%s\",role=\"%s\"", model,
             worker_role_name(info->role));
    gauge_set(metrics_gauge(m->metrics, "baton_worker_info", "1: what this worker serves", labels),
              1);
}

void worker_metrics_transport(struct worker_metrics *m,
                              const struct kv_transport_counters *counters)
{
    struct kv_transport_counters *seen = &m->seen_transport;
    for (int i = 0; i < KV_FAULT_KINDS; i++)
        worker_metrics_advance(m->faults[i], &seen->faults[i], counters->faults[i]);
    for (int i = 1; i < KV_FAILURES; i++)
        worker_metrics_advance(m->reads_failed[i], &seen->reads_failed[i],
                               counters->reads_failed[i]);
    for (int i = 0; i < KV_REFUSALS; i++)
        worker_metrics_advance(m->connections_refused[i], &seen->refused[i], counters->refused[i]);
}

void worker_metrics_deinit(struct worker_metrics *m)
{
    metrics_destroy(m->metrics);
}

void worker_metrics_advance(struct counter *counter, uint64_t *seen, uint64_t total)
{
    if (total > *seen)
        counter_add(counter, total - *seen);
    *seen = total;
}

void worker_metrics_watch(struct worker_metrics *m, struct certificates *certificates,
                          const char *label)
{
    if (!certificates)
        return;
    size_t place = m->expiries[0].certificates != NULL;
    ASSERT(!m->expiries[place].certificates);
    m->expiries[place].certificates = certificates;
    m->expiries[place].ends =
        metrics_gauge(m->metrics, "baton_tls_certificate_expiry_timestamp_seconds",
                      "When the certificate ends, in seconds since 1970", label);
}

/* Returns the share of blocks in use, 0 .. 1. Cached blocks are free for any request that needs
 * room. */
static double kv_usage(const struct step_load *load)
{
    double all = 0, idle = 0;
    for (int i = 0; i < KV_BLOCK_STATES; i++) {
        double count = atomic_load(&load->blocks[i]);
        all += count;
        idle += i == KV_BLOCK_FREE || i == KV_BLOCK_CACHED ? count : 0;
    }
    return all > 0 ? (all - idle) / all : 0;
}

void worker_metrics_update(struct worker_metrics *m, const struct step_load *load, bool session_up)
{
    for (int i = 0; i < KV_BLOCK_STATES; i++)
        gauge_set(m->blocks[i], atomic_load(&load->blocks[i]));
    gauge_set(m->kv_usage, kv_usage(load));
    gauge_set(m->session_up, session_up);
    for (size_t i = 0; i < WORKER_CERTIFICATES && m->expiries[i].certificates; i++)
        gauge_set(m->expiries[i].ends,
                  (double)certificates_expiry_unix_s(m->expiries[i].certificates));
    for (size_t i = 0; i < WORKER_LOAD_GAUGES; i++) {
        const char *number = (const char *)load + gauge_rows[i].offset;
        gauge_set(m->load_gauges[i], atomic_load((const _Atomic uint32_t *)number));
    }
    for (size_t i = 0; i < WORKER_LOAD_COUNTERS; i++) {
        const char *number = (const char *)load + counter_rows[i].offset;
        worker_metrics_advance(m->load_counters[i], &m->seen_load[i],
                               atomic_load((const _Atomic uint64_t *)number) /
                                   counter_rows[i].divisor);
    }
}

struct counter *worker_metrics_lane(const struct worker_metrics *m, const char *lane)
{
    if (!strcmp(lane, "shm"))
        return m->bytes_shm;
    if (!strcmp(lane, "cuda"))
        return m->bytes_cuda;
    if (!strcmp(lane, "rdma"))
        return m->bytes_rdma;
    return strcmp(lane, "tcp") ? m->bytes_local : m->bytes_tcp;
}
