/* libcuda-emulated.so: the functions of NVIDIA's driver that kernels/cuda calls, for a machine
 * without a GPU, and with emulated_nvml.c those of NVML. BATON_CUDA_DRIVER names it. Kernels run by
 * emulate.h. Launches that lie side by side in a queue, or in a graph, start early if they are
 * marked so.
 *
 * Device memory has no access rights outside of launches and copies, and a guard page behind each
 * allocation: a host that touches it ends with SIGSEGV. Streams are queues in order. By default
 * queued work runs before its call returns. With `late` it stands still until the host waits for it
 * or has asked for it once, and every second event of the second stream passes at once: as in
 * kernels/deferred.
 *
 * BATON_CUDA_EMULATED is a list of NAME=NUMBER, read by cuInit and cuDriverGetVersion:
 *      version=12040   of the driver (default 13000)
 *      init=803        result of cuInit; context=46, module=209: of opening either
 *      devices=0       (default 1)
 *      capability=75   (default 90)
 *      memory=64       MiB of the device (default 512); taken=60: of them, by other processes;
 *                      taken_kib=100: and KiB
 *      sms=4           multiprocessors (default 4)
 *      fails=3         the third launch ends the context (1: the first), with result=214 (719)
 *      late=1
 *      record_fails=3  the third record of an event fails (1: the first), and nothing else
 *      graphs=3        so many graphs can be made (default 1000); then graph_result=999 (2)
 *      graph_kib=64    KiB of the device that each launch of a graph takes (default 1)
 *      seed=7          of the order of threads (default 1)
 *      shares=0        it exports no memory (default 1)
 *      nvml=9          result of nvmlInit; nvml_calls=15: of its other calls
 *      events=2        types of events that NVML has (default 10: XID and double-bit errors)
 *      xid=79          is told, at the launch that xid_at names (default 1: the first)
 *      ecc_at=3        launch from which on there is one more uncorrected error of memory
 *      reasons=4       why its clock is low */
#include "tests/cuda/driver/emulated.h"
#include "tests/cuda/driver/emulated_graphs.h"
#include "tests/cuda/driver/emulated_memory.h"
#include "tests/cuda/emulate/emulate.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define QUEUE_ITEMS    256
#define MAX_STREAMS    16
#define MAX_FUNCTIONS  128
#define SMALL_SHARED   (48u << 10)
#define SHARED_BYTES   232448
#define LEAST_PRIORITY 0 /* the greatest is -5 */

/* --- settings --- */

struct emulated_settings emulated_settings;
#define settings emulated_settings

static void read_settings(void)
{
    settings = (typeof(settings)){.version = 13000,
                                  .devices = 1,
                                  .capability = 90,
                                  .memory = 512,
                                  .sms = 4,
                                  .result = CUDA_LAUNCH_FAILED,
                                  .seed = 1,
                                  .events = NVML_EVENT_XID | NVML_EVENT_DOUBLE_BIT,
                                  .xid_at = 1,
                                  .shares = 1};
    graph_limits = (struct graph_limits){.most = 1000, .result = CUDA_OUT_OF_MEMORY, .kib = 1};
    const struct {
        const char *name;
        long *value;
    } names[] = {{"version", &settings.version},
                 {"init", &settings.init},
                 {"context", &settings.context},
                 {"module", &settings.module},
                 {"devices", &settings.devices},
                 {"capability", &settings.capability},
                 {"memory", &settings.memory},
                 {"taken", &settings.taken},
                 {"sms", &settings.sms},
                 {"fails", &settings.fails},
                 {"result", &settings.result},
                 {"late", &settings.late},
                 {"seed", &settings.seed},
                 {"shares", &settings.shares},
                 {"taken_kib", &settings.taken_kib},
                 {"record_fails", &settings.record_fails},
                 {"nvml", &settings.nvml},
                 {"nvml_calls", &settings.nvml_calls},
                 {"events", &settings.events},
                 {"xid", &settings.xid},
                 {"xid_at", &settings.xid_at},
                 {"ecc_at", &settings.ecc_at},
                 {"reasons", &settings.reasons},
                 {"graphs", &graph_limits.most},
                 {"graph_kib", &graph_limits.kib},
                 {"graph_result", &graph_limits.result}};
    const char *text = getenv("BATON_CUDA_EMULATED");
    while (text && *text) {
        size_t length = strcspn(text, "="), i = 0;
        while (i < sizeof names / sizeof *names &&
               (strlen(names[i].name) != length || strncmp(text, names[i].name, length)))
            i++;
        char *end;
        if (i == sizeof names / sizeof *names || text[length] != '=')
            abort(); /* a misspelt name may not pass as the default */
        *names[i].value = strtol(text + length + 1, &end, 10);
        text = *end == ',' ? end + 1 : end;
    }
}

