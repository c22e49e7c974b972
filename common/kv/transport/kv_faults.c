#include "common/kv/transport/kv_faults.h"

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SPECIFICATION 512
#define MAX_TIME_US       600000000
#define MAX_FLIPS         4

/* Streams of the generator, for the two things drawn for a read. */
enum { STREAM_KIND, STREAM_PLACE };

struct kv_faults {
    uint64_t seed, first, limit, count;
    double probability[KV_FAULT_KINDS];
    uint64_t time_us[KV_FAULT_KINDS];
};

static const char *const names[KV_FAULT_KINDS] = {"drop",    "delay",   "duplicate",
                                                  "corrupt", "reorder", "lost"};

const char *kv_fault_name(enum kv_fault_kind kind)
{
    return names[kind];
}

/* -- the specification -- */

static bool parse_time(const char *text, uint64_t *us)
{
    static const struct {
        const char *unit;
        uint64_t us;
    } units[] = {{"us", 1}, {"ms", 1000}, {"s", 1000000}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        char number[16];
        size_t length = strlen(text), unit = strlen(units[i].unit);
        if (length <= unit || length - unit >= sizeof number ||
            strcmp(text + length - unit, units[i].unit) != 0)
            continue;
        memcpy(number, text, length - unit);
        number[length - unit] = 0;
        if (str_to_u64(number, 0, MAX_TIME_US / units[i].us, us)) {
            *us *= units[i].us;
            return true;
        }
    }
    return false;
}

static bool parse_fault(struct kv_faults *faults, const char *name, char *value)
{
    for (int kind = 0; kind < KV_FAULT_KINDS; kind++) {
        if (strcmp(name, names[kind]) != 0)
            continue;
        char *time = strchr(value, ':');
        if (time && kind != KV_FAULT_DELAY && kind != KV_FAULT_REORDER)
            return false;
        if (time && !parse_time(time + 1, &faults->time_us[kind]))
            return false;
        if (time)
            *time = 0;
        return str_to_double(value, 0, 1, &faults->probability[kind]);
    }
    return false;
}

static bool parse_one(struct kv_faults *faults, char *text)
{
    char *value = strchr(text, '=');
    if (!value)
        return false;
    *value++ = 0;
    if (!strcmp(text, "seed"))
        return str_to_u64(value, 0, UINT64_MAX, &faults->seed);
    if (!strcmp(text, "first"))
        return str_to_u64(value, 0, UINT64_MAX, &faults->first);
    if (!strcmp(text, "limit"))
        return str_to_u64(value, 0, UINT64_MAX, &faults->limit);
    return parse_fault(faults, text, value);
}

enum status kv_faults_create(const char *specification, struct kv_faults **out, struct error *err)
{
    struct kv_faults faults = {
        .seed = 1,
        .limit = UINT64_MAX,
        .time_us = {[KV_FAULT_DELAY] = 20000, [KV_FAULT_REORDER] = 50000},
    };
    char copy[MAX_SPECIFICATION], *save = NULL;
    if (!str_copy(copy, sizeof copy, specification))
        return error_set(err, STATUS_INVALID, "KV faults: longer than %zu bytes", sizeof copy - 1);
    for (char *one = strtok_r(copy, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
        char shown[64];
        str_copy(shown, sizeof shown, one);
        if (!parse_one(&faults, one))
            return error_set(err, STATUS_INVALID,
                             "KV faults: '%s' is not NAME=PROBABILITY[:TIME] (drop, delay, "
                             "duplicate, corrupt, reorder, lost; TIME of delay and reorder alone), "
                             "seed=N, first=N or limit=N",
                             shown);
    }
    double sum = 0;
    for (int kind = 0; kind < KV_FAULT_KINDS; kind++)
        sum += faults.probability[kind];
    if (sum > 1.0 + 1e-9)
        return error_set(err, STATUS_INVALID,
                         "KV faults: the probabilities add up to %g; a read has at most one "
                         "fault, so give at most 1",
                         sum);
    *out = malloc(sizeof **out);
    if (!*out)
        return error_set(err, STATUS_LIMIT, "no memory for KV faults");
    **out = faults;
    log_warn("transport", "msg=\"faults are injected into reads of KV bytes\" faults=%s",
             specification);
    return STATUS_OK;
}

void kv_faults_destroy(struct kv_faults *faults)
{
    free(faults);
}

/* -- the faults -- */

/* Makes the fault happen. Returns true if the read ends now. */
static bool happen(struct kv_transport *transport, struct kv_read *read, enum kv_fault_kind kind)
{
    const struct kv_faults *faults = transport->faults;
    switch (kind) {
    case KV_FAULT_DROP: read->held_us = UINT64_MAX; return false;
    case KV_FAULT_DELAY:
    case KV_FAULT_REORDER:
        read->held_us = transport->polled_us + faults->time_us[kind];
        read->reordered = kind == KV_FAULT_REORDER;
        return false;
    case KV_FAULT_DUPLICATE:
        read->repeated = true;
        read->next_run = 0;
        read->next_bytes = 0;
        read->peer->unstarted = !read->peer->mapped;
        return false;
    case KV_FAULT_CORRUPT: {
        struct rng rng = rng_seeded(rng_at(faults->seed, STREAM_PLACE, read->index));
        for (uint64_t flips = 1 + rng_below(&rng, MAX_FLIPS); flips > 0; flips--) {
            const struct kv_read_run *run = &read->runs[rng_below(&rng, read->run_count)];
            uint64_t place = rng_below(&rng, run->bytes);
            /* A byte may be hit twice. Another bit is flipped each time, so it never heals. */
            kv_transport_flip(transport, run->local_offset + place, (uint8_t)(1u << flips));
        }
        return true;
    }
    case KV_FAULT_LOST:
        read->held_us = UINT64_MAX;
        kv_peer_fail(read->peer, KV_FAILURE_INJECTED, NULL);
        return false;
    default: return true;
    }
}

bool kv_faults_landed(struct kv_transport *transport, struct kv_read *read)
{
    if (read->repeated)
        return true;
    struct kv_faults *faults = transport->faults;
    if (read->index < faults->first || faults->count >= faults->limit)
        return true;
    double at = rng_unit_at(faults->seed, STREAM_KIND, read->index);
    int kind = 0;
    for (; kind < KV_FAULT_KINDS && at >= faults->probability[kind]; kind++)
        at -= faults->probability[kind];
    if (kind == KV_FAULT_KINDS)
        return true;
    char point[32];
    snprintf(point, sizeof point, "kv.%s", names[kind]);
    faults->count++;
    transport->counters.faults[kind]++;
    failpoint_note(point, "fault", read->index);
    log_debug("transport", "msg=\"a fault is injected into a read\" fault=%s read=%llu bytes=%llu",
              names[kind], (unsigned long long)read->index, (unsigned long long)read->bytes);
    return happen(transport, read, (enum kv_fault_kind)kind);
}
