#include "router/reasons.h"

#include "common/base/assert.h"

static const struct {
    const char *name;
    enum rpc_code code;
    const char *when;
} table[REASON_COUNT] = {[REASON_NONE] = {"", RPC_OK, ""},
#define REASON_ROW(symbol, text, code, when) [REASON_##symbol] = {text, RPC_##code, when},
                         ROUTER_REASONS(REASON_ROW)
#undef REASON_ROW
};

const char *reason_name(enum reason reason)
{
    ASSERT(reason < REASON_COUNT);
    return table[reason].name;
}

enum rpc_code reason_code(enum reason reason)
{
    ASSERT(reason < REASON_COUNT);
    return table[reason].code;
}

const char *reason_when(enum reason reason)
{
    ASSERT(reason < REASON_COUNT);
    return table[reason].when;
}
