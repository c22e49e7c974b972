/* The sampled decisions of placement, the newest of them, for `baton explain` and for what is
 * learnt from them: the dispatcher puts them, and joins what became of the request; readers take
 * copies. When it is full, a new decision replaces the oldest. Both sides wait for copies only.
 *
 * Regret is the misses that were observed, less the ones of the best alternative as predicted:
 * the mean over the requests with a known outcome, of which one counts 1/e after
 * DECISION_REGRET_REQUESTS further ones. Near 0: no better choice was known. Well above 0:
 * predictions don't come true, or what was chosen wasn't the best. */
#ifndef BATON_ROUTER_OPS_DECISION_RING_H
#define BATON_ROUTER_OPS_DECISION_RING_H

#include "common/base/domain/slo.h"
#include "common/base/request_id.h"
#include "common/base/str.h"
#include "router/planner/admission.h"
#include "router/planner/decision_log.h"

#define DECISION_RING_MAX_SHOWN  8 /* decisions of one request */
#define DECISION_REGRET_REQUESTS 500
#define DECISION_WORKER_BYTES    64

/* How the request ended. */
struct decision_outcome {
    bool known;
    bool attained;                   /* its objectives; without objectives: it was answered */
    char reason[32];                 /* "ok", or a reason of docs/api.md */
    double ttft_us, tpot_us, e2e_us; /* 0: none */
};

struct decision_entry {
    uint64_t serial; /* the ring's; 0: none */
    char name[REQUEST_MAX_ID_BYTES + 1];
    uint32_t choice; /* index of the answer */
    uint32_t attempt;
    char model[128];
    char slo_class[SLO_MAX_NAME_BYTES + 1]; /* "": none */
    struct slo_objective objective;
    uint64_t prompt_tokens;
    struct decision is;
    /* Names for the alternatives: "" where one has no such worker, or the worker is gone. */
    struct {
        char prefill[DECISION_WORKER_BYTES], decode[DECISION_WORKER_BYTES];
    } workers[DECISION_MAX_ALTERNATIVES];
    double used;     /* the calibrated P(miss) of the chosen one; below 0: not predicted */
    bool calibrated; /* and it may be acted on */
    enum admission_verdict verdict;
    uint32_t retry_after_s; /* REJECTED */
    struct decision_outcome outcome;
};

struct decision_regret {
    uint64_t requests; /* with a known outcome */
    double mean;       /* misses of a request */
};

struct decision_ring;

/* `capacity` 0: keeps nothing. */
enum status decision_ring_create(size_t capacity, uint32_t sample_percent,
                                 struct decision_ring **ring) WARN_UNUSED;
void decision_ring_destroy(struct decision_ring *ring);

/* --- in turns of the dispatcher --- */
/* True: the decisions of this request are to be put. The same for all of them. */
bool decision_ring_samples(const struct decision_ring *ring, uint64_t request_id);
/* Puts a copy. Returns its serial; 0: nothing is kept. */
uint64_t decision_ring_put(struct decision_ring *ring, const struct decision_entry *entry);
/* The outcome of the request with this decision, if it is still there. */
void decision_ring_ended(struct decision_ring *ring, uint64_t serial,
                         const struct decision_outcome *outcome);

/* --- any thread --- */
struct decision_regret decision_ring_regret(struct decision_ring *ring);
/* Appends {"request": ID, "choice": 0, "sample_percent": 10, "kept": 1000, "decisions": [...]}: the
 * newest DECISION_RING_MAX_SHOWN of this request's, in the order of their times. `name`: its id, or
 * that of its OpenAI answer; NULL: the request, and the choice, of the newest decision. None: it
 * wasn't sampled, or isn't kept any more. False: no memory. */
bool decision_ring_json(struct decision_ring *ring, const char *name, uint32_t choice,
                        struct str *out);

#endif
