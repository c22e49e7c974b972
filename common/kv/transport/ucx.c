#include "common/kv/transport/ucx_parts.h"

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/kv/transport/kv_life.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>
#include <unistd.h>

#define MESSAGE_BYTES      512
#define MAX_PROGRESS_TURNS 32
#define MIB                ((uint64_t)1 << 20)
#define QUEUE_BYTES        (16 * MIB)          /* UCX's own, generously */
#define NO_LIMIT_MIB       ((uint64_t)1 << 32) /* kernel.shmmax is so large where none is set */
/* Turns for the forced close of an endpoint that never sent: local work, a handful. */
#define MAX_CLOSE_TURNS 10000

#ifdef __SANITIZE_ADDRESS__
/* An endpoint to a peer that has just died is not made, and libuct leaks the few hundred bytes of
 * its hash of segments. The quick unwinder sees no further than ucs_malloc, because UCX keeps no
 * frame pointers. Our own contexts and workers come from ucs_calloc, and are still checked. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:libuct.so\nleak:ucs_malloc\n";
}
#endif

struct ucx_pool {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_mem_h memory;
    uint8_t *start;
    size_t bytes;
    ucp_address_t *worker_address;
    void *rkey;
    size_t worker_bytes, rkey_bytes;
};

struct ucx_mapping {
    ucp_ep_h endpoint;
    ucp_rkey_h rkey;
};

/* -- how UCX is set up -- */

/* UCX would write to standard output. Its errors are peers that died, which the transport reports:
 * here they are warnings. */
static ucs_log_func_rc_t log_ucx(const char *file, unsigned line, const char *function,
                                 ucs_log_level_t level, const ucs_log_component_config_t *component,
                                 const char *format, va_list args)
{
    (void)function;
    (void)component;
    if (level > UCS_LOG_LEVEL_WARN)
        return UCS_LOG_FUNC_RC_STOP;
    char message[MESSAGE_BYTES], quoted[2 * MESSAGE_BYTES];
    vsnprintf(message, sizeof message, format, args);
    log_write(level == UCS_LOG_LEVEL_FATAL ? LOG_ERROR : LOG_WARN, "ucx", "msg=%s at=%s:%u",
              log_quote(message, quoted, sizeof quoted), file, line);
    return UCS_LOG_FUNC_RC_STOP;
}

ucs_log_func_rc_t ucx_drop_message(const char *file, unsigned line, const char *function,
                                   ucs_log_level_t level,
                                   const ucs_log_component_config_t *component, const char *format,
                                   va_list args)
{
    (void)file, (void)line, (void)function, (void)level, (void)component, (void)format, (void)args;
    return UCS_LOG_FUNC_RC_STOP;
}

/* Process-wide: takes UCX's crash handlers out and brings its messages into our log. While UCX is
 * loaded it patches mmap, munmap and madvise. Only the environment can stop that: UCX_MEM_EVENTS=n,
 * before the program starts. */
static void process_init(void)
{
    /* A crash must end the process with its core, not in UCX's own handler. The sanitizers need
     * theirs, too. UCX 1.22 has no handlers at first, and would warn. */
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    ucs_log_push_handler(ucx_drop_message);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        ucs_debug_disable_signal(signals[i]);
    ucs_log_pop_handler();
    ucs_log_push_handler(log_ucx);
    ucs_global_opts_set_value("WARN_UNUSED_ENV_VARS", "n");
}

void ucx_init_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, process_init);
}

enum status ucx_status(ucs_status_t status)
{
    switch (status) {
    case UCS_OK: return STATUS_OK;
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT: return STATUS_LIMIT;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
    case UCS_ERR_OUT_OF_RANGE: return STATUS_INVALID;
    case UCS_ERR_CANCELED: return STATUS_CANCELLED;
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED: return STATUS_UNSUPPORTED;
    case UCS_ERR_IO_ERROR:
    case UCS_ERR_NO_DEVICE: return STATUS_IO;
    default:
        return STATUS_UNAVAILABLE; /* unreachable, reset, endpoint timeout, not connected, ... */
    }
}

