/* TLS of the connections that a server accepted, by OpenSSL: 1.2 and 1.3, one protocol (ALPN), and
 * certificates of clients if the set of certificates holds CAs. Never blocks.
 *
 * Each connection begins with the current set (certificates.h reads changed files again) and keeps
 * it. No session is resumed: each connection shows what is in force now, and nothing is kept of
 * ended connections. Nothing is compressed or renegotiated. A client's messages behind the
 * handshake (KeyUpdate; in 1.2 the wish to renegotiate) cost this side work and carry nothing: they
 * are counted, and end the connection beyond TLS_MAX_MESSAGES.
 *
 * A tls_server belongs to the thread that accepts, a connection to one thread at a time. OpenSSL
 * may raise SIGPIPE: threads that use connections block it. */
#ifndef BATON_NET_CRYPTO_TLS_SERVER_H
#define BATON_NET_CRYPTO_TLS_SERVER_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct certificates;
struct ssl_st; /* a connection; its descriptor stays the caller's */
struct tls_server;

struct tls_server_config {
    struct certificates *certificates; /* outlive the server, not its connections */
    const char *protocol; /* as ALPN has it, its length first: "\x02h2"; outlives connections */
    const char *module;   /* the word `mod` of its lines in the log */
};

/* STATUS_INVALID: the certificates can't be used; the sentence names the part and the reason. */
enum status tls_server_open(const struct tls_server_config *config, struct tls_server **server,
                            struct error *err) WARN_UNUSED;
void tls_server_close(struct tls_server *server); /* NULL is fine; connections may outlive it */

/* NULL: out of memory. */
struct ssl_st *tls_server_begin(struct tls_server *server, int fd);
void tls_free(struct ssl_st *connection); /* NULL is fine */
/* Returns whether both sides have agreed on the protocol by name. The handshake comes with the
 * first bytes; a client that names none is let in. */
bool tls_agreed(const struct ssl_st *connection);

enum tls_io {
    TLS_DONE,
    TLS_WAIT_READ,  /* until the socket can be read */
    TLS_WAIT_WRITE, /* until the socket can be written */
    TLS_CLOSED,     /* by the other end, or an error: nothing more comes or goes */
    TLS_FLOOD,      /* too many messages behind the handshake: nothing more comes; some may go */
};

#define TLS_RECORD_BYTES 16384 /* a receive of so many leaves none in OpenSSL's memory */
/* Messages behind the handshake that a client may send at once, and in 10 s. Its peers send one
 * each 2^24 records, or none. */
#define TLS_MAX_MESSAGES 100
/* Receives up to `size` bytes. TLS_DONE: *count of them, 1 or more. TLS_WAIT_READ follows each
 * message behind the handshake, too, although the socket may hold more. */
enum tls_io tls_receive(struct ssl_st *connection, void *bytes, size_t size, size_t *count);
/* Sends a part of the bytes, as one record. TLS_DONE: *count of them, 1 or more. Otherwise the next
 * send must begin with the same bytes, wherever they lie, and not have fewer. */
enum tls_io tls_send(struct ssl_st *connection, const void *bytes, size_t size, size_t *count);
/* Tells the other end that nothing more is sent. */
void tls_shut(struct ssl_st *connection);

#endif
