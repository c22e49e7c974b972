/* The TLS settings of a listener (certificate, its key, and the CA of its clients' certificates),
 * and those of a client that calls a server outside of the cluster. Router and workers have them
 * for each kind of listener. */
#ifndef BATON_NET_CRYPTO_TLS_SETTINGS_H
#define BATON_NET_CRYPTO_TLS_SETTINGS_H

#include "common/net/crypto/certificates.h"

struct tls_settings {
    char cert[1024], key[1024], client_ca[1024]; /* "": not given */
};

/* The rows of a program's table of settings. `owner`: the program's struct; `field`: its member of
 * the struct above; `prefix`: "tls"; `clients`: "clients". */
#define TLS_SETTINGS_ROWS(owner, field, prefix, clients)                                           \
    {.name = prefix "-cert",                                                                       \
     .type = CONFIG_STRING,                                                                        \
     CONFIG_AT(owner, field.cert),                                                                 \
     .default_text = "",                                                                           \
     .value = "FILE",                                                                              \
     .help = "Certificate (PEM, leaf first) for " clients ", over TLS 1.2 or 1.3 only. It is "     \
             "read again when it changes, as all of these files are"},                             \
        {.name = prefix "-key",                                                                    \
         .type = CONFIG_STRING,                                                                    \
         CONFIG_AT(owner, field.key),                                                              \
         .default_text = "",                                                                       \
         .value = "FILE",                                                                          \
         .help = "Its private key (PEM, without a password)"},                                     \
    {                                                                                              \
        .name = prefix "-client-ca", .type = CONFIG_STRING, CONFIG_AT(owner, field.client_ca),     \
        .default_text = "", .value = "FILE",                                                       \
        .help = "They must show a certificate that one of these CAs (PEM) has signed"              \
    }

/* `name`: the prefix above. STATUS_INVALID: a part is missing. Reads no file. */
enum status tls_settings_check(const struct tls_settings *settings, const char *name,
                               struct error *err) WARN_UNUSED;
/* Sets *certificates to NULL if nothing is given. Fails as tls_settings_check and
 * certificates_open do. */
enum status tls_settings_open(const struct tls_settings *settings, const char *name,
                              struct certificates **certificates, struct error *err) WARN_UNUSED;

/* The settings of a client that calls a server outside of the cluster: a collector, for example. */
struct tls_client_settings {
    char ca[1024], cert[1024], key[1024], name[256]; /* "": not given */
};

/* `server`: "the collector". */
#define TLS_CLIENT_SETTINGS_ROWS(owner, field, prefix, server)                                     \
    {.name = prefix "-ca",                                                                         \
     .type = CONFIG_STRING,                                                                        \
     CONFIG_AT(owner, field.ca),                                                                   \
     .default_text = "",                                                                           \
     .value = "FILE",                                                                              \
     .help = "The certificate of " server " must be signed by one of these CAs (PEM); "            \
             "\"system\": by one of this machine's, as for https:// without it"},                  \
        {.name = prefix "-name",                                                                   \
         .type = CONFIG_STRING,                                                                    \
         CONFIG_AT(owner, field.name),                                                             \
         .default_text = "",                                                                       \
         .value = "NAME",                                                                          \
         .help = "Name that it must hold; empty: the host that is called"},                        \
        {.name = prefix "-cert",                                                                   \
         .type = CONFIG_STRING,                                                                    \
         CONFIG_AT(owner, field.cert),                                                             \
         .default_text = "",                                                                       \
         .value = "FILE",                                                                          \
         .help = "Certificate (PEM) to show to " server " where it asks for one"},                 \
    {                                                                                              \
        .name = prefix "-key", .type = CONFIG_STRING, CONFIG_AT(owner, field.key),                 \
        .default_text = "", .value = "FILE", .help = "Its private key (PEM, without a password)"   \
    }

/* Like tls_settings_check and tls_settings_open. */
enum status tls_client_settings_check(const struct tls_client_settings *settings, const char *name,
                                      struct error *err) WARN_UNUSED;
enum status tls_client_settings_open(const struct tls_client_settings *settings, const char *name,
                                     struct certificates **certificates,
                                     struct error *err) WARN_UNUSED;

#endif
