/* The frame gate: stands between the accepted connections of a server's clients and gRPC core. Core
 * gets one end of a socket pair, once the client's preface has come. Threads of the gate pass bytes
 * on, in both directions, and end the TLS. frame_gate.h judges the client's frames before core sees
 * them, and the gate ends a connection that breaks a limit: with a GOAWAY where one fits, one line
 * in the log, and a count for the owner.
 *
 * Bounded: what one side doesn't take (GATE_PIPE_BYTES in each direction) holds the other one back.
 * A connection that is accepted, and says nothing, costs core and the socket pair nothing.
 *
 * Internal to this folder. Descriptors of a connection: its socket, and the pair. */
#ifndef BATON_NET_RPC_GRPC_GATE_H
#define BATON_NET_RPC_GRPC_GATE_H

#include "common/net/rpc/frame_gate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct certificates;
struct gate;
struct peer_places;

struct gate_config {
    unsigned threads;                  /* 1 to GATE_MAX_THREADS */
    struct certificates *certificates; /* NULL: no TLS; outlive the gate */
    struct frame_gate_limits limits;
    uint64_t stall_us; /* so long a client may take nothing of bytes that wait for it */
    /* Books of each address; the gate's from now on. NULL: not counted. A connection beyond the
     * share of `places` is closed. `calls` has open calls: see gate_peer. Nothing is read from an
     * address that holds as many as calls_most, until some of them end. */
    struct peer_places *places, *calls;
    size_t calls_share, calls_most;
    /* The book of messages that aren't whole, in units of GATE_UPLOAD_UNIT_BYTES; the gate's from
     * now on. NULL: not counted. An address that has more of uploads_most than it leaves free
     * (fair_share_holds) loses the connection that brings more, unless that is its only message. */
    struct peer_places *uploads;
    size_t uploads_most;
    /* A connection that ends because of a flood costs its address that many further
     * places, for penalty_us. A stranger that comes back again and again is soon closed before core
     * sees it. */
    size_t penalty_places;
    uint64_t penalty_us;
    /* Gives core its end of a connection, which is core's then. On a thread of the gate. */
    void (*enter)(void *context, int fd);
    /* The gate has ended a connection. Any thread; must not block. */
    void (*ended)(void *context, enum frame_gate_end end);
    void *context;
};

#define GATE_MAX_THREADS       64
#define GATE_MAX_STREAMS       65536 /* core's own limit is lower, unless max_calls is as high */
#define GATE_PIPE_BYTES        32768
#define GATE_UPLOAD_UNIT_BYTES 16384 /* a connection with less isn't counted */

/* Starts the threads. STATUS_INVALID: the certificates can't be used. STATUS_IO: the system gives
 * no thread. Takes config->places over also if it fails. */
enum status gate_open(const struct gate_config *config, struct gate **gate,
                      struct error *err) WARN_UNUSED;
/* Takes an accepted connection over, which doesn't block. The listener's thread only. */
void gate_take(struct gate *gate, int fd);
/* Writes the client's address of the connection that core knows by the descriptor core_fd; "":
 * unknown. Returns whether the address has more open calls than calls_share. Any thread. */
bool gate_peer(struct gate *gate, int core_fd, char *text, size_t size);
/* Gives core no more connections: comes between the listener's end and the begin of core's. */
void gate_shut(struct gate *gate);
/* Waits up to grace_us until clients have got what core has sent, ends the threads and frees. Comes
 * after core's end. NULL is fine. */
void gate_close(struct gate *gate, uint64_t grace_us);

#endif
