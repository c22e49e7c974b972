/* The run of a benchmark: asks a server for the requests of a plan, each when it is due, and notes
 * the answers. Its client takes many answers at once on the caller's thread. The server speaks
 * OpenAI's HTTP interface (http_streams.h), or is a Baton router, over gRPC. Times are taken when
 * bytes arrive, before they are read. Owner: one thread, which has blocked the stop signals. */
#ifndef BATON_CLI_LOAD_RUN_H
#define BATON_CLI_LOAD_RUN_H

#include "common/base/stop_signals.h"
#include "common/cli/load_answer.h"
#include "common/cli/load_prompt.h"
#include "common/cli/router_call.h"

/* --- the client: load_client.c --- */

#define LOAD_MAX_HEADERS 17         /* the flags', SLO class, request id */
#define LOAD_PROBE       UINT32_MAX /* id of a request beside the plan */

enum load_backend { LOAD_OPENAI, LOAD_OPENAI_CHAT, LOAD_VLLM, LOAD_BATON };

struct load_target {
    enum load_backend backend; /* LOAD_VLLM is LOAD_OPENAI */
    struct http_remote remote;
    char base[512];              /* the server's path, in front of all others */
    char endpoint[256];          /* path of the requests */
    struct generate_target grpc; /* LOAD_BATON */
    const char *model;           /* "": the server's only one (LOAD_BATON) */
    const char *id_prefix;       /* begins the request ids */
    struct http_header headers[LOAD_MAX_HEADERS - 1];
    size_t header_count;
    const char *slo_class; /* a Baton router's; "": its default */
    const char *extra;     /* more members of each body, each behind ", "; "" */
    bool ignore_eos;
    /* NAN and 0: not sent. LOAD_BATON only; OpenAI's are in `extra`. */
    double temperature, top_p;
    uint32_t top_k;
    uint64_t timeout_us;
};

struct load_client;

/* `ended`: the request's answer is complete, or has its reason. It may send. `target` outlives the
 * client. */
enum status load_client_open(const struct load_target *target,
                             void (*ended)(void *context, uint32_t id), void *context,
                             struct load_client **client, struct error *err) WARN_UNUSED;
/* Ends the answers that still come, without their `ended`. NULL is fine. */
void load_client_close(struct load_client *client);

/* Writes the request `id` into `body`, as it is sent. `turns`: texts of the user and of the model
 * in turns, beginning and ending with the user. A completion's prompt is all of them together. */
void load_client_prepare(const struct load_client *client, uint32_t id, const struct text *turns,
                         size_t turn_count, uint32_t output_tokens, struct str *body);
/* Sends it. Sets sent_ns. `body` is free for the next one afterwards. A request that can't be sent
 * ends within load_client_run. */
void load_client_send(struct load_client *client, uint32_t id, const struct str *body,
                      struct load_answer *answer);
/* Posts to the path `path` of an HTTP server. `ended` comes with `id` once `answer` has its status
 * (0: none) and body. */
struct load_reply {
    int status;
    struct str body;
};
void load_client_fetch(struct load_client *client, uint32_t id, const char *path,
                       const struct str *body, struct load_reply *reply);
/* Returns a descriptor for poll(): readable means that load_client_run has something to do. */
int load_client_fd(const struct load_client *client);
/* Does what can be done without waiting. */
void load_client_run(struct load_client *client);

/* --- inside: the gRPC half, load_grpc.c --- */

struct load_grpc;

enum status load_grpc_open(const struct load_target *target,
                           void (*ended)(void *context, uint32_t id), void *context,
                           struct load_grpc **grpc, struct error *err) WARN_UNUSED;
void load_grpc_close(struct load_grpc *grpc);
void load_grpc_prepare(const struct load_target *target, const char *request_id, struct text prompt,
                       uint32_t output_tokens, struct str *body);
void load_grpc_send(struct load_grpc *grpc, uint32_t id, const struct str *body,
                    struct load_answer *answer);
int load_grpc_fd(const struct load_grpc *grpc);
void load_grpc_run(struct load_grpc *grpc);

/* --- the run: load_run.c --- */

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
