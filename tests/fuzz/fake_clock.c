#include "tests/fuzz/fake_clock.h"

uint64_t fake_time_us;

uint64_t clock_now_us(void)
{
    return fake_time_us;
}

uint64_t clock_now_ns(void)
{
    return fake_time_us * 1000;
}

uint64_t clock_unix_us(void)
{
    return fake_time_us;
}
