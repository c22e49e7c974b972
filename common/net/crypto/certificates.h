/* The certificate, key and CA files of one kind of link: read from PEM, checked (the chain parses,
 * the leaf is valid now, the key is the leaf's), watched, and read again when they change. Each new
 * connection uses a whole, checked set. A set that can't be used is refused with a line in the log,
 * and the one before stays.
 *
 * Any thread may take the current set. Refuses: speaking TLS, fetching revocation lists, encrypted
 * keys.
 */
#ifndef BATON_NET_CRYPTO_CERTIFICATES_H
#define BATON_NET_CRYPTO_CERTIFICATES_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* --- a set --- */

#define CERTIFICATES_MAX_FILE_BYTES (1u << 20)
#define CERTIFICATES_MAX_CHAIN      16       /* certificates of --...-cert, the leaf first */
#define CERTIFICATES_MAX_CAS        1024     /* certificates of --...-ca */
#define CERTIFICATES_SYSTEM         "system" /* as `ca`: the machine's own CAs; clients only */

/* In PEM, as OpenSSL, gRPC core and libcurl take it. Immutable once it is shared, counted by
 * references, for any thread. */
struct certificate_set {
    uint64_t version;       /* counts the changes up from 1; 0 as read */
    char *cert, *key, *ca;  /* NULL: there is no such file */
    int64_t expires_unix_s; /* the leaf; 0: there is none */
    char subject[200];      /* the leaf's */
    /* The first name that the leaf is good for: a DNS name or an address; "": it holds none. */
    char name[256];
};

struct certificate_paths {
    const char *cert, *key, *ca; /* NULL and "": none */
};

enum certificate_part { CERTIFICATE_CERT, CERTIFICATE_KEY, CERTIFICATE_CA };

/* Reads and checks the files. The caller gives the set back. STATUS_INVALID, STATUS_IO,
 * STATUS_LIMIT: the sentence names the file and the reason, and *part is the part that failed. */
enum status certificate_set_read(const struct certificate_paths *paths,
                                 struct certificate_set **set, enum certificate_part *part,
                                 struct error *err) WARN_UNUSED;
/* Adds a reference. */
const struct certificate_set *certificate_set_share(struct certificate_set *set);
/* Drops a reference. The last one wipes the key and frees. */
void certificate_set_give(const struct certificate_set *set);

/* --- the current set of a link --- */

struct certificates;

struct certificates_config {
    const char *name;    /* the settings' prefix: "tls" (tls-cert, tls-key), "internal-tls" */
    const char *ca_name; /* the suffix of the CA's setting; NULL: "ca" (internal-tls-ca) */
    struct certificate_paths paths;
    bool required;              /* a certificate and a key must be given, not a CA alone */
    uint64_t watch_interval_us; /* 0: the default of reload.h */
};

/* Checks that the files given are a set. STATUS_INVALID: the sentence names the settings. */
enum status certificates_check_paths(const struct certificates_config *config,
                                     struct error *err) WARN_UNUSED;
/* STATUS_INVALID, STATUS_IO, STATUS_LIMIT: the sentence names the setting, the file and the
 * reason. */
enum status certificates_open(const struct certificates_config *config,
                              struct certificates **certificates, struct error *err) WARN_UNUSED;
/* No thread may take sets any more. Sets that were taken live until they are given back. NULL is
 * fine. */
void certificates_close(struct certificates *certificates);

/* Returns the settings' prefix. */
const char *certificates_name(const struct certificates *certificates);
/* Returns the current set. certificate_set_give gives it back. */
const struct certificate_set *certificates_take(struct certificates *certificates);
/* Read from the current set without taking it. */
uint64_t certificates_version(const struct certificates *certificates);
int64_t certificates_expiry_unix_s(const struct certificates *certificates); /* 0: no certificate */

#endif