enum status ucx_config(const struct ucx_option *settings, ucp_config_t **out, struct error *err)
{
    ucp_config_t *options;
    ucs_status_t got = ucp_config_read(NULL, NULL, &options);
    if (got != UCS_OK)
        return error_set(err, ucx_status(got),
                         "UCX refuses its options: %s (is a UCX_... variable set?)",
                         ucs_status_string(got));
    for (; settings->name; settings++) {
        got = ucp_config_modify(options, settings->name, settings->value);
        if (got == UCS_OK)
            continue;
        ucp_config_release(options);
        return error_set(err, ucx_status(got), "UCX %s refuses %s=%s: %s", ucp_get_version_string(),
                         settings->name, settings->value, ucs_status_string(got));
    }
    *out = options;
    return STATUS_OK;
}

/* -- the own pool -- */

static enum status context_create(struct ucx_pool *pool, struct error *err)
{
    static const struct ucx_option settings[] = {
        {"TLS", "posix,sysv,self"},
        /* Memory that a peer can map. A sysv segment loses its name as soon as it is made. A posix
         * file does so once UCX has filled it: a process that is killed before leaves a whole pool
         * in /dev/shm for good. */
        {"ALLOC_PRIO", "md:sysv,md:posix"},
        {"KEEPALIVE_INTERVAL", "inf"}, /* the pairing's socket reports a death at once */
        /* Without it UCX doesn't use shared memory for endpoints that can be closed by force. */
        {"MM_ERROR_HANDLING", "y"},
        {NULL, NULL},
    };
    ucp_config_t *options = NULL;
    TRY(ucx_config(settings, &options, err));
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_RMA,
    };
    ucs_status_t got = ucp_init(&params, options, &pool->context);
    ucp_config_release(options);
    if (got != UCS_OK)
        return error_set(err, ucx_status(got), "UCX %s can't use shared memory: %s",
                         ucp_get_version_string(), ucs_status_string(got));
    /* Serialized, not single: set-up may run on another thread than the polls. */
    ucp_worker_params_t worker = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
    };
    got = ucp_worker_create(pool->context, &worker, &pool->worker);
    return got == UCS_OK ? STATUS_OK
                         : error_set(err, ucx_status(got), "UCX can't create a worker: %s",
                                     ucs_status_string(got));
}

/* Returns the number in a file of /proc; UINT64_MAX: not known. */
static uint64_t kernel_limit(const char *path)
{
    char text[64] = "";
    FILE *stream = fopen(path, "re");
    bool read = stream && fgets(text, sizeof text, stream);
    if (stream)
        fclose(stream);
    return read ? strtoull(text, NULL, 10) : UINT64_MAX;
}

/* Shared memory that there is, in MiB. */
struct shared_room {
    uint64_t free, all; /* in /dev/shm; 0: there is none */
    uint64_t segment;   /* the largest one of System V */
};

static struct shared_room shared_room_now(void)
{
    struct statvfs shm;
    struct shared_room room = {.segment = kernel_limit("/proc/sys/kernel/shmmax") / MIB};
    if (!statvfs("/dev/shm", &shm)) {
        room.free = (uint64_t)shm.f_bavail * shm.f_frsize / MIB;
        room.all = (uint64_t)shm.f_blocks * shm.f_frsize / MIB;
    }
    return room;
}

