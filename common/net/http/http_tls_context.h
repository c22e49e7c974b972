/* What both ends of TLS have in common: its rules, and certificates in PEM to what OpenSSL takes.
 * The types are OpenSSL's, which is known to the sources http_tls.c, http_tls_context.c and
 * http_client_tls.c only. Internal to this folder. */
#ifndef BATON_NET_HTTP_HTTP_TLS_CONTEXT_H
#define BATON_NET_HTTP_HTTP_TLS_CONTEXT_H

#include "common/net/crypto/certificates.h"

struct ssl_ctx_st;
struct ssl_method_st;
struct x509_st;

/* TLS 1.2 and 1.3, good ciphers, nothing compressed, renegotiated or resumed. */
struct ssl_ctx_st *http_tls_context_create(const struct ssl_method_st *method);
/* What the set holds: certificate and key to show, and CAs to trust, `whose`. STATUS_INVALID: which
 * of them can't be used, and why. */
enum status http_tls_context_use(struct ssl_ctx_st *context, const struct certificate_set *set,
                                 const char *whose, struct error *err) WARN_UNUSED;
/* Calls `take` with each certificate of the text, until it fails. */
bool http_tls_context_each(const char *text,
                           bool (*take)(struct ssl_ctx_st *context, struct x509_st *one),
                           struct ssl_ctx_st *context);
/* Takes OpenSSL's errors of this thread, of which the first tells most. */
enum status http_tls_context_refuse(const char *what, struct error *err);

#endif
