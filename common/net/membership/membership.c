#include "common/net/membership/membership.h"

#include "common/base/assert.h"
#include "common/base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct member member;
    uint64_t heard_us;
};

struct shared_snapshot {
    atomic_uint references;
    struct membership_snapshot snapshot; /* last: ends in a flexible array */
};

struct membership {
    struct membership_config config;
    pthread_mutex_t mutex; /* guards everything below */
    uint64_t version;
    size_t count;
    struct entry *entries;
    uint64_t left_count;
    uint64_t *left; /* [config.limit] incarnations, a ring; 0: none */
    size_t missing_count;
    struct missing_member missing[MEMBERSHIP_MAX_MISSING]; /* the oldest first */
    struct shared_snapshot *newest;                        /* NULL: to be built */
};

enum status membership_create(const struct membership_config *config, struct membership **out)
{
    struct membership *membership = calloc(1, sizeof *membership);
    if (!membership)
        return STATUS_LIMIT;
    membership->entries = calloc(config->limit, sizeof *membership->entries);
    membership->left = calloc(config->limit, sizeof *membership->left);
    if (!membership->entries || !membership->left) {
        free(membership->entries);
        free(membership->left);
        free(membership);
        return STATUS_LIMIT;
    }
    membership->config = *config;
    pthread_mutex_init(&membership->mutex, NULL);
    *out = membership;
    return STATUS_OK;
}

void membership_snapshot_unref(const struct membership_snapshot *snapshot)
{
    struct shared_snapshot *shared =
        (struct shared_snapshot *)((char *)snapshot - offsetof(struct shared_snapshot, snapshot));
    if (atomic_fetch_sub(&shared->references, 1) == 1)
        free(shared);
}

void membership_destroy(struct membership *membership)
{
    if (!membership)
        return;
    if (membership->newest)
        membership_snapshot_unref(&membership->newest->snapshot);
    pthread_mutex_destroy(&membership->mutex);
    free(membership->entries);
    free(membership->left);
    free(membership);
}

/* Under the lock. */
static void membership_touch(struct membership *membership)
{
    membership->version++;
    if (membership->newest)
        membership_snapshot_unref(&membership->newest->snapshot);
    membership->newest = NULL;
}

static void membership_unlock(struct membership *membership, bool changed)
{
    pthread_mutex_unlock(&membership->mutex);
    if (changed && membership->config.changed)
        membership->config.changed(membership->config.context);
}

static struct entry *membership_find(struct membership *membership, const char *name)
{
    for (size_t i = 0; i < membership->count; i++)
        if (!strcmp(membership->entries[i].member.info.name, name))
            return &membership->entries[i];
    return NULL;
}

static void membership_remove(struct membership *membership, struct entry *entry)
{
    size_t index = (size_t)(entry - membership->entries);
    membership->count--;
    memmove(entry, entry + 1, (membership->count - index) * sizeof *entry);
    membership_touch(membership);
}

/* The worker of this name is back, or has left, or another of its lives is missing. */
static void missing_drop(struct membership *membership, const char *name)
{
    for (size_t i = 0; i < membership->missing_count; i++) {
        struct missing_member *one = &membership->missing[i];
        if (strcmp(one->info.name, name))
            continue;
        membership->missing_count--;
        memmove(one, one + 1, (membership->missing_count - i) * sizeof *one);
        return;
    }
}

static void missing_note(struct membership *membership, const struct entry *entry)
{
    missing_drop(membership, entry->member.info.name);
    if (membership->missing_count == MEMBERSHIP_MAX_MISSING)
        missing_drop(membership, membership->missing[0].info.name);
    membership->missing[membership->missing_count++] =
        (struct missing_member){.info = entry->member.info, .heard_us = entry->heard_us};
}

size_t membership_missing(struct membership *membership,
                          struct missing_member missing[MEMBERSHIP_MAX_MISSING])
{
    pthread_mutex_lock(&membership->mutex);
    size_t count = membership->missing_count;
    memcpy(missing, membership->missing, count * sizeof *missing);
    pthread_mutex_unlock(&membership->mutex);
    return count;
}

