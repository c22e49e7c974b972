/* A certificate with its key, the CAs, or both, read from PEM files and checked: the chain parses,
 * the leaf is valid now, the key is the leaf's. What is in use is such a set, whole; certificates.h
 * says which one is.
 *
 * Immutable once it is shared, counted by references, for any thread. Refuses encrypted keys (there
 * is nobody to ask for a password).
 */
#ifndef BATON_NET_CRYPTO_CERTIFICATE_SET_H
#define BATON_NET_CRYPTO_CERTIFICATE_SET_H

#include "common/base/status.h"

#include <stdint.h>

#define CERTIFICATES_MAX_FILE_BYTES (1u << 20)
#define CERTIFICATES_MAX_CHAIN      16       /* certificates of --...-cert: the leaf first */
#define CERTIFICATES_MAX_CAS        1024     /* of --...-ca */
#define CERTIFICATES_SYSTEM         "system" /* as `ca`: the machine's own CAs; of clients alone */

/* In PEM as OpenSSL and gRPC core take it. */
struct certificate_set {
    uint64_t version;       /* its owner's, who counts the changes up from 1; 0 as read */
    char *cert, *key, *ca;  /* NULL: there is no such file */
    int64_t expires_unix_s; /* the leaf; 0: there is none */
    char subject[200];      /* of the leaf */
    char name
        /* that the leaf is good for, the first: a DNS name or an address; "": it holds none */
        [256];
};

struct certificate_paths {
    const char *cert, *key, *ca; /* NULL and "": none */
};

enum certificate_part { CERTIFICATE_CERT, CERTIFICATE_KEY, CERTIFICATE_CA };

/* Reads and checks the files that are named. STATUS_INVALID, STATUS_IO, STATUS_LIMIT: which file,
 * and what is wrong with it; and then *part is what it was to be. The caller gives the set back. */
enum status certificate_set_read(const struct certificate_paths *paths,
                                 struct certificate_set **set, enum certificate_part *part,
                                 struct error *err) WARN_UNUSED;
/* One more who gives it back. */
const struct certificate_set *certificate_set_share(struct certificate_set *set);
/* Freed by the last, with the key wiped. */
void certificate_set_give(const struct certificate_set *set);

#endif
