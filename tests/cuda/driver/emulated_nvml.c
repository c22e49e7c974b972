/* A part of libcuda-emulated.so: the functions of NVML that kernels/cuda calls. There is one
 * device, and its numbers stand still. An XID or an error of its memory comes with a launch of the
 * emulated driver, so that it comes while a worker computes. */
#include "kernels/cuda/driver.h"
#include "tests/cuda/driver/emulated.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define DECLARE(NAME, SYMBOL, PARAMETERS)                                                          \
    __attribute__((visibility("default"))) int SYMBOL PARAMETERS;
NVML_FUNCTIONS(DECLARE)

struct nvml_device {
    const char *bus;
};
struct nvml_event_set {
    unsigned long long types;
};

static struct nvml_device the_device = {"00000000:01:00.0"};
static struct nvml_event_set the_set;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t comes = PTHREAD_COND_INITIALIZER;
static uint64_t launched;
static bool told; /* the XID */

void emulated_nvml_launched(uint64_t launches)
{
    pthread_mutex_lock(&lock);
    launched = launches;
    pthread_cond_broadcast(&comes);
    pthread_mutex_unlock(&lock);
}

static int called(const struct nvml_device *device)
{
    return device == &the_device ? (int)emulated_settings.nvml_calls : 2;
}

int nvmlInit_v2(void)
{
    pthread_mutex_lock(&lock);
    launched = 0;
    told = false;
    pthread_mutex_unlock(&lock);
    return (int)emulated_settings.nvml;
}

int nvmlShutdown(void)
{
    return NVML_OK;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, struct nvml_device **device)
{
    *device = &the_device;
    return strcmp(bus, the_device.bus) != 0 ? NVML_NOT_FOUND : NVML_OK;
}

int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *memory)
{
    unsigned long long total = (unsigned long long)emulated_settings.memory << 20;
    *memory = (struct nvml_memory){total, total / 4, total - total / 4};
    return called(device);
}

int nvmlDeviceGetClockInfo(struct nvml_device *device, int clock, unsigned *megahertz)
{
    *megahertz = 1980;
    return clock == NVML_SM_CLOCK ? called(device) : NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetPowerUsage(struct nvml_device *device, unsigned *milliwatts)
{
    *milliwatts = 612500;
    return called(device);
}

int nvmlDeviceGetTemperatureV(struct nvml_device *device, struct nvml_temperature *temperature)
{
    temperature->celsius = 61;
    return temperature->version == NVML_TEMPERATURE_VERSION &&
                   temperature->sensor == NVML_GPU_TEMPERATURE
               ? called(device)
               : NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetCurrentClocksEventReasons(struct nvml_device *device, unsigned long long *reasons)
{
    *reasons = (unsigned long long)emulated_settings.reasons;
    return called(device);
}

int nvmlDeviceGetTotalEccErrors(struct nvml_device *device, int kind, int counter,
                                unsigned long long *count)
{
    pthread_mutex_lock(&lock);
    bool failed = emulated_settings.ecc_at && launched >= (uint64_t)emulated_settings.ecc_at;
    pthread_mutex_unlock(&lock);
    *count = kind == NVML_ECC_UNCORRECTED ? 2 + failed : 5;
    return counter == NVML_ECC_SINCE_LOADED ? called(device) : NVML_NOT_SUPPORTED;
}

int nvmlEventSetCreate(struct nvml_event_set **set)
{
    *set = &the_set;
    return NVML_OK;
}

int nvmlEventSetFree(struct nvml_event_set *set)
{
    set->types = 0;
    return NVML_OK;
}

int nvmlDeviceGetSupportedEventTypes(struct nvml_device *device, unsigned long long *types)
{
    *types = (unsigned long long)emulated_settings.events;
    return called(device);
}

int nvmlDeviceRegisterEvents(struct nvml_device *device, unsigned long long types,
                             struct nvml_event_set *set)
{
    set->types = types;
    return types & ~(unsigned long long)emulated_settings.events ? NVML_NOT_SUPPORTED
                                                                 : called(device);
}

/* Under the lock. */
static bool is_due(const struct nvml_event_set *set)
{
    return set->types & NVML_EVENT_XID && emulated_settings.xid && !told &&
           launched >= (uint64_t)emulated_settings.xid_at;
}

int nvmlEventSetWait_v2(struct nvml_event_set *set, struct nvml_event *event, unsigned timeout_ms)
{
    struct timespec end;
    int waited = 0;
    if (emulated_settings.nvml_calls)
        return (int)emulated_settings.nvml_calls;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    end.tv_sec += (time_t)(timeout_ms / 1000) + end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&lock);
    while (!is_due(set) && !waited)
        waited = pthread_cond_timedwait(&comes, &lock, &end);
    bool due = is_due(set);
    told |= due;
    pthread_mutex_unlock(&lock);
    if (due)
        *event = (struct nvml_event){.device = &the_device,
                                     .type = NVML_EVENT_XID,
                                     .data = (unsigned long long)emulated_settings.xid};
    return due ? NVML_OK : NVML_TIMEOUT;
}