/* Fills the sentence about missing shared memory: the need, what there is, the remedies. */
static enum status tell_shortage(size_t needed_bytes, enum status status, const char *why,
                                 struct error *err)
{
    struct shared_room room = shared_room_now();
    char segment[64] = "has no limit";
    uint64_t needed = (needed_bytes + MIB - 1) / MIB, all = room.all - room.free + needed + 1;
    if (room.segment < NO_LIMIT_MIB)
        snprintf(segment, sizeof segment, "is %" PRIu64 " MiB", room.segment);
    return error_set(err, status,
                     "the KV pool needs %" PRIu64
                     " MiB of shared memory, and the system gives none "
                     "of that size (%s): /dev/shm has %" PRIu64 " of %" PRIu64
                     " MiB free, kernel.shmmax %s. Raise either (docker --shm-size=%" PRIu64
                     "m or more; mount -o remount,size=%" PRIu64
                     "m /dev/shm), shrink the pool (--kv-tokens), or take --transport tcp",
                     needed, why, room.free, room.all, segment, all, all);
}

/* UCX makes segments that the user's group may map and write, too: the pool, and the queues of its
 * worker. Restricts all System V segments of this process to the user. Files were made with a
 * umask. */
static void restrict_segments(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], path[8];
    unsigned long segment; /* the inode of a mapped segment is its id */
    int why = maps ? 0 : errno;
    while (maps && fgets(line, sizeof line, maps)) {
        struct shmid_ds of_segment;
        if (sscanf(line, "%*s %*s %*s %*s %lu %7s", &segment, path) != 2 ||
            strncmp(path, "/SYSV", 5) != 0)
            continue;
        if (shmctl((int)segment, IPC_STAT, &of_segment) == 0) {
            of_segment.shm_perm.mode = 0600;
            if (shmctl((int)segment, IPC_SET, &of_segment) == 0)
                continue;
        }
        why = errno;
    }
    if (maps)
        fclose(maps);
    if (why)
        log_warn("transport",
                 "why=\"%s\" msg=\"shared memory can't be restricted to this user: its group may "
                 "read the KV pool\"",
                 strerror(why));
}

/* Makes the memory that is shared: the pool, and a page of its own for the signs of life right
 * behind it. So the pool need not begin with a page. Readers look for the signs where they always
 * did. */
