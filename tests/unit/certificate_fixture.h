/* For tests of TLS: a test's own CAs and certificates, as files in a folder that is deleted at its
 * end. */
#ifndef BATON_TESTS_CERTIFICATE_FIXTURE_H
#define BATON_TESTS_CERTIFICATE_FIXTURE_H

#include "common/base/clock.h"
#include "common/net/crypto/certificates.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#define DAY_S 86400

struct authority {
    EVP_PKEY *key;
    X509 *cert;
};

struct leaf_plan {
    const struct authority *by;
    const char *names;    /* "DNS:baton,IP:127.0.0.1" */
    long from_s, until_s; /* from now; both 0: a day around it */
};

static inline void add_extension(X509 *cert, X509 *issuer, int kind, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static inline X509 *blank_certificate(EVP_PKEY *key, const char *name, long from_s, long until_s)
{
    static long serial = 1;
    X509 *cert = X509_new();
    assert_non_null(cert);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(cert), from_s);
    X509_gmtime_adj(X509_getm_notAfter(cert), until_s);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    return cert;
}

static inline struct authority authority_create(const char *name)
{
    struct authority made = {.key = EVP_EC_gen("P-256")};
    made.cert = blank_certificate(made.key, name, -DAY_S, DAY_S);
    X509_set_issuer_name(made.cert, X509_get_subject_name(made.cert));
    add_extension(made.cert, made.cert, NID_basic_constraints, "critical,CA:TRUE");
    assert_true(X509_sign(made.cert, made.key, EVP_sha256()) > 0);
    return made;
}

static inline void authority_destroy(struct authority *authority)
{
    EVP_PKEY_free(authority->key);
    X509_free(authority->cert);
}

/* Replaces a file as a whole, as tools that renew certificates do. */
static inline void replace_file(const char *path, const void *bytes, size_t size)
{
    char beside[600];
    snprintf(beside, sizeof beside, "%s.new", path);
    FILE *file = fopen(beside, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
    assert_int_equal(rename(beside, path), 0);
}

static inline void write_pem(const char *path, X509 *cert, EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *bytes;
    if (cert)
        PEM_write_bio_X509(bio, cert);
    if (key)
        PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
    long size = BIO_get_mem_data(bio, &bytes);
    replace_file(path, bytes, (size_t)size);
    BIO_free(bio);
}

/* Writes a new key, and a certificate for it, to the two files; either may be NULL. */
static inline void write_leaf(const struct leaf_plan *plan, const char *cert_path,
                              const char *key_path)
{
    bool times = plan->from_s || plan->until_s;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = blank_certificate(key, "leaf", times ? plan->from_s : -DAY_S,
                                   times ? plan->until_s : DAY_S);
    X509_set_issuer_name(cert, X509_get_subject_name(plan->by->cert));
    add_extension(cert, plan->by->cert, NID_subject_alt_name, plan->names);
    assert_true(X509_sign(cert, plan->by->key, EVP_sha256()) > 0);
    if (cert_path)
        write_pem(cert_path, cert, NULL);
    if (key_path)
        write_pem(key_path, NULL, key);
    X509_free(cert);
    EVP_PKEY_free(key);
}

/* Folders to delete at the process's end, too: a failing assertion leaves its test in the
 * middle. */
#define MAX_FOLDERS 64

struct folder {
    char path[64], cert[128], key[128], ca[128], more[128];
};

static struct folder kept_folders[MAX_FOLDERS];
static size_t kept_folder_count;

static inline void folder_remove(const struct folder *folder)
{
    unlink(folder->cert);
    unlink(folder->key);
    unlink(folder->ca);
    unlink(folder->more);
    rmdir(folder->path);
}

static void remove_kept_folders(void)
{
    for (size_t i = 0; i < kept_folder_count; i++)
        folder_remove(&kept_folders[i]);
}

static inline void folder_create(struct folder *folder)
{
    strcpy(folder->path, "/tmp/baton-tls-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    snprintf(folder->cert, sizeof folder->cert, "%s/cert.pem", folder->path);
    snprintf(folder->key, sizeof folder->key, "%s/key.pem", folder->path);
    snprintf(folder->ca, sizeof folder->ca, "%s/ca.pem", folder->path);
    snprintf(folder->more, sizeof folder->more, "%s/more.pem", folder->path);
    if (!kept_folder_count)
        atexit(remove_kept_folders);
    assert_true(kept_folder_count < MAX_FOLDERS);
    kept_folders[kept_folder_count++] = *folder;
}

/* Certificate, key and the CA's own certificate. */
static inline void folder_fill(const struct folder *folder, const struct leaf_plan *plan)
{
    write_leaf(plan, folder->cert, folder->key);
    write_pem(folder->ca, plan->by->cert, NULL);
}

/* Waits until the current set is that of the files. A watch that looks while the folder is filled
 * may have other sets first, such as a new leaf beside the former CA. */
static inline void folder_wait(const struct folder *folder, struct certificates *certificates)
{
    const struct certificate_paths paths = {folder->cert, folder->key, folder->ca};
    struct certificate_set *files;
    enum certificate_part part;
    struct error err;
    assert_int_equal(certificate_set_read(&paths, &files, &part, &err), STATUS_OK);
    uint64_t end_us = clock_now_us() + 20000000;
    for (bool same = false; !same;) {
        assert_true(clock_now_us() < end_us);
        const struct certificate_set *current = certificates_take(certificates);
        same = !strcmp(current->cert, files->cert) && !strcmp(current->key, files->key) &&
               !strcmp(current->ca, files->ca);
        certificate_set_give(current);
        if (!same)
            poll(NULL, 0, 1);
    }
    certificate_set_give(files);
}

#endif
