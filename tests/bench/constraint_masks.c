/* What constraints cost whole steps: as many answers as a step has, each under a constraint of its own out of a file of schemas and the
 * adversarial ones (tests/constrain/adversarial.h), are drawn side by side, and what a step is held up by is timed: taking the tokens drawn
 * before, finding the sets of allowed tokens, and those walks that it does itself; what it leaves to the walker goes on meanwhile. An answer
 * that ends makes room for the next; once there is no next one the run is over, so that every step has as many answers under way. Those of
 * them whose sets aren't there sit the step out. One that all sit out is none: what it takes is the next one's. And what the costliest
 * constraints take to compile.
 *
 *     constraint_masks TOKENIZER SCHEMAS [VOCABULARY [SEEDS [KEPT [MIB]]]]
 *
 * VOCABULARY: ids; more than the tokenizer has are made up of two of its tokens each (default 131072). SEEDS: answers under each
 * constraint (default 4). KEPT: sets that are kept for each constraint (default: as a worker keeps; 0: each is worked out). MIB: of memory
 * that are read behind each step, as a model's weights are: that is all the time that the walker has (while tokens are drawn
 * it is halted, and what it is through with is taken), and it leaves the caches cold (default 32; how long it took is printed). Nothing else
 * is left out or taken again. */
#include "common/constrain/compile_steps.h"
#include "common/worker/step_constraints.h"
#include "tests/bench/times.h"
#include "tests/constrain/adversarial.h"
#include "tests/constrain/generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_CONSTRAINTS 512
#define MAX_TOKENS      200 /* of an answer */
#define MAX_WIDTH       64

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
    struct vocabulary_source source;
    struct constraint *constraints[MAX_CONSTRAINTS];
    const char *names[MAX_CONSTRAINTS];
    struct constraint_masks *masks[MAX_CONSTRAINTS];
    size_t count;
    uint64_t seeds;
    uint32_t kept;
    size_t between; /* bytes that are read between steps */
    uint64_t *weights, sum;
    struct constraint_walker *walker;
    struct times times, wall, control, between_steps;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void add(struct bench *bench, const char *name, enum constraint_kind kind, const char *text,
                size_t length)
{
    struct error err;
    double start_us = thread_cpu_us();
    if (bench->count == MAX_CONSTRAINTS)
        fail(name, "more constraints than there is room for");
    if (constraint_compile(kind, text, length, &bench->constraints[bench->count], &err) !=
        STATUS_OK)
        fail(name, err.text);
    times_add(&bench->times, thread_cpu_us() - start_us);
    bench->names[bench->count++] = name;
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

/* One answer of those that are under way. */
struct answer {
    size_t constraint;
    struct constraint_state state;
    struct rng rng;
    uint32_t tokens, id; /* the latter was drawn */
    bool drawn;          /* and is still to be taken */
    struct constraint_mask *mask, spare;
    struct walker_task task;
    bool halted, through; /* its task was taken back while tokens are drawn, and was whole then */
    bool over;
};

/* The next of all answers: one constraint after the other, then the next seed. */
static void begin(const struct bench *bench, struct answer *answer, uint64_t *next)
{
    answer->over = *next == bench->count * bench->seeds;
    if (answer->over)
        return;
    answer->constraint = *next % bench->count;
    answer->rng = rng_seeded(1000 * *next);
    answer->tokens = 0;
    answer->drawn = false;
    constraint_state_init(bench->constraints[answer->constraint], &answer->state);
    ++*next;
}

static void let_go(struct answer *answer)
{
    constraint_masks_give(answer->mask);
    answer->mask = NULL;
}

static void take(const struct bench *bench, struct answer *answer)
{
    size_t length;
    const char *bytes =
        vocabulary_source_text(&bench->source, answer->id, !answer->state.started, &length);
    if (bytes && !constraint_state_take(bench->constraints[answer->constraint], &answer->state,
                                        bytes, length))
        fail(bench->names[answer->constraint], "an allowed token isn't taken");
    if (memcmp(&answer->mask->state, &answer->state, sizeof answer->state) != 0)
        let_go(answer);
    answer->drawn = false;
}

/* As step_constraints does it. */
static void work_out(const struct bench *bench, struct answer *answer, uint64_t *nodes_left)
{
    struct constraint_masks *masks = bench->masks[answer->constraint];
    if (!answer->mask)
        answer->mask = constraint_masks_take(masks, &answer->state, &answer->spare);
    struct constraint_mask *mask = answer->mask;
    if (mask->whole || mask->maker)
        return;
    constraint_masks_begin(masks, mask, answer->task.walk);
    mask->whole = constraint_walk_go(answer->task.walk, mask->bits, nodes_left);
    if (mask->whole)
        return;
    mask->maker = answer;
    answer->task.bits = mask->bits;
    constraint_walker_post(bench->walker, &answer->task);
}

static void finish(struct constraint_mask *mask)
{
    mask->whole = true;
    mask->maker = NULL;
}

/* What a worker does for its answers before a step (step_constraints_prepare). */
static void step(const struct bench *bench, struct answer *answers, size_t width)
{
    uint64_t nodes = STEP_CONSTRAINTS_NODES;
    for (struct walker_task *task; (task = constraint_walker_take(bench->walker));)
        finish(((struct answer *)task->owner)->mask);
    for (size_t i = 0; i < width; i++) {
        if (answers[i].drawn)
            take(bench, &answers[i]);
        work_out(bench, &answers[i], &nodes);
    }
    constraint_walker_wake(bench->walker);
}

/* As a forward pass does. A first part that takes about as long as a step's constraints is timed: how long the machine alone may hold up
 * something of that length. */
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

static bool any_bit(const struct bench *bench, const uint32_t *bits)
{
    for (uint32_t i = 0; i < bench->source.trie->words; i++)
        if (bits[i])
            return true;
    return false;
}

/* False: it sat the step out. */
static bool draw(struct bench *bench, struct answer *answer, uint64_t *next)
{
    if (!answer->mask->whole)
        return false;
    const uint32_t *bits = answer->mask->bits;
    answer->id = any_bit(bench, bits)
                     ? draw_token(&bench->source, bits, answer->tokens, &answer->rng)
                     : bench->source.end_id;
    answer->drawn = true;
    if (answer->id == bench->source.end_id || ++answer->tokens == MAX_TOKENS) {
        let_go(answer);
        begin(bench, answer, next);
    }
    return true;
}

/* The walker walks on no more until it is let go on. What it is through with is for the next step. */
static void halt_walker(struct bench *bench, struct answer *answers, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        answers[i].halted = answers[i].mask && answers[i].mask->maker == &answers[i];
        if (answers[i].halted)
            answers[i].through = constraint_walker_take_back(bench->walker, &answers[i].task);
    }
}

