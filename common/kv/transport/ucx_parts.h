/* Internal to ucx.c and ucx_card.c: how both set UCX up. */
#ifndef BATON_KV_TRANSPORT_UCX_PARTS_H
#define BATON_KV_TRANSPORT_UCX_PARTS_H

#include "common/kv/transport/ucx.h"

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

struct ucx_option {
    const char *name, *value; /* NULL ends a list */
};

/* Process-wide: UCX's messages go to our log from then on, and its crash handlers are gone. */
void ucx_init_once(void);
enum status ucx_status(ucs_status_t status);
/* Returns the options of a context; release with ucp_config_release. */
enum status ucx_config(const struct ucx_option *settings, ucp_config_t **out,
                       struct error *err) WARN_UNUSED;
/* Pushed where our own sentence says it all. */
ucs_log_func_rc_t ucx_drop_message(const char *file, unsigned line, const char *function,
                                   ucs_log_level_t level,
                                   const ucs_log_component_config_t *component, const char *format,
                                   va_list args);

#endif
