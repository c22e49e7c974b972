#include "common/http/http_tls.h"

#include "common/base/assert.h"
#include "common/base/failpoint.h"
#include "common/base/file_watch.h"
#include "common/base/log.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#define MOD "http"
/* TLS 1.2: forward secrecy and authenticated encryption alone; those of 1.3 are all good. */
#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

struct http_tls {
    struct http_tls_config config;
    SSL_CTX *in_force;
    struct file_watch watch;
};

/* struct http_tls_session is an SSL. */
static SSL *ssl_of(struct http_tls_session *session)
{
    return (SSL *)session;
}

/* Takes OpenSSL's errors of this thread, of which the first tells most. */
static enum status refuse(struct error *err, const char *what, const char *path)
{
    unsigned long code = ERR_get_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return error_set(err, STATUS_INVALID, "%s %s can't be used for TLS: %s", what, path,
                     reason ? reason : "it is not what it should be");
}

/* Of what the client offers; who offers none gets HTTP/1.1, too. */
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

static void set_rules(SSL_CTX *context)
{
    int set = SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) &&
              SSL_CTX_set_cipher_list(context, CIPHERS) && SSL_CTX_set_num_tickets(context, 0);
    ASSERT(set);
    SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                     SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
}

/* A passphrase can't be asked for: nobody is there. */
static int no_passphrase(char *buffer, int size, int writing, void *context)
{
    (void)buffer;
    (void)size;
    (void)writing;
    (void)context;
    return 0;
}

static enum status demand_clients(SSL_CTX *context, const char *path, struct error *err)
{
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(path);
    if (!names || SSL_CTX_load_verify_locations(context, path, NULL) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return refuse(err, "the clients' CA", path);
    }
    SSL_CTX_set_client_CA_list(context, names);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return STATUS_OK;
}

static enum status read_files(SSL_CTX *context, const struct http_tls_config *config,
                              struct error *err)
{
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    if (FAILPOINT_FAILS("http.tls_files") ||
        SSL_CTX_use_certificate_chain_file(context, config->certificate) != 1)
        return refuse(err, "the certificate", config->certificate);
    if (SSL_CTX_use_PrivateKey_file(context, config->key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1)
        return refuse(err, "the key", config->key);
    return config->client_ca ? demand_clients(context, config->client_ca, err) : STATUS_OK;
}

static enum status make_context(const struct http_tls_config *config, SSL_CTX **out,
                                struct error *err)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    ASSERT(context);
    ERR_clear_error();
    set_rules(context);
    enum status status = read_files(context, config, err);
    if (status == STATUS_OK)
        *out = context;
    else
        SSL_CTX_free(context);
    return status;
}

static const char *given(const char *path)
{
    return path && *path ? path : NULL;
}

enum status http_tls_open(const struct http_tls_config *config, struct http_tls **out,
                          struct error *err)
{
    if (!given(config->certificate) || !given(config->key))
        return error_set(err, STATUS_INVALID,
                         "TLS for HTTP needs a certificate and its key: give the paths of both");
    struct http_tls *tls = calloc(1, sizeof *tls);
    ASSERT(tls);
    tls->config = *config;
    tls->config.client_ca = given(config->client_ca);
    file_watch_init(&tls->watch, 0);
    enum status status = file_watch_add(&tls->watch, config->certificate, err);
    if (status == STATUS_OK)
        status = file_watch_add(&tls->watch, config->key, err);
    if (status == STATUS_OK && tls->config.client_ca)
        status = file_watch_add(&tls->watch, config->client_ca, err);
    if (status == STATUS_OK)
        status = make_context(&tls->config, &tls->in_force, err);
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

void http_tls_look(struct http_tls *tls, uint64_t now_us)
{
    if (!file_watch_changed(&tls->watch, now_us))
        return;
    SSL_CTX *fresh;
    struct error err;
    char quoted[640];
    if (make_context(&tls->config, &fresh, &err) != STATUS_OK) {
        log_warn_limited(MOD, "error=%s msg=\"TLS goes on with the files that it had\"",
                         log_quote(err.text, quoted, sizeof quoted));
        return;
    }
    SSL_CTX_free(tls->in_force);
    tls->in_force = fresh;
    log_info(MOD, "certificate=%s msg=\"TLS files that changed were taken over\"",
             log_quote(tls->config.certificate, quoted, sizeof quoted));
}

/* --- one connection --- */

struct http_tls_session *http_tls_begin(struct http_tls *tls, int fd)
{
    SSL *ssl = SSL_new(tls->in_force);
    if (ssl && SSL_set_fd(ssl, fd) == 1) {
        SSL_set_accept_state(ssl);
        return (struct http_tls_session *)ssl;
    }
    SSL_free(ssl);
    return NULL;
}

static enum http_io outcome_of(SSL *ssl, int done)
{
    switch (SSL_get_error(ssl, done)) {
    case SSL_ERROR_WANT_READ: return HTTP_IO_WAIT_READ;
    case SSL_ERROR_WANT_WRITE: return HTTP_IO_WAIT_WRITE;
    default: ERR_clear_error(); return HTTP_IO_CLOSED;
    }
}

enum http_io http_tls_receive(struct http_tls_session *session, void *bytes, size_t size,
                              size_t *count)
{
    ERR_clear_error();
    int done = SSL_read_ex(ssl_of(session), bytes, size, count);
    return done == 1 ? HTTP_IO_DONE : outcome_of(ssl_of(session), done);
}

enum http_io http_tls_send(struct http_tls_session *session, const void *bytes, size_t size,
                           size_t *count)
{
    ERR_clear_error();
    int done = SSL_write_ex(ssl_of(session), bytes, size, count);
    return done == 1 ? HTTP_IO_DONE : outcome_of(ssl_of(session), done);
}

void http_tls_say_goodbye(struct http_tls_session *session)
{
    ERR_clear_error();
    if (SSL_is_init_finished(ssl_of(session)))
        (void)SSL_shutdown(ssl_of(session));
    ERR_clear_error();
}

void http_tls_end(struct http_tls_session *session)
{
    SSL_free(ssl_of(session));
}
