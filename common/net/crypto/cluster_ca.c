#include "common/net/crypto/cluster_ca.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES   1024
#define SERIAL_BYTES 16
#define BEFORE_S     86400 /* processes of one machine may still disagree about the time */

static const char *const file_names[] = {CLUSTER_CA_CERT, CLUSTER_CA_KEY, CLUSTER_CA_CA};

struct pair {
    EVP_PKEY *key;
    X509 *cert;
};

static void pair_free(struct pair *pair)
{
    EVP_PKEY_free(pair->key); /* OpenSSL wipes it */
    X509_free(pair->cert);
}

static bool add_extension(X509 *cert, X509 *issuer, int kind, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    bool added = extension && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

static bool set_serial(X509 *cert)
{
    unsigned char bytes[SERIAL_BYTES];
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return false;
    bytes[0] &= 0x7f; /* positive */
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool set = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)) != NULL;
    BN_free(number);
    return set;
}

/* Makes a key and a certificate for it that `by` signs; NULL: it signs itself, and is a CA. */
static bool pair_make(const char *name, const struct pair *by, struct pair *made)
{
    static const struct {
        int kind;
        const char *value;
    } of_ca[] = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                 {NID_key_usage, "critical,keyCertSign"},
                 {NID_subject_key_identifier, "hash"}},
      of_leaf[] = {{NID_basic_constraints, "critical,CA:FALSE"},
                   {NID_key_usage, "critical,digitalSignature"},
                   {NID_ext_key_usage, "serverAuth,clientAuth"},
                   {NID_subject_key_identifier, "hash"},
                   {NID_authority_key_identifier, "keyid"},
                   {NID_subject_alt_name, "DNS:" CLUSTER_CA_NAME ",IP:127.0.0.1,IP:::1"}};
    *made = (struct pair){EVP_EC_gen("P-256"), X509_new()};
    X509 *cert = made->cert;
    const struct pair *signer = by ? by : made;
    if (!made->key || !cert || X509_set_version(cert, 2) != 1 || !set_serial(cert) ||
        !X509_gmtime_adj(X509_getm_notBefore(cert), -BEFORE_S) ||
        !X509_time_adj_ex(X509_getm_notAfter(cert), CLUSTER_CA_DAYS, 0, NULL) ||
        X509_set_pubkey(cert, made->key) != 1 ||
        X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                                   (const unsigned char *)name, -1, -1, 0) != 1 ||
        X509_set_issuer_name(cert, X509_get_subject_name(signer->cert)) != 1)
        return false;
    size_t count = by ? sizeof of_leaf / sizeof *of_leaf : sizeof of_ca / sizeof *of_ca;
    for (size_t i = 0; i < count; i++)
        if (!add_extension(cert, signer->cert, by ? of_leaf[i].kind : of_ca[i].kind,
                           by ? of_leaf[i].value : of_ca[i].value))
            return false;
    return X509_sign(cert, signer->key, EVP_sha256()) > 0;
}

/* Writes a new file, for its owner alone. */
static enum status write_pem(const char *folder, const char *name, X509 *cert, EVP_PKEY *key,
                             struct error *err)
{
    char path[PATH_BYTES], *text;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    BIO *bio = BIO_new(BIO_s_secmem());
    bool made = bio && (cert ? PEM_write_bio_X509(bio, cert)
                             : PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL)) == 1;
    long size = made ? BIO_get_mem_data(bio, &text) : 0;
    int fd = size > 0 ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    bool written = fd >= 0 && write(fd, text, (size_t)size) == size;
    int why = errno;
    if (fd >= 0 && close(fd) != 0)
        written = false;
    BIO_free(bio);
    if (size <= 0)
        return error_set(err, STATUS_INTERNAL, "OpenSSL can't write PEM for %s", path);
    return written ? STATUS_OK
                   : error_set(err, STATUS_IO, "cannot write %s: %s", path, strerror(why));
}

enum status cluster_ca_make(const char *folder, struct error *err)
{
    struct pair ca = {0}, leaf = {0};
    if (strlen(folder) + 1 + sizeof CLUSTER_CA_CERT > PATH_BYTES)
        return error_set(err, STATUS_LIMIT, "the path %.80s... is too long", folder);
    enum status status = STATUS_OK;
    ERR_clear_error();
    if (!pair_make("Baton, one run's own CA", NULL, &ca) ||
        !pair_make(CLUSTER_CA_NAME, &ca, &leaf)) {
        const char *words = ERR_reason_error_string(ERR_peek_last_error());
        status = error_set(err, STATUS_INTERNAL, "OpenSSL makes no certificate: %s",
                           words ? words : "no reason given");
    } else if (mkdir(folder, 0700) != 0) {
        status =
            error_set(err, STATUS_IO, "cannot make the folder %s: %s", folder, strerror(errno));
    } else {
        status = write_pem(folder, CLUSTER_CA_CERT, leaf.cert, NULL, err);
        if (status == STATUS_OK)
            status = write_pem(folder, CLUSTER_CA_KEY, NULL, leaf.key, err);
        if (status == STATUS_OK)
            status = write_pem(folder, CLUSTER_CA_CA, ca.cert, NULL, err);
        if (status != STATUS_OK)
            cluster_ca_remove(folder);
    }
    pair_free(&leaf);
    pair_free(&ca);
    return status;
}

void cluster_ca_remove(const char *folder)
{
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof file_names / sizeof *file_names; i++)
        if (snprintf(path, sizeof path, "%s/%s", folder, file_names[i]) < (int)sizeof path)
            unlink(path);
    rmdir(folder);
}
