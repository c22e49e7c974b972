/* tls_server: a client's messages behind its handshake are counted, give control back, and end its
 * connection when there are too many. */
#include "certificate_fixture.h"

#include "common/net/crypto/tls_server.h"

#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#define MANY 100000 /* messages, which no slow machine spreads over so much time */

struct world {
    struct authority authority;
    struct folder folder;
    struct certificates *certificates;
    struct tls_server *server;
    struct ssl_st *accepted;
    SSL_CTX *context;
    SSL *client;
    int fds[2]; /* the client's, the server's */
};

static void open_world(struct world *w, int version)
{
    *w = (struct world){.authority = authority_create("ours")};
    folder_create(&w->folder);
    folder_fill(&w->folder, &(struct leaf_plan){.by = &w->authority, .names = "DNS:baton"});
    const struct certificates_config files = {
        .name = "tls", .paths = {w->folder.cert, w->folder.key, ""}, .watch_interval_us = 1000000};
    struct error err;
    assert_int_equal(certificates_open(&files, &w->certificates, &err), STATUS_OK);
    const struct tls_server_config config = {
        .certificates = w->certificates, .protocol = "\x02h2", .module = "test"};
    assert_int_equal(tls_server_open(&config, &w->server, &err), STATUS_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, w->fds), 0);
    w->accepted = tls_server_begin(w->server, w->fds[1]);
    w->context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(w->context, version);
    SSL_CTX_set_max_proto_version(w->context, version);
    SSL_CTX_set_cipher_list(w->context, "ECDHE-ECDSA-AES128-GCM-SHA256");
    w->client = SSL_new(w->context);
    assert_true(w->accepted && w->client && SSL_set_fd(w->client, w->fds[0]));
    enum tls_io done = TLS_WAIT_READ;
    size_t count;
    char byte;
    while (SSL_connect(w->client) != 1 && done == TLS_WAIT_READ)
        done = tls_receive(w->accepted, &byte, 1, &count);
    assert_int_equal(tls_receive(w->accepted, &byte, 1, &count), TLS_WAIT_READ);
    assert_true(SSL_is_init_finished(w->client) && SSL_is_init_finished(w->accepted));
}

static void close_world(struct world *w)
{
    SSL_free(w->client);
    SSL_CTX_free(w->context);
    tls_free(w->accepted);
    tls_server_close(w->server);
    certificates_close(w->certificates);
    close(w->fds[0]);
    close(w->fds[1]);
    folder_remove(&w->folder);
    authority_destroy(&w->authority);
}

static void say(struct world *w)
{
    assert_int_equal(SSL_write(w->client, "x", 1), 1);
}

static enum tls_io hear(struct world *w)
{
    char bytes[16];
    size_t count = 0;
    enum tls_io done = tls_receive(w->accepted, bytes, sizeof bytes, &count);
    assert_true(done != TLS_DONE || (count == 1 && *bytes == 'x'));
    return done;
}

static void answer(struct world *w)
{
    size_t count;
    char byte = 0;
    assert_int_equal(tls_send(w->accepted, "y", 1, &count), TLS_DONE);
    assert_int_equal(SSL_read(w->client, &byte, 1), 1);
    assert_int_equal(byte, 'y');
}

static void update_key(struct world *w)
{
    assert_int_equal(SSL_key_update(w->client, SSL_KEY_UPDATE_REQUESTED), 1);
    assert_int_equal(SSL_do_handshake(w->client), 1);
}

/* Hears what was said behind messages, each of which gives control back once or twice. Returns how
 * often they did. */
static int hear_behind(struct world *w)
{
    int calls = 0;
    enum tls_io done;
    while ((done = hear(w)) == TLS_WAIT_READ && calls < 3 * TLS_MAX_MESSAGES)
        calls++;
    assert_int_equal(done, TLS_DONE);
    return calls;
}

