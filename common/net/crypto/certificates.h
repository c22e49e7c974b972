/* The certificate, key and CA files of one kind of link: read and checked at start, watched, and
 * read again when they change. What connections are made with is always a whole, checked set: one
 * that can't be used is refused with a line in the log, and the one before stays.
 *
 * Any thread may take the current set. Refuses: speaking TLS, fetching revocation lists.
 */
#ifndef BATON_NET_CRYPTO_CERTIFICATES_H
#define BATON_NET_CRYPTO_CERTIFICATES_H

#include "common/net/crypto/certificate_set.h"

#include <stdbool.h>

struct certificates;

struct certificates_config {
    const char
        *name; /* of the settings, for sentences: "tls" (tls-cert, tls-key), "internal-tls" */
    const char *ca_name; /* and its CA's: NULL: "ca" (internal-tls-ca) */
    struct certificate_paths paths;
    bool required;              /* a certificate and a key must be there; else a CA alone will do */
    uint64_t watch_interval_us; /* 0: reload's */
};

/* Are these files of one link a set: certificate with key? STATUS_INVALID with the settings'
 * names. */
enum status certificates_check_paths(const struct certificates_config *config,
                                     struct error *err) WARN_UNUSED;
/* STATUS_INVALID, STATUS_IO, STATUS_LIMIT: which setting, which file, and what is wrong with it. */
enum status certificates_open(const struct certificates_config *config,
                              struct certificates **certificates, struct error *err) WARN_UNUSED;
/* Nobody may take any more; sets that were taken live until they are given back. NULL is fine. */
void certificates_close(struct certificates *certificates);

/* Of its settings, as in its config. */
const char *certificates_name(const struct certificates *certificates);
/* The current set, to be given back with certificate_set_give. */
const struct certificate_set *certificates_take(struct certificates *certificates);
/* Of the current set, without taking it. */
uint64_t certificates_version(const struct certificates *certificates);
int64_t certificates_expiry_unix_s(const struct certificates *certificates); /* 0: no certificate */

#endif
