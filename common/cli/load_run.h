/* The run of a benchmark: asks a server for the requests of a plan, each when it is due, and notes
 * the answers. Owner: one thread, which has blocked the stop signals. */
#ifndef BATON_CLI_LOAD_RUN_H
#define BATON_CLI_LOAD_RUN_H

#include "common/base/stop_signals.h"
#include "common/cli/load_client.h"
#include "common/cli/load_prompt.h"

struct load_run {
    const struct load_target *target;
    struct load_words *words;
    struct stop_signals *signals;
    const struct load_plan *plan;
    uint32_t max_concurrency; /* 0: no limit */
    bool quiet;               /* no progress lines */
    bool keeps_text;

    /* The result, from load_run_all on. */
    struct load_answer *answers; /* [plan->request_count] */
    uint64_t start_ns, end_ns;
    double client_cpu; /* cores */
    bool stopped;      /* by a signal: unsent requests have sent_ns 0 and no reason */

    /* Its own. */
    struct load_client *client;
    struct load_order order;
    int timer;
    struct str body; /* request `prepared`, as it is sent */
    uint32_t prepared;
    struct load_answer probe;
    uint32_t probes; /* running */
    uint32_t failed;
    uint64_t chunks_before; /* in ended answers */
};

/* The caller has set the fields up to keeps_text, except `plan`. */
enum status load_run_open(struct load_run *run, struct error *err) WARN_UNUSED;
/* Frees the answers, too. A zeroed one is fine. */
void load_run_close(struct load_run *run);

/* Asks for an answer of one token, again and again for up to ready_s seconds, and measures the
 * words: tokens a word, unless the tokenizer is known (`/tokenize` of the server, otherwise by a
 * second request), and the prompt's other tokens. *told: the server told the numbers of its tokens.
 * STATUS_UNAVAILABLE: no answer; the sentence has the reason. */
enum status load_run_measure_words(struct load_run *run, double ready_s, bool *told,
                                   struct error *err) WARN_UNUSED;
/* Sends `count` copies of the plan's first request, within the limit, and drops the answers. */
void load_run_warm_up(struct load_run *run, uint32_t count);
/* Sends all of the plan. */
void load_run_all(struct load_run *run);

#endif
