/* How a command is known to the router that it calls, and the router to it: the settings tls-...
 * and api-key-file, and what they name. */
#ifndef BATON_CLI_CALL_CREDENTIALS_H
#define BATON_CLI_CALL_CREDENTIALS_H

#include "common/cli/generate_call.h"
#include "common/net/http/http_client.h"

struct credential_settings {
    char ca[1024], cert[1024], key[1024], name[256], api_key_file[1024]; /* "": not given */
};

/* Their rows of a program's table of settings; `field`: the struct above in that of the program,
 * `owner`. To `baton up` and the router tls-cert and tls-key are the server's own: here they are
 * flags alone. */
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
    const char *peer_name;             /* the settings' own */
    char api_key[GENERATE_MAX_KEY_BYTES + 1];
};

/* STATUS_INVALID: a part is missing. No file is looked at. */
enum status call_credentials_check(const struct credential_settings *settings,
                                   struct error *err) WARN_UNUSED;

/* Reads the files. As call_credentials_check, or certificates_open, or STATUS_IO and STATUS_LIMIT
 * of the key's file. After a failure closing is fine. */
enum status call_credentials_open(const struct credential_settings *settings,
                                  struct call_credentials *credentials,
                                  struct error *err) WARN_UNUSED;
/* Forgets the key. Zeroed is fine. */
void call_credentials_close(struct call_credentials *credentials);

/* For generate_call_open; it lives as long as both. */
struct generate_target call_credentials_target(const struct call_credentials *credentials,
                                               const char *server);

/* For http_get; as above. */
struct http_remote call_credentials_remote(const struct call_credentials *credentials,
                                           const char *url);

#endif
