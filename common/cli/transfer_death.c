#include "common/cli/transfer_death.h"

#include "common/base/clock.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#define PATIENCE_US 10000000
#define MAX_RUN     (1u << 20)

struct transfer_deaths {
    struct transfer_plan plan;
    size_t count;
    struct transfer_owner owners[TRANSFER_LANES][TRANSFER_MAX_DEATHS];
};

enum status transfer_deaths_prepare(const struct transfer_plan *plan, size_t count,
                                    struct transfer_deaths **out, struct error *err)
{
    struct transfer_deaths *deaths = calloc(1, sizeof *deaths);
    if (!deaths)
        return error_set(err, STATUS_LIMIT, "no memory");
    deaths->plan = *plan;
    deaths->count = count;
    for (int lane = 0; lane < TRANSFER_LANES; lane++) {
        struct transfer_plan one = {.pool_bytes = plan->pool_bytes};
        one.lanes[lane] = true;
        for (size_t i = 0; i < count && plan->lanes[lane]; i++) {
            enum status status = transfer_owner_start(&one, &deaths->owners[lane][i], err);
            if (status != STATUS_OK) {
                deaths->owners[lane][i].pid = 0;
                transfer_deaths_close(deaths);
                return status;
            }
        }
    }
    *out = deaths;
    return STATUS_OK;
}

/* Not by the end of its control socket, which the owners that were forked after it have, too. */
static void owner_kill(struct transfer_owner *owner)
{
    if (owner->pid <= 0)
        return;
    kill(owner->pid, SIGKILL);
    transfer_owner_stop(owner);
    owner->pid = 0;
}

void transfer_deaths_close(struct transfer_deaths *deaths)
{
    if (!deaths)
        return;
    for (int lane = 0; lane < TRANSFER_LANES; lane++)
        for (size_t i = 0; i < deaths->count; i++)
            owner_kill(&deaths->owners[lane][i]);
    free(deaths);
}

/* Keeps reads in flight until one has ended well, or, if `until_failed`, not. */
static enum status read_on(struct kv_transport *transport, struct kv_peer *peer, size_t pool_bytes,
                           bool until_failed, struct error *err)
{
    struct kv_read_run run = {.bytes = pool_bytes < MAX_RUN ? pool_bytes : MAX_RUN};
    for (uint64_t start_us = clock_now_us(); clock_now_us() - start_us < PATIENCE_US;) {
        enum status status = STATUS_OK;
        while (status == STATUS_OK)
            status = kv_transport_read(transport, peer, &run, 1, start_us + PATIENCE_US, 0);
        if (status == STATUS_UNAVAILABLE && until_failed)
            return STATUS_OK;
        struct kv_event event;
        if (kv_transport_poll(transport, clock_now_us(), &event, 1) == 1) {
            if ((event.status == STATUS_OK) == until_failed)
                continue;
            if (event.status == STATUS_OK || until_failed)
                return STATUS_OK;
            return error_set(err, STATUS_UNAVAILABLE, "a read failed: %s", event.reason);
        }
        struct pollfd fd = {kv_transport_fd(transport), POLLIN, 0};
        if (kv_transport_arm(transport))
            poll(&fd, 1, 100);
    }
    return error_set(err, STATUS_TIMEOUT, "no read ended %s within %d s",
                     until_failed ? "badly" : "well", PATIENCE_US / 1000000);
}

/* Until the pairing's last event, so that the next one finds room for its reads. */
static void drain(struct kv_transport *transport, struct kv_peer *peer)
{
    kv_transport_unpair(transport, peer);
    struct kv_event event;
    uint64_t start_us = clock_now_us();
    for (bool closed = false; !closed && clock_now_us() - start_us < PATIENCE_US;)
        closed = kv_transport_poll(transport, clock_now_us(), &event, 1) == 1 &&
                 event.kind == KV_EVENT_PEER_CLOSED;
}

static enum status measure_one(struct transfer_deaths *deaths, struct kv_transport *transport,
                               struct transfer_owner *owner, const struct transfer_address *address,
                               double *seconds, struct error *err)
{
    struct kv_peer *peer;
    TRY(kv_transport_pair(transport, address->data, address->bytes, &peer, err));
    TRY(read_on(transport, peer, deaths->plan.pool_bytes, false, err));
    uint64_t start_ns = clock_now_ns();
    kill(owner->pid, SIGKILL);
    TRY(read_on(transport, peer, deaths->plan.pool_bytes, true, err));
    *seconds = (double)(clock_now_ns() - start_ns) * 1e-9;
    drain(transport, peer);
    owner_kill(owner);
    return STATUS_OK;
}

enum status transfer_deaths_measure(struct transfer_deaths *deaths, enum transfer_lane lane,
                                    double *seconds, struct error *err)
{
    struct kv_transport *transport;
    TRY(transfer_lane_open(&deaths->plan, lane, &transport, err));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < deaths->count && status == STATUS_OK; i++) {
        struct transfer_owner *owner = &deaths->owners[lane][i];
        status = measure_one(deaths, transport, owner, &owner->addresses[lane], &seconds[i], err);
    }
    kv_transport_close(transport);
    return status;
}
