#include "common/net/crypto/certificates.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/reload.h"
#include "common/base/str.h"

#include <openssl/crypto.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MOD       "certificates"
#define SOON_S    (7 * 86400) /* an end so near is warned of */
#define NAME_SIZE 64

struct certificates {
    char name[NAME_SIZE], cert_path[FILE_WATCH_MAX_PATH_BYTES], key_path[FILE_WATCH_MAX_PATH_BYTES],
        ca_path[FILE_WATCH_MAX_PATH_BYTES];
    const char *ca_name; /* as in its config */
    struct reload *watch;
    pthread_mutex_t reading; /* held while files are read and used, so that later ones come later */
    pthread_mutex_t lock;
    struct certificate_set *current; /* written with both held, read with either */
    _Atomic uint64_t version;
    _Atomic int64_t expires_unix_s;
};

/* By default OpenSSL takes itself down at the process's end (atexit), and supposes that all threads
 * have ended by then. Those of gRPC core's pool can't be joined: its shutdown waits until their
 * work is done, not until they are gone, so that their state of OpenSSL may be torn away under
 * them, or lost. The first call decides: it must come before any other of OpenSSL's. */
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

static void use(struct certificates *certificates, struct certificate_set *set, const char *what)
{
    pthread_mutex_lock(&certificates->lock);
    struct certificate_set *before = certificates->current;
    set->version = before ? before->version + 1 : 1;
    certificates->current = set;
    atomic_store(&certificates->expires_unix_s, set->expires_unix_s);
    atomic_store(&certificates->version, set->version);
    pthread_mutex_unlock(&certificates->lock);
    say(certificates, set, what);
    if (before)
        certificate_set_give(before);
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* Files may be told to have changed although they hold what they held. */
static bool is_current(const struct certificates *certificates, const struct certificate_set *set)
{
    const struct certificate_set *current = certificates->current;
    return current && same_text(current->cert, set->cert) && same_text(current->key, set->key) &&
           same_text(current->ca, set->ca);
}

/* What fails is called by its setting. */
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
        if (is_current(certificates, set))
            certificate_set_give(set);
        else
            use(certificates, set, "read again");
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
