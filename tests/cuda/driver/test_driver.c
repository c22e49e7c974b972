/* kernels/cuda on the emulated driver: findings on a machine, in sentences with codes, memory,
 * transfers, queues, and a device that is lost. */
#include "kernels/cuda/driver.h"
#include "tests/cuda/driver/emulated_driver.h"
#include "tests/kernels/fixture.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void emulate(const char *settings)
{
    setenv(CUDA_LIBRARY_VARIABLE, EMULATED_DRIVER, 1);
    setenv("BATON_CUDA_EMULATED", settings, 1);
}

static enum status open_device(enum device device, uint32_t ordinal, struct kernels **kernels,
                               struct error *err)
{
    *kernels = NULL;
    *err = (struct error){0};
    return kernels_open(
        &(struct kernels_config){.device = device, .ordinal = ordinal, .threads = 2}, kernels, err);
}

static struct kernels *open_emulated(const char *settings)
{
    struct kernels *kernels;
    struct error err;
    emulate(settings);
    if (open_device(DEVICE_CUDA, 0, &kernels, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return kernels;
}

static struct emulated_calls calls(void)
{
    void *library = dlopen(EMULATED_DRIVER, RTLD_NOW | RTLD_NOLOAD);
    void *found = library ? dlsym(library, "emulated_calls") : NULL;
    emulated_calls_function *function;
    assert_non_null(found);
    memcpy(&function, &found, sizeof function);
    dlclose(library);
    return function();
}

/* --- finding --- */

static void test_devices_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum status status;
        enum device device;
        uint32_t ordinal;
    } cases[] = {
        {"auto", STATUS_OK, DEVICE_AUTO, 0},
        {"cpu", STATUS_OK, DEVICE_CPU, 0},
        {"cuda", STATUS_OK, DEVICE_CUDA, 0},
        {"cuda:0", STATUS_OK, DEVICE_CUDA, 0},
        {"cuda:12", STATUS_OK, DEVICE_CUDA, 12},
        {"cuda:9999", STATUS_OK, DEVICE_CUDA, 9999},
        {"deferred-late", STATUS_OK, DEVICE_DEFERRED_LATE, 0},
        {"cuda:10000", STATUS_INVALID, DEVICE_AUTO, 0},
        {"cuda:", STATUS_INVALID, DEVICE_AUTO, 0},
        {"cuda:-1", STATUS_INVALID, DEVICE_AUTO, 0},
        {"cuda:1x", STATUS_INVALID, DEVICE_AUTO, 0},
        {"cuda1", STATUS_INVALID, DEVICE_AUTO, 0},
        {"cpu:0", STATUS_INVALID, DEVICE_AUTO, 0},
        {"cpu:", STATUS_INVALID, DEVICE_AUTO, 0},
        {"deferred:1", STATUS_INVALID, DEVICE_AUTO, 0},
        {"", STATUS_INVALID, DEVICE_AUTO, 0},
        {"gpu", STATUS_INVALID, DEVICE_AUTO, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum device device = DEVICE_AUTO;
        uint32_t ordinal = 0;
        struct error err = {0};
        assert_int_equal(device_parse(cases[i].text, &device, &ordinal, &err), cases[i].status);
        assert_int_equal(device, cases[i].device);
        assert_int_equal(ordinal, cases[i].ordinal);
        assert_int_equal(strstr(err.text, DEVICE_FORMS) != NULL, cases[i].status != STATUS_OK);
    }
}

static void test_a_machine_is_described_in_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *file, *settings;
        uint32_t ordinal;
        const char *code, *told;
    } cases[] = {
        {"/nowhere/libcuda.so.1", "", 0, "cuda_no_driver", "/nowhere/libcuda.so.1 can't be loaded"},
        {"libm.so.6", "", 0, "cuda_driver_partial", "lacks the function cuDriverGetVersion"},
        {NULL, "version=12080", 0, "cuda_driver_old", "is of CUDA 12.8, and 13.0 is needed"},
        {NULL, "init=803", 0, "cuda_driver_fails", "803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
        {NULL, "devices=0", 0, "cuda_no_device", "shows no GPU to this process"},
        {NULL, "devices=2", 2, "cuda_no_such_device", "cuda:2: this process sees 2"},
        {NULL, "capability=75", 0, "cuda_device_old",
         "(emulated GPU 0) has compute capability 7.5"},
        {NULL, "memory=1", 0, "cuda_no_memory", "0 MiB of free memory"},
        {NULL, "memory=64,taken=63", 0, "cuda_no_memory", "end other processes of the device"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernels *kernels;
        struct error err;
        emulate(cases[i].settings);
        if (cases[i].file)
            setenv(CUDA_LIBRARY_VARIABLE, cases[i].file, 1);
        enum status status = open_device(DEVICE_CUDA, cases[i].ordinal, &kernels, &err);
        bool no_memory = !strcmp(cases[i].code, "cuda_no_memory");
        assert_int_equal(status, no_memory ? STATUS_LIMIT : STATUS_NOT_FOUND);
        assert_null(kernels);
        if (!strstr(err.text, cases[i].code) || !strstr(err.text, cases[i].told))
            fail_msg("%s: %s", cases[i].code, err.text);
    }
}

static void test_auto_takes_a_device_that_it_can_use(void **state)
{
    (void)state;
    static const struct {
        const char *settings;
        struct kernels_config config;
        enum device device;
    } cases[] = {
        {"", {.threads = 1}, DEVICE_CUDA},
        {"version=12080", {.threads = 1}, DEVICE_CPU},
        {"devices=0", {.threads = 1}, DEVICE_CPU},
        {"", {.threads = 1, .f32 = true}, DEVICE_CPU},
        {"", {.threads = 1, .isa = ISA_PORTABLE}, DEVICE_CPU},
        {"", {.threads = 1, .device = DEVICE_CPU}, DEVICE_CPU},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernels *kernels = NULL;
        struct error err = {0};
        emulate(cases[i].settings);
        if (kernels_open(&cases[i].config, &kernels, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_int_equal(kernels_info(kernels).device, cases[i].device);
        kernels_close(kernels);
    }
    struct kernels *kernels = NULL;
    struct error err = {0};
    /* Once it is taken, auto ends as the device's own name does. */
    static const struct {
        const char *settings, *told;
        enum status status;
    } taken[] = {
        {"context=46", "cuDevicePrimaryCtxRetain returns 46 (CUDA_ERROR_DEVICE_UNAVAILABLE",
         STATUS_UNAVAILABLE},
        {"module=209", "cuModuleLoadData returns 209 (CUDA_ERROR_NO_BINARY_FOR_GPU",
         STATUS_UNAVAILABLE},
        {"context=2", "(cuda_not_opened)", STATUS_LIMIT},
        {"memory=1", "(cuda_no_memory)", STATUS_LIMIT},
    };
    for (size_t i = 0; i < 2 * sizeof taken / sizeof *taken; i++) {
        emulate(taken[i / 2].settings);
        enum device device = i % 2 ? DEVICE_AUTO : DEVICE_CUDA;
        assert_int_equal(open_device(device, 0, &kernels, &err), taken[i / 2].status);
        if (!strstr(err.text, taken[i / 2].told) || (i < 6 && !strstr(err.text, "cuda_not_opened")))
            fail_msg("%s: %s", taken[i / 2].settings, err.text);
    }
    emulate("");
    struct kernels_config refused = {.device = DEVICE_CUDA, .f32 = true, .threads = 1};
    assert_int_equal(kernels_open(&refused, &kernels, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "compute f32 is of the CPU"));
    refused = (struct kernels_config){.device = DEVICE_CUDA, .isa = ISA_AVX2, .threads = 1};
    assert_int_equal(kernels_open(&refused, &kernels, &err), STATUS_INVALID);
    unsetenv(CUDA_LIBRARY_VARIABLE);
    if (cuda_image_count == 0) { /* a build without nvcc looks for no driver */
        assert_int_equal(open_device(DEVICE_CUDA, 0, &kernels, &err), STATUS_NOT_FOUND);
        assert_non_null(strstr(err.text, "cuda_not_built"));
    }
}

/* --- memory --- */

static void test_a_device_is_described(void **state)
{
    (void)state;
    struct kernels *kernels = open_emulated("memory=256,taken=64");
    struct kernels_info info = kernels_info(kernels);
    assert_int_equal(info.device, DEVICE_CUDA);
    assert_string_equal(info.isa, "sm_90");
    assert_int_equal(info.weight_type, WEIGHT_BF16);
    assert_int_equal(info.kv_type, KV_BF16);
    assert_true(info.runs_ahead && !info.device_is_host);
    assert_int_equal(info.pass_rows, UINT32_MAX);
    /* Memory of others isn't ours, and neither is all of the rest. */
    size_t available = kernels_available_bytes(kernels), mib = 1 << 20;
    assert_in_range(available, 170 * mib, 190 * mib);
    struct error err = {0};
    assert_int_equal(kernels_check_model(kernels, WEIGHT_BF16, 64, &err), STATUS_OK);
    assert_int_equal(kernels_check_model(kernels, WEIGHT_INT4, 64, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "cuda_no_kernel"));
    struct linear linear;
    assert_int_equal(kernels_linear_create(kernels, WEIGHT_INT4, 8, 8, &linear),
                     STATUS_UNSUPPORTED);
    kernels_close(kernels);
}

static void test_memory_is_the_devices_own(void **state)
{
    (void)state;
    struct kernels *kernels = open_emulated("memory=64");
    size_t before = kernels_available_bytes(kernels);
    struct buffer none = {0}, buffer, adopted;
    assert_int_equal(kernels_alloc(kernels, SIZE_MAX - 1, &none), STATUS_LIMIT);
    assert_int_equal(kernels_alloc(kernels, (size_t)65 << 20, &none), STATUS_LIMIT);
    assert_null(none.address);
    assert_int_equal(kernels_alloc(kernels, 5000, &buffer), STATUS_OK);
    assert_int_equal((uintptr_t)buffer.address % 256, 0);
    char zeros[5000] = {0}, seen[5000], mine[64] = "pool";
    assert_int_equal(kernels_download(kernels, &buffer, 0, seen, sizeof seen), STATUS_OK);
    assert_memory_equal(seen, zeros, sizeof seen);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kernels_adopt(kernels, mine, sizeof mine, &adopted), STATUS_OK);
    assert_int_equal(kernels_copy(kernels, KERNELS_STEPS, &adopted, 0, &buffer, 4995, 5),
                     STATUS_OK);
    assert_int_equal(kernels_download(kernels, &buffer, 4995, seen, 5), STATUS_OK);
    assert_string_equal(seen, "pool");
    for (int writes = 0; writes <= 1; writes++) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL);
            volatile char *touched = buffer.address;
            char read = touched[99];
            if (writes)
                touched[99] = read;
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    kernels_free(kernels, &buffer);
    assert_int_equal(kernels_available_bytes(kernels), before);
    char *host;
    assert_int_equal(kernels_host_alloc(kernels, 4, (void **)&host), STATUS_OK);
    assert_memory_equal(host, zeros, 4);
    kernels_host_free(kernels, host);
    kernels_close(kernels);
}

/* Waits for what KERNELS_TRANSFERS has queued. */
static enum status settle(struct kernels *kernels)
{
    kernels_event event;
    enum status status = kernels_record(kernels, KERNELS_TRANSFERS, &event);
    return status == STATUS_OK ? kernels_wait(kernels, KERNELS_TRANSFERS, event) : status;
}

/* The owner of shared memory: writes to it, gives it away, and ends by a signal. */
static void own_memory(int socket, size_t bytes)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) /* a test that fails doesn't end it */
        _exit(9);
    struct kernels *kernels = open_emulated("late=1");
    struct buffer buffer;
    struct error err;
    int fd = -1;
    char *host = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        host[i] = (char)(i * 7 + i / 256);
    if (kernels_alloc_shared(kernels, bytes, &buffer, &err) != STATUS_OK ||
        kernels_upload(kernels, KERNELS_STEPS, &buffer, 0, host, bytes) != STATUS_OK ||
        kernels_sync(kernels) != STATUS_OK || kernels_share(kernels, &fd, &err) != STATUS_OK)
        _exit(9);
    char room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec one = {"y", 1};
    struct msghdr message = {
        .msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    *control = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(control), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) != 1)
        _exit(9);
    for (;;)
        pause();
}

