/* The settings internal-tls-..., which the router and the workers share: TLS of all links between
 * them. Both ends show a certificate, and both check the other's. */
#ifndef BATON_NET_RPC_LINK_TLS_H
#define BATON_NET_RPC_LINK_TLS_H

#include "common/net/rpc/rpc.h"

struct link_tls_settings {
    char cert[1024], key[1024], ca[1024], name[256]; /* "": not given */
};

/* The rows of a program's table of settings. `owner`: the program's struct; `field`: its member of
 * the struct above. */
#define LINK_TLS_ROWS(owner, field)                                                                \
    {.name = "internal-tls-cert",                                                                  \
     .type = CONFIG_STRING,                                                                        \
     CONFIG_AT(owner, field.cert),                                                                 \
     .default_text = "",                                                                           \
     .value = "FILE",                                                                              \
     .help = "Certificate (PEM, leaf first) that this process shows to the router and the "        \
             "workers. With it all links between them are TLS with certificates on both sides"},   \
        {.name = "internal-tls-key",                                                               \
         .type = CONFIG_STRING,                                                                    \
         CONFIG_AT(owner, field.key),                                                              \
         .default_text = "",                                                                       \
         .value = "FILE",                                                                          \
         .help = "Its private key (PEM, without a password)"},                                     \
        {.name = "internal-tls-ca",                                                                \
         .type = CONFIG_STRING,                                                                    \
         CONFIG_AT(owner, field.ca),                                                               \
         .default_text = "",                                                                       \
         .value = "FILE",                                                                          \
         .help = "CAs (PEM) that sign the certificates of the cluster's own processes"},           \
    {                                                                                              \
        .name = "internal-tls-name", .type = CONFIG_STRING, CONFIG_AT(owner, field.name),          \
        .default_text = "", .value = "NAME",                                                       \
        .help = "DNS name that the certificates of all of the cluster's processes hold. Empty: a " \
                "server's must hold the host that is dialled, and a client's may hold any"         \
    }

/* STATUS_INVALID: a part is missing. Reads no file. */
enum status link_tls_check(const struct link_tls_settings *settings, struct error *err) WARN_UNUSED;
/* Opens the certificates. Zeroes *tls if nothing is given. tls->peer_name points into `settings`.
 * Fails as link_tls_check and certificates_open do. */
enum status link_tls_open(const struct link_tls_settings *settings, struct rpc_tls *tls,
                          struct error *err) WARN_UNUSED;
void link_tls_close(struct rpc_tls *tls);

#endif
