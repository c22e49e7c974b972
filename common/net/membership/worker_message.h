/* Translates a worker's description between the wire (WorkerInfo of proto/worker.proto) and the
 * program (struct worker_info), and checks it. Holds the version of the protocol between Baton's
 * processes. */
#ifndef BATON_NET_MEMBERSHIP_WORKER_MESSAGE_H
#define BATON_NET_MEMBERSHIP_WORKER_MESSAGE_H

#include "common/base/domain/worker_info.h"
#include "common/base/status.h"
#include "proto/worker.pb-c.h"

#include <stdbool.h>

/* Both ends of Registry, Session and Peer must be of one version. */
#define WORKER_PROTOCOL_VERSION 4

/* The end of a stream after a hello that doesn't name this worker in this life: RPC_NOT_FOUND. */
#define WORKER_OTHER      "another_worker"
#define WORKER_OTHER_TEXT "another worker, or another life of that worker, is here"

/* Returns true if a hello's `name` and `incarnation` are this worker's. No other hello learns
 * anything about it. */
bool worker_message_names(const struct worker_info *info, const char *name, uint64_t incarnation);

/* Returns a message that points into `info`. Without end ids. */
Baton__Worker__V1__WorkerInfo worker_message_of(const struct worker_info *info);

/* STATUS_INVALID: a router wouldn't accept the name. */
enum status worker_name_check(const char *name, struct error *err) WARN_UNUSED;
/* STATUS_UNSUPPORTED: another protocol version. STATUS_INVALID: a field is missing, too long or out
 * of range. */
enum status worker_message_read(const Baton__Worker__V1__WorkerInfo *message,
                                struct worker_info *info, struct error *err) WARN_UNUSED;

#endif
