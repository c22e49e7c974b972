/* The worker's end of the one Session stream from the router. Transfer thread only.
 *
 * At most one stream counts: a newer one ends the older, and the loss of the older is told before
 * anything of the newer.
 */
#ifndef BATON_WORKER_SESSION_H
#define BATON_WORKER_SESSION_H

#include "common/base/domain/worker_info.h"
#include "common/engine/sched/sequence.h"
#include "common/worker/step_loop.h"
#include "common/worker/stream.h"
#include "proto/worker.pb-c.h"

struct session_handlers {
    void (*command)(void *role, const Baton__Worker__V1__SessionDown *command);
    void (*lost)(void *role);
    /* The stream that just opened is of another router than the one before it: what that one had
     * asked for is nobody's. */
    void (*router_changed)(void *role);
};

/* Made by the role, before the server starts; `stream_service.role` of the Session method is the
 * session. */
struct session {
    const struct worker_info *info; /* for Hello; complete before the first stream opens */
    const struct session_handlers *handlers;
    void *role;
    struct stream *stream; /* NULL: no router */
    uint64_t streams;      /* that there were, this one included */
    uint64_t router;       /* incarnation of the last one that said hello; 0: none did */
    bool draining;         /* said in every Load */
    bool sent_draining;    /* in a Load of this stream */
    uint64_t last_load_us;
    void (*up_changed)(void *context, bool up); /* for the registrar */
    void *up_context;
};

extern const struct stream_kind session_stream_kind;

bool session_up(const struct session *session);
/* That this worker drains was sent to the router (that it has it, session_flushed says), or there
 * is none. */
bool session_sent_draining(const struct session *session);
bool session_flushed(
    const struct session *session); /* the router has, or will get, all that was sent */
/* All of these do nothing while there is no router: what it missed, it learns from the loss of the
 * stream. */
void session_send_tokens(struct session *session, const struct step_token *tokens, uint32_t count);
/* STEP_PROMPT_LOGPROBS */
void session_send_prompt_logprobs(struct session *session, const struct step_event *event);
void session_send_refused(struct session *session, struct sequence_key key, const char *reason,
                          const char *message, bool retry);
void session_send_lost(struct session *session, struct sequence_key key, const char *reason,
                       const char *message);
/* To be sent before the tokens that it is about. */
void session_send_prefilled(struct session *session, Baton__Worker__V1__Prefilled *prefilled);
void session_send_cache(struct session *session, const struct prefix_event *events, uint32_t count);
void session_send(struct session *session, Baton__Worker__V1__SessionUp *up);
/* A load report, at most every 100 ms. */
void session_send_load(struct session *session, const struct step_load *load, uint64_t now_us);

#endif
