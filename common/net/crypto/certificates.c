#include "common/net/crypto/certificates.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/file_read.h"
#include "common/base/log.h"
#include "common/base/reload.h"
#include "common/base/str.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOD       "certificates"
#define SOON_S    (7 * 86400) /* the log warns this long before the end */
#define NAME_SIZE 64

/* --- a set --- */

/* A set with its count of references. */
struct counted_set {
    struct certificate_set set; /* first */
    atomic_uint references;
};

/* Reads a file. The caller frees the text. */
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

/* OpenSSL's default asks for a password on the terminal. */
static int no_password(char *buffer, int size, int writing, void *context)
{
    (void)buffer, (void)size, (void)writing, (void)context;
    return -1;
}

/* Checks the certificates of a text. The first one is the caller's. */
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
        X509 *first = NULL;
        *part = CERTIFICATE_CA;
        status = read_text(paths->ca, &counted->set.ca, err);
        if (status == STATUS_OK)
            status =
                read_certificates(counted->set.ca, paths->ca, CERTIFICATES_MAX_CAS, &first, err);
        X509_free(first);
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

/* --- the current set of a link --- */

struct certificates {
    char name[NAME_SIZE], cert_path[FILE_WATCH_MAX_PATH_BYTES], key_path[FILE_WATCH_MAX_PATH_BYTES],
        ca_path[FILE_WATCH_MAX_PATH_BYTES];
    const char *ca_name; /* as in its config */
    struct reload *watch;
    pthread_mutex_t reading; /* held while files are read and used: keeps their order */
    pthread_mutex_t lock;
    struct certificate_set *current; /* written under both locks, read under either */
    _Atomic uint64_t version;
    _Atomic int64_t expires_unix_s;
};

/* By default OpenSSL frees its state at the process's end (atexit), and supposes that all threads
 * have ended by then. Threads of gRPC core's pool can't be joined: its shutdown waits until their
 * work is done, not until they are gone, so their OpenSSL state may be freed under them, or leak.
 * OpenSSL's first call decides, so this one must come before any other. */
__attribute__((constructor)) static void keep_openssl_to_the_end(void)
{
    int kept = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    ASSERT(kept == 1);
}

static struct certificate_paths paths_of(const struct certificates *certificates)
{
    return (struct certificate_paths){certificates->cert_path, certificates->key_path,
                                      certificates->ca_path};
}

const char *certificates_name(const struct certificates *certificates)
{
    return certificates->name;
}

const struct certificate_set *certificates_take(struct certificates *certificates)
{
    pthread_mutex_lock(&certificates->lock);
    const struct certificate_set *set = certificate_set_share(certificates->current);
    pthread_mutex_unlock(&certificates->lock);
    return set;
}

uint64_t certificates_version(const struct certificates *certificates)
{
    return atomic_load(&certificates->version);
}

int64_t certificates_expiry_unix_s(const struct certificates *certificates)
{
    return atomic_load(&certificates->expires_unix_s);
}

static void log_set(const struct certificates *certificates, const struct certificate_set *set,
                    const char *what)
{
    char subject[256];
    int64_t left_s = set->expires_unix_s - (int64_t)(clock_unix_us() / 1000000);
    if (!set->cert)
        log_info(MOD, "for=%s version=%" PRIu64 " msg=\"CAs %s\"", certificates->name, set->version,
                 what);
    else
        log_write(
            left_s < SOON_S ? LOG_WARN : LOG_INFO, MOD,
            "for=%s version=%" PRIu64 " subject=%s days_left=%" PRId64 " msg=\"certificate %s%s\"",
            certificates->name, set->version, log_quote(set->subject, subject, sizeof subject),
            left_s / 86400, what, left_s < SOON_S ? ", and it expires soon" : "");
}

