/* Predictions of a request's TTFT and TPOT on workers. PURE: numbers in, numbers out. Times are in
 * microseconds, and not rounded.
 *
 * A worker is a candidate: its books, its pool, and what its reports tell (struct worker_learnt). A
 * worker without step reports is predicted by a nominal cost, the same for all.
 *
 *   TTFT = age + wait + the uncached rows + one step's own cost for each chunk.
 * The first token comes from the worker that computes the prompt. The handoff is the gap between
 * tokens 1 and 2: only bytes that couldn't move beside the computation count. Handoffs to one
 * reader share its link: those that are not done have bytes to move before it, less what moves
 * until its prompt is computed.
 *
 *   TPOT = (gap + steps for the rest of the answer + prompts that steps carry beside it)
 *          / (answer - 1)
 * The step is that of the rows which draw now and are on their way: others come for the ones that
 * leave. Prompts take as much of its time as lately (worker_learnt_prompts). An answer's TPOT is a
 * budget: one that is ahead has banked slack (predict_tolerance_us).
 *
 * A prediction errs. predict_error learns measured / predicted of a class, and says how likely a
 * time beyond an objective is. */
#ifndef BATON_ROUTER_PLANNER_PREDICT_H
#define BATON_ROUTER_PLANNER_PREDICT_H

#include "common/base/domain/slo.h"
#include "router/planner/candidates.h"

/* A request, as predictions see it. */
struct predict_request {
    double age_us; /* since its arrival; when it has its first token: not used */
    enum priority priority;
    uint64_t prompt_tokens; /* to compute: prompt + emitted, with the ones that a cache may hold */
    /* Tokens of the answer that are still to come, with the one that the prompt's end draws: at
     * least 1. */
    double answer_tokens, answer_p90_tokens;
    struct slo_objective objective; /* 0: none */
};

enum predict_way {
    PREDICT_PAIR,    /* prefill and decode */
    PREDICT_LOCAL,   /* `decode` computes the prompt too */
    PREDICT_MIRROR,  /* `prefill` draws the whole answer too: the mirror of PREDICT_LOCAL */
    PREDICT_PREFILL, /* `prefill` alone: its half of a pair, or an answer of one token */
    PREDICT_READER,  /* `decode` alone: its half of a pair, or the reader of a handle */
};

struct predict_choice {
    enum predict_way way;
    const struct candidate *prefill, *decode; /* as `way` needs them; the other may be NULL */
    uint64_t cached_tokens;  /* on the worker that computes its prompt (prefix_index) */
    uint64_t evicted_tokens; /* cached ones of others that make room there */
    double ready_us;         /* PREDICT_READER: time until the prompt is computed */
};

struct prediction {
    double ttft_us; /* from arrival. 0: PREDICT_READER */
    double tpot_us; /* 0: the answer has one token, or PREDICT_PREFILL */
    double wait_us; /* before its prompt is computed */
    /* Time until the worker that draws has KV for it, and as much longer as one more of its size
     * would wait. */
    double room_us, room_each_us;
    double prefill_us; /* its own rows, with the steps' own costs */
    double gap_us;     /* between tokens 1 and 2, with the first step */
    /* Part of gap_us: the time that its handoff waits for others through the reader's link. One
     * more handoff of its size would take link_each_us of the link. */
    double link_us, link_each_us;
    /* Steps of the decode worker: without the request, with it. `beside_us`: the
     * whole time that its prompt adds to the steps of the others (PREDICT_LOCAL, _MIRROR). */
    double step_before_us, step_us, beside_us;
    /* Taken from its workers: the steps of its prompt, which it pays for wholly also where answers
     * share them, and its share of the answers' steps. A sixteenth more for a prompt that answers
     * wait for. */
    double device_us;
    bool known; /* the costs of all its workers are learnt */
};

/* Returns the worker of the choice that computes the prompt, or draws the answer. NULL: none. */
const struct candidate *predict_computes(const struct predict_choice *choice);
const struct candidate *predict_draws(const struct predict_choice *choice);

/* Predicts with this quantile of the steps' times. Predictions never fall where a worker gets more
 * work. */
void predict(const struct predict_request *request, const struct predict_choice *choice,
             enum cost_quantile quantile, struct prediction *out);