/* --- state: under the lock --- */

struct cuda_function {
    char name[96];
    uint32_t shared_bytes;
};

struct cuda_event {
    struct cuda_stream_handle *stream; /* NULL: never recorded */
    uint64_t number;                   /* it has passed when the stream has done so many items */
    uint64_t passed_ns;
};

struct cuda_context {
    int users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_context context;
static struct cuda_function functions[MAX_FUNCTIONS];
static size_t function_count;
static int stream_count;
static uint64_t launches;
struct emulated_calls calls;
static int failed; /* the result that ended the context */
static bool started;
static _Thread_local struct cuda_context *current;

size_t emulated_device_bytes(bool taken)
{
    return taken ? ((size_t)settings.taken << 20) + ((size_t)settings.taken_kib << 10)
                 : (size_t)settings.memory << 20;
}

/* Begins a call that needs a context. CUDA_OK: emulated_leave() is due. */
int emulated_enter(void)
{
    if (!started || !current)
        return CUDA_INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    int result = current->users ? failed : CUDA_INVALID_CONTEXT;
    calls.all++;
    if (result != CUDA_OK)
        pthread_mutex_unlock(&lock);
    return result;
}

int emulated_enter_queue(struct cuda_stream_handle *stream)
{
    int result = emulated_enter();
    if (result != CUDA_OK || !stream->captured)
        return result;
    stream->capture_ends = true;
    pthread_mutex_unlock(&lock);
    return CUDA_CAPTURE_UNSUPPORTED;
}

int emulated_leave(int result)
{
    memory_open_all(false);
    pthread_mutex_unlock(&lock);
    return result;
}

/* --- queues --- */

void emulated_launch(struct item *const *items, uint32_t count)
{
    char report[1024] = "";
    const struct cuda_launch *side[EMULATE_AT_ONCE];
    struct emulated_start *starts[EMULATE_AT_ONCE];
    if (failed != CUDA_OK)
        return;
    emulated_nvml_launched(++launches);
    if (launches == (uint64_t)settings.fails) {
        failed = (int)settings.result;
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        side[i] = &items[i]->launch;
        starts[i] = items[i]->start;
    }
    memory_open_all(true);
    bool sound = emulate_next(side, starts, count, (uint64_t)settings.seed + launches, report,
                              sizeof report);
    for (uint32_t i = 0; i < count; i++) {
        calls.early += !items[i]->start && starts[i];
        items[i]->start = starts[i];
    }
    if (sound)
        return;
    fprintf(stderr, "emulated driver: %s: %s\n", side[0]->kernel, report);
    failed = CUDA_LAUNCH_FAILED;
}

static void launch_queued(struct cuda_stream_handle *stream)
{
    struct item *side[EMULATE_AT_ONCE];
    uint32_t count = 0;
    for (; count < EMULATE_AT_ONCE && stream->done + count < stream->queued; count++) {
        side[count] = &stream->items[(stream->done + count) % QUEUE_ITEMS];
        if (side[count]->kind != LAUNCH)
            break;
    }
    emulated_launch(side, count);
}

/* Opens the memory that it touches. A copy to memory that is mapped for reading ends the
 * context. */
static void transfer(const struct item *item)
{
    const struct memory *target = memory_at(item->target), *source = memory_at(item->source);
    if ((target && !(target->rights & PROT_WRITE)) ||
        (source && item->kind == COPY && !source->rights)) {
        failed = CUDA_ILLEGAL_ADDRESS;
        return;
    }
    const struct memory *ends[] = {target, item->kind == COPY ? source : NULL};
    bool opens = !memory_is_open();
    for (int side = 0; side < 2; side++)
        if (opens && ends[side])
            memory_open_one(ends[side], true);
    if (item->kind == COPY)
        memmove(item->target, item->source, item->bytes);
    else
        memset(item->target, item->byte, item->bytes);
    for (int side = 0; side < 2; side++)
        if (opens && ends[side])
            memory_open_one(ends[side], false);
}

/* Runs items up to this number, and calls of the host that follow. */
static void run_until(struct cuda_stream_handle *stream, uint64_t number)
{
    while (stream->done < stream->queued) {
        struct item *item = &stream->items[stream->done % QUEUE_ITEMS];
        if (stream->done >= number && item->kind != CALL)
            return;
        struct timespec now;
        if (item->kind == WAIT)
            run_until(item->before, item->number);
        if (item->kind == MARK && item->event->number == stream->done + 1) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            item->event->passed_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        }
        if (failed == CUDA_OK && item->kind == CALL)
            item->call(item->context);
        else if (failed == CUDA_OK && item->kind <= FILL)
            transfer(item);
        else if (item->kind == LAUNCH)
            launch_queued(stream);
        else if (item->kind == GRAPH)
            graph_run(item->graph);
        stream->done++;
    }
}