static int receive_memory(int socket)
{
    char byte, room[CMSG_SPACE(sizeof(int))];
    int fd = -1;
    struct iovec one = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    assert_int_equal(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* Another process's memory is read by one kernel, also after its owner was killed. A kernel or a
 * copy that writes there ends the context. */
static void test_memory_of_another_process_is_for_reading(void **state)
{
    (void)state;
    enum { BYTES = (3 << 20) + 4096, FAULTS = 2 };
    int sockets[2], status;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    pid_t owner = fork();
    if (owner == 0)
        own_memory(sockets[1], BYTES);
    int fd = receive_memory(sockets[0]);
    for (int fault = 0; fault <= FAULTS; fault++) {
        struct kernels *kernels = open_emulated("");
        struct buffer mapped, own;
        struct error err;
        size_t before = kernels_available_bytes(kernels);
        assert_int_equal(kernels_map(kernels, fd, BYTES, &mapped, &err), STATUS_OK);
        assert_int_equal(kernels_available_bytes(kernels), before); /* the owner's */
        assert_int_equal(kernels_alloc(kernels, BYTES, &own), STATUS_OK);
        if (fault == FAULTS) {
            kill(owner, SIGKILL);
            assert_int_equal(waitpid(owner, &status, 0), owner);
        }
        static char host[BYTES];
        const struct kv_move moves[] = {{65536, 0, 65536}, {3 << 20, 65536, 4096}};
        uint64_t launches = kernels_counts(kernels).gathers, yielding = calls().yielding;
        assert_int_equal(kernels_gather(kernels, &mapped, &own, moves, 2), STATUS_OK);
        assert_int_equal(settle(kernels), STATUS_OK);
        assert_int_equal(kernels_counts(kernels).gathers, launches + 1);
        assert_int_equal(calls().yielding, yielding + 1); /* steps go first */
        assert_int_equal(kernels_download(kernels, &own, 0, host, BYTES), STATUS_OK);
        for (size_t m = 0; m < 2; m++)
            for (size_t i = 0, at = moves[m].from; i < moves[m].bytes; i++, at++)
                assert_int_equal(host[moves[m].to + i], (char)(at * 7 + at / 256));
        if (fault < FAULTS) {
            enum status queued =
                fault ? kernels_upload(kernels, KERNELS_TRANSFERS, &mapped, 64, host, 16)
                      : kernels_gather(kernels, &own, &mapped, moves, 1);
            if (queued == STATUS_OK)
                queued = settle(kernels);
            assert_int_equal(queued, STATUS_UNAVAILABLE);
        }
        kernels_unmap(kernels, &mapped);
        assert_null(mapped.address);
        kernels_free(kernels, &own);
        kernels_close(kernels);
    }
    close(fd);
    close(sockets[0]);
    close(sockets[1]);
}

/* Unmapping waits for no work by itself. */
static void test_shared_memory_ends_after_its_copies(void **state)
{
    (void)state;
    enum { BYTES = 4096 };
    struct kernels *kernels = open_emulated("late=1");
    struct buffer buffer;
    struct error err;
    char *host, sent[BYTES];
    memset(sent, 'a', sizeof sent);
    assert_int_equal(kernels_alloc_shared(kernels, BYTES, &buffer, &err), STATUS_OK);
    assert_int_equal(kernels_host_alloc(kernels, BYTES, (void **)&host), STATUS_OK);
    assert_int_equal(kernels_upload(kernels, KERNELS_TRANSFERS, &buffer, 0, sent, BYTES),
                     STATUS_OK);
    assert_int_equal(kernels_read_back(kernels, KERNELS_TRANSFERS, &buffer, 0, host, BYTES),
                     STATUS_OK);
    assert_int_equal(host[BYTES - 1], 0); /* they are queued alone */
    kernels_free(kernels, &buffer);
    assert_memory_equal(host, sent, BYTES);
    kernels_host_free(kernels, host);
    kernels_close(kernels);
}

static void test_memory_that_is_not_shared(void **state)
{
    (void)state;
    struct buffer buffer;
    struct error err;
    struct kernels *kernels = open_emulated("shares=0");
    assert_int_equal(kernels_alloc_shared(kernels, 4096, &buffer, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "cuda_not_shared"));
    kernels_close(kernels);
    kernels = open_emulated("memory=64");
    size_t before = kernels_available_bytes(kernels);
    assert_int_equal(kernels_alloc_shared(kernels, (size_t)100 << 20, &buffer, &err), STATUS_LIMIT);
    assert_int_equal(kernels_alloc_shared(kernels, 5000, &buffer, &err), STATUS_OK);
    char zeros[5000] = {0}, seen[5000];
    assert_int_equal(kernels_download(kernels, &buffer, 0, seen, sizeof seen), STATUS_OK);
    assert_memory_equal(seen, zeros, sizeof seen);
    kernels_free(kernels, &buffer);
    assert_int_equal(kernels_available_bytes(kernels), before);
    int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(kernels_map(kernels, other, 4096, &buffer, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "cuMemImportFromShareableHandle"));
    close(other);
    kernels_close(kernels);
}

/* --- queues --- */

static void test_transfers_go_in_order_and_late(void **state)
{
    (void)state;
    struct kernels *kernels = open_emulated("late=1");
    struct buffer buffer;
    kernels_event uploaded, read, moved;
    char *host, back[5] = "none", other[5] = "none";
    assert_int_equal(kernels_alloc(kernels, 8, &buffer), STATUS_OK);
    assert_int_equal(kernels_host_alloc(kernels, 5, (void **)&host), STATUS_OK);
    strcpy(host, "good");
    assert_int_equal(kernels_upload(kernels, KERNELS_STEPS, &buffer, 0, host, 5), STATUS_OK);
    assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &uploaded), STATUS_OK);
    /* Without the order the moves would read zeros. */
    assert_int_equal(kernels_order(kernels, KERNELS_MOVES, KERNELS_STEPS, uploaded), STATUS_OK);
    assert_int_equal(kernels_read_back(kernels, KERNELS_MOVES, &buffer, 0, other, 5), STATUS_OK);
    assert_int_equal(kernels_record(kernels, KERNELS_MOVES, &moved), STATUS_OK);
    assert_int_equal(kernels_read_back(kernels, KERNELS_STEPS, &buffer, 0, back, 5), STATUS_OK);
    assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &read), STATUS_OK);
    assert_string_equal(back, "none");
    assert_string_equal(other, "none");
    assert_false(kernels_passed(kernels, KERNELS_STEPS, read));
    assert_int_equal(kernels_wait(kernels, KERNELS_MOVES, moved), STATUS_OK);
    assert_string_equal(other, "good");
    assert_int_equal(kernels_wait(kernels, KERNELS_STEPS, read), STATUS_OK);
    assert_string_equal(back, "good");
    assert_true(kernels_passed(kernels, KERNELS_STEPS, read));
    assert_true(kernels_passed(kernels, KERNELS_STEPS, uploaded));
    assert_true(kernels_passed(kernels, KERNELS_MOVES, 0));
    assert_true(kernels_event_us(kernels, KERNELS_STEPS, uploaded, read) < 1000000);
    kernels_host_free(kernels, host);
    kernels_free(kernels, &buffer);
    kernels_close(kernels);
}

