#include "common/crypto/certificates.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/reload.h"
#include "common/base/str.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOD       "certificates"
#define SOON_S    (7 * 86400) /* an end so near is warned of */
#define NAME_SIZE 64

/* What a set lies in. */
struct counted_set {
    struct certificate_set set; /* first */
    atomic_uint references;
};

struct certificates {
    char name[NAME_SIZE], cert_path[FILE_WATCH_MAX_PATH_BYTES], key_path[FILE_WATCH_MAX_PATH_BYTES],
        ca_path[FILE_WATCH_MAX_PATH_BYTES];
    struct reload *watch;
    pthread_mutex_t reading; /* held while files are read and used, so that later ones come later */
    pthread_mutex_t lock;
    struct counted_set *current; /* written with both held, read with either */
    _Atomic uint64_t version;
    _Atomic int64_t expires_unix_s;
};

/* By default OpenSSL takes itself down at the process's end (atexit), and supposes that all threads have ended by then. Those of gRPC core's pool can't be
 * joined: its shutdown waits until their work is done, not until they are gone, so that their state of OpenSSL may be torn away under them, or lost. The first
 * call decides: it must come before any other of OpenSSL's. */
__attribute__((constructor)) static void keep_openssl_to_the_end(void)
{
    int kept = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    ASSERT(kept == 1);
}

/* ------------------------------------------------------------------------------------- reading */

