#include "decode_worker/pairing_outcome.h"

void pairing_outcome_welcomed(struct pairing_outcome *ends)
{
    ends->welcomes++;
    ends->in_doubt = false;
}

bool pairing_outcome_may_pair(struct pairing_outcome *ends)
{
    bool may = !ends->in_doubt;
    ends->in_doubt = false;
    ends->paired_after = ends->welcomes;
    return may;
}

enum pair_end pairing_outcome_note(struct pairing_outcome *ends, const struct kv_event *event)
{
    bool gone = event->failure == KV_FAILURE_PEER_GONE;
    if (event->welcomed || event->failure == KV_FAILURE_CLOSED)
        return gone ? PAIR_END_GONE : PAIR_END_PLAIN;
    if (!gone && event->failure != KV_FAILURE_UNREACHABLE)
        return PAIR_END_REFUSED;
    ends->in_doubt = ends->paired_after == ends->welcomes;
    return PAIR_END_GONE;
}