struct item *emulated_push(struct cuda_stream_handle *stream)
{
    if (stream->queued - stream->done == QUEUE_ITEMS)
        run_until(stream, stream->done + QUEUE_ITEMS / 2);
    struct item *item = &stream->items[stream->queued++ % QUEUE_ITEMS];
    memset(item, 0, sizeof *item);
    return item;
}

/* Without `late` the item runs at once. */
int emulated_pushed(struct cuda_stream_handle *stream)
{
    if (!settings.late)
        run_until(stream, stream->queued);
    return emulated_leave(CUDA_OK);
}

int cuStreamCreateWithPriority(struct cuda_stream_handle **stream, unsigned flags, int priority)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    struct cuda_stream_handle *made = calloc(1, sizeof *made);
    if (flags != CUDA_STREAM_NON_BLOCKING || priority > LEAST_PRIORITY || !made)
        return emulated_leave(CUDA_INVALID_VALUE);
    made->items = calloc(QUEUE_ITEMS, sizeof *made->items);
    made->index = stream_count++;
    made->yields = priority == LEAST_PRIORITY;
    *stream = made;
    return emulated_leave(CUDA_OK);
}

int cuStreamDestroy_v2(struct cuda_stream_handle *stream)
{
    pthread_mutex_lock(&lock);
    run_until(stream, stream->queued);
    free(stream->items);
    free(stream);
    return emulated_leave(failed);
}

int cuStreamSynchronize(struct cuda_stream_handle *stream)
{
    int result = emulated_enter_queue(stream);
    if (result != CUDA_OK)
        return result;
    calls.waits++;
    run_until(stream, stream->queued);
    return emulated_leave(failed);
}

int cuStreamWaitEvent(struct cuda_stream_handle *stream, struct cuda_event *event, unsigned flags)
{
    int result = emulated_enter_queue(stream);
    if (result != CUDA_OK || !event->stream || flags)
        return result == CUDA_OK ? emulated_leave(flags ? CUDA_INVALID_VALUE : CUDA_OK) : result;
    struct item *item = emulated_push(stream);
    item->kind = WAIT;
    item->before = event->stream;
    item->number = event->number;
    return emulated_pushed(stream);
}

int cuLaunchHostFunc(struct cuda_stream_handle *stream, void (*function)(void *), void *argument)
{
    int result = emulated_enter_queue(stream);
    if (result != CUDA_OK)
        return result;
    struct item *item = emulated_push(stream);
    item->kind = CALL;
    item->call = function;
    item->context = argument;
    return emulated_pushed(stream);
}

int cuEventCreate(struct cuda_event **event, unsigned flags)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    (void)flags;
    *event = calloc(1, sizeof **event);
    return emulated_leave(*event ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

int cuEventDestroy_v2(struct cuda_event *event)
{
    pthread_mutex_lock(&lock);
    if (event->stream)
        run_until(event->stream, event->number);
    free(event);
    return emulated_leave(failed);
}

int cuEventRecord(struct cuda_event *event, struct cuda_stream_handle *stream)
{
    int result = emulated_enter_queue(stream);
    if (result != CUDA_OK)
        return result;
    if (++calls.records == (uint64_t)settings.record_fails)
        return emulated_leave(CUDA_INVALID_VALUE);
    struct item *item = emulated_push(stream);
    item->kind = MARK;
    item->event = event;
    event->stream = stream;
    event->number = stream->queued;
    if (stream->index == 1 && ++stream->marks % 2 == 0)
        run_until(stream, stream->queued);
    return emulated_pushed(stream);
}

int cuEventQuery(struct cuda_event *event)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    bool passed = !event->stream || event->stream->done >= event->number;
    if (!passed)
        run_until(event->stream, event->number);
    return emulated_leave(failed != CUDA_OK ? failed : passed ? CUDA_OK : CUDA_NOT_READY);
}

