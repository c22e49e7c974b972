#include "common/kv/handoff/handoff.h"

bool handle_ref_equal(struct handle_ref a, struct handle_ref b)
{
    return a.incarnation == b.incarnation && a.id == b.id && a.generation == b.generation;
}

uint64_t handle_grant(struct handle_ref ref)
{
    return (uint64_t)ref.generation << 32 | ref.id;
}

const char *peer_down_kind_name(enum peer_down_kind kind)
{
    static const char *const names[] = {"subscribe", "extend", "confirm", "release"};
    return (size_t)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

const char *peer_up_kind_name(enum peer_up_kind kind)
{
    static const char *const names[] = {"ready", "complete", "held", "gone", "extended"};
    return (size_t)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

uint32_t block_runs(const uint32_t *remote, const uint32_t *local, uint32_t block_count,
                    struct block_run *runs)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < block_count; i++) {
        struct block_run *last = count ? &runs[count - 1] : NULL;
        if (last && remote[i] == last->remote_block + last->block_count &&
            local[i] == last->local_block + last->block_count)
            last->block_count++;
        else
            runs[count++] = (struct block_run){remote[i], local[i], 1};
    }
    return count;
}

void past_attempts_add(struct past_attempts *past, uint64_t request, uint32_t attempt)
{
    uint64_t i = past->added++ % PAST_ATTEMPTS;
    past->items[i].request = request;
    past->items[i].attempt = attempt;
}

bool past_attempts_has(const struct past_attempts *past, uint64_t request, uint32_t attempt)
{
    uint64_t count = past->added < PAST_ATTEMPTS ? past->added : PAST_ATTEMPTS;
    for (uint64_t i = 0; i < count; i++)
        if (past->items[i].request == request && past->items[i].attempt >= attempt)
            return true;
    return false;
}
