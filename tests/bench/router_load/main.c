/* A load generator for routers: a client, workers that answer at once, and a crowd, in one process,
 * so that one clock knows when a worker sent the token that a client got. It takes commands, one a
 * line, and answers each with one line of JSON; tests/bench/router_cost.py sends them.
 *
 *     http-worker [quiet]                        {"address": ...}
 *     baton-workers ROUTER MODEL VOCAB TOKEN CONTEXT [prefill|colocated [COUNT]]
 *     prompt JSON                                prompt of the runs from now on
 *     step US                                    step of the workers; 0: whole answers
 *     run ADDRESS MODEL RATE SECONDS CONNECTIONS TOKENS STREAM PID [SEED]
 *     times                                      times of the last run's answers, in us, sorted
 *     crowd ADDRESS MODEL IDLE SLOW TOKENS       `crowd` alone: its figures; `leave` ends it */
#include "common/base/descriptors.h"
#include "tests/bench/router_load/client.h"
#include "tests/bench/router_load/crowd.h"
#include "tests/bench/router_load/worker.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { MAX_LINE_BYTES = 1 << 18 };

static char *prompt;
static struct crowd *crowd;
static struct client_result result; /* result of the last run */

static void fail(const char *what)
{
    printf("{\"error\": \"%s\"}\n", what);
}

static void print_times(const char *name, struct client_times *times)
{
    printf(", \"%s\": [%.1f, %.1f, %zu]", name, client_percentile(times, 0.5),
           client_percentile(times, 0.99), times->count);
}

static void run(const char *arguments)
{
    struct client_run run = {.prompt = prompt, .seed = 1};
    int stream, pid;
    if (sscanf(arguments, "%63s %127s %lf %lf %u %u %d %d %u", run.address, run.model, &run.rate,
               &run.seconds, &run.connections, &run.tokens, &stream, &pid, &run.seed) < 8) {
        fail("run: ADDRESS MODEL RATE SECONDS CONNECTIONS TOKENS STREAM PID [SEED]");
        return;
    }
    client_result_free(&result);
    run.stream = stream;
    run.router = pid;
    if (!client_run(&run, &result)) {
        fail("no connection");
        return;
    }
    printf("{\"answers\": %llu, \"failures\": %llu, \"tokens\": %llu, \"seconds\": %.3f, "
           "\"cpu_us\": %.0f",
           (unsigned long long)result.answers, (unsigned long long)result.failures,
           (unsigned long long)result.tokens, result.seconds, result.router_cpu_us);
    print_times("whole", &result.whole);
    print_times("first", &result.first);
    print_times("behind", &result.behind);
    print_times("later", &result.later);
    printf("}\n");
}

static void print_whole(void)
{
    printf("[");
    for (size_t i = 0; i < result.whole.count; i++)
        printf("%s%.1f", i ? ", " : "", result.whole.us[i]);
    printf("]\n");
}

static void start_baton_workers(const char *arguments)
{
    char router[64], model[128], prefill[16] = "";
    struct baton_worker_config config = {.router = router, .model = model, .count = 1};
    struct error err;
    if (sscanf(arguments, "%63s %127s %u %u %u %15s %u", router, model, &config.vocab,
               &config.token, &config.context, prefill, &config.count) < 5) {
        fail("baton-workers: ROUTER MODEL VOCAB TOKEN CONTEXT [prefill|colocated [COUNT]]");
        return;
    }
    config.prefill = !strcmp(prefill, "prefill");
    if (baton_worker_start(&config, &err) == STATUS_OK)
        printf("{}\n");
    else
        fail(err.text);
}

static void start_crowd(const char *arguments)
{
    struct crowd_config config = {.idle = 0};
    if (sscanf(arguments, "%63s %127s %u %u %u", config.address, config.model, &config.idle,
               &config.slow, &config.tokens) != 5 ||
        crowd || !(crowd = crowd_start(&config)))
        fail("crowd: ADDRESS MODEL IDLE SLOW TOKENS, once");
    else
        printf("{}\n");
}

static void tell_crowd(void)
{
    struct crowd_figures figures;
    if (!crowd) {
        fail("no crowd");
        return;
    }
    crowd_figures(crowd, &figures);
    printf("{\"connected\": %u, \"put_out\": %llu, \"refused\": %llu, \"sent_bytes\": %llu, "
           "\"read_bytes\": %llu, \"late_us\": %llu}\n",
           figures.connected, (unsigned long long)figures.put_out,
           (unsigned long long)figures.refused, (unsigned long long)figures.sent_bytes,
           (unsigned long long)figures.read_bytes, (unsigned long long)figures.late_us);
}

static void leave(void)
{
    if (crowd)
        crowd_stop(crowd);
    crowd = NULL;
    printf("{}\n");
}

static void obey(char *line)
{
    line[strcspn(line, "\n")] = 0;
    char *rest = line + strcspn(line, " ");
    if (*rest)
        *rest++ = 0;
    if (!strcmp(line, "http-worker")) {
        printf("{\"address\": \"%s\"}\n", http_worker_start(*rest));
    } else if (!strcmp(line, "baton-workers")) {
        start_baton_workers(rest);
    } else if (!strcmp(line, "prompt")) {
        free(prompt);
        prompt = strdup(rest);
        printf("{}\n");
    } else if (!strcmp(line, "step")) {
        worker_set_step(strtoull(rest, NULL, 10));
        printf("{}\n");
    } else if (!strcmp(line, "run")) {
        run(rest);
    } else if (!strcmp(line, "times")) {
        print_whole();
    } else if (!strcmp(line, "crowd") && *rest) {
        start_crowd(rest);
    } else if (!strcmp(line, "crowd")) {
        tell_crowd();
    } else if (!strcmp(line, "leave")) {
        leave();
    } else {
        fail("no such command");
    }
}

int main(void)
{
    static char line[MAX_LINE_BYTES];
    signal(SIGPIPE, SIG_IGN);
    descriptors_raise(0);
    prctl(PR_SET_TIMERSLACK,
          1ul); /* nanoseconds, instead of 50 us: requests leave when they are due */
    prompt = strdup("\"\"");
    while (fgets(line, sizeof line, stdin)) {
        obey(line);
        fflush(stdout);
    }
    return 0;
}
