#include "common/net/http/http_tls_context.h"

#include "common/base/assert.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

/* TLS 1.2: forward secrecy and authenticated encryption alone; those of 1.3 are all good. */
#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

SSL_CTX *http_tls_context_create(const SSL_METHOD *method)
{
    SSL_CTX *context = SSL_CTX_new(method);
    ASSERT(context);
    ERR_clear_error();
    int set = SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) &&
              SSL_CTX_set_cipher_list(context, CIPHERS);
    ASSERT(set);
    SSL_CTX_set_options(context,
                        SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return context;
}

enum status http_tls_context_refuse(const char *what, struct error *err)
{
    unsigned long code = ERR_get_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return error_set(err, STATUS_INVALID, "%s can't be used for TLS of HTTP: %s", what,
                     reason ? reason : "it is not what it should be");
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

bool http_tls_context_each(const char *text, bool (*take)(SSL_CTX *context, X509 *one),
                           SSL_CTX *context)
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
        ERR_clear_error(); /* there are no more: that is one, too */
    return fine;
}

/* The leaf comes first. */
static bool take_own(SSL_CTX *context, X509 *one)
{
    return SSL_CTX_get0_certificate(context) ? SSL_CTX_add1_chain_cert(context, one)
                                             : SSL_CTX_use_certificate(context, one);
}

static bool take_ca(SSL_CTX *context, X509 *one)
{
    return X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one);
}

static bool use_key(SSL_CTX *context, const char *text)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    ASSERT(bio);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    bool used = key && SSL_CTX_use_PrivateKey(context, key) && SSL_CTX_check_private_key(context);
    EVP_PKEY_free(key);
    BIO_free(bio);
    return used;
}

enum status http_tls_context_use(SSL_CTX *context, const struct certificate_set *set,
                                 const char *whose, struct error *err)
{
    ERR_clear_error();
    if (set->cert && !http_tls_context_each(set->cert, take_own, context))
        return http_tls_context_refuse("the certificate", err);
    if (set->cert && !use_key(context, set->key))
        return http_tls_context_refuse("the key", err);
    if (set->ca && !http_tls_context_each(set->ca, take_ca, context))
        return http_tls_context_refuse(whose, err);
    return STATUS_OK;
}
