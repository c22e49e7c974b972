/* What constraints cost whole steps: as many answers as a step has, each under a constraint of its own out of a file of schemas and the
 * adversarial ones (tests/constrain/adversarial.h), are drawn side by side, and what a step is held up by is timed: taking the tokens drawn
 * before, finding the sets of allowed tokens, and those walks that it does itself; what it leaves to the walker goes on meanwhile. An answer
 * that ends makes room for the next; once there is no next one the run is over, so that every step has as many answers under way. Those of
 * them whose sets aren't there sit the step out. One that all sit out is none: what it takes is the next one's. And what the costliest
 * constraints take to compile.
 *
 *     constraint_masks TOKENIZER SCHEMAS [VOCABULARY [SEEDS [KEPT [MIB [ROUNDS [WIDTH]]]]]]
 *
 * VOCABULARY: ids; more than the tokenizer has are made up of two of its tokens each (default 131072). SEEDS: answers under each
 * constraint (default 4). KEPT: sets that are kept for each constraint (default: as a worker keeps; 0: each is worked out). MIB: of memory
 * that are read behind each step, as a model's weights are: that is all the time that the walker has (while tokens are drawn
 * it is halted, and what it is through with is taken), and it leaves a core's own caches cold, if they are smaller (default 32; how long it
 * took is printed). ROUNDS: all answers are generated so often (default 1), every round in the same steps with the same tokens
 * (walk_order.h), and the least of each step over the rounds is printed beside all of them. WIDTH: only steps of so many answers (default:
 * 1, 16 and 64). Nothing is left out. */
#include "common/constrain/compile_steps.h"
#include "common/worker/step_constraints.h"
#include "tests/bench/times.h"
#include "tests/bench/walk_order.h"
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
    struct times times, wall, control, between_steps, least, least_wall;
    struct walk_order order;
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
    uint32_t walk; /* of the walker's, which has it: its number */
    bool halted,
        through; /* its task was taken back while tokens are drawn; its walk is at its end */
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
static void work_out(struct bench *bench, struct answer *answer, uint64_t *nodes_left)
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
    answer->walk = walk_order_begin(&bench->order);
    answer->through = false;
    constraint_walker_post(bench->walker, &answer->task);
}

/* Its set is there for this step, if that is the one. */
static void finish(struct bench *bench, struct answer *answer)
{
    answer->through = true;
    if (!walk_order_ends(&bench->order, answer->walk))
        return;
    answer->mask->whole = true;
    answer->mask->maker = NULL;
}

/* What a worker does for its answers before a step (step_constraints_prepare). */
static void step(struct bench *bench, struct answer *answers, size_t width)
{
    uint64_t nodes = STEP_CONSTRAINTS_NODES;
    for (struct walker_task *task; (task = constraint_walker_take(bench->walker));)
        finish(bench, task->owner);
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

/* The walker walks on no more until it is let go on. What it is through with is for the next step, or for a later one of the round
 * before. */
static void halt_walker(struct bench *bench, struct answer *answers, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        struct answer *answer = &answers[i];
        answer->halted = answer->mask && answer->mask->maker == answer;
        if (answer->halted && !answer->through)
            answer->through = constraint_walker_take_back(bench->walker, &answer->task);
    }
}

/* What the walker was through with by the next step in the first round is walked to its end, should it not be: ahead of what is read
 * between both, so that it is as cold in the next one as what the walker did. */
static void walk_due(struct bench *bench, struct answer *answers, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        struct answer *answer = &answers[i];
        uint64_t nodes = UINT64_MAX;
        if (answer->mask && answer->mask->maker == answer && !answer->through &&
            walk_order_due(&bench->order, answer->walk))
            answer->through = constraint_walker_take_back(bench->walker, &answer->task) ||
                              constraint_walk_go(answer->task.walk, answer->task.bits, &nodes);
    }
}

