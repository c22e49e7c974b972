#include "router/planner/worker_state.h"

const char *worker_state_name(enum worker_state state)
{
    switch (state) {
    case WORKER_WAITING: return "waiting";
    case WORKER_DIALLING: return "dialling";
    case WORKER_UP: return "up";
    case WORKER_LEAVING: return "leaving";
    }
    return "unknown";
}
