/* Settings of who speaks TLS. The three of a listener that speaks TLS: certificate, its key, and
 * the CA whose certificates its clients must show. Router and workers have them for each kind of
 * listener. */
#ifndef BATON_NET_CRYPTO_TLS_SETTINGS_H
#define BATON_NET_CRYPTO_TLS_SETTINGS_H

#include "common/net/crypto/certificates.h"

struct tls_settings {
    char cert[1024], key[1024], client_ca[1024]; /* "": not given */
};

/* Their rows of a program's table of settings. `field`: the struct above in that of the program,
 * `owner`; `prefix`: "tls"; `whom`: "clients". */
#define TLS_SETTINGS_ROWS(owner, field, prefix, whom)                                              \
    {.name = prefix "-cert",                                                                       \
     .type = CONFIG_STRING,                                                                        \
     CONFIG_AT(owner, field.cert),                                                                 \
     .default_text = "",                                                                           \
     .value = "FILE",                                                                              \
     .help = "Certificate (PEM, leaf first) for " whom ": they are served over TLS 1.2 or 1.3 "    \
             "only; read again when it changes, as all of these files"},                           \
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

/* `name`: the prefix above. STATUS_INVALID: a part is missing. No file is looked at. */
enum status tls_settings_check(const struct tls_settings *settings, const char *name,
                               struct error *err) WARN_UNUSED;
/* `name`: likewise. Nothing given: *certificates is NULL. As tls_settings_check, or
 * certificates_open. */
enum status tls_settings_open(const struct tls_settings *settings, const char *name,
                              struct certificates **certificates, struct error *err) WARN_UNUSED;

/* And the four of a client that isn't one of the cluster: a collector's, say. */
struct tls_client_settings {
    char ca[1024], cert[1024], key[1024], name[256]; /* "": not given */
};

/* `what`: "the collector". */
#define TLS_CLIENT_SETTINGS_ROWS(owner, field, prefix, what)                                       \
    {.name = prefix "-ca",                                                                         \
     .type = CONFIG_STRING,                                                                        \
     CONFIG_AT(owner, field.ca),                                                                   \
     .default_text = "",                                                                           \
     .value = "FILE",                                                                              \
     .help = "The certificate of " what " must be signed by one of these CAs (PEM); "              \
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
         .help = "Certificate (PEM) to show to " what " where it asks for one"},                   \
    {                                                                                              \
        .name = prefix "-key", .type = CONFIG_STRING, CONFIG_AT(owner, field.key),                 \
        .default_text = "", .value = "FILE", .help = "Its private key (PEM, without a password)"   \
    }

/* As tls_settings_check and tls_settings_open. */
enum status tls_client_settings_check(const struct tls_client_settings *settings, const char *name,
                                      struct error *err) WARN_UNUSED;
enum status tls_client_settings_open(const struct tls_client_settings *settings, const char *name,
                                     struct certificates **certificates,
                                     struct error *err) WARN_UNUSED;

#endif
