/* What a constraint costs a step: for each schema of a file, answers are drawn (tests/constrain/generate.h) and each set of allowed
 * tokens is timed.
 *
 *     constraint_masks TOKENIZER SCHEMAS [VOCABULARY [SEEDS [KEPT]]]
 *
 * VOCABULARY: ids; more than the tokenizer has are made up of two of its tokens each (default 131072). KEPT: sets that are kept
 * for each constraint (default: as a worker keeps; 0: each is worked out). Times are this thread's CPU time, and sets
 * that took long are timed again: other programs on the machine count for less. */
#include "tests/constrain/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_STEPS (4u << 20)

static double thread_cpu_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

struct times {
    double *us;
    size_t count;
    double most_us;
    uint64_t most_nodes, most_seed; /* of the slowest set, and the answer that it is in */
};

static void add_time(struct times *times, double us)
{
    if (times->count < MAX_STEPS)
        times->us[times->count++] = us;
}

static int by_time(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void print(const char *what, struct times *times)
{
    double sum = 0;
    if (!times->count)
        return;
    qsort(times->us, times->count, sizeof *times->us, by_time);
    for (size_t i = 0; i < times->count; i++)
        sum += times->us[i];
    printf("%-28s %8zu times: mean %8.1f us, p50 %8.1f, p99 %8.1f, max %8.1f\n", what, times->count,
           sum / (double)times->count, times->us[times->count / 2],
           times->us[times->count * 99 / 100], times->us[times->count - 1]);
}

/* A set that took long is worked out again: the least of some times is the work, the rest other programs. */
static double time_again(struct constraint_masks *fresh, const struct constraint_state *state,
                         uint32_t *bits, double us)
{
    for (int i = 0; i < 8 && us > 300; i++) {
        double start_us = thread_cpu_us();
        constraint_masks_find(fresh, state, bits);
        double again_us = thread_cpu_us() - start_us;
        us = again_us < us ? again_us : us;
    }
    return us;
}

/* As generate(), with a clock. `fresh` keeps no sets. */
static void time_answer(const struct vocabulary_source *source, const struct constraint *constraint,
                        struct constraint_masks *masks, struct constraint_masks *fresh,
                        uint64_t seed, struct times *steps, struct times *takes)
{
    struct constraint_state state;
    struct rng rng = rng_seeded(seed);
    uint32_t *bits = malloc(source->trie->words * sizeof *bits);
    constraint_state_init(constraint, &state);
    for (uint32_t token = 0; token < 400; token++) {
        size_t length;
        uint64_t nodes = constraint_masks_counts(masks).nodes;
        double start_us = thread_cpu_us();
        uint32_t count = constraint_masks_find(masks, &state, bits);
        double us = time_again(fresh, &state, bits, thread_cpu_us() - start_us);
        add_time(steps, us);
        if (us > steps->most_us) {
            steps->most_us = us;
            steps->most_nodes = constraint_masks_counts(masks).nodes - nodes;
            steps->most_seed = seed;
        }
        uint32_t id = count ? draw_token(source, bits, token, &rng) : source->end_id;
        if (id == source->end_id)
            break;
        const char *bytes = vocabulary_source_text(source, id, !state.started, &length);
        start_us = thread_cpu_us();
        if (!constraint_state_take(constraint, &state, bytes, length))
            abort();
        add_time(takes, thread_cpu_us() - start_us);
    }
    free(bits);
}

static const char *argument(int argc, char **argv, int index, const char *standard)
{
    return argc > index ? argv[index] : standard;
}

int main(int argc, char **argv)
{
    struct vocabulary_source source;
    struct str schemas;
    if (argc < 3) {
        fprintf(stderr, "usage: %s TOKENIZER SCHEMAS [VOCABULARY [SEEDS [KEPT]]]\n", argv[0]);
        return 2;
    }
    uint64_t seeds = strtoull(argument(argc, argv, 4, "20"), NULL, 10);
    uint32_t kept = (uint32_t)strtoul(argument(argc, argv, 5, "64"), NULL, 10);
    struct times steps = {.us = malloc(MAX_STEPS * sizeof(double))}, takes = steps, builds = steps;
    takes.us = malloc(MAX_STEPS * sizeof(double));
    builds.us = malloc(MAX_STEPS * sizeof(double));
    double start_us = thread_cpu_us();
    vocabulary_source_open(&source, argv[1],
                           (uint32_t)strtoul(argument(argc, argv, 3, "131072"), NULL, 10));
    printf("vocabulary of %u ids, %u and %u nodes (plain, others), opened in %.0f ms\n",
           source.count, source.trie->inside.plain.node_count, source.trie->inside.other.node_count,
           (thread_cpu_us() - start_us) / 1e3);
    str_init(&schemas, 16 << 20);
    read_whole(argv[2], &schemas);
    uint64_t line = 0, walked = 0, nodes = 0;
    for (char *at = schemas.data, *end; (end = strchr(at, '\n')); at = end + 1, line++) {
        struct constraint *constraint;
        struct error err;
        start_us = thread_cpu_us();
        if (constraint_compile(CONSTRAINT_JSON_SCHEMA, at, (size_t)(end - at), &constraint, &err) !=
            STATUS_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        add_time(&builds, thread_cpu_us() - start_us);
        struct constraint_masks *masks = constraint_masks_create(constraint, source.trie, kept);
        struct constraint_masks *fresh = constraint_masks_create(constraint, source.trie, 0);
        for (uint64_t seed = 0; seed < seeds; seed++)
            time_answer(&source, constraint, masks, fresh, line * 1000 + seed, &steps, &takes);
        walked += constraint_masks_counts(masks).walked;
        nodes += constraint_masks_counts(masks).nodes;
        constraint_masks_destroy(masks);
        constraint_masks_destroy(fresh);
        constraint_destroy(constraint);
    }
    print("compile", &builds);
    print("allowed tokens of a step", &steps);
    print("taking the token", &takes);
    printf("%llu of %zu sets worked out, %.0f nodes each\n", (unsigned long long)walked,
           steps.count, walked ? (double)nodes / (double)walked : 0.0);
    printf("the slowest: %llu nodes, in line %llu, seed %llu\n",
           (unsigned long long)steps.most_nodes, (unsigned long long)(steps.most_seed / 1000 + 1),
           (unsigned long long)(steps.most_seed % 1000));
    vocabulary_source_close(&source);
    return 0;
}
