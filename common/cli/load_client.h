/* The client of `baton bench serve`: many answers at once on the caller's thread, from a server
 * that speaks OpenAI's HTTP interface (http_streams.h), or from a Baton router over gRPC. Times are
 * taken when bytes arrive, before they are read. Owner: one thread. */
#ifndef BATON_CLI_LOAD_CLIENT_H
#define BATON_CLI_LOAD_CLIENT_H

#include "common/cli/load_answer.h"
#include "common/cli/router_call.h"

#define LOAD_MAX_HEADERS 16

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
    const char *extra; /* more members of each body, each behind ", "; "" */
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

#endif
