#include "common/net/http/http_client_tls.h"

#include "common/base/assert.h"
#include "common/net/http/http_tls_context.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct http_client_tls {
    const struct http_url *url;
    const char *peer_name; /* that is checked */
    const char *setting;   /* "tls": what its settings begin with */
    bool shows, over;      /* shows: it has a certificate */
    int fd;
    BIO_METHOD *method;
    SSL_CTX *context;
    SSL *ssl;
};

/* --- bytes: as OpenSSL's sockets, but whoever has gone raises no SIGPIPE --- */

static int outcome_of(BIO *bio, ssize_t done, int retry)
{
    BIO_clear_retry_flags(bio);
    if (done < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    return (int)done;
}

static int read_bytes(BIO *bio, char *bytes, int size)
{
    const struct http_client_tls *tls = BIO_get_data(bio);
    return outcome_of(bio, recv(tls->fd, bytes, (size_t)size, 0), BIO_FLAGS_READ);
}

static int write_bytes(BIO *bio, const char *bytes, int size)
{
    const struct http_client_tls *tls = BIO_get_data(bio);
    return outcome_of(bio, send(tls->fd, bytes, (size_t)size, MSG_NOSIGNAL), BIO_FLAGS_WRITE);
}

static long control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static void join_socket(struct http_client_tls *tls)
{
    tls->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "a client's socket");
    BIO *bio = tls->method && BIO_meth_set_read(tls->method, read_bytes) &&
                       BIO_meth_set_write(tls->method, write_bytes) &&
                       BIO_meth_set_ctrl(tls->method, control)
                   ? BIO_new(tls->method)
                   : NULL;
    ASSERT(bio);
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
}

/* --- begin and end --- */

static bool is_address(const char *name)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

/* Its certificate must hold the name; a server of several names is told which one is meant. */
static bool expect_name(struct http_client_tls *tls)
{
    X509_VERIFY_PARAM *rules = SSL_get0_param(tls->ssl);
    X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (is_address(tls->peer_name))
        return X509_VERIFY_PARAM_set1_ip_asc(rules, tls->peer_name);
    return X509_VERIFY_PARAM_set1_host(rules, tls->peer_name, 0) &&
           SSL_set_tlsext_host_name(tls->ssl, tls->peer_name);
}

/* Of the set that there is now; none: the machine's own CAs. */
static enum status make_context(struct http_client_tls *tls, struct certificates *certificates,
                                struct error *err)
{
    tls->context = http_tls_context_create(TLS_client_method());
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    const struct certificate_set *set = certificates ? certificates_take(certificates) : NULL;
    enum status status =
        set ? http_tls_context_use(tls->context, set, "the server's CA", err) : STATUS_OK;
    if (set && set->ca) /* it may hold the server's own certificate, whoever signed that */
        X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(tls->context), X509_V_FLAG_PARTIAL_CHAIN);
    else if (status == STATUS_OK && SSL_CTX_set_default_verify_paths(tls->context) != 1)
        status = http_tls_context_refuse("this machine's store of CAs", err);
    tls->shows = set && set->cert;
    if (set)
        certificate_set_give(set);
    return status;
}

enum status http_client_tls_begin(const struct http_client_tls_plan *plan,
                                  struct http_client_tls **out, struct error *err)
{
    struct http_client_tls *tls = calloc(1, sizeof *tls);
    ASSERT(tls);
    tls->url = plan->url;
    tls->fd = plan->fd;
    tls->peer_name = plan->peer_name && *plan->peer_name ? plan->peer_name : plan->url->host;
    tls->setting = plan->certificates ? certificates_name(plan->certificates) : "tls";
    enum status status = make_context(tls, plan->certificates, err);
    if (status == STATUS_OK) {
        tls->ssl = SSL_new(tls->context);
        ASSERT(tls->ssl);
        SSL_set_connect_state(tls->ssl);
        join_socket(tls);
        if (!expect_name(tls))
            status = error_set(err, STATUS_INVALID, "\"%.120s\" is no name for --%s-name",
                               tls->peer_name, tls->setting);
    }
    ERR_clear_error();
    if (status != STATUS_OK)
        http_client_tls_end(tls);
    else
        *out = tls;
    return status;
}

void http_client_tls_end(struct http_client_tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->method);
    free(tls);
}

