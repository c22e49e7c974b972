/* Inside libcuda-emulated.so: the settings of BATON_CUDA_EMULATED. emulated_driver.c names them. */
#ifndef BATON_TESTS_CUDA_EMULATED_SETTINGS_H
#define BATON_TESTS_CUDA_EMULATED_SETTINGS_H

#include <stdint.h>

struct emulated_settings {
    long version, init, context, module, devices, capability, memory, taken, sms, fails, result,
        late, seed, shares, taken_kib, record_fails;
    long nvml, nvml_calls, events, xid, xid_at, ecc_at, reasons; /* emulated_nvml.c */
};
extern __attribute__((visibility("hidden"))) struct emulated_settings emulated_settings;

/* The driver has begun so many launches. */
void emulated_nvml_launched(uint64_t launches);

#endif
