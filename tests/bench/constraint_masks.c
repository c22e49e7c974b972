/* Times the cost of constraints for whole steps. Draws as many answers side by side as a step has,
 * each under a constraint of its own from a file of schemas and the adversarial ones
 * (tests/constrain/adversarial.h). The time of a step is: advancing by the tokens drawn before,
 * finding the sets of allowed tokens, and the walks that the step does itself. The walker does the
 * other walks meanwhile. The next answer takes the place of an answer that ends. Without a next one
 * the run is over, so that every step has as many running answers. Answers without a ready set sit
 * the step out. A step that all sit out doesn't count: its time is added to the next one. Also
 * times the compilation of the most expensive constraints.
 *
 *     constraint_masks TOKENIZER SCHEMAS [VOCABULARY [SEEDS [KEPT [MIB [ROUNDS [WIDTH]]]]]]
 *
 * VOCABULARY: number of ids; ids beyond the tokenizer's are made up of two of its tokens each
 * (default 131072). SEEDS: answers under each constraint (default 4). KEPT: sets kept for each
 * constraint (default: as in a worker; 0: each set is computed again). MIB: memory read after each
 * step, like a model's weights. The walker has only this time: while tokens are drawn it is halted,
 * and its finished sets are taken. The reads also leave a core's own caches cold, if they are
 * smaller (default 32; their time is printed). ROUNDS: generates all answers so often (default 1),
 * every round in the same steps with the same tokens (walk_order.h), and prints the least time of
 * each step over the rounds beside all of them. WIDTH: only steps of so many answers (default: 1,
 * 16 and 64). No step is left out. */
#include "common/language/constrain/compiling.h"
#include "tests/bench/constraint_answers.h"
#include "tests/bench/times.h"
#include "tests/constrain/adversarial.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double us_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double thread_cpu_us(void)
{
    return us_of(CLOCK_THREAD_CPUTIME_ID);
}