bool http_client_tls_is_over(const struct http_client_tls *tls)
{
    return tls->over;
}

/* --- what went wrong --- */

/* The certificate that the server shows. */
static enum status explain_verdict(const struct http_client_tls *tls, long verdict,
                                   struct error *err)
{
    const char *who = tls->url->authority, *words = X509_verify_cert_error_string(verdict);
    switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return error_set(err, STATUS_INVALID,
                         "the certificate of %s has expired: renew it there (or set this "
                         "machine's clock)",
                         who);
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return error_set(err, STATUS_INVALID,
                         "the certificate of %s is not valid yet: look at both machines' clocks",
                         who);
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return error_set(err, STATUS_INVALID,
                         "the certificate of %s does not hold the name \"%.120s\": call it by a "
                         "name that it holds, or say which with --%s-name",
                         who, tls->peer_name, tls->setting);
    default:
        return error_set(err, STATUS_INVALID,
                         "the certificate of %s is not one to trust: %s (--%s-ca names the CAs "
                         "that are trusted)",
                         who, words, tls->setting);
    }
}

static enum status explain_alert(const struct http_client_tls *tls, const char *words,
                                 struct error *err)
{
    if (tls->shows)
        return error_set(err, STATUS_INVALID,
                         "%s does not take the certificate of --%s-cert: %s (one of its clients' "
                         "CAs must have signed it)",
                         tls->url->authority, tls->setting, words);
    return error_set(err, STATUS_INVALID,
                     "%s wants a client's certificate: %s (give --%s-cert and --%s-key)",
                     tls->url->authority, words, tls->setting, tls->setting);
}

static enum status explain(const struct http_client_tls *tls, struct error *err)
{
    unsigned long code = ERR_get_error();
    const char *words = ERR_reason_error_string(code), *who = tls->url->authority;
    words = words ? words : "no reason is given";
    switch (ERR_GET_REASON(code)) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
        return explain_verdict(tls, SSL_get_verify_result(tls->ssl), err);
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE: return explain_alert(tls, words, err);
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
    case SSL_R_UNSUPPORTED_PROTOCOL:
        return error_set(err, STATUS_INVALID, "%s speaks no TLS of 1.2 or later: %s", who, words);
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_HTTP_REQUEST:
        return error_set(err, STATUS_INVALID,
                         "%s answers, but not in TLS: call it with http:// and without --%s-ca",
                         who, tls->setting);
    default: return error_set(err, STATUS_UNAVAILABLE, "TLS with %s failed: %s", who, words);
    }
}

static enum http_io outcome(struct http_client_tls *tls, int done, enum status *status,
                            struct error *err)
{
    *status = STATUS_OK;
    if (done == 1)
        return HTTP_IO_DONE;
    switch (SSL_get_error(tls->ssl, done)) {
    case SSL_ERROR_WANT_READ: return HTTP_IO_WAIT_READ;
    case SSL_ERROR_WANT_WRITE: return HTTP_IO_WAIT_WRITE;
    case SSL_ERROR_ZERO_RETURN: tls->over = true; break;
    case SSL_ERROR_SYSCALL: break;
    default: *status = explain(tls, err);
    }
    ERR_clear_error();
    return HTTP_IO_CLOSED;
}

/* --- steps --- */

enum http_io http_client_tls_handshake(struct http_client_tls *tls, enum status *status,
                                       struct error *err)
{
    ERR_clear_error();
    enum http_io io = outcome(tls, SSL_do_handshake(tls->ssl), status, err);
    if (io == HTTP_IO_CLOSED && *status == STATUS_OK)
        *status = error_set(err, STATUS_UNAVAILABLE,
                            "%s closed the connection in the middle of the TLS handshake: is TLS "
                            "what it speaks there?",
                            tls->url->authority);
    return io;
}

enum http_io http_client_tls_receive(struct http_client_tls *tls, void *bytes, size_t size,
                                     size_t *count, enum status *status, struct error *err)
{
    ERR_clear_error();
    return outcome(tls, SSL_read_ex(tls->ssl, bytes, size, count), status, err);
}

enum http_io http_client_tls_send(struct http_client_tls *tls, const void *bytes, size_t size,
                                  size_t *count, enum status *status, struct error *err)
{
    ERR_clear_error();
    return outcome(tls, SSL_write_ex(tls->ssl, bytes, size, count), status, err);
}