int cuEventSynchronize(struct cuda_event *event)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    calls.waits++;
    if (event->stream)
        run_until(event->stream, event->number);
    return emulated_leave(failed);
}

int cuEventElapsedTime_v2(float *milliseconds, struct cuda_event *begin, struct cuda_event *end)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    calls.times++;
    if (!begin->stream || !end->stream || begin->stream->done < begin->number ||
        end->stream->done < end->number)
        return emulated_leave(begin->stream && end->stream ? CUDA_NOT_READY : CUDA_INVALID_VALUE);
    *milliseconds = (float)((double)(end->passed_ns - begin->passed_ns) / 1e6);
    return emulated_leave(CUDA_OK);
}

/* --- transfers --- */

int cuMemsetD8Async(uint64_t address, unsigned char byte, size_t bytes,
                    struct cuda_stream_handle *stream)
{
    int result = emulated_enter_queue(stream);
    if (result != CUDA_OK)
        return result;
    if (!memory_is_sound(address, bytes) || !memory_at((void *)(uintptr_t)address))
        return emulated_leave(CUDA_INVALID_VALUE);
    struct item *item = emulated_push(stream);
    item->kind = FILL;
    item->target = (void *)(uintptr_t)address;
    item->byte = byte;
    item->bytes = bytes;
    return emulated_pushed(stream);
}

int cuMemcpyAsync(uint64_t target, uint64_t source, size_t bytes, struct cuda_stream_handle *stream)
{
    int result = emulated_enter_queue(stream);
    if (result != CUDA_OK)
        return result;
    if (!memory_is_sound(target, bytes) || !memory_is_sound(source, bytes))
        return emulated_leave(CUDA_INVALID_VALUE);
    calls.copies++;
    struct item *item = emulated_push(stream);
    item->kind = COPY;
    item->target = (void *)(uintptr_t)target;
    item->source = (const void *)(uintptr_t)source;
    item->bytes = bytes;
    return emulated_pushed(stream);
}

/* --- kernels --- */

int cuModuleLoadData(struct cuda_module **module, const void *image)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    *module = (struct cuda_module *)functions; /* there is one, whatever the image */
    return emulated_leave(image ? (int)settings.module : CUDA_INVALID_VALUE);
}

int cuModuleUnload(struct cuda_module *module)
{
    return module == (struct cuda_module *)functions ? CUDA_OK : CUDA_INVALID_VALUE;
}

int cuModuleGetFunction(struct cuda_function **function, struct cuda_module *module,
                        const char *name)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    size_t i = 0;
    while (i < function_count && strcmp(functions[i].name, name) != 0)
        i++;
    if (module != (struct cuda_module *)functions || i == MAX_FUNCTIONS ||
        !emulate_parameter_bytes(name) || strlen(name) >= sizeof functions->name)
        return emulated_leave(CUDA_SYMBOL_NOT_FOUND);
    if (i == function_count) {
        function_count++;
        strcpy(functions[i].name, name);
        functions[i].shared_bytes = SMALL_SHARED;
    }
    *function = &functions[i];
    return emulated_leave(CUDA_OK);
}

int cuFuncSetAttribute(struct cuda_function *function, int attribute, int value)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    if (attribute != CUDA_FUNCTION_SHARED_BYTES || value < 0 || value > SHARED_BYTES)
        return emulated_leave(CUDA_INVALID_VALUE);
    function->shared_bytes = (uint32_t)value;
    return emulated_leave(CUDA_OK);
}

/* Takes the attributes into the launch. Returns whether a device would take it. */
static bool take_config(const struct cuda_launch_config *config,
                        const struct cuda_function *function, struct cuda_launch *launch_made)
{
    launch_made->cluster = 1;
    launch_made->threads = config->block[0];
    launch_made->shared_bytes = config->shared_bytes;
    memcpy(launch_made->grid, config->grid, sizeof config->grid);
    for (uint32_t i = 0; i < config->attribute_count; i++) {
        const struct cuda_launch_attribute *one = &config->attributes[i];
        if (one->id == CUDA_ATTRIBUTE_CLUSTER)
            launch_made->cluster = one->value.cluster.x;
        else if (one->id == CUDA_ATTRIBUTE_EARLY)
            launch_made->early = one->value.early;
        else
            return false;
    }
    return config->block[0] >= 1 && config->block[0] <= 1024 && config->block[1] == 1 &&
           config->block[2] == 1 && config->grid[0] && config->grid[1] && config->grid[2] &&
           config->grid[1] <= 65535 && config->grid[2] <= 65535 &&
           config->shared_bytes <= function->shared_bytes && launch_made->cluster >= 1 &&
           launch_made->cluster <= 8 && config->grid[0] % launch_made->cluster == 0;
}