/* The text of a file, to be freed. */
static enum status read_file(const char *path, char **text, struct error *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(err, STATUS_IO, "cannot read %s: %s", path, strerror(errno));
    char *read = malloc(CERTIFICATES_MAX_FILE_BYTES + 1);
    ASSERT(read);
    size_t size = fread(read, 1, CERTIFICATES_MAX_FILE_BYTES + 1, file);
    bool failed = ferror(file);
    int why = errno;
    fclose(file);
    enum status status = STATUS_OK;
    if (failed)
        status = error_set(err, STATUS_IO, "cannot read %s: %s", path, strerror(why));
    else if (size > CERTIFICATES_MAX_FILE_BYTES)
        status = error_set(err, STATUS_LIMIT, "%s has over %u bytes, which no PEM file needs", path,
                           CERTIFICATES_MAX_FILE_BYTES);
    else if (memchr(read, 0, size))
        status = error_set(err, STATUS_INVALID, "%s is no PEM text: it holds a NUL byte", path);
    if (status != STATUS_OK) {
        free(read);
        return status;
    }
    read[size] = 0;
    *text = read;
    return STATUS_OK;
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

static enum status read_identity(const struct certificate_paths *paths, struct certificate_set *set,
                                 struct error *err)
{
    X509 *leaf;
    TRY(read_file(paths->cert, &set->cert, err));
    TRY(read_file(paths->key, &set->key, err));
    TRY(read_certificates(set->cert, paths->cert, CERTIFICATES_MAX_CHAIN, &leaf, err));
    enum status status = check_validity(leaf, paths->cert, &set->expires_unix_s, err);
    if (status == STATUS_OK)
        status = check_key(leaf, set->key, paths, err);
    X509_NAME_oneline(X509_get_subject_name(leaf), set->subject, sizeof set->subject);
    X509_free(leaf);
    return status;
}

static enum status read_ca(const char *path, struct certificate_set *set, struct error *err)
{
    X509 *first;
    TRY(read_file(path, &set->ca, err));
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

static enum status read_set(const struct certificate_paths *paths, struct counted_set **out,
                            struct error *err)
{
    struct counted_set *counted = calloc(1, sizeof *counted);
    ASSERT(counted);
    atomic_init(&counted->references, 1);
    enum status status = STATUS_OK;
    if (*paths->cert)
        status = read_identity(paths, &counted->set, err);
    if (status == STATUS_OK && *paths->ca && strcmp(paths->ca, CERTIFICATES_SYSTEM) != 0)
        status = read_ca(paths->ca, &counted->set, err);
    if (status != STATUS_OK)
        set_free(counted);
    else
        *out = counted;
    return status;
}

/* ------------------------------------------------------------------------------- the current set */

static struct certificate_paths paths_of(const struct certificates *certificates)
{
    return (struct certificate_paths){certificates->cert_path, certificates->key_path,
                                      certificates->ca_path};
}

static void give(struct counted_set *counted)
{
    if (atomic_fetch_sub(&counted->references, 1) == 1)
        set_free(counted);
}

void certificate_set_give(const struct certificate_set *set)
{
    give((struct counted_set *)set); /* it is its first member */
}

const char *certificates_name(const struct certificates *certificates)
{
    return certificates->name;
}

const struct certificate_set *certificates_take(struct certificates *certificates)
{
    pthread_mutex_lock(&certificates->lock);
    struct counted_set *counted = certificates->current;
    atomic_fetch_add(&counted->references, 1);
    pthread_mutex_unlock(&certificates->lock);
    return &counted->set;
}

uint64_t certificates_version(const struct certificates *certificates)
{
    return atomic_load(&certificates->version);
}

int64_t certificates_expiry_unix_s(const struct certificates *certificates)
{
    return atomic_load(&certificates->expires_unix_s);
}

static void say(const struct certificates *certificates, const struct certificate_set *set,
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

static void use(struct certificates *certificates, struct counted_set *counted, const char *what)
{
    pthread_mutex_lock(&certificates->lock);
    struct counted_set *before = certificates->current;
    counted->set.version = before ? before->set.version + 1 : 1;
    certificates->current = counted;
    atomic_store(&certificates->expires_unix_s, counted->set.expires_unix_s);
    atomic_store(&certificates->version, counted->set.version);
    pthread_mutex_unlock(&certificates->lock);
    say(certificates, &counted->set, what);
    if (before)
        give(before);
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* Files may be told to have changed although they hold what they held. */
static bool is_current(const struct certificates *certificates, const struct certificate_set *set)
{
    const struct certificate_set *current =
        certificates->current ? &certificates->current->set : NULL;
    return current && same_text(current->cert, set->cert) && same_text(current->key, set->key) &&
           same_text(current->ca, set->ca);
}

static void on_changed(void *context)
{
    struct certificates *certificates = context;
    struct certificate_paths paths = paths_of(certificates);
    struct counted_set *counted;
    struct error err;
    char quoted[700];
    pthread_mutex_lock(&certificates->reading);
    if (read_set(&paths, &counted, &err) == STATUS_OK) {
        if (is_current(certificates, &counted->set))
            give(counted);
        else
            use(certificates, counted, "read again");
    } else {
        log_error(MOD, "for=%s why=%s msg=\"changed files can't be used; those before stay\"",
                  certificates->name, log_quote(err.text, quoted, sizeof quoted));
    }
    pthread_mutex_unlock(&certificates->reading);
}

/* ------------------------------------------------------------------------------- start and end */

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
    /* A server that is told no CA asks nobody for a certificate. */
    if (config->required && given(paths->ca) && !strcmp(paths->ca, CERTIFICATES_SYSTEM))
        return error_set(err, STATUS_INVALID,
                         "the CAs of %s that let others in must be a file: '%s' stands for the "
                         "machine's own, who vouch for strangers",
                         config->name, CERTIFICATES_SYSTEM);
    return STATUS_OK;
}

static bool copy_path(char *target, size_t size, const char *path)
{
    return str_copy(target, size, path ? path : "");
}

/* The watch first: what changes while the files are read is read again. */
static enum status watch_and_read(struct certificates *certificates, uint64_t interval_us,
                                  struct error *err)
{
    struct certificate_paths paths = paths_of(certificates);
    const char *ca = strcmp(paths.ca, CERTIFICATES_SYSTEM) ? paths.ca : NULL;
    struct reload_config watch = {.paths = {paths.cert, paths.key, ca},
                                  .interval_us = interval_us,
                                  .changed = on_changed,
                                  .context = certificates};
    struct counted_set *counted;
    pthread_mutex_lock(&certificates->reading);
    enum status status = reload_start(&watch, &certificates->watch, err);
    if (status == STATUS_OK)
        status = read_set(&paths, &counted, err);
    if (status == STATUS_OK)
        use(certificates, counted, "read");
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
    enum status status = STATUS_OK;
    if (!copy_path(certificates->cert_path, sizeof certificates->cert_path, config->paths.cert) ||
        !copy_path(certificates->key_path, sizeof certificates->key_path, config->paths.key) ||
        !copy_path(certificates->ca_path, sizeof certificates->ca_path, config->paths.ca))
        status = error_set(err, STATUS_LIMIT, "a path of --%s-... is too long", config->name);
    pthread_mutex_init(&certificates->reading, NULL);
    pthread_mutex_init(&certificates->lock, NULL);
    if (status == STATUS_OK)
        status = watch_and_read(certificates, config->watch_interval_us, err);
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
        give(certificates->current);
    pthread_mutex_destroy(&certificates->reading);
    pthread_mutex_destroy(&certificates->lock);
    free(certificates);
}
