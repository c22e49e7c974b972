#include "router/ops/decision_ring.h"

#include "common/base/json/json_quote.h"
#include "common/base/rng.h"
#include "router/request_id.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_AT_ONCE 128 /* looked at under the lock, before a turn may take it */

struct decision_ring {
    pthread_mutex_t mutex;
    size_t capacity;
    uint32_t sample_percent;
    uint64_t seed; /* which requests are sampled */
    uint64_t next; /* serial, from 1 on. Slot i has the newest with serial % capacity == i */
    struct decision_regret regret;
    struct decision_entry slots[];
};

enum status decision_ring_create(size_t capacity, uint32_t sample_percent,
                                 struct decision_ring **out)
{
    struct decision_ring *ring = calloc(1, sizeof *ring + capacity * sizeof *ring->slots);
    if (!ring)
        return STATUS_LIMIT;
    pthread_mutex_init(&ring->mutex, NULL);
    ring->capacity = capacity;
    ring->sample_percent = sample_percent;
    ring->seed = rng_entropy();
    ring->next = 1;
    *out = ring;
    return STATUS_OK;
}

void decision_ring_destroy(struct decision_ring *ring)
{
    if (!ring)
        return;
    pthread_mutex_destroy(&ring->mutex);
    free(ring);
}

bool decision_ring_samples(const struct decision_ring *ring, uint64_t request_id)
{
    return ring->capacity && rng_at(ring->seed, 0, request_id) % 100 < ring->sample_percent;
}

uint64_t decision_ring_put(struct decision_ring *ring, const struct decision_entry *entry)
{
    if (!ring->capacity)
        return 0;
    pthread_mutex_lock(&ring->mutex);
    uint64_t serial = ring->next++;
    struct decision_entry *slot = &ring->slots[serial % ring->capacity];
    *slot = *entry;
    slot->serial = serial;
    pthread_mutex_unlock(&ring->mutex);
    return serial;
}

/* The mean of the first ones is over all of them. */
static void learn(struct decision_regret *regret, const struct decision *decision, bool missed)
{
    double least = 2;
    for (uint32_t i = 0; i < decision->count; i++)
        if (decision->alternatives[i].p_miss >= 0 && decision->alternatives[i].p_miss < least)
            least = decision->alternatives[i].p_miss;
    if (least > 1)
        return; /* its policy doesn't predict */
    regret->requests++;
    double weight = regret->requests < DECISION_REGRET_REQUESTS ? 1.0 / (double)regret->requests
                                                                : 1.0 / DECISION_REGRET_REQUESTS;
    regret->mean += weight * (missed - least - regret->mean);
}

void decision_ring_ended(struct decision_ring *ring, uint64_t serial,
                         const struct decision_outcome *outcome)
{
    if (!serial)
        return;
    pthread_mutex_lock(&ring->mutex);
    struct decision_entry *slot = &ring->slots[serial % ring->capacity];
    if (slot->serial == serial) {
        slot->outcome = *outcome;
        bool has_objective = slot->objective.ttft_us || slot->objective.tpot_us ||
                             slot->objective.itl_us || slot->objective.e2e_us;
        if (outcome->known && has_objective)
            learn(&ring->regret, &slot->is, !outcome->attained);
    }
    pthread_mutex_unlock(&ring->mutex);
}

struct decision_regret decision_ring_regret(struct decision_ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    struct decision_regret regret = ring->regret;
    pthread_mutex_unlock(&ring->mutex);
    return regret;
}

/* Copies the newest ones of the request, the newest first. */
static size_t find(struct decision_ring *ring, const char *name, uint32_t choice,
                   struct decision_entry *found)
{
    size_t count = 0;
    uint64_t serial = UINT64_MAX, oldest = 1;
    while (ring->capacity && serial > oldest && count < DECISION_RING_MAX_SHOWN) {
        pthread_mutex_lock(&ring->mutex);
        oldest = ring->next > ring->capacity ? ring->next - ring->capacity : 1;
        if (serial == UINT64_MAX)
            serial = ring->next;
        for (int i = 0; i < ENTRIES_AT_ONCE && serial > oldest && count < DECISION_RING_MAX_SHOWN;
             i++) {
            const struct decision_entry *slot = &ring->slots[--serial % ring->capacity];
            if (slot->choice == choice && !strcmp(slot->name, name))
                found[count++] = *slot;
        }
        pthread_mutex_unlock(&ring->mutex);
    }
    return count;
}

/* ---------------------------------------------------------------------------------------- JSON */

static void add_text(struct str *out, const char *key, const char *value)
{
    str_addf(out, "\"%s\": ", key);
    json_quote(out, value, strlen(value));
    str_add(out, ", ");
}