int cuLaunchKernelEx(const struct cuda_launch_config *config, struct cuda_function *function,
                     void **parameters, void **extra)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    struct cuda_launch made = {.kernel = function->name,
                               .parameter_bytes = emulate_parameter_bytes(function->name)};
    if (extra || !take_config(config, function, &made))
        return emulated_leave(CUDA_INVALID_VALUE);
    memcpy(made.parameters, parameters[0], made.parameter_bytes);
    calls.launches++;
    calls.yielding += config->stream->yields;
    bool captured = config->stream->captured;
    struct item *item =
        captured ? graph_add(config->stream->captured) : emulated_push(config->stream);
    if (!item)
        return emulated_leave(CUDA_OUT_OF_MEMORY);
    *item = (struct item){.kind = LAUNCH, .launch = made};
    return captured ? emulated_leave(CUDA_OK) : emulated_pushed(config->stream);
}

struct emulated_calls emulated_calls(void)
{
    pthread_mutex_lock(&lock);
    struct emulated_calls now = calls;
    now.kernels = launches;
    (void)emulated_leave(CUDA_OK);
    return now;
}

/* --- the driver, its devices and contexts --- */

int cuDriverGetVersion(int *version)
{
    read_settings();
    *version = (int)settings.version;
    return CUDA_OK;
}

/* A library with changed kernels (test_graph_mutants.py) takes the place of this one's. */
static void load_mutant(void)
{
    static bool loaded;
    const char *path = getenv("BATON_CUDA_MUTANT");
    if (!path || loaded)
        return;
    loaded = true;
    if (!dlopen(path, RTLD_NOW)) {
        fprintf(stderr, "emulated driver: %s\n", dlerror());
        abort();
    }
}

int cuInit(unsigned flags)
{
    read_settings();
    load_mutant();
    started = settings.init == CUDA_OK && settings.devices > 0;
    return flags               ? CUDA_INVALID_VALUE
           : settings.init     ? (int)settings.init
           : !settings.devices ? CUDA_NO_DEVICE_FOUND
                               : CUDA_OK;
}

int cuDeviceGetCount(int *count)
{
    *count = (int)settings.devices;
    return CUDA_OK;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < settings.devices ? CUDA_OK : CUDA_INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "emulated GPU %d", device);
    return CUDA_OK;
}

int cuDeviceGetPCIBusId(char *bus, int bytes, int device)
{
    snprintf(bus, (size_t)bytes, "00000000:%02x:00.0", (unsigned)device + 1);
    return CUDA_OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    switch (attribute) {
    case CUDA_DEVICE_SMS: *value = (int)settings.sms; return CUDA_OK;
    case CUDA_DEVICE_CAPABILITY_MAJOR: *value = (int)settings.capability / 10; return CUDA_OK;
    case CUDA_DEVICE_CAPABILITY_MINOR: *value = (int)settings.capability % 10; return CUDA_OK;
    case CUDA_DEVICE_SHARED_BYTES: *value = SHARED_BYTES; return CUDA_OK;
    case CUDA_DEVICE_CARDS: *value = 0; return CUDA_OK;
    case CUDA_DEVICE_MAPS_MEMORY:
    case CUDA_DEVICE_EXPORTS: *value = (int)settings.shares; return CUDA_OK;
    }
    return CUDA_INVALID_VALUE;
}

int cuDevicePrimaryCtxRetain(struct cuda_context **made, int device)
{
    if (!started || device < 0 || device >= settings.devices)
        return CUDA_INVALID_DEVICE;
    if (settings.context)
        return (int)settings.context;
    pthread_mutex_lock(&lock);
    if (!context.users++) {
        failed = CUDA_OK;
        launches = 0;
        calls = (struct emulated_calls){0};
    }
    *made = &context;
    return emulated_leave(CUDA_OK);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    pthread_mutex_lock(&lock);
    if (!--context.users) {
        memory_drop_all();
        function_count = 0;
        stream_count = 0;
    }
    return emulated_leave(CUDA_OK);
}

int cuCtxSetCurrent(struct cuda_context *chosen)
{
    current = chosen;
    return CUDA_OK;
}

int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = LEAST_PRIORITY;
    *greatest = -5;
    return CUDA_OK;
}
