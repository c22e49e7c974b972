/* The set of workers: one versioned set that workers join and leave, and that a router watches.
 *
 * This registry lives in the router's process. A worker joins again and again until the router
 * holds a Session to it. A held worker stays. Another one lapses `ttl_us` after it was last heard
 * of. Its address isn't its identity: a worker is its name and its incarnation, and a restart is a
 * new incarnation that takes the name over.
 *
 * Any thread may call. Snapshots are immutable and shared. The watch runs on the thread that made
 * the change, outside the lock; it must not block, and it may take a snapshot. Time is handed in.
 * Refuses: dialing, health, choosing.
 */
#ifndef BATON_NET_MEMBERSHIP_MEMBERSHIP_H
#define BATON_NET_MEMBERSHIP_MEMBERSHIP_H

#include "common/base/domain/worker_info.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct membership;

struct member {
    struct worker_info info;
    bool held; /* the router has a Session to it */
};

struct membership_snapshot {
    uint64_t version; /* grows with every change */
    size_t count;
    struct member members[]; /* in the order of joining */
};

struct membership_config {
    size_t limit; /* workers at most */
    uint64_t ttl_us;
    void (*changed)(void *context); /* optional */
    void *context;
};

enum status membership_create(const struct membership_config *config,
                              struct membership **membership) WARN_UNUSED;
void membership_destroy(struct membership *membership);

/* Adds a new worker, a heartbeat of a known one, or its next incarnation. STATUS_LIMIT: the set is
 * full. STATUS_INVALID: the name belongs to another live worker (held, at another address). */
enum status membership_join(struct membership *membership, const struct worker_info *info,
                            uint64_t now_us, struct error *err) WARN_UNUSED;
/* Does nothing if that incarnation isn't a member. */
void membership_leave(struct membership *membership, const char *name, uint64_t incarnation);
/* Returns true if that incarnation was a member until membership_leave, and not since. As many
 * incarnations are remembered as may be members; those that left last. */
bool membership_left(struct membership *membership, uint64_t incarnation);
/* Notes that the router got, or lost, its Session. */
void membership_hold(struct membership *membership, const char *name, uint64_t incarnation,
                     bool held, uint64_t now_us);
bool membership_held(struct membership *membership, const char *name, uint64_t incarnation);
/* Removes lapsed workers. Returns the time of the next call; UINT64_MAX: nothing can lapse. */
uint64_t membership_lapse(struct membership *membership, uint64_t now_us);

/* A worker that lapsed, and hasn't come back: it didn't leave. */
#define MEMBERSHIP_MAX_MISSING 64 /* the newest */
struct missing_member {
    struct worker_info info;
    uint64_t heard_us; /* when it was last heard of */
};
/* Copies all of them, and returns how many. */
size_t membership_missing(struct membership *membership,
                          struct missing_member missing[MEMBERSHIP_MAX_MISSING]);

/* Returns the newest snapshot. membership_snapshot_unref gives it back. */
const struct membership_snapshot *membership_snapshot(struct membership *membership);
void membership_snapshot_unref(const struct membership_snapshot *snapshot);

#endif