static void test_key_updates(void **state)
{
    (void)state;
    struct world w;
    int sent = 0;
    open_world(&w, TLS1_3_VERSION);
    for (; sent < TLS_MAX_MESSAGES / 2; sent++) /* all of them wait */
        update_key(&w);
    say(&w);
    assert_in_range(hear_behind(&w), sent, 2 * sent);
    answer(&w);
    for (; sent < TLS_MAX_MESSAGES; sent++)
        update_key(&w);
    say(&w); /* the limit itself isn't too many */
    assert_in_range(hear_behind(&w), sent / 2, sent);
    answer(&w);
    enum tls_io done = TLS_WAIT_READ;
    for (; sent < MANY && done == TLS_WAIT_READ; sent++) {
        update_key(&w);
        done = hear(&w);
    }
    assert_int_equal(done, TLS_FLOOD);
    say(&w);
    assert_int_equal(hear(&w), TLS_FLOOD); /* nothing more comes */
    answer(&w);                            /* a last word may go */
    close_world(&w);
}

/* --- TLS 1.2: OpenSSL's client doesn't ask twice, so its records are made here --- */

struct client_keys {
    unsigned char key[16], salt[4];
    uint64_t sequence;
};

/* RFC 5246, section 6.3, for AES-128-GCM: two keys, then two salts. */
static void find_keys(struct world *w, struct client_keys *keys)
{
    static const char label[] = "key expansion";
    unsigned char master[48], seed[sizeof label - 1 + 64], block[40];
    char digest[] = "SHA256";
    const SSL_SESSION *session = SSL_get_session(w->client);
    memcpy(seed, label, sizeof label - 1);
    SSL_get_server_random(w->client, seed + sizeof label - 1, 32);
    SSL_get_client_random(w->client, seed + sizeof label - 1 + 32, 32);
    assert_int_equal(SSL_SESSION_get_master_key(session, master, sizeof master), sizeof master);
    EVP_KDF *kind = EVP_KDF_fetch(NULL, "TLS1-PRF", NULL);
    EVP_KDF_CTX *kdf = EVP_KDF_CTX_new(kind);
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SECRET, master, sizeof master),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SEED, seed, sizeof seed),
        OSSL_PARAM_construct_end()};
    assert_int_equal(EVP_KDF_derive(kdf, block, sizeof block, params), 1);
    EVP_KDF_CTX_free(kdf);
    EVP_KDF_free(kind);
    memcpy(keys->key, block, sizeof keys->key);
    memcpy(keys->salt, block + 32, sizeof keys->salt);
    keys->sequence = 1; /* the first record was Finished */
}

/* Sends an empty ClientHello as a record of the connection (RFC 5288). */
static void ask_to_renegotiate(struct world *w, struct client_keys *keys)
{
    static const unsigned char hello[4] = {SSL3_MT_CLIENT_HELLO};
    unsigned char record[5 + 8 + sizeof hello + 16] = {SSL3_RT_HANDSHAKE, 3, 3, 0,
                                                       8 + sizeof hello + 16};
    unsigned char nonce[12], more[13] = {[8] = SSL3_RT_HANDSHAKE, 3, 3, 0, sizeof hello};
    int size;
    for (int i = 0; i < 8; i++)
        more[i] = record[5 + i] = (unsigned char)(keys->sequence >> (56 - 8 * i));
    keys->sequence++;
    memcpy(nonce, keys->salt, 4);
    memcpy(nonce + 4, record + 5, 8);
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    assert_true(EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), NULL, keys->key, nonce) &&
                EVP_EncryptUpdate(cipher, NULL, &size, more, sizeof more) &&
                EVP_EncryptUpdate(cipher, record + 13, &size, hello, sizeof hello) &&
                EVP_EncryptFinal_ex(cipher, record + 13 + sizeof hello, &size) &&
                EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, 16, record + 13 + sizeof hello));
    EVP_CIPHER_CTX_free(cipher);
    assert_int_equal(send(w->fds[0], record, sizeof record, MSG_NOSIGNAL), sizeof record);
}

static void test_renegotiation(void **state)
{
    (void)state;
    struct world w;
    struct client_keys keys;
    int sent = 0;
    open_world(&w, TLS1_2_VERSION);
    find_keys(&w, &keys);
    for (; sent < TLS_MAX_MESSAGES; sent++) {
        ask_to_renegotiate(&w, &keys);
        assert_int_equal(hear(&w), TLS_WAIT_READ);
    }
    enum tls_io done = TLS_WAIT_READ;
    for (; sent < MANY && done == TLS_WAIT_READ; sent++) {
        ask_to_renegotiate(&w, &keys);
        done = hear(&w);
    }
    assert_int_equal(done, TLS_FLOOD);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_key_updates),
                                       cmocka_unit_test(test_renegotiation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