/* JSON has no infinity. */
static double finite_of(double value)
{
    return isfinite(value) ? value : value > 0 ? 1e30 : -1e30;
}

static void add_alternative(struct str *out, const struct decision_entry *entry, uint32_t i)
{
    const struct decision_alternative *is = &entry->is.alternatives[i];
    str_add(out, i ? ", {" : "{");
    add_text(out, "prefill", is->prefill ? entry->workers[i].prefill : "");
    add_text(out, "decode", is->decode ? entry->workers[i].decode : "");
    str_addf(out,
             "\"chosen\": %s, \"ttft_ms\": %.3f, \"tpot_ms\": %.3f, \"p_miss\": %.6g, "
             "\"others\": %.6g, \"price\": %.6g, \"total\": %.6g}",
             i == entry->is.chosen ? "true" : "false", finite_of(is->ttft_us) / 1e3,
             finite_of(is->tpot_us) / 1e3, finite_of(is->p_miss), finite_of(is->others),
             finite_of(is->price), finite_of(is->total));
}

static void add_decision(struct str *out, const struct decision_entry *entry)
{
    static const char *const whys[] = {[DECISION_LEAST] = "least",
                                       [DECISION_ONLY] = "only",
                                       [DECISION_TIE] = "tie",
                                       [DECISION_EXPLORED] = "explored"};
    static const char *const verdicts[] = {[ADMISSION_TAKEN] = "taken",
                                           [ADMISSION_HELD] = "held",
                                           [ADMISSION_LET_THROUGH] = "let_through",
                                           [ADMISSION_REJECTED] = "rejected"};
    const struct decision *is = &entry->is;
    const struct slo_objective *objective = &entry->objective;
    const struct decision_outcome *outcome = &entry->outcome;
    add_text(out, "model", entry->model);
    add_text(out, "slo_class", entry->slo_class);
    add_text(out, "policy", is->policy ? is->policy : "");
    add_text(out, "why", whys[is->why]);
    add_text(out, "verdict", verdicts[entry->verdict]);
    str_addf(out,
             "\"attempt\": %u, \"waited_ms\": %.3f, \"prompt_tokens\": %" PRIu64
             ", \"objective\": {\"ttft_ms\": %.3f, \"tpot_ms\": %.3f, \"itl_ms\": %.3f, "
             "\"e2e_ms\": %.3f}, \"reader_only\": %s, \"considered\": %u, \"p_miss_used\": %.6g, "
             "\"calibrated\": %s, \"retry_after_s\": %u, \"alternatives\": [",
             entry->attempt, (double)is->waited_us / 1e3, entry->prompt_tokens,
             (double)objective->ttft_us / 1e3, (double)objective->tpot_us / 1e3,
             (double)objective->itl_us / 1e3, (double)objective->e2e_us / 1e3,
             is->reader_only ? "true" : "false", is->considered, entry->used,
             entry->calibrated ? "true" : "false", entry->retry_after_s);
    for (uint32_t i = 0; i < is->count; i++)
        add_alternative(out, entry, i);
    str_add(out, "], \"outcome\": {");
    add_text(out, "status", outcome->reason);
    str_addf(out,
             "\"known\": %s, \"attained\": %s, \"ttft_ms\": %.3f, \"tpot_ms\": %.3f, "
             "\"e2e_ms\": %.3f}",
             outcome->known ? "true" : "false", outcome->attained ? "true" : "false",
             outcome->ttft_us / 1e3, outcome->tpot_us / 1e3, outcome->e2e_us / 1e3);
}

bool decision_ring_json(struct decision_ring *ring, const char *name, uint32_t choice,
                        struct str *out)
{
    struct decision_entry *found = calloc(DECISION_RING_MAX_SHOWN, sizeof *found), last = {0};
    if (!found)
        return false;
    pthread_mutex_lock(&ring->mutex);
    if (!name && ring->next > 1) /* without room none gets a serial */
        last = ring->slots[(ring->next - 1) % ring->capacity];
    pthread_mutex_unlock(&ring->mutex);
    choice = name ? choice : last.choice;
    name = name ? name : last.name;
    size_t count = find(ring, name, choice, found);
    const char *of_answer = count ? NULL : request_id_of_answer(name);
    if (of_answer) {
        count = find(ring, of_answer, choice, found);
        name = count ? of_answer : name;
    }
    str_add(out, "{");
    add_text(out, "request", name);
    str_addf(out, "\"choice\": %u, \"sample_percent\": %u, \"kept\": %zu, \"decisions\": [", choice,
             ring->sample_percent, ring->capacity);
    for (size_t i = count; i > 0; i--) {
        str_add(out, i < count ? ",\n{" : "\n{");
        add_decision(out, &found[i - 1]);
        str_add(out, "}");
    }
    str_add(out, "]}\n");
    free(found);
    return true;
}
