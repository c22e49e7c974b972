#include "common/net/crypto/tls_server.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/net/crypto/certificates.h"

#include <inttypes.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdlib.h>

/* TLS 1.2: forward secrecy and authenticated encryption only. All ciphers of 1.3 are good. */
#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

#define MESSAGE_US (10000000u / TLS_MAX_MESSAGES)
#define FLOODED    UINTPTR_MAX

struct tls_server {
    struct tls_server_config config;
    uint64_t version;  /* the set that was used last */
    SSL_CTX *in_force; /* for new connections */
};

/* --- rules and certificates --- */

/* Chooses from the protocols that the client offers. A client that offers none isn't asked. */
static int choose_protocol(SSL *ssl, const unsigned char **chosen, unsigned char *length,
                           const unsigned char *offered, unsigned offered_bytes, void *context)
{
    (void)ssl;
    const unsigned char *protocol = context;
    unsigned char *found;
    int done =
        SSL_select_next_proto(&found, length, protocol, protocol[0] + 1u, offered, offered_bytes);
    *chosen = found;
    return done == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* Counts the messages of a client behind its handshake, by the generic cell rate algorithm (ITU-T
 * I.371): each moves the time until which the connection has used its rate. The time, or FLOODED,
 * is the connection's app data. OpenSSL reads nothing more of a connection that the other end seems
 * to have shut. */
static void on_message(int sent, int version, int type, const void *bytes, size_t size, SSL *ssl,
                       void *context)
{
    (void)version;
    (void)context;
    const unsigned char *first = bytes;
    uintptr_t used_us = (uintptr_t)SSL_get_app_data(ssl), now_us;
    bool update = type == SSL3_RT_HANDSHAKE && size > 0 && *first == SSL3_MT_KEY_UPDATE;
    bool renegotiation = type == SSL3_RT_HEADER && size > 0 && *first == SSL3_RT_HANDSHAKE &&
                         SSL_is_init_finished(ssl);
    if (sent || (!update && !renegotiation) || used_us == FLOODED)
        return;
    now_us = (uintptr_t)clock_now_us();
    used_us = (used_us > now_us ? used_us : now_us) + MESSAGE_US;
    if (used_us - now_us > (uintptr_t)TLS_MAX_MESSAGES * MESSAGE_US) {
        used_us = FLOODED;
        SSL_set_shutdown(ssl, SSL_get_shutdown(ssl) | SSL_RECEIVED_SHUTDOWN);
    }
    SSL_set_app_data(ssl, (void *)used_us);
}

static SSL_CTX *create_context(const struct tls_server *server)
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
    /* Messages without end must not hold the thread: control comes back behind each. */
    SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_msg_callback(context, on_message);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, (void *)server->config.protocol);
    return context;
}

/* Explains by OpenSSL's first error of this thread, and clears them all. */
static enum status refuse(const char *what, struct error *err)
{
    unsigned long code = ERR_get_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return error_set(err, STATUS_INVALID, "%s can't be used for TLS: %s", what,
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
    if (FAILPOINT_FAILS("tls.files") || !set->cert || !take_each(set->cert, take_own, context))
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
static enum status make_context(struct tls_server *server, SSL_CTX **out, struct error *err)
{
    const struct certificate_set *set = certificates_take(server->config.certificates);
    SSL_CTX *context = create_context(server);
    server->version = set->version;
    enum status status = use_set(context, set, err);
    certificate_set_give(set);
    if (status == STATUS_OK)
        *out = context;
    else
        SSL_CTX_free(context);
    return status;
}

enum status tls_server_open(const struct tls_server_config *config, struct tls_server **out,
                            struct error *err)
{
    struct tls_server *server = calloc(1, sizeof *server);
    ASSERT(server);
    server->config = *config;
    enum status status = make_context(server, &server->in_force, err);
    if (status == STATUS_OK)
        *out = server;
    else
        free(server);
    return status;
}

void tls_server_close(struct tls_server *server)
{
    if (!server)
        return;
    SSL_CTX_free(server->in_force);
    free(server);
}

/* A new set that can't be used leaves the old context in force. */
static void take_over(struct tls_server *server)
{
    SSL_CTX *fresh;
    struct error err;
    char quoted[640];
    const char *module = server->config.module;
    if (make_context(server, &fresh, &err) != STATUS_OK) {
        log_warn_limited(module, "error=%s msg=\"TLS goes on with the certificate that it had\"",
                         log_quote(err.text, quoted, sizeof quoted));
        return;
    }
    SSL_CTX_free(server->in_force);
    server->in_force = fresh;
    log_info(module, "version=%" PRIu64 " msg=\"TLS took over a certificate that changed\"",
             server->version);
}

/* --- connections --- */

struct ssl_st *tls_server_begin(struct tls_server *server, int fd)
{
    if (certificates_version(server->config.certificates) != server->version)
        take_over(server);
    SSL *connection = SSL_new(server->in_force);
    if (connection && SSL_set_fd(connection, fd) == 1) {
        SSL_set_accept_state(connection);
        return connection;
    }
    SSL_free(connection);
    return NULL;
}

void tls_free(struct ssl_st *connection)
{
    SSL_free(connection);
}

bool tls_agreed(const struct ssl_st *connection)
{
    const unsigned char *protocol;
    unsigned length;
    SSL_get0_alpn_selected(connection, &protocol, &length);
    return length > 0;
}

static enum tls_io outcome_of(SSL *connection, int done)
{
    if (done == 1)
        return TLS_DONE;
    switch (SSL_get_error(connection, done)) {
    case SSL_ERROR_WANT_READ: return TLS_WAIT_READ;
    case SSL_ERROR_WANT_WRITE: return TLS_WAIT_WRITE;
    default: ERR_clear_error(); return TLS_CLOSED;
    }
}

enum tls_io tls_receive(struct ssl_st *connection, void *bytes, size_t size, size_t *count)
{
    ERR_clear_error();
    enum tls_io done = outcome_of(connection, SSL_read_ex(connection, bytes, size, count));
    bool flooded = (uintptr_t)SSL_get_app_data(connection) == FLOODED;
    return flooded && done != TLS_DONE ? TLS_FLOOD : done;
}

enum tls_io tls_send(struct ssl_st *connection, const void *bytes, size_t size, size_t *count)
{
    ERR_clear_error();
    size = size < TLS_RECORD_BYTES ? size : TLS_RECORD_BYTES;
    return outcome_of(connection, SSL_write_ex(connection, bytes, size, count));
}

void tls_shut(struct ssl_st *connection)
{
    ERR_clear_error();
    if (SSL_is_init_finished(connection))
        (void)SSL_shutdown(connection);
    ERR_clear_error();
}
