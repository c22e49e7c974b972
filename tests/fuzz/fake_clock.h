/* Implements common/base/clock.h with a time that stands still until a target moves it. Linked
 * instead of common/base/clock.c. */
#ifndef BATON_TESTS_FUZZ_FAKE_CLOCK_H
#define BATON_TESTS_FUZZ_FAKE_CLOCK_H

#include "common/base/clock.h"

extern uint64_t fake_time_us; /* the time of every clock */

#endif
