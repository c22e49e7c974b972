#include "tests/bench/router_load/stamps.h"

#include "common/base/clock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 8192, TOKENS = 128 };
static _Atomic uint64_t times_ns[REQUESTS][TOKENS];

void stamps_set(uint32_t request, uint32_t token)
{
    atomic_store(&times_ns[request % REQUESTS][token % TOKENS], clock_now_ns());
}

uint64_t stamps_get_ns(uint32_t request, uint32_t token)
{
    return atomic_load(&times_ns[request % REQUESTS][token % TOKENS]);
}

uint32_t stamps_number(const char *text, size_t length)
{
    const char *at = memmem(text, length, STAMPS_NAME, strlen(STAMPS_NAME));
    return at ? (uint32_t)strtoul(at + strlen(STAMPS_NAME), NULL, 10) : 0;
}
