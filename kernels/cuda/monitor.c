/* Watches a device by NVML: its numbers, and the errors that the driver tells of it. The thread of
 * kernels_watch_device is the only caller after opening. */
#include "kernels/cuda/cuda.h"

#include "common/base/log.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>

#define MODULE    "cuda"
#define LIBRARY   "libnvidia-ml.so.1"
#define BUS_BYTES 32 /* "00000000:3B:00.0" */

/* --- opening --- */

static enum nvml_finding find_library(const struct cuda *self, struct cuda_monitor *monitor,
                                      struct nvml_facts *facts)
{
    struct nvml_library *nvml = &monitor->nvml;
    const struct cuda_symbol symbols[] = {
#define NVML_ROW(NAME, SYMBOL, PARAMETERS) {#SYMBOL, &nvml->NAME},
        NVML_FUNCTIONS(NVML_ROW)
#undef NVML_ROW
    };
    const char *named = getenv(CUDA_LIBRARY_VARIABLE);
    char bus[BUS_BYTES];
    *facts = (struct nvml_facts){.file = named && *named ? named : LIBRARY};
    void *library = dlopen(facts->file, RTLD_NOW | RTLD_LOCAL);
    facts->loaded = library != NULL;
    if (library)
        facts->lacking = cuda_look_up(library, symbols, sizeof symbols / sizeof *symbols);
    if (!library || facts->lacking)
        return nvml_judge(facts);
    facts->init = nvml->init();
    if (facts->init != NVML_OK)
        return nvml_judge(facts);
    if (self->driver.device_bus(bus, sizeof bus, self->device) != CUDA_OK)
        facts->device = NVML_NOT_FOUND;
    else
        facts->device = nvml->device_at(bus, &monitor->device);
    if (facts->device != NVML_OK)
        (void)nvml->shutdown();
    return nvml_judge(facts);
}

/* Asks for the events that end a worker. A container or a part of a device may not have them: then
 * only its numbers and the results of calls tell. Returns the result. */
static int listen_to_events(struct cuda_monitor *monitor)
{
    const struct nvml_library *nvml = &monitor->nvml;
    unsigned long long types = 0;
    int result = nvml->events_supported(monitor->device, &types);
    types &= NVML_EVENT_XID | NVML_EVENT_DOUBLE_BIT;
    if (result != NVML_OK || !types)
        return result == NVML_OK ? NVML_NOT_SUPPORTED : result;
    result = nvml->events_create(&monitor->events);
    if (result != NVML_OK)
        return result;
    result = nvml->events_register(monitor->device, types, monitor->events);
    if (result != NVML_OK) {
        (void)nvml->events_free(monitor->events);
        monitor->events = NULL;
    }
    return result;
}

void cuda_monitor_open(struct cuda *self)
{
    struct cuda_monitor *monitor = &self->monitor;
    struct nvml_facts facts;
    struct error err;
    if (nvml_explain(find_library(self, monitor, &facts), &facts, &err) != STATUS_OK) {
        log_warn(MODULE, "msg=\"the device isn't watched\" why=\"%s\"", err.text);
        return;
    }
    monitor->is_open = true;
    int events = listen_to_events(monitor);
    monitor->counts_errors =
        monitor->nvml.ecc_errors(monitor->device, NVML_ECC_UNCORRECTED, NVML_ECC_SINCE_LOADED,
                                 &monitor->uncorrected) == NVML_OK;
    log_info(MODULE, "msg=\"the device is watched\" xids=%s ecc=%s result=%d",
             events == NVML_OK ? "yes" : "no", monitor->counts_errors ? "yes" : "no", events);
}

void cuda_monitor_close(struct cuda *self)
{
    struct cuda_monitor *monitor = &self->monitor;
    if (!monitor->is_open)
        return;
    if (monitor->events)
        (void)monitor->nvml.events_free(monitor->events);
    (void)monitor->nvml.shutdown();
    monitor->is_open = false;
}

/* --- watching --- */

/* Notes that the device is lost: calls of all threads see it. The cause was logged. */
static enum status lose(struct cuda *self, int result)
{
    int none = CUDA_OK;
    (void)atomic_compare_exchange_strong(&self->lost, &none, result);
    return STATUS_UNAVAILABLE;
}

static enum status take_event(struct cuda *self, const struct nvml_event *event)
{
    if (event->type == NVML_EVENT_DOUBLE_BIT) {
        log_error(MODULE,
                  "msg=\"the device's memory has an error that ECC can't correct\" "
                  "code=cuda_ecc device=%d",
                  self->device);
        return lose(self, CUDA_ECC_UNCORRECTABLE);
    }
    if (event->type != NVML_EVENT_XID)
        return STATUS_OK;
    struct cuda_xid xid = cuda_xid_of(event->data);
    self->monitor.xids++;
    if (!xid.ends) {
        log_warn_limited(MODULE,
                         "msg=\"the device reports an XID: %s\" code=cuda_xid device=%d "
                         "xid=%llu",
                         xid.meaning, self->device, xid.number);
        return STATUS_OK;
    }
    log_error(MODULE,
              "msg=\"the device reports an XID, and is lost: %s\" code=cuda_xid device=%d xid=%llu",
              xid.meaning, self->device, xid.number);
    return lose(self, CUDA_UNKNOWN);
}

