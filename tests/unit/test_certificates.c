/* certificates: the files of a link are read whole and checked, and read again when they change;
 * files that can't be used change nothing. */
#include "certificate_fixture.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/crypto/certificates.h"
#include "common/net/crypto/cluster_ca.h"

#include <dirent.h>
#include <poll.h>
#include <sys/stat.h>

#define LOOK_US 5000u

struct world {
    struct authority authority, other;
    struct folder folder;
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->authority = authority_create("ours");
    world->other = authority_create("another's");
    folder_create(&world->folder);
    folder_fill(&world->folder, &(struct leaf_plan){.by = &world->authority, .names = "DNS:baton"});
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    folder_remove(&world->folder);
    authority_destroy(&world->authority);
    authority_destroy(&world->other);
    free(world);
    return 0;
}

static struct certificates_config config_of(const struct folder *folder)
{
    return (struct certificates_config){.name = "tls",
                                        .paths = {folder->cert, folder->key, folder->ca},
                                        .required = true,
                                        .watch_interval_us = LOOK_US};
}

static struct certificates *open_all(const struct folder *folder)
{
    struct certificates_config config = config_of(folder);
    struct certificates *certificates;
    struct error err;
    if (certificates_open(&config, &certificates, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return certificates;
}

static void expect_refused(const struct certificates_config *config, enum status status,
                           const char *sentence)
{
    struct certificates *certificates;
    struct error err;
    assert_int_equal(certificates_open(config, &certificates, &err), status);
    if (!strstr(err.text, sentence))
        fail_msg("\"%s\" doesn't say \"%s\"", err.text, sentence);
}

static void test_a_set_is_read(void **state)
{
    struct world *world = *state;
    struct certificates *certificates = open_all(&world->folder);
    const struct certificate_set *set = certificates_take(certificates);
    assert_int_equal(set->version, 1);
    assert_non_null(strstr(set->cert, "BEGIN CERTIFICATE"));
    assert_non_null(strstr(set->key, "PRIVATE KEY"));
    assert_non_null(strstr(set->ca, "BEGIN CERTIFICATE"));
    assert_string_equal(set->subject, "/CN=leaf");
    assert_string_equal(set->name, "baton");
    int64_t left_s = set->expires_unix_s - (int64_t)(clock_unix_us() / 1000000);
    assert_true(left_s > DAY_S - 600 && left_s <= DAY_S);
    assert_int_equal(certificates_expiry_unix_s(certificates), set->expires_unix_s);
    certificates_close(certificates);
    assert_non_null(strstr(set->cert, "BEGIN CERTIFICATE")); /* until it is given back */
    certificate_set_give(set);
}

static void test_a_client_may_do_with_a_ca_or_with_the_systems(void **state)
{
    struct world *world = *state;
    struct certificates_config config = {.name = "tls", .paths = {.ca = world->folder.ca}};
    for (int i = 0; i < 2; i++) {
        struct certificates *certificates;
        struct error err;
        assert_int_equal(certificates_open(&config, &certificates, &err), STATUS_OK);
        const struct certificate_set *set = certificates_take(certificates);
        assert_null(set->cert);
        assert_int_equal(set->ca != NULL, i == 0);
        certificate_set_give(set);
        certificates_close(certificates);
        config.paths.ca = CERTIFICATES_SYSTEM;
    }
}

static void test_what_is_missing_is_named(void **state)
{
    struct world *world = *state;
    struct certificates_config config = config_of(&world->folder);
    config.paths.key = "";
    expect_refused(&config, STATUS_INVALID, "--tls-cert is given without --tls-key");
    config.paths = (struct certificate_paths){NULL, world->folder.key, NULL};
    expect_refused(&config, STATUS_INVALID, "--tls-key is given without --tls-cert");
    config.paths = (struct certificate_paths){NULL, NULL, world->folder.ca};
    expect_refused(&config, STATUS_INVALID, "--tls-cert and --tls-key are needed");
    config = config_of(&world->folder);
    config.paths.ca = "/nowhere/ca.pem";
    expect_refused(&config, STATUS_IO, "--tls-ca: cannot read /nowhere/ca.pem: No such file");
    config.ca_name = "client-ca";
    expect_refused(&config, STATUS_IO, "--tls-client-ca: cannot read /nowhere/ca.pem");
    config.paths.key = "/nowhere/key.pem";
    expect_refused(&config, STATUS_IO, "--tls-key: cannot read /nowhere/key.pem");
    config.paths.cert = "/nowhere/cert.pem";
    expect_refused(&config, STATUS_IO, "--tls-cert: cannot read /nowhere/cert.pem");
    config = config_of(&world->folder);
    config.paths.ca = CERTIFICATES_SYSTEM;
    expect_refused(&config, STATUS_INVALID,
                   "must be a file: 'system' stands for the machine's own");
}

static void test_what_does_not_fit_together_is_named(void **state)
{
    struct world *world = *state;
    const struct folder *folder = &world->folder;
    struct certificates_config config = config_of(folder);
    const struct leaf_plan plan = {.by = &world->authority, .names = "DNS:baton"};
    write_leaf(&plan, NULL, folder->key);
    expect_refused(&config, STATUS_INVALID, "is not that of the certificate");
    write_leaf(&plan, folder->key, folder->cert); /* the wrong way round */
    expect_refused(&config, STATUS_INVALID, "is not readable PEM");
    write_leaf(&plan, folder->cert, folder->key);
    replace_file(folder->key, "x", 1);
    expect_refused(&config, STATUS_INVALID, "is no readable private key in PEM");
    struct leaf_plan old = plan;
    old.from_s = -2 * DAY_S;
    old.until_s = -DAY_S;
    write_leaf(&old, folder->cert, folder->key);
    expect_refused(&config, STATUS_INVALID, "has expired at 2");
    old.from_s = DAY_S;
    old.until_s = 2 * DAY_S;
    write_leaf(&old, folder->cert, folder->key);
    expect_refused(&config, STATUS_INVALID, "is valid only from 2");
}

static void test_a_key_with_a_password_is_refused_and_nobody_is_asked(void **state)
{
    struct world *world = *state;
    struct certificates_config config = config_of(&world->folder);
    BIO *bio = BIO_new(BIO_s_mem());
    char *bytes;
    PEM_write_bio_PrivateKey(bio, world->authority.key, EVP_aes_128_cbc(), NULL, 0, NULL, "secret");
    long size = BIO_get_mem_data(bio, &bytes);
    replace_file(world->folder.key, bytes, (size_t)size);
    BIO_free(bio);
    expect_refused(&config, STATUS_INVALID, "one with a password can't be used");
}

/* `count` times the first certificate of the file. */
static void repeat_certificate(const struct authority *authority, const char *path, size_t count)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *bytes;
    for (size_t i = 0; i < count; i++)
        PEM_write_bio_X509(bio, authority->cert);
    long size = BIO_get_mem_data(bio, &bytes);
    replace_file(path, bytes, (size_t)size);
    BIO_free(bio);
}

static void test_files_over_their_limits(void **state)
{
    struct world *world = *state;
    const struct folder *folder = &world->folder;
    struct certificates_config config = config_of(folder);
    repeat_certificate(&world->authority, folder->ca, CERTIFICATES_MAX_CAS);
    certificates_close(open_all(folder));
    repeat_certificate(&world->authority, folder->ca, CERTIFICATES_MAX_CAS + 1);
    expect_refused(&config, STATUS_LIMIT, "holds more than 1024 certificates");
    write_pem(folder->ca, world->authority.cert, NULL);
    repeat_certificate(&world->authority, folder->cert, CERTIFICATES_MAX_CHAIN + 1);
    expect_refused(&config, STATUS_LIMIT, "holds more than 16 certificates");
    char *large = calloc(1, CERTIFICATES_MAX_FILE_BYTES + 1);
    assert_non_null(large);
    memset(large, '\n', CERTIFICATES_MAX_FILE_BYTES + 1);
    replace_file(folder->cert, large, CERTIFICATES_MAX_FILE_BYTES + 1);
    expect_refused(&config, STATUS_LIMIT, "has over 1048576 bytes");
    replace_file(folder->cert, large, CERTIFICATES_MAX_FILE_BYTES);
    expect_refused(&config, STATUS_INVALID, "certificate 1 is not readable PEM");
    replace_file(folder->cert, "a\0b", 3);
    expect_refused(&config, STATUS_INVALID, "is no PEM text: it holds a NUL byte");
    free(large);
}

static void test_changed_files_are_read_again(void **state)
{
    struct world *world = *state;
    const struct folder *folder = &world->folder;
    struct certificates *certificates = open_all(folder);
    const struct certificate_set *before = certificates_take(certificates);
    folder_fill(folder, &(struct leaf_plan){.by = &world->other, .names = "DNS:other"});
    folder_wait(folder, certificates);
    const struct certificate_set *after = certificates_take(certificates);
    assert_string_not_equal(before->cert, after->cert);
    assert_string_not_equal(before->ca, after->ca);
    certificate_set_give(before);
    certificate_set_give(after);
    certificates_close(certificates);
}

static void test_files_that_cannot_be_used_change_nothing(void **state)
{
    struct world *world = *state;
    const struct folder *folder = &world->folder;
    const struct leaf_plan plan = {.by = &world->authority, .names = "DNS:baton"};
    struct certificates *certificates = open_all(folder);
    const struct certificate_set *before = certificates_take(certificates);
    write_leaf(&plan, folder->cert, NULL); /* another key's */
    unlink(folder->ca);
    for (int i = 0; i < 20; i++) /* looks of the watch */
        poll(NULL, 0, LOOK_US / 1000);
    assert_int_equal(certificates_version(certificates), 1);
    const struct certificate_set *same = certificates_take(certificates);
    assert_ptr_equal(before, same);
    certificate_set_give(before);
    certificate_set_give(same);
    folder_fill(folder, &plan);
    folder_wait(folder, certificates);
    certificates_close(certificates);
}

static unsigned mode_of(const char *folder, const char *name)
{
    char path[256];
    struct stat found;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(lstat(path, &found), 0);
    return found.st_mode & 07777;
}

static X509 *read_cert(const char *text)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    X509 *cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    assert_non_null(cert);
    return cert;
}

