/* How UCX is set up: options of the process, options of the context, and what its status codes mean
 * to us. */
#include "common/base/log.h"
#include "common/kv/transport/ucx.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#define MESSAGE_BYTES 512

/* UCX would write to standard output. Its errors are peers that died, which the transport reports:
 * warnings to us. */
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

static ucs_log_func_rc_t drop_message(const char *file, unsigned line, const char *function,
                                      ucs_log_level_t level,
                                      const ucs_log_component_config_t *component,
                                      const char *format, va_list args)
{
    (void)file, (void)line, (void)function, (void)level, (void)component, (void)format, (void)args;
    return UCS_LOG_FUNC_RC_STOP;
}

static void process_init_once(void)
{
    /* A crash must end the process with its core, not in UCX's own handler; the sanitizers want
     * theirs, too. 1.22 has none to begin with, and would warn. */
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    ucs_log_push_handler(drop_message);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        ucs_debug_disable_signal(signals[i]);
    ucs_log_pop_handler();
    ucs_log_push_handler(log_ucx);
    ucs_global_opts_set_value("WARN_UNUSED_ENV_VARS", "n");
}

void ucx_process_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, process_init_once);
}

enum status ucx_config_create(ucp_config_t **out, struct error *err)
{
    static const struct {
        const char *name, *value;
    } settings[] = {
        {"TLS", "posix,sysv,self"},
        /* What a peer can map. A sysv segment loses its name as soon as it is made; a posix file
         * does when UCX has filled it, and a process that is killed meanwhile leaves a whole pool
         * in /dev/shm for good. */
        {"ALLOC_PRIO", "md:sysv,md:posix"},
        {"KEEPALIVE_INTERVAL", "inf"}, /* the pairing's socket knows it at once */
        /* Without it shared memory drops out where endpoints can be closed by force. */
        {"MM_ERROR_HANDLING", "y"},
    };
    ucp_config_t *options;
    ucs_status_t got = ucp_config_read(NULL, NULL, &options);
    if (got != UCS_OK)
        return error_set(err, ucx_status(got),
                         "UCX refuses its options: %s (is a UCX_... variable "
                         "set?)",
                         ucs_status_string(got));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        got = ucp_config_modify(options, settings[i].name, settings[i].value);
        if (got == UCS_OK)
            continue;
        ucp_config_release(options);
        return error_set(err, ucx_status(got), "UCX %s refuses %s=%s: %s", ucp_get_version_string(),
                         settings[i].name, settings[i].value, ucs_status_string(got));
    }
    *out = options;
    return STATUS_OK;
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