/* Events take turns in KERNELS_TIMED_EVENTS places: each still says when its own work is done. */
static void test_more_events_than_places(void **state)
{
    (void)state;
    struct kernels *kernels = open_emulated("late=1");
    struct buffer buffer;
    enum { EVENTS = 3 * KERNELS_TIMED_EVENTS };
    static uint32_t numbers[EVENTS], back[EVENTS];
    assert_int_equal(kernels_alloc(kernels, 4, &buffer), STATUS_OK);
    for (uint32_t i = 0; i < EVENTS; i++) {
        kernels_event event;
        numbers[i] = i + 1;
        assert_int_equal(kernels_upload(kernels, KERNELS_STEPS, &buffer, 0, &numbers[i], 4),
                         STATUS_OK);
        assert_int_equal(kernels_read_back(kernels, KERNELS_STEPS, &buffer, 0, &back[i], 4),
                         STATUS_OK);
        assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &event), STATUS_OK);
        assert_int_equal(event, i + 1);
        if (i >= KERNELS_TIMED_EVENTS) {
            assert_true(kernels_passed(kernels, KERNELS_STEPS, i + 1 - KERNELS_TIMED_EVENTS));
            assert_int_equal(back[i - KERNELS_TIMED_EVENTS], i + 1 - KERNELS_TIMED_EVENTS);
        }
        if (i == 99)
            assert_int_equal(kernels_wait(kernels, KERNELS_STEPS, 70), STATUS_OK);
    }
    assert_int_equal(back[70 - 1], 70);
    assert_int_equal(back[EVENTS - 1], 0); /* late */
    assert_int_equal(kernels_sync(kernels), STATUS_OK);
    assert_int_equal(back[EVENTS - 1], EVENTS);
    (void)kernels_event_us(kernels, KERNELS_STEPS, EVENTS - KERNELS_TIMED_EVENTS + 1, EVENTS);
    kernels_free(kernels, &buffer);
    kernels_close(kernels);
}