/* Returns whether `ca` vouches for `leaf` as a server and as a client. */
static bool vouches(const char *ca_text, const char *leaf_text)
{
    static const int purposes[] = {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT};
    X509 *ca = read_cert(ca_text), *leaf = read_cert(leaf_text);
    X509_STORE *store = X509_STORE_new();
    X509_STORE_add_cert(store, ca);
    bool good = true;
    for (size_t i = 0; i < 2; i++) {
        X509_STORE_CTX *context = X509_STORE_CTX_new();
        X509_STORE_CTX_init(context, store, leaf, NULL);
        X509_STORE_CTX_set_purpose(context, purposes[i]);
        good = good && X509_verify_cert(context) == 1;
        X509_STORE_CTX_free(context);
    }
    X509_STORE_free(store);
    X509_free(ca);
    X509_free(leaf);
    return good;
}

static struct certificate_set *made_in(const char *folder)
{
    char cert[256], key[256], ca[256];
    struct error err;
    snprintf(cert, sizeof cert, "%s/" CLUSTER_CA_CERT, folder);
    snprintf(key, sizeof key, "%s/" CLUSTER_CA_KEY, folder);
    snprintf(ca, sizeof ca, "%s/" CLUSTER_CA_CA, folder);
    struct certificate_set *set;
    enum certificate_part part;
    const struct certificate_paths paths = {cert, key, ca};
    if (certificate_set_read(&paths, &set, &part, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return set;
}

/* A run of `baton up` makes these: private, good for both sides, and of no other run's CA. */
static void test_a_clusters_own_certificates(void **state)
{
    const struct world *world = *state;
    char one[128], two[128];
    struct error err;
    snprintf(one, sizeof one, "%s/1.tls", world->folder.path);
    snprintf(two, sizeof two, "%s/2.tls", world->folder.path);
    mode_t mask = umask(0);
    assert_int_equal(cluster_ca_make(one, &err), STATUS_OK);
    umask(mask);
    assert_int_equal(cluster_ca_make(two, &err), STATUS_OK);
    assert_int_equal(mode_of(one, "."), 0700);
    assert_int_equal(mode_of(one, CLUSTER_CA_CERT), 0600);
    assert_int_equal(mode_of(one, CLUSTER_CA_KEY), 0600);
    assert_int_equal(mode_of(one, CLUSTER_CA_CA), 0600);
    size_t files = 0; /* three: the CA's key is nowhere */
    DIR *dir = opendir(one);
    for (struct dirent *entry; (entry = readdir(dir));)
        files += *entry->d_name != '.';
    closedir(dir);
    assert_int_equal(files, 3);
    struct certificate_set *first = made_in(one), *second = made_in(two);
    assert_string_equal(first->name, CLUSTER_CA_NAME);
    assert_true(first->expires_unix_s > (int64_t)(clock_unix_us() / 1000000) + 3600 * DAY_S / 2);
    assert_true(vouches(first->ca, first->cert) && vouches(second->ca, second->cert));
    assert_false(vouches(first->ca, second->cert));
    assert_string_not_equal(first->key, second->key);
    certificate_set_give(first);
    certificate_set_give(second);
    /* a folder that is there is another's */
    assert_int_equal(cluster_ca_make(one, &err), STATUS_IO);
    assert_non_null(strstr(err.text, one));
    assert_int_equal(mode_of(one, CLUSTER_CA_KEY), 0600);
    cluster_ca_remove(one);
    cluster_ca_remove(two);
    cluster_ca_remove(two); /* nothing is left to remove */
    assert_int_equal(access(one, F_OK), -1);
    assert_int_equal(cluster_ca_make("/nowhere/1.tls", &err), STATUS_IO);
    char longest[1100];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(cluster_ca_make(longest, &err), STATUS_LIMIT);
}

int main(void)
{
    log_init("test", LOG_ERROR + 1);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_a_set_is_read),
        CASE(test_a_client_may_do_with_a_ca_or_with_the_systems),
        CASE(test_what_is_missing_is_named),
        CASE(test_what_does_not_fit_together_is_named),
        CASE(test_a_key_with_a_password_is_refused_and_nobody_is_asked),
        CASE(test_files_over_their_limits),
        CASE(test_changed_files_are_read_again),
        CASE(test_files_that_cannot_be_used_change_nothing),
        CASE(test_a_clusters_own_certificates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