static void go_on(struct bench *bench, struct answer *answers, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        if (answers[i].halted && answers[i].through)
            finish(answers[i].mask);
        else if (answers[i].halted)
            constraint_walker_post(bench->walker, &answers[i].task);
    }
    constraint_walker_wake(bench->walker);
}

/* How many don't sit the step out. */
static size_t draw_all(struct bench *bench, struct answer *answers, size_t width, uint64_t *next)
{
    size_t drawn = 0;
    for (size_t i = 0; i < width; i++)
        drawn += draw(bench, &answers[i], next);
    return drawn;
}

static bool any_over(const struct answer *answers, size_t width)
{
    for (size_t i = 0; i < width; i++)
        if (answers[i].over)
            return true;
    return false;
}

static void print_sets(struct bench *bench)
{
    uint64_t found = 0, walked = 0;
    for (size_t i = 0; i < bench->count; i++) {
        struct constraint_masks_counts counts = constraint_masks_counts(bench->masks[i]);
        found += counts.found;
        walked += counts.walked;
        constraint_masks_destroy(bench->masks[i]);
    }
    printf("    %" PRIu64 " sets were kept, %" PRIu64 " worked out", found, walked);
}

static void open_answers(struct bench *bench, struct answer *answers, size_t width, uint64_t *next)
{
    for (size_t i = 0; i < bench->count; i++)
        bench->masks[i] =
            constraint_masks_create(bench->constraints[i], bench->source.trie, bench->kept);
    for (size_t i = 0; i < width; i++) {
        answers[i] =
            (struct answer){.task = {.walk = constraint_walk_create(), .owner = &answers[i]}};
        answers[i].spare.bits = calloc(bench->source.trie->words, sizeof(uint32_t));
        begin(bench, &answers[i], next);
    }
}

static void close_answers(struct answer *answers, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        if (answers[i].mask) {
            answers[i].mask->maker = NULL; /* nobody goes on with it */
            let_go(&answers[i]);
        }
        constraint_walk_destroy(answers[i].task.walk);
        free(answers[i].spare.bits);
    }
}

struct tally {
    uint64_t steps, drawn;  /* steps that had a token, and tokens */
    uint64_t sat_out;       /* times that an answer sat one out, or all of them */
    double cpu_us, wall_us; /* since the last step that had a token */
};

