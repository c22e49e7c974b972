/* Translates a worker's description between the wire (WorkerInfo of proto/worker.proto) and the
 * program (struct worker_info), and checks it. Holds the version of the protocol between Baton's
 * processes. */
#ifndef BATON_NET_MEMBERSHIP_WORKER_MESSAGE_H
#define BATON_NET_MEMBERSHIP_WORKER_MESSAGE_H

#include "common/base/domain/worker_info.h"
#include "common/base/status.h"
#include "proto/worker.pb-c.h"

#include <stdbool.h>

/* The versions of Registry, Session and Peer that this build speaks. Both ends use the newest that
 * they share. So a release may be rolled out process by process, if it speaks the version before. A
 * field that an older version lacks is only sent, and only relied on, from its version on. */
#define WORKER_PROTOCOL_VERSION 7
#define WORKER_PROTOCOL_LEAST   4
/* From this version on: StepReport, and Load in Tokens. */
#define WORKER_PROTOCOL_STEPS 5
/* From this version on: CacheRestart. */
#define WORKER_PROTOCOL_CACHE_RESTART 6
/* From this version on: Dismiss. */
#define WORKER_PROTOCOL_DISMISS 6
/* From this version on, a router hears of a prompt by its reader, too. Before, it counted both. */
#define WORKER_PROTOCOL_READER_PREFILLED 6
/* From this version on: sums of blocks, in Ready and Complete. Before, Complete had checksums. */
#define WORKER_PROTOCOL_SUMS 7

struct protocol_range {
    uint32_t least, newest;
};
/* Returns the versions of a worker. */
struct protocol_range worker_message_protocol(const struct worker_info *info);
/* Returns the versions of the router that said hello. */
struct protocol_range worker_message_router_protocol(const Baton__Worker__V1__RouterHello *hello);
/* Returns the newest version in both ranges. 0: there is none, and *err names both ranges. `peer`
 * is the name of the other end in that sentence, such as "the router". */
uint32_t worker_message_agree(struct protocol_range own, struct protocol_range other,
                              const char *peer, struct error *err);

/* The end of a stream after a hello that doesn't name this worker in this life: RPC_NOT_FOUND. */
#define WORKER_OTHER      "another_worker"
#define WORKER_OTHER_TEXT "another worker, or another life of that worker, is here"

/* The reasons with which a prefill worker ends the stream of a peer: another one needs the idle
 * one's place (RPC_UNAVAILABLE), or all places are of others that read (RPC_RESOURCE_EXHAUSTED). */
#define PEER_MADE_ROOM "made_room"
#define PEER_NO_ROOM   "too_many_peers"

/* Returns true if a hello's `name` and `incarnation` are this worker's. No other hello learns
 * anything about it. */
bool worker_message_names(const struct worker_info *info, const char *name, uint64_t incarnation);

/* Returns a message that points into `info`. Without end ids. */
Baton__Worker__V1__WorkerInfo worker_message_of(const struct worker_info *info);

/* STATUS_INVALID: a router wouldn't accept the name. */
enum status worker_name_check(const char *name, struct error *err) WARN_UNUSED;
/* STATUS_UNSUPPORTED: it shares no version with this process; `info` then has only name, role,
 * address and model, as far as they can be read. STATUS_INVALID: a field is missing, too long or
 * out of range. */
enum status worker_message_read(const Baton__Worker__V1__WorkerInfo *message,
                                struct worker_info *info, struct error *err) WARN_UNUSED;

#endif
