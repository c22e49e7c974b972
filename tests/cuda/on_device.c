/* emulated.h on a device: the tests of the kernels run through kernels.h and the driver, on a GPU,
 * or on the one that BATON_CUDA_DRIVER names. The device is opened once. The first field of struct
 * emulated, `target`, is the device's own, and there is no other. */
#include "kernels/cuda/cuda.h"
#include "tests/cuda/emulated.h"

#include <stdlib.h>
#include <string.h>

#define MOST_SCRATCH (8u << 20) /* tests give plans as much */

static struct kernels *opened;
static struct cuda_target as_opened;

static struct cuda_target *target_of(const struct kernels *kernels)
{
    return &((struct cuda *)kernels->state)->target;
}

const bool emulated_counts = false;

struct emulated *emulated_of(struct kernels *kernels)
{
    return (struct emulated *)target_of(kernels);
}

static void close_device(void)
{
    kernels_close(opened);
}

/* Without kernels for sm_90a, hopper is false for all tests. */
struct kernels *emulated_open(bool hopper)
{
    struct kernels_config config = {.device = DEVICE_CUDA, .threads = 1};
    struct error err = {""};
    if (!opened) {
        if (kernels_open(&config, &opened, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        as_opened = *target_of(opened);
        assert_true(as_opened.scratch.bytes >= MOST_SCRATCH);
        (void)atexit(close_device);
    }
    *target_of(opened) = as_opened;
    target_of(opened)->hopper &= hopper;
    return opened;
}

void emulated_close(struct kernels *kernels)
{
    static uint32_t tickets[CUDA_TICKETS];
    assert_int_equal(kernels_download(kernels, &as_opened.tickets, 0, tickets, sizeof tickets),
                     STATUS_OK);
    for (uint32_t i = 0; i < CUDA_TICKETS; i++)
        assert_int_equal(tickets[i], 0);
}

void emulated_run(struct kernels *kernels, const struct cuda_plan *plan)
{
    (void)kernels;
    fail_msg("%u launches of a plan are run by operations alone", plan->count);
}
