#include "common/net/http/http_socket.h"

#include "common/base/assert.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/net/crypto/certificates.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/util.h>
#include <inttypes.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOD              "http"
#define TLS_RECORD_BYTES 16384
#define SEND_PARTS       64
/* TLS 1.2: forward secrecy and authenticated encryption only. All ciphers of 1.3 are good. */
#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

struct http_tls {
    struct certificates *certificates;
    uint64_t version;  /* the set that was used last */
    SSL_CTX *in_force; /* for new connections */
};

/* --- addresses --- */

enum status http_peer_parse(const char *text, struct http_peer *peer, socklen_t *length,
                            struct error *err)
{
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':');
    uint64_t port;
    *peer = (struct http_peer){0};
    bool shaped = colon && (size_t)(colon - text) < sizeof host &&
                  str_to_u64(colon + 1, 0, UINT16_MAX, &port);
    if (shaped) {
        int size = sizeof peer->address;
        memcpy(host, text, (size_t)(colon - text));
        host[colon - text] = 0;
        const char *numeric = strcmp(host, "localhost") ? host : "127.0.0.1";
        shaped = evutil_parse_sockaddr_port(numeric, &peer->address.any, &size) == 0;
        *length = (socklen_t)size;
    }
    if (!shaped)
        return error_set(err, STATUS_INVALID,
                         "cannot listen on '%s' for HTTP: give a numeric host, or localhost, and a "
                         "port, like 127.0.0.1:9090, [::1]:9090, or 0.0.0.0:9090 for all addresses",
                         text);
    /* sin_port and sin6_port lie at the same place. */
    peer->address.v4.sin_port = htons((uint16_t)port);
    return STATUS_OK;
}

void http_peer_name(const struct http_peer *peer, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (peer->address.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &peer->address.v4.sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%d", host, ntohs(peer->address.v4.sin_port));
    } else {
        inet_ntop(AF_INET6, &peer->address.v6.sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%d", host, ntohs(peer->address.v6.sin6_port));
    }
}

/* --- TLS: rules and certificates --- */

/* Chooses from the protocols that the client offers. A client that offers none gets HTTP/1.1,
 * too. */
static int choose_protocol(SSL *ssl, const unsigned char **chosen, unsigned char *length,
                           const unsigned char *offered, unsigned offered_bytes, void *context)
{
    (void)ssl;
    (void)context;
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *found;
    int done = SSL_select_next_proto(&found, length, ours, sizeof ours - 1, offered, offered_bytes);
    *chosen = found;
    return done == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* TLS 1.2 and 1.3. Nothing is compressed, renegotiated or resumed. */
static SSL_CTX *create_context(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    ASSERT(context);
    ERR_clear_error();
    int set = SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) &&
              SSL_CTX_set_cipher_list(context, CIPHERS) && SSL_CTX_set_num_tickets(context, 0);
    ASSERT(set);
    SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                     SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    return context;
}

/* Explains by OpenSSL's first error of this thread, and clears them all. */
static enum status refuse(const char *what, struct error *err)
{
    unsigned long code = ERR_get_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return error_set(err, STATUS_INVALID, "%s can't be used for TLS of HTTP: %s", what,
                     reason ? reason : "it is not what it should be");
}

/* OpenSSL's default asks for a passphrase on the terminal. */
static int no_passphrase(char *buffer, int size, int writing, void *context)
{
    (void)buffer;
    (void)size;
    (void)writing;
    (void)context;
    return 0;
}

/* Calls `take` with each certificate of the PEM text, until it fails. */
static bool take_each(const char *text, bool (*take)(SSL_CTX *context, X509 *one), SSL_CTX *context)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    ASSERT(bio);
    bool fine = true;
    for (X509 *one; fine && (one = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL));) {
        fine = take(context, one);
        X509_free(one);
    }
    BIO_free(bio);
    if (fine)
        ERR_clear_error(); /* the end of the text is an error, too */
    return fine;
}

/* The leaf comes first. */
static bool take_own(SSL_CTX *context, X509 *one)
{
    return SSL_CTX_get0_certificate(context) ? SSL_CTX_add1_chain_cert(context, one)
                                             : SSL_CTX_use_certificate(context, one);
}

/* Trusts the CA, and names it to clients so that they can choose what to show. */
static bool take_ca(SSL_CTX *context, X509 *one)
{
    return X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one) &&
           SSL_CTX_add_client_CA(context, one);
}

static enum status use_set(SSL_CTX *context, const struct certificate_set *set, struct error *err)
{
    ERR_clear_error();
    if (FAILPOINT_FAILS("http.tls_files") || !set->cert || !take_each(set->cert, take_own, context))
        return refuse("the certificate", err);
    BIO *bio = BIO_new_mem_buf(set->key, -1);
    ASSERT(bio);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    bool used = key && SSL_CTX_use_PrivateKey(context, key) && SSL_CTX_check_private_key(context);
    EVP_PKEY_free(key);
    BIO_free(bio);
    if (!used)
        return refuse("the key", err);
    if (!set->ca)
        return STATUS_OK;
    if (!take_each(set->ca, take_ca, context))
        return refuse("the clients' CA", err);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return STATUS_OK;
}

