/* The numbers of a device that computes, as its driver tells them: for metrics, the status page and
 * the worker's end. PURE. */
#ifndef BATON_BASE_DOMAIN_DEVICE_HEALTH_H
#define BATON_BASE_DOMAIN_DEVICE_HEALTH_H

#include <stdint.h>

enum device_number {
    DEVICE_MEMORY_USED_BYTES, /* by all processes */
    DEVICE_MEMORY_TOTAL_BYTES,
    DEVICE_CLOCK_HERTZ, /* its multiprocessors' clock, now */
    DEVICE_POWER_WATTS,
    DEVICE_TEMPERATURE_CELSIUS,
    DEVICE_ECC_CORRECTED, /* errors of its memory since the driver was loaded */
    DEVICE_ECC_UNCORRECTED,
    DEVICE_XIDS, /* errors that the driver has told of it, since it was opened */
};
#define DEVICE_NUMBERS 8
extern const char *const device_number_names[DEVICE_NUMBERS]; /* "memory_used_bytes" */

/* Reasons for a clock below the highest one. */
enum device_slowdown {
    DEVICE_POWER_CAP,        /* the power limit: normal under full load */
    DEVICE_THERMAL,          /* too hot: the driver slows it down */
    DEVICE_HARDWARE_THERMAL, /* much too hot: the device does */
    DEVICE_POWER_BRAKE,      /* the machine's power supply asks for it */
    DEVICE_HARDWARE,         /* one of the two above, or a power draw that is too high */
};
#define DEVICE_SLOWDOWNS 5
extern const char *const device_slowdown_names[DEVICE_SLOWDOWNS]; /* "power_cap" */

struct device_health {
    double numbers[DEVICE_NUMBERS]; /* below 0: not known */
    uint32_t slowdowns;             /* a bit for each enum device_slowdown */
};

#endif