/* Under the lock. *changed: the set is another one now. */
static enum status join_locked(struct membership *membership, const struct worker_info *info,
                               uint64_t now_us, bool *changed, struct error *err)
{
    struct entry *entry = membership_find(membership, info->name);
    if (entry && entry->member.info.incarnation == info->incarnation) {
        entry->heard_us = now_us;
        return STATUS_OK;
    }
    if (entry && entry->member.held && strcmp(entry->member.info.address, info->address))
        return error_set(err, STATUS_INVALID,
                         "the name %s belongs to a live worker at %s, so the one at %s can't have "
                         "it: give every worker its own name",
                         info->name, entry->member.info.address, info->address);
    if (!entry && membership->count == membership->config.limit)
        return error_set(err, STATUS_LIMIT, "%zu workers have joined, which is the limit",
                         membership->count);
    if (!entry)
        entry = &membership->entries[membership->count++];
    *entry = (struct entry){.member = {.info = *info}, .heard_us = now_us};
    for (size_t i = 0; i < membership->config.limit; i++)
        if (membership->left[i] == info->incarnation)
            membership->left[i] = 0;
    missing_drop(membership, info->name);
    membership_touch(membership);
    *changed = true;
    return STATUS_OK;
}

enum status membership_join(struct membership *membership, const struct worker_info *info,
                            uint64_t now_us, struct error *err)
{
    bool changed = false;
    pthread_mutex_lock(&membership->mutex);
    enum status status = join_locked(membership, info, now_us, &changed, err);
    membership_unlock(membership, changed);
    return status;
}

void membership_leave(struct membership *membership, const char *name, uint64_t incarnation)
{
    pthread_mutex_lock(&membership->mutex);
    struct entry *entry = membership_find(membership, name);
    bool changed = entry && entry->member.info.incarnation == incarnation;
    if (changed) {
        membership_remove(membership, entry);
        membership->left[membership->left_count++ % membership->config.limit] = incarnation;
    } else if (!entry) {
        missing_drop(membership, name);
    }
    membership_unlock(membership, changed);
}

bool membership_left(struct membership *membership, uint64_t incarnation)
{
    bool left = false;
    pthread_mutex_lock(&membership->mutex);
    for (size_t i = 0; i < membership->config.limit && !left; i++)
        left = incarnation && membership->left[i] == incarnation;
    pthread_mutex_unlock(&membership->mutex);
    return left;
}

void membership_hold(struct membership *membership, const char *name, uint64_t incarnation,
                     bool held, uint64_t now_us)
{
    pthread_mutex_lock(&membership->mutex);
    struct entry *entry = membership_find(membership, name);
    bool changed =
        entry && entry->member.info.incarnation == incarnation && entry->member.held != held;
    if (changed) {
        entry->member.held = held;
        entry->heard_us = now_us;
        membership_touch(membership);
    }
    membership_unlock(membership, changed);
}

bool membership_held(struct membership *membership, const char *name, uint64_t incarnation)
{
    pthread_mutex_lock(&membership->mutex);
    const struct entry *entry = membership_find(membership, name);
    bool held = entry && entry->member.info.incarnation == incarnation && entry->member.held;
    pthread_mutex_unlock(&membership->mutex);
    return held;
}

uint64_t membership_lapse(struct membership *membership, uint64_t now_us)
{
    uint64_t next_us = UINT64_MAX;
    bool changed = false;
    pthread_mutex_lock(&membership->mutex);
    for (size_t i = 0; i < membership->count;) {
        struct entry *entry = &membership->entries[i];
        uint64_t due_us = entry->heard_us + membership->config.ttl_us;
        if (!entry->member.held && due_us <= now_us) {
            log_warn_lifecycle(
                "membership", "worker=%s incarnation=%016llx msg=\"not heard of: removed\"",
                entry->member.info.name, (unsigned long long)entry->member.info.incarnation);
            missing_note(membership, entry);
            membership_remove(membership, entry);
            changed = true;
            continue;
        }
        if (!entry->member.held && due_us < next_us)
            next_us = due_us;
        i++;
    }
    membership_unlock(membership, changed);
    return next_us;
}

const struct membership_snapshot *membership_snapshot(struct membership *membership)
{
    pthread_mutex_lock(&membership->mutex);
    if (!membership->newest) {
        size_t bytes = membership->count * sizeof(struct member);
        struct shared_snapshot *shared = calloc(1, sizeof *shared + bytes);
        ASSERT(shared);
        shared->snapshot.version = membership->version;
        shared->snapshot.count = membership->count;
        for (size_t i = 0; i < membership->count; i++)
            shared->snapshot.members[i] = membership->entries[i].member;
        atomic_init(&shared->references, 1);
        membership->newest = shared;
    }
    struct shared_snapshot *shared = membership->newest;
    atomic_fetch_add(&shared->references, 1);
    pthread_mutex_unlock(&membership->mutex);
    return &shared->snapshot;
}
