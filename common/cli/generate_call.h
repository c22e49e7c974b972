/* One Generate call as a sequence of events for the command's own thread: the rpc threads post to a
 * ring, nothing is shared but that. Owner: the thread that opened it. */
#ifndef BATON_CLI_GENERATE_CALL_H
#define BATON_CLI_GENERATE_CALL_H

#include "common/net/rpc/rpc.h"
#include "proto/baton.pb-c.h"

#define GENERATE_MAX_KEY_BYTES 512

struct generate_call;

struct generate_event {
    bool ended;
    enum rpc_code code; /* of the end */
    char reason[64], message[1024];
    bool overflow; /* the end is ours: more came than was taken in time */
    size_t size;   /* of a message that came */
    unsigned char data[];
};

/* Where to, and who asks. */
struct generate_target {
    const char *server;  /* host:port */
    struct rpc_tls tls;  /* zeroed: in the clear; outlives the call */
    const char *api_key; /* "" or NULL: none */
};

/* Blocks no signals; call before others start threads. */
enum status generate_call_open(const struct generate_target *target,
                               const Baton__V1__GenerateRequest *request, uint64_t timeout_us,
                               struct generate_call **call, struct error *err) WARN_UNUSED;
/* For poll(): readable when generate_call_next has an event. */
int generate_call_fd(const struct generate_call *call);
/* The next event, to be freed; NULL when there is none yet. Nothing comes after the one that
 * `ended`. */
struct generate_event *generate_call_next(struct generate_call *call);
/* Asks for the end; the event of it still comes. */
void generate_call_cancel(struct generate_call *call);
void generate_call_close(struct generate_call *call);

/* The sentence for an end that is not an answer. Of a status that has no reason, which the library
 * made and not the router, it says what it means here; `answered`: a part of the answer had
 * come. */
void generate_event_explain(const struct generate_event *event, const char *server,
                            uint64_t timeout_us, bool answered, struct error *why);

#endif
