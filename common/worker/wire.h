/* Translates between the messages of proto/worker.proto and the structs that the state machines
 * use. Incoming messages were unpacked with proto_unpack. Arrays that must outlive the message are
 * copied here. */
#ifndef BATON_WORKER_WIRE_H
#define BATON_WORKER_WIRE_H

#include "common/base/domain/logprobs.h"
#include "common/base/domain/worker_info.h"
#include "common/engine/sched/scheduler.h"
#include "common/kv/handoff/handoff.h"
#include "proto/worker.pb-c.h"

/* --- prompts: the fields of a Prefill or Decode to the worker `info` --- */

struct wire_prompt {
    const uint32_t *prompt, *emitted;
    size_t prompt_count, emitted_count;
    const Baton__Worker__V1__Sampling *sampling; /* NULL is answered with an error */
    const void *cache_salt;
    size_t cache_salt_bytes;
    Baton__Worker__V1__Priority priority;
    uint64_t tenant, deadline_left_us;
};
/* Checks the numbers: ids below the worker's vocab, limits as in sampling_validate, a deadline
 * within WORKER_MAX_DEADLINE_US. On success `spec` owns what sequence_spec_free frees. */
enum status wire_sequence_spec(const struct wire_prompt *in, const struct worker_info *info,
                               struct sequence_spec *spec, struct error *err) WARN_UNUSED;

/* Names the blocks of a prompt that a worker of these numerics has computed: by both ids, if they
 * aren't this worker's. So a prompt that is computed here never finds them (mixed-numerics). */
void wire_mark_received(const struct wire_prompt *in, const struct worker_info *info,
                        uint64_t numerics_id, struct sequence_spec *spec);

/* Returns a hash of all tokens, the same at every worker. It guards against mix-ups only: a client
 * that chooses tokens can make two prompts collide. */
uint64_t wire_prompt_hash(const struct sequence_spec *spec);
/* Returns true if the handle is of this very prompt. Blocks that are read through it are cached
 * under the prompt's tokens. */
bool wire_handle_fits(const struct handle *handle, const struct sequence_spec *spec);

/* --- handles --- */

/* `handle->blocks` points into the message. */
struct handle wire_handle(const Baton__Worker__V1__Handle *message);
void wire_handle_pack(const struct handle *handle, Baton__Worker__V1__Handle *message);
/* NULL gives all zeros, which no handle is. */
struct handle_ref wire_ref(const Baton__Worker__V1__HandleRef *message);
void wire_ref_pack(struct handle_ref ref, Baton__Worker__V1__HandleRef *message);

/* --- logprobs --- */

/* NULL: none were given. Returns false for values that no worker sends. The caller still checks
 * that the ids are below the vocabulary. */
bool wire_logprobs(const Baton__Worker__V1__Logprobs *message, struct token_logprobs *out);
/* The message points into `logprobs`. Returns it, or NULL if none are given. */
Baton__Worker__V1__Logprobs *wire_logprobs_pack(const struct token_logprobs *logprobs,
                                                Baton__Worker__V1__Logprobs *message);

/* --- Peer streams: the questions of a decode worker (down), the answers of a prefill worker (up)
 *
 * These mirror common/kv/handoff/handoff.h; the state machines check the ids and numbers. Hello and
 * Welcome open the stream. They are no messages of the handoff, and are not translated here. --- */

/* Returns the number of questions in the message: an Extend asks one for each handle, a Hello or an
 * unknown message asks none. */
size_t wire_peer_down_count(const Baton__Worker__V1__PeerDown *message);
/* Returns the question at index < count. */
struct peer_down wire_peer_down(const Baton__Worker__V1__PeerDown *message, size_t index);

/* The sums and checksums of `up` point into the message. A Complete with logprobs that no worker
 * sends gets the first token UINT32_MAX. Returns false, and leaves `up`, if it is no message of the
 * handoff. */
bool wire_peer_up(const Baton__Worker__V1__PeerUp *message, struct peer_up *up);

/* A packed message with room for its parts. It points to them, so it must stay where it is. */
struct wire_peer_down_room {
    Baton__Worker__V1__PeerDown message;
    Baton__Worker__V1__HandleRef ref;
    Baton__Worker__V1__Extend extend;
    Baton__Worker__V1__Subscribe *handles[1]; /* our Extends name one handle each */
    union {
        Baton__Worker__V1__Subscribe subscribe;
        Baton__Worker__V1__Confirm confirm;
        Baton__Worker__V1__PeerRelease release;
    };
};
void wire_peer_down_pack(const struct peer_down *down, struct wire_peer_down_room *room);

struct wire_peer_up_room {
    Baton__Worker__V1__PeerUp message;
    Baton__Worker__V1__Logprobs logprobs; /* Complete */
    union {
        Baton__Worker__V1__Ready ready;
        Baton__Worker__V1__Complete complete;
        Baton__Worker__V1__Held held;
        Baton__Worker__V1__Gone gone;
        Baton__Worker__V1__Extended extended;
    };
};
/* The message, for a peer that speaks `version`, points to the sums or checksums of `up`, which
 * stay the caller's. */
void wire_peer_up_pack(const struct peer_up *up, uint32_t version, struct wire_peer_up_room *room);

#endif