static enum status memory_create(struct ucx_pool *pool, size_t bytes, struct error *err)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), signs = kv_life_offset(bytes);
    const uint64_t before = (page - signs % page) % page;
    uint64_t shared_bytes = before + signs + page;
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length = shared_bytes,
        .flags = UCP_MEM_MAP_ALLOCATE,
    };
    ucs_log_push_handler(ucx_drop_message); /* our sentence says it all */
    mode_t mask = umask(077);               /* for a posix file; a System V segment takes no mask */
    ucs_status_t got = FAILPOINT_FAILS("transport.shared_memory")
                           ? UCS_ERR_NO_MEMORY
                           : ucp_mem_map(pool->context, &params, &pool->memory);
    umask(mask);
    ucs_log_pop_handler();
    if (got != UCS_OK)
        return tell_shortage(shared_bytes, ucx_status(got), ucs_status_string(got), err);
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH};
    got = ucp_mem_query(pool->memory, &attr);
    if (got != UCS_OK || attr.length < shared_bytes)
        return error_set(err, STATUS_INTERNAL, "UCX doesn't say where the KV pool is: %s",
                         ucs_status_string(got));
    pool->start = (uint8_t *)attr.address + before;
    pool->bytes = bytes;
    restrict_segments();
    madvise(attr.address, attr.length, MADV_HUGEPAGE); /* only for speed: may be refused */
    /* Allocates the pages now, and not one by one while requests wait for them. EINVAL: a kernel
     * before 5.14. */
    if (madvise(attr.address, attr.length, MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
        return tell_shortage(shared_bytes, STATUS_LIMIT, strerror(errno), err);
    return STATUS_OK;
}

static enum status description_create(struct ucx_pool *pool, struct error *err)
{
    ucs_status_t got =
        ucp_worker_get_address(pool->worker, &pool->worker_address, &pool->worker_bytes);
    if (got != UCS_OK)
        return error_set(err, ucx_status(got), "UCX gives no address: %s", ucs_status_string(got));
    got = ucp_rkey_pack(pool->context, pool->memory, &pool->rkey, &pool->rkey_bytes);
    if (got != UCS_OK)
        return error_set(err, ucx_status(got), "UCX gives no key of the KV pool: %s",
                         ucs_status_string(got));
    if (pool->worker_bytes > UINT16_MAX || pool->rkey_bytes > UINT16_MAX)
        return error_set(err, STATUS_LIMIT,
                         "UCX's address of %zu bytes and key of %zu are too long",
                         pool->worker_bytes, pool->rkey_bytes);
    return STATUS_OK;
}

/* UCX's own queues lie in shared memory, too. */
static bool lacks_room(size_t bytes)
{
    struct shared_room room = shared_room_now();
    return room.free < bytes / MIB && room.segment < bytes / MIB;
}

enum status ucx_pool_create(size_t bytes, struct ucx_pool **out, struct error *err)
{
    ucx_init_once();
    struct ucx_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return error_set(err, STATUS_LIMIT, "no memory for a transport");
    ucs_log_push_handler(ucx_drop_message); /* our sentences say it all */
    enum status status = context_create(pool, err);
    if (status == STATUS_LIMIT && lacks_room(bytes + QUEUE_BYTES)) {
        const struct error why = *err;
        (void)tell_shortage(bytes + QUEUE_BYTES, status, why.text, err);
    }
    if (status == STATUS_OK)
        status = memory_create(pool, bytes, err);
    ucs_log_pop_handler();
    if (status == STATUS_OK)
        status = description_create(pool, err);
    if (status != STATUS_OK) {
        ucx_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return STATUS_OK;
}

void ucx_pool_destroy(struct ucx_pool *pool)
{
    if (!pool)
        return;
    if (pool->rkey)
        ucp_rkey_buffer_release(pool->rkey);
    if (pool->worker_address)
        ucp_worker_release_address(pool->worker, pool->worker_address);
    if (pool->worker)
        ucp_worker_destroy(pool->worker);
    if (pool->memory)
        ucp_mem_unmap(pool->context, pool->memory);
    if (pool->context)
        ucp_cleanup(pool->context);
    free(pool);
}

uint8_t *ucx_pool_memory(const struct ucx_pool *pool)
{
    return pool->start;
}

static uint32_t library_version(void)
{
    unsigned major, minor, release;
    ucp_get_version(&major, &minor, &release);
    return major << 16 | minor;
}

void ucx_pool_describe(const struct ucx_pool *pool, struct kv_address *address)
{
    address->shm_version = library_version();
    address->base = (uintptr_t)pool->start;
    address->worker = (const uint8_t *)pool->worker_address;
    address->worker_bytes = (uint16_t)pool->worker_bytes;
    address->rkey = pool->rkey;
    address->rkey_bytes = (uint16_t)pool->rkey_bytes;
}

void ucx_pool_progress(struct ucx_pool *pool)
{
    for (int i = 0; i < MAX_PROGRESS_TURNS && ucp_worker_progress(pool->worker); i++)
        ;
}

struct kv_life_word *ucx_pool_signs(const struct ucx_pool *pool)
{
    return (struct kv_life_word *)(pool->start + kv_life_offset(pool->bytes));
}

/* -- a peer's pool -- */

/* Returns true if [from, end) lies in one shared mapping. The length is the peer's word, and memory
 * behind the mapping is ours: only the kernel knows where the mapping ends. */
static bool is_one_shared_mapping(uintptr_t from, uintptr_t end)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    bool found = false;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        uintptr_t first, behind;
        char rights[5];
        found = sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &first, &behind, rights) == 3 &&
                first <= from && end <= behind && rights[3] == 's';
    }
    if (maps)
        fclose(maps);
    return found;
}

