/* The certificate, key and CA files of one kind of link: read and checked at start, watched, and read again when they change. What
 * connections are made with is always a whole, checked set: one that can't be used is refused with a line in the log, and the one
 * before stays.
 *
 * Any thread may take the current set. Refuses: speaking TLS, fetching revocation lists, encrypted keys (there is nobody to ask for
 * a password).
 */
#ifndef BATON_CRYPTO_CERTIFICATES_H
#define BATON_CRYPTO_CERTIFICATES_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define CERTIFICATES_MAX_FILE_BYTES (1u << 20)
#define CERTIFICATES_MAX_CHAIN      16       /* certificates of --...-cert: the leaf first */
#define CERTIFICATES_MAX_CAS        1024     /* of --...-ca */
#define CERTIFICATES_SYSTEM         "system" /* as `ca`: the machine's own CAs; of clients alone */

/* A set, in PEM as OpenSSL and gRPC core take it. Immutable. */
struct certificate_set {
    uint64_t version;       /* counts up from 1 with every change */
    char *cert, *key, *ca;  /* NULL: there is no such file */
    int64_t expires_unix_s; /* the leaf; 0: there is none */
    char subject[200];      /* of the leaf */
};

struct certificate_paths {
    const char *cert, *key, *ca; /* NULL and "": none */
};

struct certificates;

struct certificates_config {
    const char
        *name; /* of the settings, for sentences: "tls" (tls-cert, tls-key), "internal-tls" */
    struct certificate_paths paths;
    bool required;              /* a certificate and a key must be there; else a CA alone will do */
    uint64_t watch_interval_us; /* 0: reload's */
};

/* Are these files of one link a set: certificate with key? STATUS_INVALID with the settings' names. */
enum status certificates_check_paths(const struct certificates_config *config,
                                     struct error *err) WARN_UNUSED;
/* STATUS_INVALID, STATUS_IO, STATUS_LIMIT: which file, and what is wrong with it. */
enum status certificates_open(const struct certificates_config *config,
                              struct certificates **certificates, struct error *err) WARN_UNUSED;
/* Nobody may take any more; sets that were taken live until they are given back. NULL is fine. */
void certificates_close(struct certificates *certificates);

/* Of its settings, as in its config. */
const char *certificates_name(const struct certificates *certificates);
/* The current set, to be given back. */
const struct certificate_set *certificates_take(struct certificates *certificates);
void certificate_set_give(const struct certificate_set *set);
/* Of the current set, without taking it. */
uint64_t certificates_version(const struct certificates *certificates);
int64_t certificates_expiry_unix_s(const struct certificates *certificates); /* 0: no certificate */

#endif
