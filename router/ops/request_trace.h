/* The events of one request and their times, for `baton trace`, the status page, the access log and
 * OTLP spans. PURE. Never the text of the prompt or the answer.
 *
 * Times named ..._us are of the router's monotonic clock; 0: not yet, or not known. A worker
 * reports durations from the arrival of its command, as clocks of two machines are never compared.
 * They are shown as if the command had arrived when it was sent.
 *
 * Owner: the request, so the dispatcher in its turns. Other threads get copies (trace_ring.h). If
 * there are more than TRACE_MAX_ATTEMPTS, the first ones and the last one are kept. */
#ifndef BATON_ROUTER_OPS_REQUEST_TRACE_H
#define BATON_ROUTER_OPS_REQUEST_TRACE_H

#include "common/base/domain/api_key.h"
#include "common/base/domain/slo.h"
#include "common/base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define TRACE_MAX_ATTEMPTS 4
#define TRACE_MAX_CHUNKS   16
#define TRACE_NAME_BYTES   64

/* The fields of the message Timing. Times as above. */
struct request_timing {
    uint64_t arrival_us, dispatched_us, first_us, second_us, last_us;
    char prefill_worker[64], decode_worker[64];
    char lane[16];
    uint64_t kv_bytes, kv_bytes_before_complete;
};

/* Reported by the worker that computed the prompt. */
struct trace_prefill {
    bool known;
    uint32_t queued_us;                      /* until it had KV blocks */
    uint32_t cached_tokens;                  /* prompt tokens found in its prefix cache */
    uint32_t chunk_count;                    /* if chunk_end_us has no room for all, it keeps */
    uint32_t chunk_end_us[TRACE_MAX_CHUNKS]; /* the first ones and the last one */
};

/* Reported by the decode worker that pulled the KV blocks. */
struct trace_handoff {
    bool known;
    uint32_t queued_us; /* until it had blocks to pull into */
    uint32_t read_us;   /* until its first read began; 0 with done_us: there was nothing to read */
    uint32_t done_us;   /* until all was read, checked and confirmed */
    uint64_t bytes, early_bytes; /* early: before the prefill was complete */
    char lane[16];
};

struct trace_attempt {
    uint32_t number; /* 0: none */
    bool local;      /* the decode worker computes the prompt */
    bool regiven;    /* it got the KV handle of the attempt before */
    char prefill_worker[TRACE_NAME_BYTES], decode_worker[TRACE_NAME_BYTES]; /* "": none */
    uint64_t placed_us, opened_us, decode_sent_us;
    uint64_t first_us;        /* first new token */
    uint64_t decode_first_us; /* first new token from the decode worker */
    uint64_t pulled_us, ended_us;
    struct trace_prefill prefill;
    struct trace_handoff handoff;
    char why[48]; /* why it ended */
};

struct request_trace {
    uint64_t serial;      /* for trace_ring.h only */
    char name[129];       /* the client's request_id, or the one made for it */
    char traceparent[56]; /* the client's header, unchecked */
    char model[128], peer[TRACE_NAME_BYTES];
    char tenant[API_KEY_NAME_BYTES], key[API_KEY_NAME_BYTES]; /* ids of the API key; "": none */
    uint32_t choice; /* index of the answer, from 0; each answer has its own trace */
    uint32_t prompt_tokens, max_tokens, tokens;
    uint32_t prefills; /* how often the prompt was computed */
    uint64_t arrival_us, dispatched_us, first_us, second_us, last_us, ended_us;
    uint64_t longest_gap_us; /* between two tokens */
    uint32_t longest_gap_token;
    char slo_class[SLO_MAX_NAME_BYTES + 1]; /* "": none */
    struct slo_verdict slo;                 /* once it has ended */
    struct slo_prediction predicted;
    char reason[32];        /* "ok" or a reason of docs/api.md; "": it hasn't ended */
    char finish[16];        /* the answer's finish reason */
    uint32_t attempt_count; /* including those that aren't kept */
    struct trace_attempt attempts[TRACE_MAX_ATTEMPTS];
};

struct trace_arrival {
    /* Cut if too long. NULL: "". */
    const char *name, *model, *tenant, *key, *peer, *traceparent;
    uint32_t choice, prompt_tokens, max_tokens;
    uint64_t arrival_us;
};
void request_trace_begin(struct request_trace *trace, const struct trace_arrival *arrival);

/* A new attempt has its workers. */
void request_trace_placed(struct request_trace *trace, uint32_t attempt, bool regiven,
                          uint64_t now_us);
/* A command of the last placed attempt was sent. */
void request_trace_prefill_sent(struct request_trace *trace, const char *worker);
void request_trace_decode_sent(struct request_trace *trace, const char *worker, bool local,
                               uint64_t now_us);
/* A worker reported on an attempt. Ignored if the attempt isn't the last one. */
void request_trace_opened(struct request_trace *trace, uint32_t attempt, uint64_t now_us);
void request_trace_prefilled(struct request_trace *trace, uint32_t attempt,
                             const struct trace_prefill *prefill);
void request_trace_pulled(struct request_trace *trace, uint32_t attempt,
                          const struct trace_handoff *handoff, uint64_t now_us);
/* One more token of the answer. */
void request_trace_token(struct request_trace *trace, bool by_decode, uint64_t now_us);
/* The prompt of a request for no token is computed: sets first_us. */
void request_trace_computed(struct request_trace *trace, uint64_t now_us);
/* Sets the cause of the attempt's coming end. */
void request_trace_why(struct request_trace *trace, uint32_t attempt, const char *why);
/* The attempt ends, and the request waits for workers again. */
void request_trace_again(struct request_trace *trace, uint64_t now_us);
void request_trace_end(struct request_trace *trace, const char *reason, const char *finish,
                       uint32_t prefills, uint64_t now_us);

/* How many of `attempts` are set. */
uint32_t request_trace_shown(const struct request_trace *trace);
/* The last attempt; NULL: none yet. */
const struct trace_attempt *request_trace_last(const struct request_trace *trace);
/* Mean time per token after the first; 0: fewer than two tokens. */
double request_trace_tpot_us(const struct request_trace *trace);

/* Appends the trace as one JSON object, for GET /trace/ID and /traces. Its times are milliseconds
 * from the request's arrival. `now_us`: of the trace's clock; `unix_us`: the same moment since
 * 1970. */
void trace_json(const struct request_trace *trace, uint64_t now_us, uint64_t unix_us,
                struct str *out);

#endif