/* A step, and what is between it and the next. */
static void step_once(struct bench *bench, struct answer *answers, size_t width, uint64_t *next,
                      struct tally *tally)
{
    double wall_us = us_of(CLOCK_MONOTONIC), cpu_us = thread_cpu_us();
    step(bench, answers, width);
    tally->cpu_us += thread_cpu_us() - cpu_us;
    double over_us = us_of(CLOCK_MONOTONIC);
    tally->wall_us += over_us - wall_us;
    read_weights(bench);
    halt_walker(bench, answers, width);
    times_add(&bench->between_steps, us_of(CLOCK_MONOTONIC) - over_us);
    size_t drawn = draw_all(bench, answers, width, next);
    tally->drawn += drawn;
    tally->sat_out += width - drawn;
    if (!drawn)
        return;
    times_add(&bench->times, tally->cpu_us);
    times_add(&bench->wall, tally->wall_us);
    tally->cpu_us = tally->wall_us = 0;
    tally->steps++;
}

static void run(struct bench *bench, const char *what, size_t width)
{
    static struct answer answers[MAX_WIDTH];
    struct tally tally = {0};
    uint64_t next = 0;
    char name[64];
    open_answers(bench, answers, width, &next);
    double others_us = us_of(CLOCK_PROCESS_CPUTIME_ID) - thread_cpu_us();
    while (!any_over(answers, width)) {
        go_on(bench, answers, width);
        step_once(bench, answers, width, &next, &tally);
    }
    others_us = us_of(CLOCK_PROCESS_CPUTIME_ID) - thread_cpu_us() - others_us;
    close_answers(answers, width);
    snprintf(name, sizeof name, "%s, steps of %zu", what, width);
    times_print(name, &bench->times);
    times_print("    by the clock on the wall", &bench->wall);
    times_print("    between steps, for the walker", &bench->between_steps);
    times_print("    reading memory for about as long", &bench->control);
    print_sets(bench);
    printf(
        "; %.1f answers have a token in a step, a token waits %.3f steps; the walker takes %.1f us "
        "of a CPU a step\n",
        (double)tally.drawn / (double)tally.steps, (double)tally.sat_out / (double)tally.drawn,
        others_us / (double)tally.steps);
}

/* The next step sees what there is. */
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
        fprintf(stderr, "usage: %s TOKENIZER SCHEMAS [VOCABULARY [SEEDS [KEPT [MIB]]]]\n", argv[0]);
        return 2;
    }
    times_init(&bench.times);
    times_init(&bench.wall);
    times_init(&bench.control);
    times_init(&bench.between_steps);
    bench.seeds = strtoull(argument(argc, argv, 4, "4"), NULL, 10);
    bench.kept = (uint32_t)strtoul(argument(argc, argv, 5, "64"), NULL, 10);
    bench.between = strtoull(argument(argc, argv, 6, "32"), NULL, 10) << 20;
    bench.weights = malloc(bench.between + 1);
    memset(bench.weights, 1, bench.between + 1);
    if (constraint_walker_create(through, NULL, &bench.walker) != STATUS_OK)
        fail("the walker", "can't be started");
    double start_us = thread_cpu_us();
    vocabulary_source_open(&bench.source, argv[1],
                           (uint32_t)strtoul(argument(argc, argv, 3, "131072"), NULL, 10));
    printf("vocabulary of %u ids, %u and %u nodes (plain, others), opened in %.0f ms\n",
           bench.source.count, bench.source.trie->inside.plain.node_count,
           bench.source.trie->inside.other.node_count, (thread_cpu_us() - start_us) / 1e3);
    compile_costly();
    add_schemas(&bench, argv[2]);
    for (size_t width = 1; width <= MAX_WIDTH; width *= width < 16 ? 16 : 4)
        run(&bench, "schemas", width);
    add_adversarial(&bench);
    for (size_t width = 1; width <= MAX_WIDTH; width *= width < 16 ? 16 : 4)
        run(&bench, "with adversarial ones", width);
    for (size_t i = 0; i < bench.count; i++)
        constraint_destroy(bench.constraints[i]);
    vocabulary_source_close(&bench.source);
    constraint_walker_destroy(bench.walker);
    times_deinit(&bench.times);
    times_deinit(&bench.wall);
    times_deinit(&bench.control);
    times_deinit(&bench.between_steps);
    free(bench.weights);
    return bench.sum == 1; /* never: what was read is used */
}