static void use(struct certificates *certificates, struct certificate_set *set, const char *what)
{
    pthread_mutex_lock(&certificates->lock);
    struct certificate_set *before = certificates->current;
    set->version = before ? before->version + 1 : 1;
    certificates->current = set;
    atomic_store(&certificates->expires_unix_s, set->expires_unix_s);
    atomic_store(&certificates->version, set->version);
    pthread_mutex_unlock(&certificates->lock);
    log_set(certificates, set, what);
    if (before)
        certificate_set_give(before);
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* Names the part that fails by its setting. */
static enum status read_set(const struct certificates *certificates, struct certificate_set **set,
                            struct error *err)
{
    const char *const names[] = {[CERTIFICATE_CERT] = "cert",
                                 [CERTIFICATE_KEY] = "key",
                                 [CERTIFICATE_CA] = certificates->ca_name};
    struct certificate_paths paths = paths_of(certificates);
    enum certificate_part part = CERTIFICATE_CERT;
    enum status status = certificate_set_read(&paths, set, &part, err);
    if (status == STATUS_OK)
        return STATUS_OK;
    return error_prefix(err, status, "--%s-%s", certificates->name, names[part]);
}

static void on_changed(void *context)
{
    struct certificates *certificates = context;
    struct certificate_set *set;
    struct error err;
    char quoted[700];
    pthread_mutex_lock(&certificates->reading);
    if (read_set(certificates, &set, &err) == STATUS_OK) {
        const struct certificate_set *current = certificates->current;
        if (current && same_text(current->cert, set->cert) && same_text(current->key, set->key) &&
            same_text(current->ca, set->ca)) /* a change may leave the content as it was */
            certificate_set_give(set);
        else
            use(certificates, set, "read again");
    } else {
        log_error(MOD, "for=%s why=%s msg=\"changed files can't be used; those before stay\"",
                  certificates->name, log_quote(err.text, quoted, sizeof quoted));
    }
    pthread_mutex_unlock(&certificates->reading);
}

/* --- start and end --- */

static bool given(const char *path)
{
    return path && *path;
}

enum status certificates_check_paths(const struct certificates_config *config, struct error *err)
{
    const struct certificate_paths *paths = &config->paths;
    if (given(paths->cert) != given(paths->key))
        return error_set(err, STATUS_INVALID, "--%s-%s is given without --%s-%s: both or neither",
                         config->name, given(paths->cert) ? "cert" : "key", config->name,
                         given(paths->cert) ? "key" : "cert");
    if (config->required && !given(paths->cert))
        return error_set(err, STATUS_INVALID, "--%s-cert and --%s-key are needed", config->name,
                         config->name);
    /* A server without a CA asks no client for a certificate. */
    if (config->required && given(paths->ca) && !strcmp(paths->ca, CERTIFICATES_SYSTEM))
        return error_set(err, STATUS_INVALID,
                         "the CAs of %s that let others in must be a file: '%s' stands for the "
                         "machine's own, which vouch for strangers",
                         config->name, CERTIFICATES_SYSTEM);
    return STATUS_OK;
}

static bool copy_path(char *target, size_t size, const char *path)
{
    return str_copy(target, size, path ? path : "");
}

/* The watch comes first: files that change while they are read are read again. */
static enum status watch_and_read(struct certificates *certificates, uint64_t interval_us,
                                  struct error *err)
{
    struct certificate_paths paths = paths_of(certificates);
    const char *ca = strcmp(paths.ca, CERTIFICATES_SYSTEM) ? paths.ca : NULL;
    struct reload_config watch = {.paths = {paths.cert, paths.key, ca},
                                  .interval_us = interval_us,
                                  .changed = on_changed,
                                  .context = certificates};
    struct certificate_set *set;
    pthread_mutex_lock(&certificates->reading);
    enum status status = reload_start(&watch, &certificates->watch, err);
    if (status == STATUS_OK)
        status = read_set(certificates, &set, err);
    if (status == STATUS_OK)
        use(certificates, set, "read");
    pthread_mutex_unlock(&certificates->reading);
    return status;
}

enum status certificates_open(const struct certificates_config *config, struct certificates **out,
                              struct error *err)
{
    TRY(certificates_check_paths(config, err));
    struct certificates *certificates = calloc(1, sizeof *certificates);
    ASSERT(certificates);
    str_copy(certificates->name, sizeof certificates->name, config->name);
    certificates->ca_name = config->ca_name ? config->ca_name : "ca";
    enum status status = STATUS_OK;
    if (!copy_path(certificates->cert_path, sizeof certificates->cert_path, config->paths.cert) ||
        !copy_path(certificates->key_path, sizeof certificates->key_path, config->paths.key) ||
        !copy_path(certificates->ca_path, sizeof certificates->ca_path, config->paths.ca))
        status = error_set(err, STATUS_LIMIT, "a path of --%s-... is too long", config->name);
    pthread_mutex_init(&certificates->reading, NULL);
    pthread_mutex_init(&certificates->lock, NULL);
    if (status == STATUS_OK)
        status = watch_and_read(certificates, config->watch_interval_us, err);
    if (status == STATUS_OK && *certificates->key_path)
        file_warn_if_open(MOD, "the private key", certificates->key_path);
    if (status != STATUS_OK) {
        certificates_close(certificates);
        return status;
    }
    *out = certificates;
    return STATUS_OK;
}

void certificates_close(struct certificates *certificates)
{
    if (!certificates)
        return;
    reload_stop(certificates->watch);
    if (certificates->current)
        certificate_set_give(certificates->current);
    pthread_mutex_destroy(&certificates->reading);
    pthread_mutex_destroy(&certificates->lock);
    free(certificates);
}