static void go_on(struct bench *bench, struct answer *answers, size_t width)
{
    walk_order_step(&bench->order);
    for (size_t i = 0; i < width; i++) {
        struct answer *answer = &answers[i];
        if (!answer->halted)
            continue;
        if (answer->through)
            finish(bench, answer);
        else
            constraint_walker_post(bench->walker, &answer->task);
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

static void destroy_masks(struct bench *bench)
{
    for (size_t i = 0; i < bench->count; i++)
        constraint_masks_destroy(bench->masks[i]);
}

static void print_sets(const struct bench *bench)
{
    uint64_t found = 0, walked = 0;
    for (size_t i = 0; i < bench->count; i++) {
        struct constraint_masks_counts counts = constraint_masks_counts(bench->masks[i]);
        found += counts.found;
        walked += counts.walked;
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
    uint64_t hash;          /* of the last token of each answer behind each step */
    uint64_t sat_out;       /* times that an answer sat one out, or all of them */
    double cpu_us, wall_us; /* since the last step that had a token */
    double others_us;       /* CPU of the other threads: the walker */
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
    walk_due(bench, answers, width);
    read_weights(bench);
    halt_walker(bench, answers, width);
    times_add(&bench->between_steps, us_of(CLOCK_MONOTONIC) - over_us);
    size_t drawn = draw_all(bench, answers, width, next);
    tally->drawn += drawn;
    for (size_t i = 0; i < width; i++)
        tally->hash = UINT64_C(0x9e3779b97f4a7c15) * tally->hash + answers[i].id;
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
    static struct answer answers[MAX_WIDTH];
    struct tally tally = {0};
    uint64_t next = 0;
    open_answers(bench, answers, width, &next);
    walk_order_round(&bench->order);
    double others_us = us_of(CLOCK_PROCESS_CPUTIME_ID) - thread_cpu_us();
    while (!any_over(answers, width)) {
        go_on(bench, answers, width);
        step_once(bench, answers, width, &next, &tally);
    }
    tally.others_us = us_of(CLOCK_PROCESS_CPUTIME_ID) - thread_cpu_us() - others_us;
    close_answers(answers, width);
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
    walk_order_init(&bench->order);
    for (uint64_t round = 0; round < bench->rounds; round++) {
        if (round)
            destroy_masks(bench);
        struct tally once = run_round(bench, width);
        if (round && (once.steps != tally.steps || once.hash != tally.hash))
            fail(what, "two rounds had other steps or tokens");
        tally = once;
    }
    walk_order_deinit(&bench->order);
    print_times(bench, what, width);
    print_sets(bench);
    destroy_masks(bench);
    printf(
        "; %.1f answers have a token in a step, a token waits %.3f steps; the walker takes %.1f us "
        "of a CPU a step\n",
        (double)tally.drawn / (double)tally.steps, (double)tally.sat_out / (double)tally.drawn,
        tally.others_us / (double)tally.steps);
}

static void run_widths(struct bench *bench, const char *what, size_t only)
{
    for (size_t width = 1; width <= MAX_WIDTH; width *= width < 16 ? 16 : 4)
        if (!only || only == width)
            run(bench, what, width);
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
    bench.seeds = strtoull(argument(argc, argv, 4, "4"), NULL, 10);
    bench.kept = (uint32_t)strtoul(argument(argc, argv, 5, "64"), NULL, 10);
    bench.between = strtoull(argument(argc, argv, 6, "32"), NULL, 10) << 20;
    bench.rounds = strtoull(argument(argc, argv, 7, "1"), NULL, 10);
    size_t width = strtoull(argument(argc, argv, 8, "0"), NULL, 10);
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
    run_widths(&bench, "schemas", width);
    add_adversarial(&bench);
    run_widths(&bench, "with adversarial ones", width);
    for (size_t i = 0; i < bench.count; i++)
        constraint_destroy(bench.constraints[i]);
    vocabulary_source_close(&bench.source);
    constraint_walker_destroy(bench.walker);
    times_deinit(&bench.times);
    times_deinit(&bench.wall);
    times_deinit(&bench.control);
    times_deinit(&bench.between_steps);
    times_deinit(&bench.least);
    times_deinit(&bench.least_wall);
    free(bench.weights);
    return bench.sum == 1; /* never: what was read is used */
}
