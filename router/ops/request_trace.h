/* What became of one request, and when: for `baton trace`, the status page, the access log and OTLP
 * spans. PURE. Never the prompt's text, nor the answer's.
 *
 * Times named ..._us are of the router's monotonic clock, 0: not yet, or not known. What a worker
 * did is told by itself as durations from the moment when its command came there (clocks of two
 * machines are never compared); they are shown from when the command was sent.
 *
 * Owner: the request, so the dispatch thread. Others get copies (trace_ring.h). A request that was
 * tried more often than there is room for keeps the first attempts and the last one. */
#ifndef BATON_ROUTER_OPS_REQUEST_TRACE_H
#define BATON_ROUTER_OPS_REQUEST_TRACE_H

#include "common/base/domain/api_key.h"

#include <stdbool.h>
#include <stdint.h>

#define TRACE_MAX_ATTEMPTS 4
#define TRACE_MAX_CHUNKS   16
#define TRACE_NAME_BYTES   64

/* The fields of the message Timing. Times are of the monotonic clock; 0: not yet. */
struct request_timing {
    uint64_t arrival_us, dispatched_us, first_us, second_us, last_us;
    char prefill_worker[64], decode_worker[64];
    char lane[16];
    uint64_t kv_bytes, kv_bytes_before_complete;
};

/* By the worker that computed the prompt. */
struct trace_prefill {
    bool known;
    uint32_t queued_us;     /* until it had KV blocks */
    uint32_t cached_tokens; /* that were there already */
    uint32_t
        /* of the prompt; of more than there is room for, the first ones and the last */
        chunk_count;
    uint32_t chunk_end_us[TRACE_MAX_CHUNKS];
};

/* By the decode worker that pulled the KV blocks. */
struct trace_handoff {
    bool known;
    uint32_t queued_us; /* until it had blocks to pull into */
    uint32_t read_us;   /* until its first read began; 0 with done_us: there was nothing to read */
    uint32_t done_us;   /* until all was read, checked and confirmed */
    uint64_t bytes, early_bytes;
    char lane[16];
};

struct trace_attempt {
    uint32_t number; /* 0: none */
    bool local;      /* the decode worker computes the prompt */
    bool regiven;    /* of the KV handle that the attempt before had */
    char prefill_worker[TRACE_NAME_BYTES], decode_worker[TRACE_NAME_BYTES]; /* "": none */
    uint64_t placed_us, opened_us, decode_sent_us;
    uint64_t first_us;        /* its first new token */
    uint64_t decode_first_us; /* its first new token that the decode worker drew */
    uint64_t pulled_us, ended_us;
    struct trace_prefill prefill;
    struct trace_handoff handoff;
    char why[48]; /* why it ended */
};

struct request_trace {
    uint64_t serial;      /* its place in the ring, trace_ring.h's own */
    char name[129];       /* the client's request_id, or the one minted for it */
    char traceparent[56]; /* the client's, as it came: of a trace that this request is a part of */
    char model[128], peer[TRACE_NAME_BYTES];
    char tenant[API_KEY_NAME_BYTES],
        key[API_KEY_NAME_BYTES]; /* of its API key, which is named by its id; "": none */
    uint32_t
        choice; /* of the answers that were asked for, from 0 on: each has a trace of its own */
    uint32_t prompt_tokens, max_tokens, tokens;
    uint32_t prefills; /* times that its prompt was computed */
    uint64_t arrival_us, dispatched_us, first_us, second_us, last_us, ended_us;
    uint64_t longest_gap_us; /* between two tokens */
    uint32_t longest_gap_token;
    char reason[32],
        finish[16];         /* once it has ended: "ok" or docs/api.md's; how the answer ended */
    uint32_t attempt_count; /* also those that there is no room for */
    struct trace_attempt attempts[TRACE_MAX_ATTEMPTS];
};

struct trace_arrival {
    const char *name, *model, *tenant, *key, *peer,
        *traceparent; /* cut where they are too long; NULL: "" */
    uint32_t choice, prompt_tokens, max_tokens;
    uint64_t arrival_us;
};
void request_trace_begin(struct request_trace *trace, const struct trace_arrival *arrival);

/* It has its workers. */
void request_trace_placed(struct request_trace *trace, uint32_t attempt, bool regiven,
                          uint64_t now_us);
/* The commands of the attempt that was placed last. */
void request_trace_prefill_sent(struct request_trace *trace, const char *worker);
void request_trace_decode_sent(struct request_trace *trace, const char *worker, bool local,
                               uint64_t now_us);
/* What workers told, of whichever attempt: that of one that isn't the last is dropped. */
void request_trace_opened(struct request_trace *trace, uint32_t attempt, uint64_t now_us);
void request_trace_prefilled(struct request_trace *trace, uint32_t attempt,
                             const struct trace_prefill *prefill);
void request_trace_pulled(struct request_trace *trace, uint32_t attempt,
                          const struct trace_handoff *handoff, uint64_t now_us);
/* One more token of the answer. */
void request_trace_token(struct request_trace *trace, bool by_decode, uint64_t now_us);
/* Of a request that wants no token: its prompt is computed, which is told as its first moment. */
void request_trace_computed(struct request_trace *trace, uint64_t now_us);
/* Why the attempt is about to end, if it does. */
void request_trace_why(struct request_trace *trace, uint32_t attempt, const char *why);
/* It looks for workers again. */
void request_trace_again(struct request_trace *trace, uint64_t now_us);
void request_trace_end(struct request_trace *trace, const char *reason, const char *finish,
                       uint32_t prefills, uint64_t now_us);

/* The attempt that is shown at `index`, of request_trace_shown. */
uint32_t request_trace_shown(const struct request_trace *trace);
/* The last one; NULL: none yet. */
const struct trace_attempt *request_trace_last(const struct request_trace *trace);
/* Mean time of a token after the first; 0: there is no second one. */
double request_trace_tpot_us(const struct request_trace *trace);

#endif
