#include "common/base/domain/device_health.h"

const char *const device_number_names[DEVICE_NUMBERS] = {
    "memory_used_bytes",   "memory_total_bytes", "clock_hertz",     "power_watts",
    "temperature_celsius", "ecc_corrected",      "ecc_uncorrected", "xids",
};

const char *const device_slowdown_names[DEVICE_SLOWDOWNS] = {
    "power_cap", "thermal", "hardware_thermal", "power_brake", "hardware",
};