/* A request's time from now on, on the workers of a choice. */
struct predict_times {
    double prompt_us; /* until its first token */
    double room_us;   /* then it waits for room in the decode worker's pool */
    double token_us;  /* then it draws: each token */
    double alone_us;  /* the whole, if these workers had nothing else to do */
};
static inline double predict_times_answer_us(const struct predict_times *times, double tokens)
{
    return tokens > 1 ? times->room_us + (tokens - 1) * times->token_us : 0;
}
/* Returns the times of a request that still draws `tokens` tokens, the first with the prompt.
 * `predicted`: of this choice. */
struct predict_times predict_times(const struct predict_request *request,
                                   const struct predict_choice *choice,
                                   const struct prediction *predicted, double tokens);
/* Returns the steps after which the worker's pool has room for one more answer, behind those that
 * are coming. An answer takes the pool's tokens for its steps: the work before it is the sum of
 * these areas. The pool is never empty meanwhile: those that are drawn when there is room are half
 * done in the mean. */
double predict_room_steps(const struct candidate *decode);

/* Returns what stands before a prompt of this priority there: equal and higher priorities. */
double predict_wait_us(const struct candidate *worker, enum priority priority,
                       enum cost_quantile quantile);
/* Returns the time of `rows` uncached prompt rows after `cached` ones, and of their steps' own
 * costs, beside the rows that the worker draws. */
double predict_prefill_us(const struct candidate *worker, uint64_t cached, uint64_t rows,
                          enum cost_quantile quantile);
/* Returns the step time there with the rows that are on their way, and `rows` more of `context`
 * tokens each. */
double predict_step_us(const struct candidate *worker, double rows, double context,
                       enum cost_quantile quantile);
/* Returns the step time there of one row of `context` tokens, if it had no other. */
double predict_alone_step_us(const struct candidate *worker, double context,
                             enum cost_quantile quantile);
/* Returns how many tokens of sequences fit into the worker's KV. A token that sequences share
 * counts for each of them. 0: not known. */
static inline double predict_pool_tokens(const struct candidate *worker)
{
    return (double)worker->is.pool_tokens * (1 + worker->kv_shared);
}
/* Returns the time until so many tokens of KV are free there, as answers end: behind the requests
 * that are on their way to it. */
double predict_room_us(const struct candidate *worker, double tokens, enum cost_quantile quantile);
/* Returns the rate of the pair's lane in bytes a second; 0: not known. */
double predict_lane_rate(const struct candidate *prefill, const struct candidate *decode);

/* Returns the step time that the rest of an answer tolerates: (tpot * (expected - 1) - drawing_us)
 * / (expected - drawn). Not above 0: it has missed already. `drawn` tokens have come, the first
 * of them `drawing_us` ago. tpot_us 0: INFINITY. */
double predict_tolerance_us(uint64_t tpot_us, double expected_tokens, uint64_t drawn,
                            double drawing_us);

/* The answer has begun: its first token came `ttft_us` after its arrival and `drawing_us` ago, and
 * `drawn` have come. It has attained its TTFT, or is late. Its TPOT is what its budget leaves. */
void predict_begun(struct predict_request *request, uint64_t ttft_us, uint64_t drawn,
                   double drawing_us);

/* Returns the probability that the worker's KV runs out before the answers there have ended, with
 * one more of these lengths: someone is preempted. */
double predict_preemption(const struct candidate *decode, const struct predict_request *request);

/* --------------------------------------------------------------------------------- errors */

#define PREDICT_ERROR_BINS 48 /* ratios from 1/8 to 8, an eighth of an octave each */

/* measured / predicted of one class; older ones weigh less. A prior counts as a few of them.
 * Zeroed: the prior alone counts. */
struct predict_error {
    uint16_t bins[PREDICT_ERROR_BINS];
    uint32_t total;
    uint64_t count; /* learnt from */
    /* Brought up to date with each one: P(ratio > the lower end of each bin), and the median. */
    float above[PREDICT_ERROR_BINS + 1], median;
};

/* Ignores times that are not above 0. */
void predict_error_learn(struct predict_error *error, double predicted_us, double measured_us);
/* Returns the median of measured / predicted: the class's bias. */
double predict_error_median(const struct predict_error *error);
/* Returns the probability that the time is beyond `objective_us`, as the errors tell: an honest
 * one, for calibration and admission. objective_us 0: 0. */
double predict_miss(const struct predict_error *error, double predicted_us, double objective_us);
/* The same, for decisions: beyond the objective the spread counts as the narrowest there is. A
 * wide spread must not look like hope. */
double predict_miss_hopeless(const struct predict_error *error, double predicted_us,
                             double objective_us);

#endif
