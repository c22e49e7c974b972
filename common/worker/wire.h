/* Between the messages of proto/worker.proto and the structs that the state machines use. What
 * comes in was unpacked with proto_unpack; here its numbers are checked and the arrays are copied
 * where they must outlive the message. */
#ifndef BATON_WORKER_WIRE_H
#define BATON_WORKER_WIRE_H

#include "common/base/domain/worker_info.h"
#include "common/engine/sched/scheduler.h"
#include "common/kv/handoff/handoff.h"
#include "proto/worker.pb-c.h"

/* prompt + emitted, the sampling, the tenant and the priority of a Prefill or Decode to the worker
 * `info`, checked: ids below its vocab, limits as in sampling_validate. On success `spec` owns what
 * sequence_spec_free frees. */
struct wire_prompt {
    const uint32_t *prompt, *emitted;
    size_t prompt_count, emitted_count;
    const Baton__Worker__V1__Sampling *sampling; /* may be NULL: an error */
    const void *cache_salt;
    size_t cache_salt_bytes;
    Baton__Worker__V1__Priority priority;
};
enum status wire_sequence_spec(const struct wire_prompt *in, const struct worker_info *info,
                               struct sequence_spec *spec, struct error *err) WARN_UNUSED;

/* Of all its tokens, the same at every worker. Against mix-ups: who can choose tokens can make two
 * prompts collide. */
uint64_t wire_prompt_hash(const struct sequence_spec *spec);
/* Whether the handle is of this very prompt: what is read through it is cached under these
 * tokens. */
bool wire_handle_fits(const struct handle *handle, const struct sequence_spec *spec);

/* `handle->blocks` points into the message. */
struct handle wire_handle(const Baton__Worker__V1__Handle *message);
void wire_handle_pack(const struct handle *handle, Baton__Worker__V1__Handle *message);
struct handle_ref
wire_ref(const Baton__Worker__V1__HandleRef *message); /* NULL: all zero, which no handle is */
void wire_ref_pack(struct handle_ref ref, Baton__Worker__V1__HandleRef *message);

#endif
