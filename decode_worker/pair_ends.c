#include "decode_worker/pair_ends.h"

void pair_ends_welcomed(struct pair_ends *ends)
{
    ends->welcomes++;
    ends->in_doubt = false;
}

bool pair_ends_may_pair(struct pair_ends *ends)
{
    bool may = !ends->in_doubt;
    ends->in_doubt = false;
    ends->paired_after = ends->welcomes;
    return may;
}

enum pair_end pair_ends_note(struct pair_ends *ends, const struct kv_event *event)
{
    bool gone = event->failure == KV_FAILURE_PEER_GONE;
    if (event->welcomed || event->failure == KV_FAILURE_CLOSED)
        return gone ? PAIR_END_GONE : PAIR_END_PLAIN;
    if (!gone && event->failure != KV_FAILURE_UNREACHABLE)
        return PAIR_END_REFUSED;
    ends->in_doubt = ends->paired_after == ends->welcomes;
    return PAIR_END_GONE;
}
