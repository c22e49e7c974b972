/* The worker's end of the one Session stream from the router. Transfer thread only.
 *
 * At most one stream counts: a newer one ends the older. handlers->lost for the older stream comes
 * before anything of the newer.
 */
#ifndef BATON_WORKER_SESSION_H
#define BATON_WORKER_SESSION_H

#include "common/base/domain/device_health.h"
#include "common/base/domain/worker_info.h"
#include "common/engine/sched/sequence.h"
#include "common/worker/step_loop.h"
#include "common/worker/stream.h"
#include "proto/worker.pb-c.h"

struct session_handlers {
    void (*command)(void *role, const Baton__Worker__V1__SessionDown *command);
    void (*lost)(void *role);
    /* The stream that just opened is of another router than the last one. Requests of the old
     * router have no owner any more. */
    void (*router_changed)(void *role);
};

/* Made before the server starts. It is the `role` of the Session method's
 * stream_service. */
struct session {
    const struct worker_info *info; /* for Hello; complete before the first stream opens */
    const struct session_handlers *handlers;
    void *role;
    struct stream *stream;   /* NULL: no router */
    uint64_t streams;        /* streams so far, with this one */
    uint64_t router;         /* incarnation of the router that last said hello; 0: none did */
    uint32_t version;        /* this stream's, of the protocol */
    uint64_t cache_restarts; /* times that a router asked for the cache's events from the start */
    /* Goes out with the tokens of each step; NULL: doesn't. */
    const struct step_load *load;
    bool draining;      /* goes into every Load */
    bool sent_draining; /* a Load of this stream had it */
    bool dismissed;     /* the router of this stream has nothing for this worker any more */
    uint64_t last_load_us;
    void (*up_changed)(void *context, bool up); /* for the registrar */
    void *up_context;
};

extern const struct stream_kind session_stream_kind;

bool session_up(const struct session *session);
/* Returns true if a Load that says "draining" was sent, or there is no router. */
bool session_sent_draining(const struct session *session);
/* Returns true if no request may come any more: the router has dismissed this worker, is too old
 * for that, or isn't there. */
bool session_dismissed(const struct session *session);
/* Returns true if nothing waits to leave, or there is no router. */
bool session_flushed(const struct session *session);

/* All of these do nothing while there is no router. It learns what it missed from the loss of the
 * stream. */
void session_send(struct session *session, Baton__Worker__V1__SessionUp *up);
void session_send_tokens(struct session *session, const struct step_token *tokens, uint32_t count);
/* Sends the tokens and the reports of a STEP_TOKENS or STEP_DONE, and the load. */
void session_send_step(struct session *session, const struct step_event *event);
/* Sends a STEP_PROMPT_LOGPROBS. */
void session_send_prompt_logprobs(struct session *session, const struct step_event *event);
void session_send_refused(struct session *session, struct sequence_key key, const char *reason,
                          const char *message, bool retry);
void session_send_lost(struct session *session, struct sequence_key key, const char *reason,
                       const char *message);
/* Call it before session_send_tokens with the request's first token. */
void session_send_prefilled(struct session *session, Baton__Worker__V1__Prefilled *prefilled);
/* Passes on the report of a prompt that another worker computed, and reports itself. Does nothing
 * if the router would count it twice. */
void session_relay_prefilled(struct session *session, Baton__Worker__V1__Prefilled *prefilled);
void session_send_cache(struct session *session, const struct prefix_event *events, uint32_t count);
/* Sends a load report, at most every 100 ms. `device`: NULL: not known. */
void session_send_load(struct session *session, const struct step_load *load,
                       const struct device_health *device, uint64_t now_us);

#endif
