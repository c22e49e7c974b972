/* WorkerInfo on the wire (proto/worker.proto) and in the program (struct worker_info), and the
 * version of the protocol between Baton's processes. A message from outside is checked here
 * once. */
#ifndef BATON_NET_MEMBERSHIP_WORKER_MESSAGE_H
#define BATON_NET_MEMBERSHIP_WORKER_MESSAGE_H

#include "common/base/domain/worker_info.h"
#include "common/base/status.h"
#include "proto/worker.pb-c.h"

/* Both ends of Registry, Session and Peer must be of one version. */
#define WORKER_PROTOCOL_VERSION 3

/* Points into `info`; nothing is owned. Without end ids. */
Baton__Worker__V1__WorkerInfo worker_message_of(const struct worker_info *info);

/* STATUS_INVALID: no name that a router would take. */
enum status worker_name_check(const char *name, struct error *err) WARN_UNUSED;
/* STATUS_UNSUPPORTED: another protocol version; STATUS_INVALID: a field missing, too long or out of
 * range. */
enum status worker_message_read(const Baton__Worker__V1__WorkerInfo *message,
                                struct worker_info *info, struct error *err) WARN_UNUSED;

#endif