/* Looks at the result of a call. NVML tells by it that the device is gone. */
static enum status take_result(struct cuda *self, int result)
{
    if (result != NVML_GPU_IS_LOST && result != NVML_RESET_REQUIRED)
        return STATUS_OK;
    log_error(MODULE,
              "msg=\"the device is lost: %s\" code=cuda_device_lost device=%d nvml_result=%d",
              result == NVML_GPU_IS_LOST ? "it fell off its bus" : "it needs a reset", self->device,
              result);
    return lose(self, CUDA_UNKNOWN);
}

static enum status wait_for_event(struct cuda *self, uint32_t timeout_ms)
{
    struct cuda_monitor *monitor = &self->monitor;
    struct nvml_event event = {0};
    if (!monitor->events) {
        (void)poll(NULL, 0, (int)timeout_ms);
        return STATUS_OK;
    }
    int result = monitor->nvml.events_wait(monitor->events, &event, timeout_ms);
    if (result == NVML_OK)
        return take_event(self, &event);
    if (result == NVML_TIMEOUT)
        return STATUS_OK;
    TRY(take_result(self, result));
    log_warn(MODULE, "msg=\"events of the device can't be waited for any more\" nvml_result=%d",
             result);
    (void)monitor->nvml.events_free(monitor->events);
    monitor->events = NULL;
    return STATUS_OK;
}

static enum status read_numbers(struct cuda *self, struct device_health *health)
{
    struct cuda_monitor *monitor = &self->monitor;
    const struct nvml_library *nvml = &monitor->nvml;
    struct nvml_memory memory;
    unsigned clock, power;
    struct nvml_temperature temperature = {NVML_TEMPERATURE_VERSION, NVML_GPU_TEMPERATURE, 0};
    unsigned long long corrected, uncorrected, reasons;
    double *numbers = health->numbers;
    for (int i = 0; i < DEVICE_NUMBERS; i++)
        numbers[i] = -1;
    health->slowdowns = 0;
    numbers[DEVICE_XIDS] = (double)monitor->xids;
    int result = nvml->memory(monitor->device, &memory);
    TRY(take_result(self, result));
    if (result == NVML_OK) {
        numbers[DEVICE_MEMORY_USED_BYTES] = (double)memory.used;
        numbers[DEVICE_MEMORY_TOTAL_BYTES] = (double)memory.total;
    }
    if (nvml->clock(monitor->device, NVML_SM_CLOCK, &clock) == NVML_OK)
        numbers[DEVICE_CLOCK_HERTZ] = clock * 1e6;
    if (nvml->power(monitor->device, &power) == NVML_OK)
        numbers[DEVICE_POWER_WATTS] = power / 1e3;
    if (nvml->temperature(monitor->device, &temperature) == NVML_OK)
        numbers[DEVICE_TEMPERATURE_CELSIUS] = temperature.celsius;
    if (nvml->slowdowns(monitor->device, &reasons) == NVML_OK)
        health->slowdowns = cuda_slowdowns_of(reasons);
    if (!monitor->counts_errors)
        return STATUS_OK;
    if (nvml->ecc_errors(monitor->device, NVML_ECC_CORRECTED, NVML_ECC_SINCE_LOADED, &corrected) ==
        NVML_OK)
        numbers[DEVICE_ECC_CORRECTED] = (double)corrected;
    if (nvml->ecc_errors(monitor->device, NVML_ECC_UNCORRECTED, NVML_ECC_SINCE_LOADED,
                         &uncorrected) != NVML_OK)
        return STATUS_OK;
    numbers[DEVICE_ECC_UNCORRECTED] = (double)uncorrected;
    if (uncorrected <= monitor->uncorrected)
        return STATUS_OK;
    log_error(MODULE,
              "msg=\"the device's memory has errors that ECC can't correct\" code=cuda_ecc "
              "device=%d errors=%llu before=%llu",
              self->device, uncorrected, monitor->uncorrected);
    return lose(self, CUDA_ECC_UNCORRECTABLE);
}

enum status cuda_watch(struct kernels *kernels, uint32_t timeout_ms, struct device_health *health)
{
    struct cuda *self = kernels->state;
    if (!self->monitor.is_open)
        return STATUS_UNSUPPORTED;
    TRY(wait_for_event(self, timeout_ms));
    return health ? read_numbers(self, health) : STATUS_OK;
}