/* From the current set. */
static enum status make_context(struct http_tls *tls, SSL_CTX **out, struct error *err)
{
    const struct certificate_set *set = certificates_take(tls->certificates);
    SSL_CTX *context = create_context();
    tls->version = set->version;
    enum status status = use_set(context, set, err);
    certificate_set_give(set);
    if (status == STATUS_OK)
        *out = context;
    else
        SSL_CTX_free(context);
    return status;
}

enum status http_tls_open(struct certificates *certificates, struct http_tls **out,
                          struct error *err)
{
    struct http_tls *tls = calloc(1, sizeof *tls);
    ASSERT(tls);
    tls->certificates = certificates;
    enum status status = make_context(tls, &tls->in_force, err);
    if (status == STATUS_OK)
        *out = tls;
    else
        free(tls);
    return status;
}

void http_tls_close(struct http_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->in_force);
    free(tls);
}

/* A new set that can't be used leaves the old context in force. */
static void take_over(struct http_tls *tls)
{
    SSL_CTX *fresh;
    struct error err;
    char quoted[640];
    if (make_context(tls, &fresh, &err) != STATUS_OK) {
        log_warn_limited(MOD, "error=%s msg=\"TLS goes on with the certificate that it had\"",
                         log_quote(err.text, quoted, sizeof quoted));
        return;
    }
    SSL_CTX_free(tls->in_force);
    tls->in_force = fresh;
    log_info(MOD, "version=%" PRIu64 " msg=\"TLS took over a certificate that changed\"",
             tls->version);
}

/* --- bytes --- */

bool http_socket_begin(struct http_tls *tls, int fd, struct http_socket *socket)
{
    *socket = (struct http_socket){.fd = fd};
    if (!tls)
        return true;
    if (certificates_version(tls->certificates) != tls->version)
        take_over(tls);
    socket->tls = SSL_new(tls->in_force);
    if (socket->tls && SSL_set_fd(socket->tls, fd) == 1) {
        SSL_set_accept_state(socket->tls);
        return true;
    }
    SSL_free(socket->tls);
    return false;
}

static enum http_io outcome_of(ssize_t done, enum http_io wait)
{
    if (done > 0)
        return HTTP_IO_DONE;
    return done < 0 && (errno == EAGAIN || errno == EINTR) ? wait : HTTP_IO_CLOSED;
}

static enum http_io outcome_of_tls(SSL *ssl, int done)
{
    if (done == 1)
        return HTTP_IO_DONE;
    switch (SSL_get_error(ssl, done)) {
    case SSL_ERROR_WANT_READ: return HTTP_IO_WAIT_READ;
    case SSL_ERROR_WANT_WRITE: return HTTP_IO_WAIT_WRITE;
    default: ERR_clear_error(); return HTTP_IO_CLOSED;
    }
}

enum http_io http_socket_receive(struct http_socket *socket, void *bytes, size_t size,
                                 size_t *count)
{
    if (FAILPOINT_FAILS("http.receive"))
        return HTTP_IO_CLOSED;
    if (socket->tls) {
        ERR_clear_error();
        return outcome_of_tls(socket->tls, SSL_read_ex(socket->tls, bytes, size, count));
    }
    ssize_t got = recv(socket->fd, bytes, size, 0);
    if (got > 0)
        *count = (size_t)got;
    return outcome_of(got, HTTP_IO_WAIT_READ);
}

/* evbuffer_write would raise SIGPIPE on threads that aren't a loop's. */
static enum http_io send_plain(struct http_socket *socket, struct evbuffer *out)
{
    struct iovec parts[SEND_PARTS];
    int count = evbuffer_peek(out, -1, NULL, parts, SEND_PARTS);
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = (size_t)(count < SEND_PARTS ? count : SEND_PARTS)};
    ssize_t sent = sendmsg(socket->fd, &message, MSG_NOSIGNAL);
    if (sent > 0)
        evbuffer_drain(out, (size_t)sent);
    return outcome_of(sent, HTTP_IO_WAIT_WRITE);
}

enum http_io http_socket_send(struct http_socket *socket, struct evbuffer *out)
{
    if (FAILPOINT_FAILS("http.send"))
        return HTTP_IO_CLOSED;
    if (!socket->tls)
        return send_plain(socket, out);
    /* One record. Its bytes have to lie in a row. */
    size_t length = evbuffer_get_length(out), count = 0;
    length = length < TLS_RECORD_BYTES ? length : TLS_RECORD_BYTES;
    const unsigned char *bytes = evbuffer_pullup(out, (ev_ssize_t)length);
    ERR_clear_error();
    enum http_io done =
        outcome_of_tls(socket->tls, SSL_write_ex(socket->tls, bytes, length, &count));
    if (done == HTTP_IO_DONE)
        evbuffer_drain(out, count);
    return done;
}

void http_socket_shut(struct http_socket *socket)
{
    ERR_clear_error();
    if (socket->tls && SSL_is_init_finished(socket->tls))
        (void)SSL_shutdown(socket->tls);
    ERR_clear_error();
    shutdown(socket->fd, SHUT_WR);
}

bool http_socket_is_gone(const struct http_socket *socket)
{
    struct pollfd state = {.fd = socket->fd, .events = POLLRDHUP};
    return poll(&state, 1, 0) > 0 && state.revents;
}

void http_socket_close(struct http_socket *socket, bool hard)
{
    struct linger reset = {1, 0};
    SSL_free(socket->tls);
    socket->tls = NULL;
    if (hard)
        setsockopt(socket->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(socket->fd);
}
