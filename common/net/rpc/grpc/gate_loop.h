/* The inside of the frame gate: its loops (a thread each) and their connections. Internal to this
 * folder. All belongs to the loop's thread unless a comment gives another owner. */
#ifndef BATON_NET_RPC_GRPC_GATE_LOOP_H
#define BATON_NET_RPC_GRPC_GATE_LOOP_H

#include "common/net/crypto/tls_server.h"
#include "common/net/rpc/grpc/gate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/socket.h>

#define GATE_PEER_BYTES    64      /* "[address]:port" */
#define GATE_LOOK_EVERY_US 20000   /* all connections are looked through no more often */
#define GATE_TRIM_EVERY_US 5000000 /* freed memory goes back to the system no more often */

enum gate_phase {
    PHASE_GREETING,  /* -> PASSING when the client's preface has come */
    PHASE_PASSING,   /* -> FLUSHING when core has closed its end, or the judge ends it */
    PHASE_FLUSHING,  /* the last bytes leave to the client -> LINGERING */
    PHASE_LINGERING, /* nothing more is sent; bytes that still come are dropped, so that the last
                        ones aren't lost over them -> DEAD */
    PHASE_DEAD,
};

/* One of a connection's two sockets, as epoll knows it. */
struct gate_side {
    struct gate_connection *of;
    int fd;          /* -1: none */
    uint32_t events; /* it waits for these; 0: epoll doesn't know it */
};

/* Bytes that one side has sent, and the other has no room for yet. */
struct gate_pipe {
    uint8_t *bytes; /* NULL: none; room for GATE_PIPE_BYTES and a GOAWAY */
    size_t begin, end;
    uint64_t moved_us; /* some of them were sent, or the first of them came */
};

struct gate_connection {
    TAILQ_ENTRY(gate_connection) link; /* in the loop's list, or in its arrivals */
    struct gate_connection *next_dead;
    struct gate_loop *loop;
    struct gate_side client, core;
    struct ssl_st *tls;        /* NULL: none */
    struct frame_gate judge;   /* since gate_connection_begin; zeros before */
    struct gate_pipe up, down; /* to core; to the client */
    enum gate_phase phase;
    bool client_done;         /* sends no more */
    bool core_deaf;           /* takes no more; what it has sent is still to be read */
    bool core_done;           /* has closed, while the client hasn't read all */
    bool receive_wants_write; /* TLS: receiving waits until something can be sent */
    bool placed;              /* holds a place of its address */
    bool held;                /* its address has too many calls: nothing is read */
    size_t calls;             /* so many open streams are counted for its address */
    size_t uploads;           /* so many units of messages that aren't whole are counted, too */
    uint64_t deadline_us;     /* the phase ends then; UINT64_MAX: no such limit */
    size_t lingered_bytes;
    struct sockaddr_storage address;
    char peer[GATE_PEER_BYTES];
};
TAILQ_HEAD(gate_list, gate_connection);

struct gate_loop {
    struct gate *gate;
    pthread_t thread;
    bool started;
    int epoll_fd, wake_fd;
    struct gate_list connections;
    struct gate_connection *dead; /* freed behind the events that may name them */
    uint64_t now_us;              /* as the events came */
    uint64_t due_us;              /* connections are looked through then */
    uint64_t put_off_us;          /* since then that waits for further events; 0: it doesn't */
    uint64_t trim_us;             /* freed memory goes back then; UINT64_MAX: none shall */
    uint64_t trim_last_us;        /* by then all has been freed that shall go back */
    uint8_t scratch[GATE_PIPE_BYTES];
    atomic_uint_fast64_t stop_us; /* UINT64_MAX: goes on */

    pthread_mutex_t lock; /* guards arrivals */
    struct gate_list arrivals;
};

/* Places that an address misses after a flood. */
struct gate_penalty {
    STAILQ_ENTRY(gate_penalty) link;
    struct sockaddr_storage address;
    size_t places;
    uint64_t until_us;
};

struct gate {
    struct gate_config config;
    struct tls_server *tls; /* the listener's thread; NULL: none */
    struct gate_loop *loops;
    unsigned next; /* the listener's thread */
    pthread_mutex_t door_lock;
    bool shut; /* core takes no more connections; under door_lock */

    pthread_mutex_t lock; /* guards the books of config, the penalties, and the peers */
    STAILQ_HEAD(gate_penalties, gate_penalty) penalties; /* oldest first */
    size_t uploads;                                      /* units of all connections */
    struct gate_peer {
        char name[GATE_PEER_BYTES];
        struct sockaddr_storage address;
    } * peers; /* by core's descriptor */
    size_t peer_count;
};

/* --- gate.c, for gate_connection.c: any thread of the gate --- */

/* Gives core its end of a pair, under the name of the connection's client. */
void gate_enter(struct gate *gate, int core_fd, const struct gate_connection *connection);
/* Counts an end, and logs it. A flood costs its address places. */
void gate_report(struct gate *gate, struct gate_connection *connection, enum frame_gate_end end);
/* Counts the connection's open streams for its address. */
void gate_count_calls(struct gate *gate, struct gate_connection *connection);
/* Counts the connection's messages that aren't whole. False: its address has too much of them. */
bool gate_count_uploads(struct gate *gate, struct gate_connection *connection);
/* Returns whether nothing may be read from the connection's address. */
bool gate_holds(struct gate *gate, const struct gate_connection *connection);
/* Forgets a connection that ends, in the books of its address. */
void gate_give_places_back(struct gate *gate, struct gate_connection *connection);
/* The loop looks through its connections at `due_us`, or before. */
void gate_loop_due(struct gate_loop *loop, uint64_t due_us);

/* Returns when freed memory goes back to the system: some shall from first_us on, and all has been
 * freed by last_us. first_us UINT64_MAX: none shall. `trimmed`: the last time that some went back;
 * 0: never. UINT64_MAX: all has gone. PURE. */
uint64_t gate_trim_at(uint64_t first_us, uint64_t last_us, uint64_t trimmed);

/* --- gate_connection.c --- */

/* Reads the first bytes of a connection that the loop has just got. */
void gate_connection_begin(struct gate_connection *connection);
/* Passes on what can be passed on after the epoll events of a side. */
void gate_connection_event(struct gate_side *side, uint32_t events);
/* Ends the connection if it took too long. Returns when to look again; UINT64_MAX: it is dead, or
 * has no limit of time. */
uint64_t gate_connection_look(struct gate_connection *connection);
/* Closes both sides. The memory goes when the loop has handled its events. */
void gate_connection_destroy(struct gate_connection *connection);

#endif
