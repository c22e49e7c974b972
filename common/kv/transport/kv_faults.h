/* The faulty transport: any other one, with faults in its reads. A read has at most one fault. It
 * is drawn when the read is asked for, only from the seed and the number of the read, so the same
 * calls meet the same faults. It happens when the read's bytes have landed, before its event:
 *
 *     drop       the event never comes: the read ends by its deadline, which closes the pairing
 *     delay      the event comes later (P:TIME; 20ms)
 *     duplicate  the bytes move a second time, into the same runs, before the event
 *     corrupt    a few bits of the landed runs are flipped
 *     reorder    the event comes after that of a read that ended later (or after P:TIME; 50ms)
 *     lost       the lane breaks: the pairing is closed, with all of its reads
 *
 * A specification is a list of NAME=PROBABILITY[:TIME], with seed=N (default 1), first=N (no faults
 * in reads before the N-th, counted from 0) and limit=N (at most N faults in all):
 * "seed=7,drop=0.01,delay=0.1:20ms". Each fault that happens is counted (kv_transport_counters),
 * logged at level debug, and noted as failpoint "kv.NAME". Internal to this folder, except for the
 * specification. */
#ifndef BATON_KV_TRANSPORT_KV_FAULTS_H
#define BATON_KV_TRANSPORT_KV_FAULTS_H

#include "common/kv/transport/transport_ops.h"

struct kv_faults;

/* STATUS_INVALID with a sentence: not a specification. */
enum status kv_faults_create(const char *specification, struct kv_faults **faults,
                             struct error *err) WARN_UNUSED;
void kv_faults_destroy(struct kv_faults *faults);

/* All bytes of the read have landed: makes its fault happen. Returns true if the read ends now.
 * Otherwise it is held (read->held_us), moves again, or its peer was failed. */
bool kv_faults_landed(struct kv_transport *transport, struct kv_read *read);

#endif
