/* A client of completions over HTTP/1.1 on one thread. Sends requests at a rate (Poisson, open
 * loop: a late one counts from the time when it was due), or as fast as the connections allow
 * (closed loop). Connections are kept. It trusts the server to speak HTTP, and reads both ways of
 * framing. */
#ifndef BATON_TESTS_BENCH_CLIENT_H
#define BATON_TESTS_BENCH_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct client_run {
    char address[64], model[128];
    const char *prompt; /* JSON: a text, or token ids */
    double rate;        /* requests a second; 0: closed loop */
    double seconds;
    uint32_t connections; /* at most */
    uint32_t tokens;      /* max_tokens of each */
    bool stream;
    uint32_t seed; /* for the times at which requests are due */
    pid_t router;  /* the process to measure CPU time of; 0: none */
};

/* Microseconds, in the order in which they came. */
struct client_times {
    float *us;
    size_t count, capacity;
};

struct client_result {
    uint64_t answers, failures, bytes, tokens;
    double seconds, router_cpu_us;
    struct client_times whole;  /* from the due time until the last byte */
    struct client_times first;  /* from the due time until a stream's first token */
    struct client_times behind; /* delay of a stream's first token after the worker sent it */
    struct client_times later;  /* the same for its later tokens */
};

/* False: no connection. */
bool client_run(const struct client_run *run, struct client_result *result);
double client_percentile(struct client_times *times, double of); /* 0 .. 1; sorts */
void client_result_free(struct client_result *result);

/* A connection to "127.0.0.1:PORT" that blocks and has TCP_NODELAY; -1: none. */
int client_connect(const char *address);
/* The same for a slow reader: little waits unread on this side, and little in the server's kernel,
 * so that the server has to keep the rest. */
int client_connect_narrow(const char *address);

#endif
