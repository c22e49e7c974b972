/* The certificates of one cluster's own processes, for a run of `baton up` that was given none: a
 * CA that only this cluster knows, and one certificate that it has signed, which all processes
 * show.
 *
 * The CA's key is never written, and forgotten before the call returns: nothing else is ever
 * signed. The files last as long as the run, and don't expire before it (CLUSTER_CA_DAYS). Any
 * thread. */
#ifndef BATON_NET_CRYPTO_CLUSTER_CA_H
#define BATON_NET_CRYPTO_CLUSTER_CA_H

#include "common/base/status.h"

#define CLUSTER_CA_NAME "baton.internal" /* the DNS name in the certificate */
#define CLUSTER_CA_DAYS 3650

#define CLUSTER_CA_CERT "cert.pem" /* the leaf; good for servers and for clients */
#define CLUSTER_CA_KEY  "key.pem"
#define CLUSTER_CA_CA   "ca.pem"

/* Makes `folder` (0700) and the three files in it (0600). STATUS_IO: the folder or a file can't be
 * made, and nothing is left. STATUS_LIMIT: the path is too long. STATUS_INTERNAL: OpenSSL fails. */
enum status cluster_ca_make(const char *folder, struct error *err) WARN_UNUSED;
/* Removes the files and the folder, as far as they are there. */
void cluster_ca_remove(const char *folder);

#endif