/* Returns the peer's pool, mapped read-only, or NULL if it can't be mapped here. */
static const uint8_t *map_start(const struct ucx_pool *pool, ucp_rkey_h rkey,
                                const struct kv_address *address)
{
    void *start;
    if (ucp_rkey_ptr(rkey, address->base, &start) != UCS_OK)
        return NULL;
    if (start == pool->start) /* the pairing is with the own pool */
        return address->pool_bytes <= pool->bytes ? start : NULL;
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)start & ~(page_bytes - 1);
    uintptr_t end = (uintptr_t)start + kv_life_offset(address->pool_bytes) + KV_LIFE_BYTES;
    if ((uintptr_t)start % _Alignof(struct kv_life_word) || !is_one_shared_mapping(from, end) ||
        mprotect((void *)from, end - from, PROT_READ) != 0)
        return NULL;
    return start;
}

static ucs_status_t mapping_create(struct ucx_pool *pool, const struct kv_address *address,
                                   struct ucx_mapping *mapping, const uint8_t **start)
{
    /* UCX takes both without a length: they are aligned, and zeros follow. */
    uint64_t copy[2 * KV_TRANSPORT_MAX_ADDRESS_BYTES / sizeof(uint64_t)] = {0};
    memcpy(copy, address->worker, address->worker_bytes);
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER, /* the forced close needs it */
        .address = (const ucp_address_t *)copy,
    };
    ucs_status_t got = ucp_ep_create(pool->worker, &params, &mapping->endpoint);
    if (got != UCS_OK)
        return got;
    memset(copy, 0, sizeof copy);
    memcpy(copy, address->rkey, address->rkey_bytes);
    got = ucp_ep_rkey_unpack(mapping->endpoint, copy, &mapping->rkey);
    if (got != UCS_OK)
        return got;
    *start = map_start(pool, mapping->rkey, address);
    return *start ? UCS_OK : UCS_ERR_INVALID_ADDR;
}

enum status ucx_map(struct ucx_pool *pool, const struct kv_address *address,
                    struct ucx_mapping **out, const uint8_t **start, struct error *err)
{
    uint32_t own = library_version();
    if (!address->worker_bytes || !address->rkey_bytes)
        return error_set(err, STATUS_UNAVAILABLE, "the peer does not offer the lane shm");
    if (address->shm_version != own)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the lane shm needs the same UCX on both sides: the peer runs %u.%u, this "
                         "program %u.%u",
                         address->shm_version >> 16, address->shm_version & 0xffff, own >> 16,
                         own & 0xffff);
    struct ucx_mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping)
        return error_set(err, STATUS_LIMIT, "no memory for a peer");
    ucs_status_t got = mapping_create(pool, address, mapping, start);
    if (got != UCS_OK) {
        ucx_unmap(pool, mapping);
        return error_set(err, STATUS_UNAVAILABLE,
                         "the peer's pool can't be mapped by the lane shm: %s (it needs the same "
                         "machine, user, IPC and PID namespace)",
                         ucs_status_string(got));
    }
    *out = mapping;
    return STATUS_OK;
}

const struct kv_life_word *ucx_mapping_signs(const uint8_t *start, const struct kv_address *address)
{
    return (const struct kv_life_word *)(start + kv_life_offset(address->pool_bytes));
}

static void endpoint_close(ucp_worker_h worker, ucp_ep_h endpoint)
{
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
    };
    ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint, &params);
    if (!UCS_PTR_IS_PTR(request))
        return;
    for (int i = 0; ucp_request_check_status(request) == UCS_INPROGRESS && i < MAX_CLOSE_TURNS; i++)
        ucp_worker_progress(worker);
    if (ucp_request_check_status(request) == UCS_INPROGRESS)
        log_warn("transport", "msg=\"UCX does not close an endpoint\"");
    ucp_request_free(request);
}

void ucx_unmap(struct ucx_pool *pool, struct ucx_mapping *mapping)
{
    if (!mapping)
        return;
    if (mapping->rkey)
        ucp_rkey_destroy(mapping->rkey); /* unmaps the pool */
    if (mapping->endpoint)
        endpoint_close(pool->worker, mapping->endpoint);
    free(mapping);
}
