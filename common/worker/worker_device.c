/* Watches the worker's device. NVML's calls may take long, and hang where a device does. So they
 * have a thread, and neither steps nor transfers wait for them. */
#include "common/worker/worker.h"

#include "common/base/clock.h"

#include <stdio.h>
#include <time.h>

#define WAIT_MS     100 /* for an event; a stop waits as long */
#define WAITS       10  /* between two looks at the numbers */
#define STOPS_IN_S  5
#define LABEL_BYTES 40

static const struct {
    const char *name, *help, *labels;
    bool counts;
} rows[DEVICE_NUMBERS] = {
    [DEVICE_MEMORY_USED_BYTES] = {"baton_device_memory_used_bytes",
                                  "Memory of the device that all processes use", NULL, false},
    [DEVICE_MEMORY_TOTAL_BYTES] = {"baton_device_memory_total_bytes", "Memory of the device", NULL,
                                   false},
    [DEVICE_CLOCK_HERTZ] = {"baton_device_clock_hertz", "Clock of its multiprocessors now", NULL,
                            false},
    [DEVICE_POWER_WATTS] = {"baton_device_power_watts", "Power that the device draws", NULL, false},
    [DEVICE_TEMPERATURE_CELSIUS] = {"baton_device_temperature_celsius", "The device's temperature",
                                    NULL, false},
    [DEVICE_ECC_CORRECTED] = {"baton_device_ecc_errors",
                              "Errors of the device's memory since its driver was loaded",
                              "kind=\"corrected\"", false},
    [DEVICE_ECC_UNCORRECTED] = {"baton_device_ecc_errors",
                                "Errors of the device's memory since its driver was loaded",
                                "kind=\"uncorrected\"", false},
    [DEVICE_XIDS] = {"baton_device_xids_total", "Errors that the driver told of the device", NULL,
                     true},
};

/* Only numbers that the driver gives have a metric. */
static void register_metrics(struct worker_device *device, struct metrics *metrics)
{
    for (int i = 0; i < DEVICE_NUMBERS; i++) {
        if (device->health.numbers[i] < 0)
            continue;
        if (rows[i].counts)
            device->xids = metrics_counter(metrics, rows[i].name, rows[i].help, rows[i].labels);
        else
            device->numbers[i] = metrics_gauge(metrics, rows[i].name, rows[i].help, rows[i].labels);
    }
    for (int i = 0; i < DEVICE_SLOWDOWNS; i++) {
        char label[LABEL_BYTES];
        snprintf(label, sizeof label, "reason=\"%s\"", device_slowdown_names[i]);
        device->slowed[i] =
            metrics_gauge(metrics, "baton_device_slowed",
                          "1 while the device's clock is low for this reason", label);
    }
    device->read_at =
        metrics_gauge(metrics, "baton_device_read_timestamp_seconds",
                      "When the device's numbers were read, in seconds since 1970", NULL);
}

static void show(struct worker_device *device)
{
    const struct device_health *health = &device->health;
    for (int i = 0; i < DEVICE_NUMBERS; i++)
        if (device->numbers[i] && health->numbers[i] >= 0)
            gauge_set(device->numbers[i], health->numbers[i]);
    worker_metrics_advance(device->xids, &device->seen_xids,
                           (uint64_t)health->numbers[DEVICE_XIDS]);
    for (int i = 0; i < DEVICE_SLOWDOWNS; i++)
        gauge_set(device->slowed[i], health->slowdowns >> i & 1);
    gauge_set(device->read_at, (double)clock_unix_us() / 1e6);
    pthread_mutex_lock(&device->lock);
    device->shown = *health;
    pthread_mutex_unlock(&device->lock);
}

static void *watch(void *context)
{
    struct worker_device *device = context;
    for (uint32_t waits = 1; !atomic_load(&device->stops); waits++) {
        bool reads = waits % WAITS == 0;
        enum status status =
            engine_watch_device(device->engine, WAIT_MS, reads ? &device->health : NULL);
        if (status == STATUS_UNAVAILABLE) {
            device->lost(device->context, true);
            return NULL;
        }
        if (reads)
            show(device);
    }
    return NULL;
}

enum status worker_device_start(struct worker_device *device, struct metrics *metrics,
                                struct error *err)
{
    enum status status = engine_watch_device(device->engine, 0, &device->health);
    if (status == STATUS_UNSUPPORTED)
        return STATUS_OK;
    if (status != STATUS_OK)
        return error_set(err, status, "the device is lost: the line before this one says why");
    pthread_mutex_init(&device->lock, NULL);
    register_metrics(device, metrics);
    show(device);
    if (pthread_create(&device->thread, NULL, watch, device))
        return error_set(err, STATUS_IO, "the thread that watches the device can't start");
    pthread_setname_np(device->thread, "device");
    device->is_watched = true;
    return STATUS_OK;
}

bool worker_device_read(struct worker_device *device, struct device_health *health)
{
    if (!device->is_watched)
        return false;
    pthread_mutex_lock(&device->lock);
    *health = device->shown;
    pthread_mutex_unlock(&device->lock);
    return true;
}

bool worker_device_stop(struct worker_device *device)
{
    struct timespec end;
    if (!device->is_watched)
        return true;
    atomic_store(&device->stops, true);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += STOPS_IN_S;
    if (pthread_timedjoin_np(device->thread, NULL, &end))
        return false;
    device->is_watched = false;
    pthread_mutex_destroy(&device->lock);
    return true;
}
