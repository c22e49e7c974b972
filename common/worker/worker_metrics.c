#include "common/worker/worker.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/net/crypto/certificates.h"

#include <stdio.h>
#include <string.h>

static void register_steps(struct worker_metrics *m, enum worker_role role)
{
    struct metrics *all = m->metrics;
    for (int i = 0; i < KV_BLOCK_STATES; i++) {
        char label[32];
        snprintf(label, sizeof label, "state=\"%s\"", kv_block_state_name((enum kv_block_state)i));
        m->blocks[i] =
            metrics_gauge(all, "baton_kv_blocks", "KV blocks by what they are for", label);
    }
    m->kv_usage = metrics_gauge(all, "baton_kv_cache_usage_perc",
                                "Share of the KV blocks in use, 0 .. 1", NULL);
    m->waiting =
        metrics_gauge(all, "baton_num_requests_waiting", "Requests that wait for KV blocks", NULL);
    m->running =
        metrics_gauge(all, "baton_num_requests_running", "Requests that are computed", NULL);
    const char *role_label = role == ROLE_PREFILL ? "role=\"prefill\"" : "role=\"decode\"";
    m->prompt_rows = metrics_counter(all, "baton_prompt_tokens_computed_total",
                                     "Prompt rows that went through the model here", role_label);
    m->decode_rows =
        metrics_counter(all, "baton_decode_tokens_computed_total",
                        "Rows of generated tokens that went through the model here", role_label);
    m->preempted = metrics_gauge(all, "baton_preempted_requests",
                                 "Requests that gave their KV blocks up and wait to go on", NULL);
    m->swapped_blocks = metrics_gauge(all, "baton_swapped_kv_blocks",
                                      "KV blocks that lie in host memory meanwhile", NULL);
    const char *preemptions =
        "Requests that gave their KV blocks up, by what happens to the blocks";
    m->preemptions[STEP_SWAPPED] =
        metrics_counter(all, "baton_preemptions_total", preemptions, "kind=\"swap\"");
    m->preemptions[STEP_DROPPED] =
        metrics_counter(all, "baton_preemptions_total", preemptions, "kind=\"recompute\"");
    m->dropped_rows = metrics_counter(all, "baton_preempted_tokens_dropped_total",
                                      "Rows that preemptions threw away", NULL);
    m->prefix_asked = metrics_counter(all, "baton_prefix_cache_queries_total",
                                      "Prompt tokens in whole blocks that were looked for", NULL);
    m->prefix_hits = metrics_counter(
        all, "baton_prefix_cache_hits_total",
        "Prompt tokens in whole blocks that were here and are not computed or read", NULL);
    m->prefix_evicted = metrics_counter(all, "baton_prefix_cache_evicted_blocks_total",
                                        "Cached KV blocks that were given up for others", NULL);
    m->steps = metrics_counter(all, "baton_steps_total", "Steps of the engine", NULL);
    const char *help = "Time of the step thread while it had anything to do";
    m->step_us[STEP_IN_ENGINE] =
        metrics_counter(all, "baton_step_microseconds_total", help, "in=\"engine\"");
    m->step_us[STEP_AROUND_IT] =
        metrics_counter(all, "baton_step_microseconds_total", help, "in=\"schedule\"");
}

static void register_handoffs(struct worker_metrics *m)
{
    struct metrics *all = m->metrics;
    const char *help = "Handoffs by how they ended here";
    m->handoffs_ok = metrics_counter(all, "baton_handoffs_total", help, "status=\"ok\"");
    m->handoffs_failed = metrics_counter(all, "baton_handoffs_total", help, "status=\"lost\"");
    m->released = metrics_counter(all, "baton_handoffs_total", help, "status=\"released\"");
    help = "KV bytes read from other workers";
    m->bytes_shm = metrics_counter(all, "baton_kv_bytes_moved_total", help, "lane=\"shm\"");
    m->bytes_tcp = metrics_counter(all, "baton_kv_bytes_moved_total", help, "lane=\"tcp\"");
    m->bytes_local = metrics_counter(all, "baton_kv_bytes_moved_total", help, "lane=\"local\"");
    m->stale_messages = metrics_counter(all, "baton_stale_messages_total",
                                        "Messages of older attempts, dropped", NULL);
    m->late_hellos =
        metrics_counter(all, "baton_late_hellos_total",
                        "Streams of routers and decode workers that said nothing in time", NULL);
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
                                             "Reads of KV bytes that failed, by why", label);
    }
    for (int i = 0; i < KV_REFUSALS; i++) {
        char label[48];
        snprintf(label, sizeof label, "reason=\"%s\"", kv_refusal_name((enum kv_refusal)i));
        m->connections_refused[i] =
            metrics_counter(all, "baton_kv_connections_refused_total",
                            "Connections to the KV lane that were closed, by why", label);
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
    gauge_set(m->waiting, atomic_load(&load->waiting));
    gauge_set(m->running, atomic_load(&load->running));
    gauge_set(m->session_up, session_up);
    for (size_t i = 0; i < WORKER_CERTIFICATES && m->expiries[i].certificates; i++)
        gauge_set(m->expiries[i].ends,
                  (double)certificates_expiry_unix_s(m->expiries[i].certificates));
    worker_metrics_advance(m->prompt_rows, &m->seen_prompt_rows, atomic_load(&load->prompt_rows));
    worker_metrics_advance(m->decode_rows, &m->seen_decode_rows, atomic_load(&load->decode_rows));
    worker_metrics_advance(m->steps, &m->seen_steps, atomic_load(&load->steps));
    for (int i = 0; i < STEP_TIMES; i++)
        worker_metrics_advance(m->step_us[i], &m->seen_step_us[i],
                               atomic_load(&load->time_ns[i]) / 1000);
    gauge_set(m->preempted, atomic_load(&load->preempted));
    gauge_set(m->swapped_blocks, atomic_load(&load->swapped_blocks));
    for (int i = 0; i < STEP_PREEMPTIONS; i++)
        worker_metrics_advance(m->preemptions[i], &m->seen_preemptions[i],
                               atomic_load(&load->preemptions[i]));
    worker_metrics_advance(m->dropped_rows, &m->seen_dropped_rows,
                           atomic_load(&load->dropped_rows));
    worker_metrics_advance(m->prefix_asked, &m->seen_asked,
                           atomic_load(&load->prefix_asked_tokens));
    worker_metrics_advance(m->prefix_hits, &m->seen_hits, atomic_load(&load->prefix_hit_tokens));
    worker_metrics_advance(m->prefix_evicted, &m->seen_evicted,
                           atomic_load(&load->prefix_evicted_blocks));
}

struct counter *worker_metrics_lane(const struct worker_metrics *m, const char *lane)
{
    if (!strcmp(lane, "shm"))
        return m->bytes_shm;
    return strcmp(lane, "tcp") ? m->bytes_local : m->bytes_tcp;
}
