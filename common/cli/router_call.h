/* Calls to the router, as commands make them: their credentials (the settings tls-... and
 * api-key-file), one Generate call over gRPC, and the router's figures over HTTP. */
#ifndef BATON_CLI_ROUTER_CALL_H
#define BATON_CLI_ROUTER_CALL_H

#include "common/base/config/config.h"
#include "common/cli/cluster_file.h"
#include "common/net/http/http_client.h"
#include "common/net/rpc/rpc.h"
#include "proto/baton.pb-c.h"

/* --- credentials --- */

#define GENERATE_MAX_KEY_BYTES 512

struct credential_settings {
    char ca[1024], cert[1024], key[1024], name[256], api_key_file[1024]; /* "": not given */
};

/* Their rows in a program's table of settings. `field`: the struct above in the program's struct
 * `owner`. tls-cert and tls-key are flags only: as variables they are the servers' own. */
#define CREDENTIAL_ROWS(owner, field)                                                              \
    {.name = "tls-ca",                                                                             \
     .type = CONFIG_STRING,                                                                        \
     CONFIG_AT(owner, field.ca),                                                                   \
     .default_text = "",                                                                           \
     .value = "FILE",                                                                              \
     .help = "Speak TLS: the router's certificate must be signed by one of these CAs (PEM); "      \
             "\"system\": by one of this machine's"},                                              \
        {.name = "tls-name",                                                                       \
         .type = CONFIG_STRING,                                                                    \
         CONFIG_AT(owner, field.name),                                                             \
         .default_text = "",                                                                       \
         .value = "NAME",                                                                          \
         .help = "Name that the router's certificate holds; empty: the host that is called"},      \
        {.name = "tls-cert",                                                                       \
         .type = CONFIG_STRING,                                                                    \
         CONFIG_AT(owner, field.cert),                                                             \
         .default_text = "",                                                                       \
         .value = "FILE",                                                                          \
         .flag_only = true,                                                                        \
         .help = "Certificate (PEM) to show to a router that asks for one"},                       \
        {.name = "tls-key",                                                                        \
         .type = CONFIG_STRING,                                                                    \
         CONFIG_AT(owner, field.key),                                                              \
         .default_text = "",                                                                       \
         .value = "FILE",                                                                          \
         .flag_only = true,                                                                        \
         .help = "Its private key (PEM)"},                                                         \
    {                                                                                              \
        .name = "api-key-file", .type = CONFIG_STRING, CONFIG_AT(owner, field.api_key_file),       \
        .default_text = "", .value = "FILE",                                                       \
        .help = "File that holds the API key (a flag would show it to everybody on this machine)"  \
    }

struct call_credentials {
    struct certificates *certificates; /* NULL: in the clear */
    const char *peer_name;             /* points into the settings */
    char api_key[GENERATE_MAX_KEY_BYTES + 1];
};

/* STATUS_INVALID: a part is missing. Opens no file. */
enum status call_credentials_check(const struct credential_settings *settings,
                                   struct error *err) WARN_UNUSED;

/* Reads the files. `settings` outlives it. Fails like call_credentials_check and certificates_open,
 * or with STATUS_IO, STATUS_LIMIT or STATUS_INVALID because of the key's file. Closing is fine
 * after a failure. */
enum status call_credentials_open(const struct credential_settings *settings,
                                  struct call_credentials *credentials,
                                  struct error *err) WARN_UNUSED;
/* Forgets the key. A zeroed one is fine. */
void call_credentials_close(struct call_credentials *credentials);

/* --- a Generate call ---
 *
 * One call as a sequence of events for the command's own thread: the rpc threads post to a ring,
 * and share nothing else. Owner: the thread that opened it. */
struct generate_call;

struct generate_event {
    bool ended;
    enum rpc_code code; /* the end's */
    char reason[64], message[1024];
    bool overflow; /* we ended it: more messages came than were taken in time */
    size_t size;   /* bytes of a message that came */
    unsigned char data[];
};

struct generate_target {
    const char *server;  /* host:port */
    struct rpc_tls tls;  /* zeroed: in the clear; outlives the call */
    const char *api_key; /* "" or NULL: none */
};

/* Returns a target that is valid as long as the credentials and `server`. */
struct generate_target call_credentials_target(const struct call_credentials *credentials,
                                               const char *server);

/* Starts rpc threads, with the caller's signal mask: block signals before. */
enum status generate_call_open(const struct generate_target *target,
                               const Baton__V1__GenerateRequest *request, uint64_t timeout_us,
                               struct generate_call **call, struct error *err) WARN_UNUSED;
/* Returns a descriptor for poll(), readable when generate_call_next has an event. */
int generate_call_fd(const struct generate_call *call);
/* Returns the next event, which the caller frees. NULL: none yet. Nothing comes after the event
 * that has `ended`. */
struct generate_event *generate_call_next(struct generate_call *call);
/* Asks for the end; its event still comes. */
void generate_call_cancel(struct generate_call *call);
void generate_call_close(struct generate_call *call);

/* Writes the sentence for an end that is not an answer. A status without a reason was made by the
 * library, not by the router: the sentence says what it means here. `answered`: a part of the
 * answer had come. */
void generate_event_explain(const struct generate_event *event, const char *server,
                            uint64_t timeout_us, bool answered, struct error *why);

/* --- figures --- */

struct figures_settings {
    char http[HTTP_URL_BYTES]; /* "": the cluster that was started here last */
    struct credential_settings credentials;
};

/* Their rows in a program's table of settings. `field`: the struct above in the program's struct
 * `owner`. */
#define FIGURES_ROWS(owner, field)                                                                 \
    {"http",                                                                                       \
     CONFIG_STRING,                                                                                \
     CONFIG_AT(owner, field.http),                                                                 \
     "",                                                                                           \
     .value = "HOST:PORT",                                                                         \
     .help = "Address of the router's figures; https:// before it, or --tls-ca: over TLS; empty: " \
             "the cluster started here last",                                                      \
     .check = http_check_url},                                                                     \
        CREDENTIAL_ROWS(owner, field.credentials)

/* For the `check` of a program (config.h). */
void figures_settings_check(const struct figures_settings *settings, struct str *mistakes);

struct figures_call {
    struct http_remote router; /* for http_get */
    struct cluster_file file;  /* the cluster that was found here; otherwise empty */
    struct call_credentials credentials;
};

/* STATUS_NOT_FOUND: no router was named, and no cluster runs here. Fails otherwise like
 * call_credentials_open. `settings` must outlive it. Closing is fine after a failure. */
enum status figures_call_open(const struct figures_settings *settings, struct figures_call *call,
                              struct error *err) WARN_UNUSED;
/* A zeroed one is fine. */
void figures_call_close(struct figures_call *call);

/* Calls `body` with an open call and `context`. Returns the exit code of a command: 1, with a
 * sentence on standard error behind the program's name, if the opening or the body fails. */
int figures_call_run(const struct config_program *program, const struct figures_settings *settings,
                     enum status (*body)(const struct figures_call *call, const void *context,
                                         struct error *err),
                     const void *context);

#endif
