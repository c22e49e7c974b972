#include "common/net/membership/registrar_complaint.h"

bool registrar_complaint_due(struct registrar_complaint *complaint, enum rpc_code code,
                             uint64_t now_us, enum log_level *level)
{
    bool first = !complaint->failing_since_us;
    if (code == RPC_OK) {
        complaint->failing_since_us = 0;
        return false;
    }
    if (first)
        complaint->failing_since_us = now_us;
    bool refused = code == RPC_FAILED_PRECONDITION || code == RPC_INVALID_ARGUMENT;
    if (!refused && now_us - complaint->failing_since_us < REGISTRAR_PATIENCE_US) {
        *level = LOG_INFO;
        return first;
    }
    if (complaint->complained_us && code == complaint->complained_of &&
        now_us - complaint->complained_us < REGISTRAR_COMPLAIN_EVERY_US)
        return false;
    complaint->complained_of = code;
    complaint->complained_us = now_us;
    *level = refused ? LOG_ERROR : LOG_WARN;
    return true;
}
