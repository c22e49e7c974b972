/* The device on which a whole run of tests computes: BATON_TEST_DEVICE is a name of
 * kernels_config.device (default: cpu). */
#ifndef BATON_TESTS_DEVICE_H
#define BATON_TESTS_DEVICE_H

#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

static inline enum device test_device(void)
{
    const char *name = getenv("BATON_TEST_DEVICE");
    for (int i = 0; name && device_names[i]; i++)
        if (strcmp(name, device_names[i]) == 0)
            return (enum device)i;
    if (name)
        abort(); /* a misspelt name may not pass as the CPU */
    return DEVICE_CPU;
}

#endif