/* The shape follows from the device's memory, all of which is free again afterwards. */
static void test_measurements_are_done_at_return(void **state)
{
    (void)state;
    struct kernels *kernels = open_emulated("late=1,memory=64,sms=2");
    const char *instruction = NULL;
    size_t available = kernels_available_bytes(kernels);
    struct buffer memory;
    assert_in_range(kernels_own_bytes(kernels), 2 << 20, 4 << 20);
    for (int type = 0; type < 2; type++) {
        enum weight_type types[] = {WEIGHT_BF16, WEIGHT_INT8};
        assert_true(kernels_measure_peak(kernels, types[type], &instruction) > 0);
        assert_string_equal(instruction, "64 rows by a layer of 128 x 128");
    }
    assert_true(kernels_measure_peak(kernels, WEIGHT_INT4, &instruction) <= 0);
    assert_string_equal(instruction, "");
    assert_int_equal(kernels_alloc(kernels, 5 << 20, &memory), STATUS_OK);
    assert_true(kernels_measure_read(kernels, &memory) > 0);
    kernels_free(kernels, &memory);
    assert_int_equal(kernels_available_bytes(kernels), available);
    kernels_close(kernels);
}

/* --- faults --- */

/* A launch that fails is told at the wait, and everything after it is refused. A sync doesn't end
 * that. The process can open the device again. */
