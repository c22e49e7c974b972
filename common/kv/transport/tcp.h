/* Internal to this folder: the tcp lane, a lane of sockets. No byte is copied outside the kernel:
 * the owner sends out of its pool, the reader receives into its runs. Both sides of a connection
 * know the length of the next bytes before they come. Sockets are non-blocking, epoll is
 * level-triggered: one epoll descriptor is readable while there is work, and one turn does a
 * bounded amount.
 *
 * - tcp_owner: listens, admits readers by the secret that was made for each (kv_transport_admit),
 *   and answers their asks. A connection costs a fixed amount of memory, even if its reader never
 *   reads. Strangers have a few seconds to become readers.
 * - tcp_link: one pairing. It moves the bytes of the lane tcp. On every lane it shows the death of
 *   the peer: the kernel closes the sockets of a process that ends, however it ends. (On shm
 *   kv_life knows it earlier, as a rule.)
 *
 * After a link was closed no byte lands any more: no writer is left.
 *
 * With a pool on a device, bytes pass through the buffers of kv_staging. A reader has one while it
 * receives a turn's bytes and copies them to the device; meanwhile it receives nothing. An owner's
 * connection has one while its bytes leave. If a connection's reader takes no bytes for
 * TCP_STALLED_US and another one needs the buffer, it loses it: its bytes are copied again.
 */
#ifndef BATON_KV_TRANSPORT_TCP_H
#define BATON_KV_TRANSPORT_TCP_H

#include "common/kv/transport/kv_frame.h"
#include "common/kv/transport/transport_ops.h"

#include <sys/epoll.h>
#include <sys/socket.h>

/* Bytes that one connection may move in its turn, and all of them in one poll: about two
 * milliseconds of a slow machine. */
#define TCP_TURN_BYTES   ((size_t)1024 << 10)
#define TCP_BUDGET_BYTES ((size_t)2 << 20)
#define TCP_MAX_PARTS    64 /* parts of one sendmsg or readv */

#define TCP_STALLED_US 20000

#define TCP_UNKNOWN UINT32_MAX

enum tcp_source_kind {
    TCP_LISTENER,
    TCP_CLIENT,
    TCP_LINK,
    TCP_MAPPED, /* mapped_lane's */
    TCP_OTHER   /* no lane's */
};

/* The target of an epoll event: the first member of each struct that can have one. */
struct tcp_source {
    enum tcp_source_kind kind;
    int fd;          /* -1: closed */
    uint32_t events; /* events that epoll waits for; TCP_UNKNOWN: epoll does not know it yet */
};

struct tcp_owner;
struct tcp_link;

struct tcp_lane {
    struct kv_transport *transport;
    int epoll_fd;
    bool serves; /* asks are answered; otherwise links only show which peers live */
    struct tcp_owner *owner;
};

/* --- tcp_owner.c --- */
/* Listens at config->bind_interface ("lo", "eth0:7000", "10.0.0.5", "[::1]:7000"). Fills
 * ip_version, ip and port of the address. */
enum status tcp_owner_open(struct tcp_lane *lane, const struct kv_transport_config *config,
                           struct kv_address *address, struct error *err) WARN_UNUSED;
void tcp_owner_close(struct tcp_lane *lane);
enum status tcp_owner_admit(struct tcp_lane *lane, uint64_t *admission,
                            uint8_t secret[KV_SECRET_BYTES], struct error *err) WARN_UNUSED;
void tcp_owner_revoke(struct tcp_lane *lane, uint64_t admission);
/* Returns whether this is the secret of an admission. */
bool tcp_owner_knows(const struct tcp_lane *lane, uint64_t admission,
                     const uint8_t secret[KV_SECRET_BYTES]);
void tcp_owner_accept(struct tcp_lane *lane);
void tcp_client_ready(struct tcp_lane *lane, struct tcp_source *client, uint32_t events,
                      size_t *budget);
/* Does the work that is due by the clock. */
void tcp_owner_tick(struct tcp_lane *lane);
uint64_t tcp_owner_next_us(const struct tcp_lane *lane);
bool tcp_owner_stage(struct tcp_lane *lane);

/* --- tcp_link.c --- */
enum status tcp_link_open(struct tcp_lane *lane, const struct kv_address *address,
                          struct kv_peer *peer, struct tcp_link **link,
                          struct error *err) WARN_UNUSED;
void tcp_link_ready(struct tcp_lane *lane, struct tcp_source *link, uint32_t events,
                    size_t *budget);
void tcp_link_start(struct tcp_lane *lane, struct tcp_link *link); /* asks for runs of its reads */
/* With a pool on a device: ends copies that are done, and receives again once there is a buffer.
 * Returns whether it waits. tcp_owner_stage: the same for sending. */
bool tcp_link_stage(struct tcp_lane *lane, struct tcp_link *link);
/* Closes the connection and gives all parts in flight back. */
void tcp_link_close(struct tcp_lane *lane, struct tcp_link *link);
void tcp_link_free(struct tcp_lane *lane, struct tcp_link *link);

/* --- tcp_socket.c --- */
#define TCP_NAME_BYTES 64 /* "[ffff:...:ffff]:65535" */
struct tcp_at {
    struct sockaddr_storage address;
    socklen_t bytes;
};
/* Parses a place to listen at. STATUS_INVALID, with a sentence: no such place. */
enum status tcp_at_parse(const char *listen, struct tcp_at *at, struct error *err) WARN_UNUSED;
void tcp_at_name(const struct tcp_at *at, char name[TCP_NAME_BYTES]);
bool tcp_at_is_loopback(const struct tcp_at *at);
bool tcp_at_is_any(const struct tcp_at *at);
/* Finds the first address of `host` that can reach a socket listening on `listening`. May wait for
 * the resolver. */
enum status tcp_at_resolve(const char *host, const struct tcp_at *listening, struct tcp_at *at,
                           struct error *err) WARN_UNUSED;
void tcp_at_to_address(const struct tcp_at *at, struct kv_address *address);
/* Returns false if the address names no place. */
bool tcp_at_from_address(const struct kv_address *address, struct tcp_at *at);
/* Listens; `at` gets the port. */
enum status tcp_listen(struct tcp_at *at, int *fd, struct error *err) WARN_UNUSED;
void tcp_set_options(int fd);
/* Limits the send queue of a connection that came from an address of this host. */
void tcp_limit_queue(int fd, const struct tcp_at *from);
/* Adds or changes the events that epoll waits for. */
bool tcp_wait_for(const struct tcp_lane *lane, struct tcp_source *source, uint32_t events);
/* Ends the connection, even if a process that is being forked still has the descriptor: no event
 * comes, no byte lands any more. */
void tcp_close(const struct tcp_lane *lane, struct tcp_source *source);

#endif
