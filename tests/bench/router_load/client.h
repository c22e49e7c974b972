/* A client of completions over HTTP/1.1 on one thread: requests at a rate (Poisson, open loop: a
 * late one counts from when it was due), or as fast as the connections let (closed loop).
 * Connections are kept. It trusts the server to speak HTTP, and reads both ways of framing. */
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
    uint32_t seed; /* of when they are due */
    pid_t router;  /* whose CPU time is told; 0: nobody's */
};

/* Microseconds, in the order in which they came. */
struct client_times {
    float *us;
    size_t count, capacity;
};

struct client_result {
    uint64_t answers, failures, bytes, tokens;
    double seconds, router_cpu_us;
    struct client_times whole;  /* from when it was due until its last byte */
    struct client_times first;  /* likewise its first token (of a stream) */
    struct client_times behind; /* a stream's first token, behind the worker's sending it */
    struct client_times later;  /* likewise its later tokens */
};

/* False: no connection. */
bool client_run(const struct client_run *run, struct client_result *result);
double client_percentile(struct client_times *times, double of); /* 0 .. 1; sorts */
void client_result_free(struct client_result *result);

/* A connection to "127.0.0.1:PORT" that blocks and has TCP_NODELAY; -1: none. */
int client_connect(const char *address);
/* Likewise, of one who reads slowly: little waits unread on this side, and little with the server's
 * system, so that the rest is the server's to keep. */
int client_connect_narrow(const char *address);

#endif
