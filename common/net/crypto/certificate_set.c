#include "common/net/crypto/certificate_set.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/file_read.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What a set lies in. */
struct counted_set {
    struct certificate_set set; /* first */
    atomic_uint references;
};

/* The text of a file, to be freed. */
static enum status read_text(const char *path, char **text, struct error *err)
{
    size_t size;
    TRY(file_read(path, CERTIFICATES_MAX_FILE_BYTES, text, &size, err));
    if (strlen(*text) == size)
        return STATUS_OK;
    free(*text);
    *text = NULL;
    return error_set(err, STATUS_INVALID, "%s is no PEM text: it holds a NUL byte", path);
}

static const char *openssl_words(void)
{
    const char *words = ERR_reason_error_string(ERR_peek_last_error());
    return words ? words : "no PEM block";
}

/* No password is asked for: the default asks the terminal. */
static int no_password(char *buffer, int size, int writing, void *context)
{
    (void)buffer, (void)size, (void)writing, (void)context;
    return -1;
}

/* Counts the certificates of a text; the first one is the caller's. */
static enum status read_certificates(const char *text, const char *path, size_t limit, X509 **first,
                                     struct error *err)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    ASSERT(bio);
    ERR_clear_error();
    size_t count = 0;
    *first = NULL;
    for (X509 *one; count <= limit && (one = PEM_read_bio_X509(bio, NULL, no_password, NULL));
         count++) {
        if (!*first)
            *first = one;
        else
            X509_free(one);
    }
    unsigned long why = ERR_peek_last_error();
    bool to_the_end = ERR_GET_LIB(why) == ERR_LIB_PEM && ERR_GET_REASON(why) == PEM_R_NO_START_LINE;
    enum status status = STATUS_OK;
    if (count > limit)
        status = error_set(err, STATUS_LIMIT, "%s holds more than %zu certificates", path, limit);
    else if (!count || !to_the_end)
        status = error_set(err, STATUS_INVALID, "%s: certificate %zu is not readable PEM: %s", path,
                           count + 1, openssl_words());
    BIO_free(bio);
    ERR_clear_error();
    if (status != STATUS_OK) {
        X509_free(*first);
        *first = NULL;
    }
    return status;
}

static int64_t unix_seconds(const ASN1_TIME *time)
{
    struct tm parts;
    return ASN1_TIME_to_tm(time, &parts) == 1 ? (int64_t)timegm(&parts) : 0;
}

static enum status check_validity(X509 *leaf, const char *path, int64_t *expires_unix_s,
                                  struct error *err)
{
    int64_t from = unix_seconds(X509_get0_notBefore(leaf)),
            until = unix_seconds(X509_get0_notAfter(leaf)),
            now = (int64_t)(clock_unix_us() / 1000000);
    time_t bound = (time_t)(now < from ? from : until);
    char when[32];
    struct tm parts;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&bound, &parts));
    if (now < from)
        return error_set(err, STATUS_INVALID, "%s is valid only from %s on: look at the clocks",
                         path, when);
    if (now >= until)
        return error_set(err, STATUS_INVALID, "%s has expired at %s: renew it", path, when);
    *expires_unix_s = until;
    return STATUS_OK;
}

static enum status check_key(X509 *leaf, const char *text, const struct certificate_paths *paths,
                             struct error *err)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    ASSERT(bio);
    ERR_clear_error();
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
    enum status status = STATUS_OK;
    if (!key)
        status = error_set(err, STATUS_INVALID,
                           "%s is no readable private key in PEM (one with a password can't be "
                           "used): %s",
                           paths->key, openssl_words());
    else if (X509_check_private_key(leaf, key) != 1)
        status = error_set(err, STATUS_INVALID, "the key %s is not that of the certificate %s",
                           paths->key, paths->cert);
    EVP_PKEY_free(key);
    BIO_free(bio);
    ERR_clear_error();
    return status;
}

/* A wildcard stands for any label. */
static void copy_name(const GENERAL_NAME *name, char *text, size_t size)
{
    const ASN1_STRING *value = name->type == GEN_DNS ? name->d.dNSName : name->d.iPAddress;
    const unsigned char *bytes = ASN1_STRING_get0_data(value);
    int length = ASN1_STRING_length(value);
    bool wild = name->type == GEN_DNS && length && *bytes == '*';
    if (name->type == GEN_DNS)
        snprintf(text, size, "%s%.*s", wild ? "any" : "", length - wild,
                 (const char *)bytes + wild);
    else
        inet_ntop(length == 4 ? AF_INET : AF_INET6, bytes, text, (socklen_t)size);
}

static void find_name(X509 *leaf, char *text, size_t size)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(leaf, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && !*text; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        int length = name->type == GEN_IPADD ? ASN1_STRING_length(name->d.iPAddress) : 0;
        if (name->type == GEN_DNS || length == 4 || length == 16)
            copy_name(name, text, size);
    }
    GENERAL_NAMES_free(names);
}

static enum status read_identity(const struct certificate_paths *paths, struct certificate_set *set,
                                 enum certificate_part *part, struct error *err)
{
    X509 *leaf;
    *part = CERTIFICATE_CERT;
    TRY(read_text(paths->cert, &set->cert, err));
    *part = CERTIFICATE_KEY;
    TRY(read_text(paths->key, &set->key, err));
    *part = CERTIFICATE_CERT;
    TRY(read_certificates(set->cert, paths->cert, CERTIFICATES_MAX_CHAIN, &leaf, err));
    enum status status = check_validity(leaf, paths->cert, &set->expires_unix_s, err);
    if (status == STATUS_OK) {
        *part = CERTIFICATE_KEY;
        status = check_key(leaf, set->key, paths, err);
    }
    X509_NAME_oneline(X509_get_subject_name(leaf), set->subject, sizeof set->subject);
    find_name(leaf, set->name, sizeof set->name);
    X509_free(leaf);
    return status;
}

static enum status read_ca(const char *path, struct certificate_set *set, struct error *err)
{
    X509 *first;
    TRY(read_text(path, &set->ca, err));
    TRY(read_certificates(set->ca, path, CERTIFICATES_MAX_CAS, &first, err));
    X509_free(first);
    return STATUS_OK;
}

static void set_free(struct counted_set *counted)
{
    if (counted->set.key)
        explicit_bzero(counted->set.key, strlen(counted->set.key));
    free(counted->set.cert);
    free(counted->set.key);
    free(counted->set.ca);
    free(counted);
}

enum status certificate_set_read(const struct certificate_paths *paths,
                                 struct certificate_set **out, enum certificate_part *part,
                                 struct error *err)
{
    struct counted_set *counted = calloc(1, sizeof *counted);
    ASSERT(counted);
    atomic_init(&counted->references, 1);
    enum status status = STATUS_OK;
    if (paths->cert && *paths->cert)
        status = read_identity(paths, &counted->set, part, err);
    if (status == STATUS_OK && paths->ca && *paths->ca &&
        strcmp(paths->ca, CERTIFICATES_SYSTEM) != 0) {
        *part = CERTIFICATE_CA;
        status = read_ca(paths->ca, &counted->set, err);
    }
    if (status != STATUS_OK)
        set_free(counted);
    else
        *out = &counted->set;
    return status;
}

const struct certificate_set *certificate_set_share(struct certificate_set *set)
{
    struct counted_set *counted = (struct counted_set *)set; /* its first member */
    atomic_fetch_add(&counted->references, 1);
    return set;
}

void certificate_set_give(const struct certificate_set *set)
{
    struct counted_set *counted = (struct counted_set *)set;
    if (atomic_fetch_sub(&counted->references, 1) == 1)
        set_free(counted);
}