struct bench {
    struct answers_source source;
    size_t between; /* bytes that are read between steps */
    uint64_t *weights, sum;
    struct times times, wall, control, between_steps, least, least_wall;
    uint64_t rounds;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void add(struct bench *bench, const char *name, enum constraint_kind kind, const char *text,
                size_t length)
{
    struct answers_source *source = &bench->source;
    struct error err;
    double start_us = thread_cpu_us();
    if (source->count == ANSWERS_MAX_CONSTRAINTS)
        fail(name, "more constraints than there is room for");
    if (constraint_compile(kind, text, length, &source->constraints[source->count], &err) !=
        STATUS_OK)
        fail(name, err.text);
    times_add(&bench->times, thread_cpu_us() - start_us);
    source->names[source->count++] = name;
}

static void add_schemas(struct bench *bench, const char *path)
{
    struct str schemas;
    str_init(&schemas, 16 << 20);
    read_whole(path, &schemas);
    for (char *at = schemas.data, *end; (end = strchr(at, '\n')); at = end + 1)
        add(bench, "a schema of the file", CONSTRAINT_JSON_SCHEMA, at, (size_t)(end - at));
    str_deinit(&schemas);
    times_print("compiling a schema of the file", &bench->times);
}

static void add_adversarial(struct bench *bench)
{
    struct adversarial list[ADVERSARIAL_MAX];
    size_t count = adversarial_to_mask(list);
    for (size_t i = 0; i < count; i++)
        add(bench, list[i].name, list[i].kind, list[i].text, strlen(list[i].text));
    adversarial_free(list, count);
    times_print("compiling one that is costly to mask", &bench->times);
}

static void compile_costly(void)
{
    struct adversarial list[ADVERSARIAL_MAX];
    size_t count = adversarial_to_compile(list);
    for (size_t i = 0; i < count; i++) {
        struct constraint *constraint = NULL;
        struct error err = {""};
        uint64_t steps;
        double start_us = thread_cpu_us();
        enum status status = constraint_compile_counted(
            list[i].kind, list[i].text, strlen(list[i].text), &constraint, &steps, &err);
        double us = thread_cpu_us() - start_us;
        printf("%-40s %9.1f ms, %9" PRIu64 " steps (%4.1f ns each): %.90s\n", list[i].name,
               us / 1e3, steps, 1e3 * us / (double)(steps + 1),
               status == STATUS_OK ? "compiled" : err.text);
        constraint_destroy(status == STATUS_OK ? constraint : NULL);
    }
    adversarial_free(list, count);
}

/* As a forward pass does. A first part that takes about as long as a step's constraints is timed:
 * how long the machine alone may hold up something of that length. */
static void read_weights(struct bench *bench)
{
    size_t count = bench->between / sizeof *bench->weights, first = count / 16;
    double start_us = us_of(CLOCK_MONOTONIC);
    for (size_t i = 0; i < first; i++)
        bench->sum += bench->weights[i];
    times_add(&bench->control, us_of(CLOCK_MONOTONIC) - start_us);
    for (size_t i = first; i < count; i++)
        bench->sum += bench->weights[i];
}

struct tally {
    uint64_t steps, drawn;  /* steps that had a token, and tokens */
    uint64_t hash;          /* hash of each answer's last token after each step */
    uint64_t sat_out;       /* times that an answer sat one out, or all of them */
    double cpu_us, wall_us; /* since the last step that had a token */
    double others_us;       /* CPU of the other threads: the walker */
    struct constraint_masks_counts sets;
};

/* Runs a step, and the work between it and the next. */
static void step_once(struct bench *bench, struct answers *answers, size_t width,
                      struct tally *tally)
{
    double wall_us = us_of(CLOCK_MONOTONIC), cpu_us = thread_cpu_us();
    answers_step(answers);
    tally->cpu_us += thread_cpu_us() - cpu_us;
    double over_us = us_of(CLOCK_MONOTONIC);
    tally->wall_us += over_us - wall_us;
    answers_walk_due(answers);
    read_weights(bench);
    answers_halt_walker(answers);
    times_add(&bench->between_steps, us_of(CLOCK_MONOTONIC) - over_us);
    size_t drawn = answers_draw(answers);
    tally->drawn += drawn;
    tally->hash = answers_hash(answers, tally->hash);
    tally->sat_out += width - drawn;
    if (!drawn)
        return;
    times_add(&bench->times, tally->cpu_us);
    times_add(&bench->wall, tally->wall_us);
    times_least(&bench->least, tally->steps, tally->cpu_us);
    times_least(&bench->least_wall, tally->steps, tally->wall_us);
    tally->cpu_us = tally->wall_us = 0;
    tally->steps++;
}

/* All answers once. */
static struct tally run_round(struct bench *bench, size_t width)
{
    struct tally tally = {0};
    struct answers *answers = answers_open(&bench->source, width);
    double others_us = us_of(CLOCK_PROCESS_CPUTIME_ID) - thread_cpu_us();
    while (!answers_over(answers)) {
        answers_go_on(answers);
        step_once(bench, answers, width, &tally);
    }
    tally.others_us = us_of(CLOCK_PROCESS_CPUTIME_ID) - thread_cpu_us() - others_us;
    tally.sets = answers_counts(answers);
    answers_close(answers);
    return tally;
}

static void print_times(struct bench *bench, const char *what, size_t width)
{
    char name[64];
    snprintf(name, sizeof name, "%s, steps of %zu", what, width);
    times_print(name, &bench->times);
    times_print("    by the clock on the wall", &bench->wall);
    if (bench->rounds > 1) {
        times_print("    of each the least of all rounds", &bench->least);
        times_print("    likewise by the clock on the wall", &bench->least_wall);
    }
    times_print("    between steps, for the walker", &bench->between_steps);
    times_print("    reading memory for about as long", &bench->control);
    bench->least.count = bench->least_wall.count = 0;
}

static void run(struct bench *bench, const char *what, size_t width)
{
    struct tally tally = {0};
    walk_order_init(&bench->source.order);
    for (uint64_t round = 0; round < bench->rounds; round++) {
        struct tally once = run_round(bench, width);
        if (round && (once.steps != tally.steps || once.hash != tally.hash))
            fail(what, "two rounds had other steps or tokens");
        tally = once;
    }
    walk_order_deinit(&bench->source.order);
    print_times(bench, what, width);
    printf("    %" PRIu64 " sets were kept, %" PRIu64
           " worked out; %.1f answers have a token in a step, a token waits %.3f steps; the walker "
           "takes %.1f us of a CPU a step\n",
           tally.sets.found, tally.sets.walked, (double)tally.drawn / (double)tally.steps,
           (double)tally.sat_out / (double)tally.drawn, tally.others_us / (double)tally.steps);
}

static void run_widths(struct bench *bench, const char *what, size_t only)
{
    for (size_t width = 1; width <= ANSWERS_MAX_WIDTH; width *= width < 16 ? 16 : 4)
        if (!only || only == width)
            run(bench, what, width);
}

/* Does nothing: the next step sees the result. */
static void through(void *context)
{
    (void)context;
}

static const char *argument(int argc, char **argv, int index, const char *standard)
{
    return argc > index ? argv[index] : standard;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    if (argc < 3) {
        fprintf(stderr,
                "usage: %s TOKENIZER SCHEMAS [VOCABULARY [SEEDS [KEPT [MIB [ROUNDS [WIDTH]]]]]]\n",
                argv[0]);
        return 2;
    }
    times_init(&bench.times);
    times_init(&bench.wall);
    times_init(&bench.control);
    times_init(&bench.between_steps);
    times_init(&bench.least);
    times_init(&bench.least_wall);
    bench.source.seeds = strtoull(argument(argc, argv, 4, "4"), NULL, 10);
    bench.source.kept = (uint32_t)strtoul(argument(argc, argv, 5, "64"), NULL, 10);
    bench.between = strtoull(argument(argc, argv, 6, "32"), NULL, 10) << 20;
    bench.rounds = strtoull(argument(argc, argv, 7, "1"), NULL, 10);
    size_t width = strtoull(argument(argc, argv, 8, "0"), NULL, 10);
    bench.weights = malloc(bench.between + 1);
    memset(bench.weights, 1, bench.between + 1);
    if (constraint_walker_create(through, NULL, &bench.source.walker) != STATUS_OK)
        fail("the walker", "can't be started");
    double start_us = thread_cpu_us();
    vocabulary_source_open(&bench.source.vocabulary, argv[1],
                           (uint32_t)strtoul(argument(argc, argv, 3, "131072"), NULL, 10));
    printf("vocabulary of %u ids, %u and %u nodes (plain, others), opened in %.0f ms\n",
           bench.source.vocabulary.count, bench.source.vocabulary.trie->inside.plain.node_count,
           bench.source.vocabulary.trie->inside.other.node_count,
           (thread_cpu_us() - start_us) / 1e3);
    compile_costly();
    add_schemas(&bench, argv[2]);
    run_widths(&bench, "schemas", width);
    add_adversarial(&bench);
    run_widths(&bench, "with adversarial ones", width);
    for (size_t i = 0; i < bench.source.count; i++)
        constraint_destroy(bench.source.constraints[i]);
    vocabulary_source_close(&bench.source.vocabulary);
    constraint_walker_destroy(bench.source.walker);
    times_deinit(&bench.times);
    times_deinit(&bench.wall);
    times_deinit(&bench.control);
    times_deinit(&bench.between_steps);
    times_deinit(&bench.least);
    times_deinit(&bench.least_wall);
    free(bench.weights);
    return bench.sum == 1; /* never true: makes the compiler keep the reads */
}