static void test_a_lost_device_is_lost_for_good(void **state)
{
    (void)state;
    static const char *const modes[] = {"fails=2,result=214", "fails=2,result=719,late=1"};
    for (int i = 0; i < 2; i++) {
        struct kernels *kernels = open_emulated(modes[i]);
        enum { F = 8 };
        struct buffer in = fixture_buffer(kernels, (float[2 * F]){0}, 2 * F * sizeof(float));
        struct buffer out = fixture_buffer(kernels, NULL, F * sizeof(float)), more = {0};
        kernels_event event;
        assert_int_equal(kernels_swiglu(kernels, &in, 1, F, &out), STATUS_OK);
        assert_int_equal(kernels_sync(kernels), STATUS_OK);
        assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &event), STATUS_OK);
        assert_int_equal(kernels_swiglu(kernels, &in, 1, F, &out), STATUS_OK);
        assert_int_equal(kernels_sync(kernels), STATUS_UNAVAILABLE);
        assert_int_equal(kernels_sync(kernels), STATUS_UNAVAILABLE);
        assert_int_equal(kernels_wait(kernels, KERNELS_STEPS, event), STATUS_UNAVAILABLE);
        assert_true(kernels_passed(kernels, KERNELS_STEPS, event));
        assert_int_equal(kernels_swiglu(kernels, &in, 1, F, &out), STATUS_UNAVAILABLE);
        assert_int_equal(kernels_alloc(kernels, 16, &more), STATUS_UNAVAILABLE);
        assert_int_equal(kernels_record(kernels, KERNELS_MOVES, &event), STATUS_UNAVAILABLE);
        assert_int_equal(kernels_available_bytes(kernels), 0);
        kernels_free(kernels, &in);
        assert_null(in.address);
        kernels_close(kernels);
        kernels_close(open_emulated(""));
    }
}

