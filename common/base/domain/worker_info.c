#include "common/base/domain/worker_info.h"

const char *worker_role_name(enum worker_role role)
{
    return role == ROLE_PREFILL ? "prefill" : "decode";
}
