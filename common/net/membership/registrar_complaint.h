/* What is logged of registrations that fail: an error of one that was refused, which a person must
 * mend; of others a warning once they have failed for REGISTRAR_PATIENCE_US, and an info before.
 * Each code's once in REGISTRAR_COMPLAIN_EVERY_US. No action here. */
#ifndef BATON_NET_MEMBERSHIP_REGISTRAR_COMPLAINT_H
#define BATON_NET_MEMBERSHIP_REGISTRAR_COMPLAINT_H

#include "common/base/log.h"
#include "common/net/rpc/rpc.h"

#include <stdbool.h>
#include <stdint.h>

/* A router that isn't there for a moment is one that starts or stops, with the worker about to be
 * told as much. */
#define REGISTRAR_PATIENCE_US       1000000u
#define REGISTRAR_COMPLAIN_EVERY_US 30000000u

/* All zero at first. */
struct registrar_complaint {
    uint64_t failing_since_us; /* 0: the last registration was accepted */
    uint64_t complained_us;    /* last warning or error; 0: none yet */
    enum rpc_code complained_of;
};

/* Whether to log that a registration ended with `code` at now_us (not 0), and at which level.
 * RPC_OK is no complaint, and the end of those before it. */
bool registrar_complaint_due(struct registrar_complaint *complaint, enum rpc_code code,
                             uint64_t now_us, enum log_level *level);

#endif