/* --- watching --- */

static void test_a_device_tells_its_numbers(void **state)
{
    (void)state;
    struct device_health health;
    struct kernels *kernels = open_emulated("memory=64,reasons=37"); /* 1, idle, isn't slow */
    static const double numbers[DEVICE_NUMBERS] = {
        [DEVICE_MEMORY_USED_BYTES] = 48 << 20, [DEVICE_MEMORY_TOTAL_BYTES] = 64 << 20,
        [DEVICE_CLOCK_HERTZ] = 1980e6,         [DEVICE_POWER_WATTS] = 612.5,
        [DEVICE_TEMPERATURE_CELSIUS] = 61,     [DEVICE_ECC_CORRECTED] = 5,
        [DEVICE_ECC_UNCORRECTED] = 2,
    };
    assert_int_equal(kernels_watch_device(kernels, 0, &health), STATUS_OK);
    assert_memory_equal(health.numbers, numbers, sizeof numbers);
    assert_int_equal(health.slowdowns, 1u << DEVICE_POWER_CAP | 1u << DEVICE_THERMAL);
    kernels_close(kernels);
    /* An XID of one process is counted, and no more. Without events the numbers are there. */
    for (int events = 0; events <= 1; events++) {
        kernels = open_emulated(events ? "xid=31,xid_at=0" : "xid=31,xid_at=0,events=0");
        for (int i = 0; i < 2; i++)
            assert_int_equal(kernels_watch_device(kernels, 1, &health), STATUS_OK);
        assert_true(health.numbers[DEVICE_XIDS] == events);
        kernels_close(kernels);
    }
    /* A library without the device, or without rights, watches nothing; it computes. */
    static const char *const unwatched[] = {"nvml=4", "nvml=9"};
    for (int i = 0; i < 2; i++) {
        kernels = open_emulated(unwatched[i]);
        assert_int_equal(kernels_watch_device(kernels, 0, &health), STATUS_UNSUPPORTED);
        assert_int_equal(kernels_sync(kernels), STATUS_OK);
        kernels_close(kernels);
    }
    /* Single numbers may be missing. */
    kernels = open_emulated("nvml_calls=3");
    assert_int_equal(kernels_watch_device(kernels, 0, &health), STATUS_OK);
    for (int i = 0; i < DEVICE_XIDS; i++)
        assert_true(health.numbers[i] < 0);
    kernels_close(kernels);
}

