/* constraint_host and step_constraints: leases are settled on a thread of their own, shared and
 * bounded; sequences wait for their leases beside others; and an answer's state follows from its
 * tokens, however they came. Every wait is for an event. */
#include "common/worker/constraint_host.h"
#include "common/worker/step_constraints.h"
#include "common/worker/step_loop.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL   "deploy/local/tiny-shakespeare"
#define VOCAB   2048
#define WAIT_US 60000000

static struct constraint_host *host_of(const char *model, uint64_t max_bytes)
{
    static const uint32_t end_ids[] = {0, VOCAB + 5}; /* the second is none */
    struct constraint_host_config config = {.model_dir = model,
                                            .vocab = VOCAB,
                                            .end_ids = end_ids,
                                            .end_count = 2,
                                            .max_bytes = max_bytes};
    struct constraint_host *host;
    struct error err = {""};
    if (constraint_host_create(&config, &host, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return host;
}

static void post(void *context)
{
    sem_post(context);
}

static struct constraint_source *source_of(enum constraint_kind kind, const char *text)
{
    return constraint_source_create(kind, text, strlen(text));
}

struct gate {
    sem_t reached, open;
};

static void wait_at(void *context)
{
    struct gate *gate = context;
    sem_post(&gate->reached);
    sem_wait(&gate->open);
}

static struct constraint_lease *settled(struct constraint_host *host, enum constraint_kind kind,
                                        const char *text)
{
    sem_t ready;
    sem_init(&ready, 0, 0);
    struct constraint_lease *lease =
        constraint_host_take(host, source_of(kind, text), 0, post, &ready);
    assert_non_null(lease);
    sem_wait(&ready);
    assert_true(constraint_lease_settled(lease));
    sem_destroy(&ready);
    return lease;
}

static void test_leases_share_what_is_compiled(void **state)
{
    (void)state;
    struct constraint_host *host = host_of(MODEL, 64 << 20);
    struct constraint_lease *one = settled(host, CONSTRAINT_REGEX, "a+"),
                            *same = settled(host, CONSTRAINT_REGEX, "a+"),
                            *other = settled(host, CONSTRAINT_CHOICE, "[\"a\"]");
    assert_int_equal(one->status, STATUS_OK);
    assert_ptr_equal(one->entry, same->entry);
    assert_ptr_not_equal(one->entry, other->entry);
    const struct constraint_entry *entry = one->entry;
    constraint_host_give(host, one);
    constraint_host_give(host, same);
    struct constraint_lease *again = settled(host, CONSTRAINT_REGEX, "a+");
    assert_ptr_equal(again->entry, entry); /* kept, though without a lease */
    assert_true(constraint_host_is_end(host, 0));
    assert_false(constraint_host_is_end(host, VOCAB + 5));
    constraint_host_stop(host);
    constraint_host_give(host, again); /* nothing is lost with the thread */
    constraint_host_give(host, other);
    constraint_host_destroy(host);
}

/* Special tokens are marked, so that a constraint can ask for them. A byte like the mark in a text
 * has no meaning. */
static void test_special_tokens_are_marked(void **state)
{
    (void)state;
    struct constraint_host *host = host_of(MODEL, 64 << 20);
    struct constraint_lease *lease = settled(host, CONSTRAINT_REGEX, "a");
    size_t length;
    const char *text = constraint_host_text(host, 1, false, &length);
    assert_int_equal(length, strlen("\xff<|im_start|>"));
    assert_memory_equal(text, "\xff<|im_start|>", length);
    for (uint32_t id = 3; id < VOCAB; id++) {
        text = constraint_host_text(host, id, false, &length);
        assert_true(!text || !memchr(text, 0xff, length));
    }
    constraint_host_give(host, lease);
    constraint_host_destroy(host);
}

static void test_a_lazy_host_begins_with_the_first_lease(void **state)
{
    (void)state;
    const struct constraint_host_config config = {
        .model_dir = MODEL, .vocab = VOCAB, .max_bytes = 64 << 20, .lazy = true};
    struct constraint_host *host;
    struct error err;
    assert_int_equal(constraint_host_create(&config, &host, &err), STATUS_OK);
    constraint_host_stop(host); /* it was never asked */
    constraint_host_destroy(host);
    assert_int_equal(constraint_host_create(&config, &host, &err), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        struct constraint_lease *lease = settled(host, CONSTRAINT_REGEX, "a+");
        assert_int_equal(lease->status, STATUS_OK);
        constraint_host_give(host, lease);
    }
    constraint_host_destroy(host);
}

static void test_what_cannot_be_compiled_is_said(void **state)
{
    (void)state;
    struct constraint_host *host = host_of(MODEL, 64 << 20);
    struct constraint_lease *lease = settled(host, CONSTRAINT_JSON_SCHEMA, "{\"not\":{}}");
    assert_int_equal(lease->status, STATUS_INVALID);
    assert_non_null(strstr(lease->err.text, "#/not"));
    constraint_host_give(host, lease);
    constraint_host_destroy(host);
    host = host_of("tests/golden/models/llama", 64 << 20);
    lease = settled(host, CONSTRAINT_REGEX, "a");
    assert_int_equal(lease->status, STATUS_UNSUPPORTED);
    assert_non_null(strstr(lease->err.text, "tokenizer.json"));
    constraint_host_give(host, lease);
    constraint_host_destroy(host);
}

static void test_a_constraint_over_the_memory_is_refused(void **state)
{
    (void)state;
    /* bytes of a few states and their sets */
    struct constraint_host *host = host_of(MODEL, 200 << 10);
    struct constraint_lease *held[64];
    char text[2] = "a";
    int count = 0;
    for (;; count++, text[0]++) {
        assert_true(count < 26);
        held[count] = settled(host, CONSTRAINT_REGEX, text);
        if (held[count]->status != STATUS_OK)
            break;
    }
    assert_true(count > 1);
    assert_int_equal(held[count]->status, STATUS_LIMIT);
    constraint_host_give(host, held[0]); /* makes room */
    constraint_host_give(host, held[count]);
    held[0] = settled(host, CONSTRAINT_REGEX, text);
    assert_int_equal(held[0]->status, STATUS_OK);
    while (count-- > 0)
        constraint_host_give(host, held[count]);
    constraint_host_destroy(host);
}

/* Another owner waits for only one of an owner's constraints, however many wait. An owner that
 * leaves before its turn costs nothing. */
static void test_turns_go_round_the_owners(void **state)
{
    (void)state;
    struct constraint_host *host = host_of(MODEL, 64 << 20);
    struct constraint_lease *first = NULL, *leases[40];
    struct gate gate;
    sem_t ready;
    char text[16];
    sem_init(&ready, 0, 0);
    sem_init(&gate.reached, 0, 0);
    sem_init(&gate.open, 0, 0);
    first = constraint_host_take(host, source_of(CONSTRAINT_REGEX, "first"), 7, wait_at, &gate);
    sem_wait(&gate.reached); /* all that follow are known before the next turn */
    for (int i = 0; i < 38; i++) {
        snprintf(text, sizeof text, "a%d", i);
        leases[i] = constraint_host_take(host, source_of(CONSTRAINT_REGEX, text), 1, post, &ready);
    }
    leases[38] = constraint_host_take(host, source_of(CONSTRAINT_REGEX, "b"), 2, wait_at, &gate);
    leases[39] = constraint_host_take(host, source_of(CONSTRAINT_REGEX, "c"), 1, post, &ready);
    constraint_host_give(host, leases[39]); /* it was never settled */
    sem_post(&gate.open);
    sem_wait(&gate.reached); /* in the turn of the other owner */
    int settled_before = 0;
    for (int i = 0; i < 38; i++)
        settled_before += constraint_lease_settled(leases[i]);
    assert_int_equal(settled_before, 1);
    sem_post(&gate.open);
    for (int i = 0; i < 38; i++)
        sem_wait(&ready);
    constraint_host_give(host, first);
    for (int i = 0; i < 39; i++)
        constraint_host_give(host, leases[i]);
    constraint_host_destroy(host);
    sem_destroy(&ready);
    sem_destroy(&gate.reached);
    sem_destroy(&gate.open);
}

static void test_a_constraint_that_never_fits(void **state)
{
    (void)state;
    struct constraint_host *host = host_of(MODEL, 20 << 10);
    for (int i = 0; i < 3; i++) {
        struct constraint_lease *lease = settled(host, CONSTRAINT_REGEX, "a");
        assert_int_equal(lease->status, STATUS_INVALID); /* not to be tried again */
        assert_non_null(strstr(lease->err.text, "but one may take 20480 here (constraint-memory)"));
        constraint_host_give(host, lease);
    }
    constraint_host_destroy(host);
}

static void test_a_lease_more_than_there_may_be(void **state)
{
    (void)state;
    static struct constraint_lease *leases[CONSTRAINT_HOST_MAX_LEASES];
    struct constraint_host *host = host_of(MODEL, 64 << 20);
    sem_t ready;
    sem_init(&ready, 0, 0);
    for (int i = 0; i < CONSTRAINT_HOST_MAX_LEASES; i++) {
        leases[i] = constraint_host_take(host, source_of(CONSTRAINT_REGEX, "a"), 0, post, &ready);
        assert_non_null(leases[i]);
    }
    assert_null(constraint_host_take(host, source_of(CONSTRAINT_REGEX, "a"), 0, post, &ready));
    for (int i = 0; i < CONSTRAINT_HOST_MAX_LEASES; i++)
        sem_wait(&ready);
    for (int i = 0; i < CONSTRAINT_HOST_MAX_LEASES; i++)
        constraint_host_give(host, leases[i]);
    constraint_host_destroy(host);
    sem_destroy(&ready);
}

/* --- where an answer is --- */

static uint32_t id_of(const struct constraint_host *host, const char *text)
{
    for (uint32_t id = 0; id < VOCAB; id++) {
        size_t length;
        const char *bytes = constraint_host_text(host, id, false, &length);
        if (bytes && length == strlen(text) && !memcmp(bytes, text, length))
            return id;
    }
    fail_msg("no token is %s", text);
    return 0;
}

static bool has(struct step_allowed allowed, uint32_t id)
{
    return allowed.bits[id / 32] >> id % 32 & 1;
}

/* The parts of a step loop: the walker, and the receiver of its reports. */
struct steps {
    struct constraint_walker *walker;
    struct step_constraints *constraints;
    sem_t through;
};

static void open_steps(struct steps *steps, struct constraint_host *host, uint32_t max_sequences)
{
    sem_init(&steps->through, 0, 0);
    assert_int_equal(constraint_walker_create(post, &steps->through, &steps->walker), STATUS_OK);
    assert_int_equal(
        step_constraints_create(host, steps->walker, max_sequences, &steps->constraints),
        STATUS_OK);
}

static void close_steps(struct steps *steps)
{
    constraint_walker_stop(steps->walker);
    step_constraints_destroy(steps->constraints);
    constraint_walker_destroy(steps->walker);
    sem_destroy(&steps->through);
}

static void test_a_state_follows_from_the_tokens(void **state)
{
    (void)state;
    struct constraint_host *host = host_of(MODEL, 64 << 20);
    struct constraint_lease *leases[3];
    struct steps steps;
    for (int i = 0; i < 3; i++)
        leases[i] = settled(host, CONSTRAINT_REGEX, "abc*");
    open_steps(&steps, host, 2);
    struct step_constraints *constraints = steps.constraints;
    uint32_t a = id_of(host, "a"), b = id_of(host, "b"), c = id_of(host, "c");
    uint32_t tokens[] = {5, 6, a, b, c, c};
    /* The tokens are drawn one by one, or all of them before, at another worker. */
    struct sequence drawn = {.tokens = tokens, .token_count = 2, .prompt_count = 2};
    struct sequence told = {
        .tokens = tokens, .token_count = 6, .prompt_count = 6, .emitted_count = 4};
    drawn.constraint = step_constraints_add(constraints, leases[0]);
    told.constraint = step_constraints_add(constraints, leases[1]);
    assert_int_equal(step_constraints_add(constraints, leases[2]), 0); /* no number is left */
    for (; drawn.token_count < 6; drawn.token_count++) {
        struct step_allowed allowed = step_constraints_find(constraints, &drawn);
        assert_true(has(allowed, tokens[drawn.token_count]));
        assert_int_equal(has(allowed, 0), drawn.token_count >= 4); /* the end */
        assert_false(step_constraints_take(constraints, &drawn, tokens[drawn.token_count]));
    }
    struct step_allowed one = step_constraints_find(constraints, &drawn),
                        other = step_constraints_find(constraints, &told);
    assert_memory_equal(one.bits, other.bits, VOCAB / 8);
    assert_false(one.end_only);
    /* A token that no constraint allows ends it. */
    tokens[5] = a;
    step_constraints_remove(constraints, told.constraint);
    told.constraint = step_constraints_add(constraints, leases[2]);
    other = step_constraints_find(constraints, &told);
    for (uint32_t id = 0; id < VOCAB; id++)
        assert_false(has(other, id));
    close_steps(&steps);
    constraint_host_destroy(host);
}

static void test_ends(void **state)
{
    (void)state;
    struct constraint_host *host = host_of(MODEL, 64 << 20);
    struct steps steps;
    open_steps(&steps, host, 1);
    struct step_constraints *constraints = steps.constraints;
    struct constraint_lease *lease = settled(host, CONSTRAINT_REGEX, "aa?");
    uint32_t a = id_of(host, "a"), tokens[] = {5, a};
    struct sequence sequence = {.tokens = tokens, .token_count = 1, .prompt_count = 1};
    sequence.constraint = step_constraints_add(constraints, lease);
    sequence.sampling.stop_ids[0] = 7;
    sequence.sampling.stop_ids[1] = UINT32_MAX; /* not in any vocabulary */
    sequence.sampling.stop_id_count = 2;
    struct step_allowed allowed = step_constraints_find(constraints, &sequence);
    assert_false(has(allowed, 0) || has(allowed, 7));
    assert_false(step_constraints_take(constraints, &sequence, a));
    sequence.token_count = 2;
    allowed = step_constraints_find(constraints, &sequence);
    assert_true(has(allowed, 0) && has(allowed, 7) && has(allowed, a));
    step_constraints_remove(constraints, sequence.constraint);
    sequence.constraint = step_constraints_add(constraints, settled(host, CONSTRAINT_REGEX, "aa?"));
    sequence.sampling.ignore_eos = true;
    assert_false(has(step_constraints_find(constraints, &sequence), 0));
    assert_false(step_constraints_take(constraints, &sequence, 7)); /* ends it, and is no text */
    assert_true(step_constraints_take(constraints, &sequence, a));
    step_constraints_remove(constraints, sequence.constraint);
    /* The empty answer is the only one: an end is drawn, whatever the request says about ends. */
    sequence.constraint = step_constraints_add(constraints, settled(host, CONSTRAINT_REGEX, ""));
    sequence.token_count = 1;
    allowed = step_constraints_find(constraints, &sequence);
    assert_true(allowed.end_only && has(allowed, 0));
    close_steps(&steps);
    constraint_host_destroy(host);
}

#define MANY_TOKENS 100

/* Each under a constraint that is costly to mask, or the last one's. */
static void add_costly(struct steps *steps, struct constraint_host *host, const uint32_t *tokens,
                       struct sequence *sequences, struct sequence **list, int count)
{
    static const char *const texts[] = {".*e.{9}", "([a-z].)*", "[^e]*"};
    for (int i = 0; i < count; i++) {
        list[i] = &sequences[i];
        sequences[i] =
            (struct sequence){.tokens = (uint32_t *)tokens, .token_count = 1, .prompt_count = 1};
        sequences[i].constraint = step_constraints_add(
            steps->constraints, settled(host, CONSTRAINT_REGEX, texts[i < 3 ? i : 2]));
    }
}

/* Runs steps of a few nodes until no sequence waits. */
static void prepare_all(struct steps *steps, struct sequence *const *list, uint32_t count)
{
    for (;;) {
        bool waits = false;
        struct step_budget budget = {150, MANY_TOKENS};
        assert_false(step_constraints_prepare(steps->constraints, list, count, budget));
        for (uint32_t i = 0; i < count; i++)
            waits |= list[i]->waits;
        if (!waits)
            return;
        assert_int_equal(sem_wait(&steps->through), 0);
    }
}

/* A walk too long for a step goes on beside it, and gives the same set as at once. Sequences in the
 * same state wait for the same set. */
static void test_sets_are_worked_out_beside_the_steps(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    struct constraint_host *host = host_of(MODEL, 64 << 20);
    struct steps steps, at_once;
    struct sequence sequences[COUNT], *list[COUNT], again[COUNT], *unused[COUNT];
    uint32_t tokens[] = {5}, a = 0;
    open_steps(&steps, host, COUNT);
    open_steps(&at_once, host, COUNT);
    add_costly(&steps, host, tokens, sequences, list, COUNT);
    assert_false(step_constraints_prepare(steps.constraints, list, COUNT,
                                          (struct step_budget){150, MANY_TOKENS}));
    for (int i = 0; i < COUNT; i++)
        assert_true(sequences[i].waits); /* even if it's there by now */
    prepare_all(&steps, list, COUNT);
    const uint32_t *shared = step_constraints_find(steps.constraints, list[2]).bits;
    assert_ptr_equal(step_constraints_find(steps.constraints, list[3]).bits, shared);
    add_costly(&at_once, host, tokens, again, unused, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_memory_equal(step_constraints_find(steps.constraints, list[i]).bits,
                            step_constraints_find(at_once.constraints, &again[i]).bits, VOCAB / 8);
    /* One request's stop ids don't affect the other. */
    a = id_of(host, "a");
    uint32_t more[] = {5, a};
    sequences[3].sampling.ignore_eos = true;
    for (int i = 1; i < COUNT; i++) {
        assert_false(step_constraints_take(steps.constraints, list[i], a));
        sequences[i].tokens = more;
        sequences[i].token_count = 2;
    }
    prepare_all(&steps, list, COUNT);
    assert_true(has(step_constraints_find(steps.constraints, list[2]), 0));
    assert_false(has(step_constraints_find(steps.constraints, list[3]), 0));
    close_steps(&steps);
    close_steps(&at_once);
    constraint_host_destroy(host);
}

/* The answer may go at any point of its walk. Another one that waited for the same set has it
 * made. */
static void test_an_answer_goes_while_its_set_is_worked_out(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    struct constraint_host *host = host_of(MODEL, 64 << 20);
    uint32_t tokens[] = {5};
    for (uint32_t going = 2; going < COUNT; going++) {
        struct steps steps;
        struct sequence sequences[COUNT], *list[COUNT];
        open_steps(&steps, host, COUNT);
        add_costly(&steps, host, tokens, sequences, list, COUNT);
        assert_false(step_constraints_prepare(steps.constraints, list, COUNT,
                                              (struct step_budget){150, MANY_TOKENS}));
        step_constraints_remove(steps.constraints, list[going]->constraint);
        struct sequence *left = list[going ^ 1];
        struct sequence *others[] = {list[0], list[1], left};
        prepare_all(&steps, others, 3);
        assert_true(has(step_constraints_find(steps.constraints, left), id_of(host, "a")));
        step_constraints_remove(steps.constraints, list[1]->constraint);
        step_constraints_remove(steps.constraints, list[0]->constraint);
        step_constraints_remove(steps.constraints, left->constraint);
        close_steps(&steps);
    }
    /* All at once, and for an answer with a walk in progress. */
    struct steps steps;
    struct sequence sequences[COUNT], *list[COUNT];
    open_steps(&steps, host, COUNT);
    add_costly(&steps, host, tokens, sequences, list, COUNT);
    assert_false(step_constraints_prepare(steps.constraints, list, COUNT,
                                          (struct step_budget){150, MANY_TOKENS}));
    const uint32_t *bits = step_constraints_find(steps.constraints, list[3]).bits;
    assert_ptr_equal(step_constraints_find(steps.constraints, list[2]).bits, bits);
    close_steps(&steps);
    constraint_host_destroy(host);
}

/* Tokens from another worker are taken a few a step, in turns. The answer does nothing else
 * before. */
static void test_answers_from_elsewhere_are_caught_up_with(void **state)
{
    (void)state;
    enum { COUNT = 2, ANSWER = 25, TOKENS = 10 };
    struct constraint_host *host = host_of(MODEL, 64 << 20);
    struct steps steps;
    struct sequence sequences[COUNT], *list[COUNT];
    uint32_t tokens[1 + ANSWER] = {5}, calls = 0;
    constraint_host_give(host, settled(host, CONSTRAINT_REGEX, "a*")); /* tokens have texts now */
    for (int i = 0; i < ANSWER; i++)
        tokens[1 + i] = id_of(host, "a");
    open_steps(&steps, host, COUNT);
    for (int i = 0; i < COUNT; i++) {
        list[i] = &sequences[i];
        sequences[i] = (struct sequence){
            .tokens = tokens, .token_count = 1 + ANSWER, .prompt_count = 1 + ANSWER};
        sequences[i].emitted_count = ANSWER;
        sequences[i].constraint =
            step_constraints_add(steps.constraints, settled(host, CONSTRAINT_REGEX, "a*"));
    }
    struct step_budget budget = {STEP_CONSTRAINTS_NODES, TOKENS};
    while (step_constraints_prepare(steps.constraints, list, COUNT, budget)) {
        assert_true(sequences[0].waits || sequences[1].waits);
        calls++;
    }
    assert_int_equal(calls, COUNT * ANSWER / TOKENS - 1);
    prepare_all(&steps, list, COUNT);
    close_steps(&steps);
    constraint_host_destroy(host);
}

/* --- in the step loop --- */

enum { SEQUENCES = 3 };

struct loop {
    struct engine *engine;
    struct constraint_host *host;
    struct step_loop *steps;
};

static void open_loop(struct loop *loop)
{
    struct error err = {""};
    struct engine_config engine = {.model_dir = MODEL,
                                   .kernels = {.f32 = true, .threads = 1},
                                   .block_tokens = 16,
                                   .block_count = 16,
                                   .max_rows = 24,
                                   .max_sequences = SEQUENCES};
    if (engine_open(&engine, &loop->engine, &err) != STATUS_OK ||
        engine_attach_pool(loop->engine, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    loop->host = host_of(MODEL, 64 << 20);
    struct step_loop_config steps = {.engine = loop->engine,
                                     .constraints = loop->host,
                                     .chunk_tokens = 20,
                                     .max_sequences = SEQUENCES,
                                     .block_count = 16,
                                     .cpu = -1};
    assert_int_equal(step_loop_start(&steps, &loop->steps, &err), STATUS_OK);
}

static void close_loop(struct loop *loop)
{
    constraint_host_stop(loop->host);
    step_loop_stop(loop->steps);
    assert_int_equal(constraint_host_held(loop->host), 0);
    constraint_host_destroy(loop->host);
    engine_close(loop->engine);
}

static void add_biased(struct loop *loop, uint64_t request, const char *choices,
                       const struct logit_bias *biases, uint32_t bias_count)
{
    struct sequence_spec spec = {
        .key = {request, 1}, .plan = PLAN_LOCAL, .token_count = 1, .sampling = sampling_default()};
    spec.tokens = calloc(1, sizeof *spec.tokens);
    spec.tokens[0] = 5;
    spec.sampling.max_tokens = 12;
    spec.sampling.ignore_eos = true;
    if (choices)
        spec.constraint_source = source_of(CONSTRAINT_CHOICE, choices);
    if (bias_count) {
        struct logit_bias *copy = malloc(bias_count * sizeof *copy);
        memcpy(copy, biases, bias_count * sizeof *copy);
        spec.sampling.biases = copy;
        spec.sampling.bias_count = bias_count;
    }
    assert_int_equal(step_loop_add(loop->steps, &spec), STATUS_OK);
}

static void add(struct loop *loop, uint64_t request, const char *choices)
{
    add_biased(loop, request, choices, NULL, 0);
}

/* Returns the next event, except tokens that aren't an answer's last. Also the answers that it
 * ended, a bit each, all for this reason. */
static struct step_event next(struct loop *loop, enum finish_reason finish, uint64_t *ended)
{
    for (;;) {
        struct step_event *event = ring_wait(step_loop_events(loop->steps), WAIT_US);
        assert_non_null(event);
        struct step_event copy = *event;
        bool ends = false;
        for (uint32_t i = 0; i < event->token_count; i++)
            if (event->tokens[i].finish) {
                ends = true;
                assert_int_equal(event->tokens[i].finish, finish);
                *ended |= 1u << event->tokens[i].key.request;
            }
        step_loop_recycle(loop->steps, event);
        if (copy.kind != STEP_RESERVED && (copy.kind != STEP_TOKENS || ends))
            return copy;
    }
}

/* The thread that compiles, until the gate is opened. */
static struct constraint_lease *hold_up(struct constraint_host *host, struct gate *gate)
{
    sem_init(&gate->reached, 0, 0);
    sem_init(&gate->open, 0, 0);
    struct constraint_lease *lease =
        constraint_host_take(host, source_of(CONSTRAINT_JSON_OBJECT, ""), 0, wait_at, gate);
    sem_wait(&gate->reached);
    return lease;
}

static void end_gate(struct gate *gate)
{
    sem_destroy(&gate->reached);
    sem_destroy(&gate->open);
}

/* While the thread that compiles is held up, requests with a constraint wait, and no others. */
static void test_sequences_wait_for_their_constraints(void **state)
{
    (void)state;
    struct loop loop;
    struct gate gate;
    uint64_t ended = 0;
    open_loop(&loop);
    struct constraint_lease *lease = hold_up(loop.host, &gate);
    for (uint64_t request = 1; request <= SEQUENCES; request++)
        add(&loop, request, "[\"the Nurse\"]");
    add(&loop, 10, "[\"one more\"]"); /* than may wait */
    struct step_event event = next(&loop, FINISH_NONE, &ended);
    assert_int_equal(event.kind, STEP_REFUSED);
    assert_int_equal(event.key.request, 10);
    assert_int_equal(event.status, STATUS_LIMIT);
    add(&loop, 11, NULL);
    assert_int_equal(next(&loop, FINISH_MAX_TOKENS, &ended).kind, STEP_TOKENS);
    assert_int_equal(ended, 1u << 11);
    step_loop_remove(loop.steps, (struct sequence_key){2, 1}); /* while it waits */
    assert_int_equal(next(&loop, FINISH_NONE, &ended).kind, STEP_REMOVED);
    sem_post(&gate.open);
    while (ended != (1u << 11 | 1u << 1 | 1u << 3))
        assert_int_equal(next(&loop, FINISH_COMPLETE, &ended).kind, STEP_TOKENS);
    constraint_host_give(loop.host, lease);
    add(&loop, 12, "[1]"); /* no router lets it through */
    event = next(&loop, FINISH_NONE, &ended);
    assert_int_equal(event.kind, STEP_REFUSED);
    assert_int_equal(event.status, STATUS_INVALID);
    close_loop(&loop);
    end_gate(&gate);
}

static void wait_first_token(struct loop *loop)
{
    for (bool came = false; !came;) {
        struct step_event *event = ring_wait(step_loop_events(loop->steps), WAIT_US);
        assert_non_null(event);
        came = event->kind == STEP_TOKENS;
        step_loop_recycle(loop->steps, event);
    }
}

/* Leases come back from every place: from the host, and from one that is just being settled. */
static void test_a_loop_that_stops_gives_all_back(void **state)
{
    (void)state;
    for (int answering = 0; answering < 2; answering++) {
        struct loop loop;
        struct gate gate;
        open_loop(&loop);
        struct constraint_lease *lease = hold_up(loop.host, &gate);
        for (uint64_t request = 1; request <= SEQUENCES; request++)
            add(&loop, request, "[\"the Nurse\", \"the Nurse of Juliet\"]");
        assert_int_equal(constraint_host_held(loop.host), SEQUENCES + 1);
        sem_post(&gate.open);
        constraint_host_give(loop.host, lease);
        if (answering)
            wait_first_token(&loop);
        close_loop(&loop);
        end_gate(&gate);
    }
}

/* If one answer has no token left to draw, its error says so, and the others of the step get their
 * tokens. */
static void test_a_constraint_whose_tokens_are_all_banned(void **state)
{
    (void)state;
    struct loop loop;
    uint64_t ended = 0;
    open_loop(&loop);
    struct constraint_lease *lease = settled(loop.host, CONSTRAINT_CHOICE, "[\"7\"]");
    struct logit_bias bias = {id_of(loop.host, "7"), -100};
    constraint_host_give(loop.host, lease);
    add(&loop, 1, "[\"the Nurse\"]");
    add_biased(&loop, 2, "[\"7\"]", &bias, 1);
    add(&loop, 3, "[\"the Nurse\"]");
    struct step_event failed = {.kind = STEP_TOKENS};
    while (failed.kind != STEP_FAILED || ended != (1u << 1 | 1u << 3)) {
        struct step_event event = next(&loop, FINISH_COMPLETE, &ended);
        if (event.kind == STEP_FAILED)
            failed = event;
    }
    assert_int_equal(failed.key.request, 2);
    assert_int_equal(failed.status, STATUS_INVALID);
    assert_true(failed.banned);
    assert_string_equal(step_event_lost_by(&failed), "no_token_allowed");
    assert_non_null(strstr(failed.err.text, "no token that logit_bias doesn't ban"));
    step_loop_remove(loop.steps, failed.key);
    assert_int_equal(next(&loop, FINISH_NONE, &ended).kind, STEP_REMOVED);
    close_loop(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leases_share_what_is_compiled),
        cmocka_unit_test(test_special_tokens_are_marked),
        cmocka_unit_test(test_a_lazy_host_begins_with_the_first_lease),
        cmocka_unit_test(test_what_cannot_be_compiled_is_said),
        cmocka_unit_test(test_a_constraint_over_the_memory_is_refused),
        cmocka_unit_test(test_turns_go_round_the_owners),
        cmocka_unit_test(test_a_constraint_that_never_fits),
        cmocka_unit_test(test_a_lease_more_than_there_may_be),
        cmocka_unit_test(test_a_state_follows_from_the_tokens),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_sets_are_worked_out_beside_the_steps),
        cmocka_unit_test(test_an_answer_goes_while_its_set_is_worked_out),
        cmocka_unit_test(test_answers_from_elsewhere_are_caught_up_with),
        cmocka_unit_test(test_sequences_wait_for_their_constraints),
        cmocka_unit_test(test_a_constraint_whose_tokens_are_all_banned),
        cmocka_unit_test(test_a_loop_that_stops_gives_all_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
