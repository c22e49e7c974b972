/* Translates a worker's description between the wire (WorkerInfo of proto/worker.proto) and the
 * program (struct worker_info), and checks it. Holds the version of the protocol between Baton's
 * processes. */
#ifndef BATON_NET_MEMBERSHIP_WORKER_MESSAGE_H
#define BATON_NET_MEMBERSHIP_WORKER_MESSAGE_H

#include "common/base/domain/worker_info.h"
#include "common/base/status.h"
#include "proto/worker.pb-c.h"

/* Both ends of Registry, Session and Peer must be of one version. */
#define WORKER_PROTOCOL_VERSION 3

/* Returns a message that points into `info`. Without end ids. */
Baton__Worker__V1__WorkerInfo worker_message_of(const struct worker_info *info);

/* STATUS_INVALID: a router wouldn't accept the name. */
enum status worker_name_check(const char *name, struct error *err) WARN_UNUSED;
/* STATUS_UNSUPPORTED: another protocol version. STATUS_INVALID: a field is missing, too long or out
 * of range. */
enum status worker_message_read(const Baton__Worker__V1__WorkerInfo *message,
                                struct worker_info *info, struct error *err) WARN_UNUSED;

#endif