/* An error that the driver tells of the device loses it to all threads. */
static void test_a_device_that_tells_an_error_is_lost(void **state)
{
    (void)state;
    static const char *const errors[] = {"xid=79,xid_at=0", "xid=94,xid_at=0", "ecc_at=1",
                                         "nvml_calls=15", "nvml_calls=16"};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct device_health health;
        struct kernels *kernels = open_emulated(errors[i]);
        enum { F = 8 };
        struct buffer in = fixture_buffer(kernels, (float[2 * F]){0}, 2 * F * sizeof(float));
        struct buffer out = fixture_buffer(kernels, NULL, F * sizeof(float));
        if (strstr(errors[i], "ecc")) /* as many as when it was opened */
            assert_int_equal(kernels_watch_device(kernels, 0, &health), STATUS_OK);
        assert_int_equal(kernels_swiglu(kernels, &in, 1, F, &out), STATUS_OK);
        assert_int_equal(kernels_sync(kernels), STATUS_OK);
        uint32_t timeout_ms = strstr(errors[i], "xid") ? 60000 : 0;
        assert_int_equal(kernels_watch_device(kernels, timeout_ms, &health), STATUS_UNAVAILABLE);
        assert_int_equal(kernels_swiglu(kernels, &in, 1, F, &out), STATUS_UNAVAILABLE);
        assert_int_equal(kernels_sync(kernels), STATUS_UNAVAILABLE);
        kernels_free(kernels, &in);
        kernels_free(kernels, &out);
        kernels_close(kernels);
    }
}

