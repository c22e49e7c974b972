/* The router's listener of figures, as commands call it: the settings http, tls-... and
 * api-key-file, and what they name. */
#ifndef BATON_CLI_FIGURES_CALL_H
#define BATON_CLI_FIGURES_CALL_H

#include "common/base/config/config.h"
#include "common/cli/call_credentials.h"
#include "common/cli/cluster_file.h"

struct figures_settings {
    char http[HTTP_URL_BYTES]; /* "": the cluster that was started here last */
    struct credential_settings credentials;
};

/* Their rows of a program's table of settings; `field`: the struct above in that of the program,
 * `owner`. */
#define FIGURES_ROWS(owner, field)                                                                 \
    {"http",                                                                                       \
     CONFIG_STRING,                                                                                \
     CONFIG_AT(owner, field.http),                                                                 \
     "",                                                                                           \
     .value = "HOST:PORT",                                                                         \
     .help = "Where the router shows figures; https:// before it, or --tls-ca: over TLS; empty: "  \
             "the cluster started here last",                                                      \
     .check = http_check_url},                                                                     \
        CREDENTIAL_ROWS(owner, field.credentials)

/* For the `check` of a program (config.h). */
void figures_settings_check(const struct figures_settings *settings, struct str *mistakes);

struct figures_call {
    struct http_remote router;
    struct cluster_file file; /* of a cluster that was found here; else empty */
    struct call_credentials credentials;
};

/* STATUS_NOT_FOUND: none was named, and none runs here; else as call_credentials_open. `settings`
 * must outlive it. After a failure closing is fine. */
enum status figures_call_open(const struct figures_settings *settings, struct figures_call *call,
                              struct error *err) WARN_UNUSED;
void figures_call_close(struct figures_call *call); /* zeroed is fine */

#endif