/* A copy that a lost device still does writes to memory that is there (AddressSanitizer). */
static void test_host_memory_stays_while_a_lost_device_writes(void **state)
{
    (void)state;
    struct kernels *kernels = open_emulated("late=1,xid=79,xid_at=0");
    struct device_health health;
    kernels_event event;
    uint32_t word = 7, *host;
    struct buffer buffer = fixture_buffer(kernels, &word, sizeof word);
    assert_int_equal(kernels_host_alloc(kernels, sizeof *host, (void **)&host), STATUS_OK);
    assert_int_equal(kernels_read_back(kernels, KERNELS_STEPS, &buffer, 0, host, sizeof *host),
                     STATUS_OK);
    assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &event), STATUS_OK);
    assert_int_equal(kernels_watch_device(kernels, 60000, &health), STATUS_UNAVAILABLE);
    kernels_host_free(kernels, host);
    kernels_free(kernels, &buffer);
    kernels_close(kernels);
}

/* Host memory is the caller's again when a copy's record fails: nothing reads it later. */
static void test_a_failed_record_leaves_no_copy(void **state)
{
    (void)state;
    struct kernels *kernels = open_emulated("late=1,record_fails=1");
    uint32_t word = 7, seen = 0;
    kernels_event event;
    struct buffer buffer = fixture_buffer(kernels, &seen, sizeof seen);
    assert_int_equal(kernels_upload(kernels, KERNELS_TRANSFERS, &buffer, 0, &word, sizeof word),
                     STATUS_OK);
    assert_int_equal(kernels_record(kernels, KERNELS_TRANSFERS, &event), STATUS_INTERNAL);
    word = 8;
    assert_int_equal(kernels_download(kernels, &buffer, 0, &seen, sizeof seen), STATUS_OK);
    assert_int_equal(seen, 7);
    assert_int_equal(kernels_upload(kernels, KERNELS_TRANSFERS, &buffer, 0, &word, sizeof word),
                     STATUS_OK);
    assert_int_equal(kernels_record(kernels, KERNELS_TRANSFERS, &event), STATUS_OK);
    assert_int_equal(kernels_wait(kernels, KERNELS_TRANSFERS, event), STATUS_OK);
    kernels_free(kernels, &buffer);
    kernels_close(kernels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices_are_named),
        cmocka_unit_test(test_a_machine_is_described_in_a_sentence),
        cmocka_unit_test(test_auto_takes_a_device_that_it_can_use),
        cmocka_unit_test(test_a_device_is_described),
        cmocka_unit_test(test_memory_is_the_devices_own),
        cmocka_unit_test(test_memory_of_another_process_is_for_reading),
        cmocka_unit_test(test_shared_memory_ends_after_its_copies),
        cmocka_unit_test(test_memory_that_is_not_shared),
        cmocka_unit_test(test_transfers_go_in_order_and_late),
        cmocka_unit_test(test_more_events_than_places),
        cmocka_unit_test(test_measurements_are_done_at_return),
        cmocka_unit_test(test_a_lost_device_is_lost_for_good),
        cmocka_unit_test(test_a_failed_record_leaves_no_copy),
        cmocka_unit_test(test_a_device_tells_its_numbers),
        cmocka_unit_test(test_a_device_that_tells_an_error_is_lost),
        cmocka_unit_test(test_host_memory_stays_while_a_lost_device_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
