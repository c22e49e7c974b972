/* request_parse: presence and defaults, every limit and one beyond it, reasons. */
#include "proto/proto_text.h"
#include "router/request_parse.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct request_model model = {
    .name = "tiny", .context = 100, .vocab = 50, .has_tokenizer = true};

/* A good request that each test spoils: three ids. */
struct fixture {
    Baton__V1__GenerateRequest request;
    Baton__V1__Sampling sampling;
    Baton__V1__Stop stop;
    Baton__V1__Output output;
    Baton__V1__TokenIds ids;
    uint32_t values[128];
    struct request_params params;
    struct error err;
};

static void fixture_init(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    baton__v1__generate_request__init(&f->request);
    baton__v1__sampling__init(&f->sampling);
    baton__v1__stop__init(&f->stop);
    baton__v1__output__init(&f->output);
    baton__v1__token_ids__init(&f->ids);
    f->values[0] = 1;
    f->values[1] = 49;
    f->values[2] = 0;
    f->ids.ids = f->values;
    f->ids.n_ids = 3;
    f->request.token_ids = &f->ids;
    f->request.input_case = BATON__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS;
    f->request.sampling = &f->sampling;
    f->request.stop = &f->stop;
    f->request.output = &f->output;
}

static enum reason parse(struct fixture *f)
{
    memset(&f->params, 0xee, sizeof f->params);
    return request_parse(&f->request, &request_fields_grpc, &model, &f->params, &f->err);
}

static void test_defaults(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.request.sampling = NULL;
    f.request.stop = NULL;
    f.request.output = NULL;
    assert_int_equal(parse(&f), REASON_NONE);
    assert_string_equal(f.params.id, "");
    assert_int_equal(f.params.token_count, 3);
    assert_null(f.params.text.bytes);
    assert_true(f.params.sampling.temperature == 1.0f && f.params.sampling.top_p == 1.0f);
    assert_int_equal(f.params.sampling.max_tokens, 16);
    assert_false(f.params.seed_given || f.params.max_tokens_given);
    assert_true(f.params.add_special_tokens && f.params.return_token_ids &&
                f.params.skip_special_tokens);
    assert_false(f.params.return_timing || f.params.return_logits_hash);
}

static void test_model_defaults_lie_between(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    model.defaults = (struct generation_defaults){.has_temperature = true,
                                                  .temperature = 0.8f,
                                                  .has_top_p = true,
                                                  .top_p = 0.95f,
                                                  .has_top_k = true,
                                                  .top_k = 40};
    f.sampling.temperature_presence_case = BATON__V1__SAMPLING__TEMPERATURE_PRESENCE_TEMPERATURE;
    f.sampling.temperature = 0; /* given as 0 is not the same as left out */
    f.sampling.seed_presence_case = BATON__V1__SAMPLING__SEED_PRESENCE_SEED;
    f.sampling.seed = 0;
    assert_int_equal(parse(&f), REASON_NONE);
    model.defaults = (struct generation_defaults){0};
    assert_true(f.params.sampling.temperature == 0.0f);
    assert_true(f.params.sampling.top_p == 0.95f);
    assert_int_equal(f.params.sampling.top_k, 40);
    assert_true(f.params.seed_given);
}

static void test_priorities(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    for (int priority = -1; priority <= PRIORITIES; priority++) {
        bool is_one = priority >= 0 && priority < PRIORITIES;
        f.request.priority_presence_case = BATON__V1__GENERATE_REQUEST__PRIORITY_PRESENCE_PRIORITY;
        f.request.priority = (Baton__V1__Priority)priority;
        assert_int_equal(parse(&f), is_one ? REASON_NONE : REASON_INVALID_PRIORITY);
        if (is_one)
            assert_int_equal(f.params.priority, priority);
    }
    assert_int_equal(PRIORITY_HIGH, BATON__V1__PRIORITY__PRIORITY_HIGH);
    assert_int_equal(PRIORITY_OFFLINE, BATON__V1__PRIORITY__PRIORITY_OFFLINE);
}

static struct slo_classes two_classes(void)
{
    struct slo_classes classes;
    struct str mistakes;
    str_init(&mistakes, 4096);
    if (!slo_classes_parse("name=chat,ttft=400ms,tpot=40ms,name=batch,e2e=1h,offline", "chat",
                           &classes, &mistakes))
        fail_msg("%s", mistakes.data);
    str_deinit(&mistakes);
    return classes;
}

/* A class gives objectives and the priority; the request may loosen these and choose that. */
static void test_classes(void **state)
{
    (void)state;
    const struct slo_classes classes = two_classes();
    static const struct {
        const char *name;
        int priority; /* -1: not given */
        struct slo_objective asked, objective;
        uint32_t slo_class;
        enum priority wanted;
        enum reason reason;
        const char *sentence;
    } cases[] = {
        {"", -1, {0}, {400000, 40000, 0, 0}, 0, PRIORITY_NORMAL, REASON_NONE, NULL},
        {"chat", 1, {0}, {400000, 40000, 0, 0}, 0, PRIORITY_HIGH, REASON_NONE, NULL},
        {"batch", -1, {0}, {0, 0, 0, 3600000000}, 1, PRIORITY_OFFLINE, REASON_NONE, NULL},
        {"batch", 0, {0}, {0, 0, 0, 3600000000}, 1, PRIORITY_NORMAL, REASON_NONE, NULL},
        {"", -1, {500000, 0, 0, 0}, {500000, 40000, 0, 0}, 0, PRIORITY_NORMAL, REASON_NONE, NULL},
        {.name = "chat",
         .priority = -1,
         .asked = {0, 39999, 0, 0},
         .reason = REASON_SLO_TIGHTENED,
         .sentence = "tpot of 39.999 ms is tighter than the class's, 40 ms"},
        {.name = "chat", /* a time of arrival and this would pass the largest number */
         .priority = -1,
         .asked = {UINT64_MAX, 0, 0, 0},
         .reason = REASON_MALFORMED,
         .sentence = "ttft of a request must be at most 24 h"},
        {.name = "batch",
         .priority = -1,
         .asked = {1, 0, 0, 0},
         .reason = REASON_SLO_TIGHTENED,
         .sentence = "ttft: the request's class has no such objective"},
        {.name = "chatty",
         .priority = -1,
         .reason = REASON_SLO_CLASS_UNKNOWN,
         .sentence = "slo_class \"chatty\" is none of the router's: chat, batch"},
        {.name = "chat", .priority = 3, .reason = REASON_INVALID_PRIORITY, .sentence = "got 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        fixture_init(&f);
        Baton__V1__SloObjective asked = BATON__V1__SLO_OBJECTIVE__INIT;
        asked.ttft_us = cases[i].asked.ttft_us;
        asked.tpot_us = cases[i].asked.tpot_us;
        f.request.slo_class = (char *)cases[i].name;
        f.request.slo_objective = &asked;
        if (cases[i].priority >= 0) {
            f.request.priority_presence_case =
                BATON__V1__GENERATE_REQUEST__PRIORITY_PRESENCE_PRIORITY;
            f.request.priority = (Baton__V1__Priority)cases[i].priority;
        }
        model.slo = &classes;
        enum reason reason = parse(&f);
        model.slo = NULL;
        if (reason != cases[i].reason)
            fail_msg("case %zu: %s", i, f.err.text);
        if (reason) {
            assert_non_null(strstr(f.err.text, cases[i].sentence));
            continue;
        }
        assert_int_equal(f.params.slo_class, cases[i].slo_class);
        assert_int_equal(f.params.priority, cases[i].wanted);
        assert_memory_equal(&f.params.objective, &cases[i].objective, sizeof f.params.objective);
    }
}

/* Without classes there are no objectives, and none can be named. */
static void test_without_classes(void **state)
{
    (void)state;
    const struct slo_classes none = {.count = 0, .standard = SLO_NONE};
    const struct slo_classes *const both[] = {NULL, &none};
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        fixture_init(&f);
        model.slo = both[i];
        assert_int_equal(parse(&f), REASON_NONE);
        assert_int_equal(f.params.slo_class, SLO_NONE);
        assert_int_equal(f.params.priority, PRIORITY_NORMAL);
        assert_int_equal(f.params.objective.ttft_us + f.params.objective.tpot_us, 0);
        f.request.slo_class = (char *)"chat";
        assert_int_equal(parse(&f), REASON_SLO_CLASS_UNKNOWN);
        assert_non_null(strstr(f.err.text, "this router has no SLO classes"));
        f.request.slo_class = (char *)"";
        Baton__V1__SloObjective asked = BATON__V1__SLO_OBJECTIVE__INIT;
        f.request.slo_objective = &asked;
        assert_int_equal(parse(&f), REASON_NONE); /* it asks for nothing */
        asked.e2e_us = 1;
        assert_int_equal(parse(&f), REASON_SLO_TIGHTENED);
        model.slo = NULL;
    }
}

static void test_the_class_of_a_header(void **state)
{
    (void)state;
    static const struct {
        const char *message, *header;
        size_t count;
        const char *wanted; /* NULL: refused */
        enum reason reason;
    } cases[] = {
        {"", NULL, 0, "", REASON_NONE},
        {"", "", 1, "", REASON_NONE},
        {"", "chat", 1, "chat", REASON_NONE},
        {"chat", NULL, 0, "chat", REASON_NONE},
        {"chat", "chat", 1, "chat", REASON_NONE},
        {"chat", "batch", 1, NULL, REASON_SLO_CLASS_CONFLICT},
        {"", "chat", 2, NULL, REASON_MALFORMED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        fixture_init(&f);
        f.request.slo_class = (char *)cases[i].message;
        assert_int_equal(request_take_class(&f.request, cases[i].header, cases[i].count, &f.err),
                         cases[i].reason);
        if (cases[i].wanted)
            assert_string_equal(f.request.slo_class, cases[i].wanted);
    }
}

/* The sentence repeats the name: on one line, in whole characters. */
static void test_request_ids(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    char id[REQUEST_MAX_ID_BYTES + 2];
    memset(id, 'a', sizeof id);
    id[sizeof id - 1] = 0;
    f.request.request_id = id;
    assert_int_equal(parse(&f), REASON_INVALID_REQUEST_ID);
    id[REQUEST_MAX_ID_BYTES] = 0;
    assert_int_equal(parse(&f), REASON_NONE);
    assert_string_equal(f.params.id, id);
    static char *const bad[] = {"a b", "a\nb", "caf\xc3\xa9", "\x7f"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f.request.request_id = bad[i];
        assert_int_equal(parse(&f), REASON_INVALID_REQUEST_ID);
    }
}

static void test_inputs(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.values[1] = 50;
    assert_int_equal(parse(&f), REASON_INVALID_TOKEN_ID);
    assert_string_equal(f.err.text, "token_ids[1] is 50, but the model's ids end at 49");
    f.values[1] = 49;
    f.ids.n_ids = 101;
    assert_int_equal(parse(&f), REASON_CONTEXT_LENGTH_EXCEEDED);
    f.request.input_case = BATON__V1__GENERATE_REQUEST__INPUT__NOT_SET;
    assert_int_equal(parse(&f), REASON_MISSING_INPUT);
    f.request.input_case = BATON__V1__GENERATE_REQUEST__INPUT_TEXT;
    f.request.text = proto_bytes((struct text){"hel\0lo", 6});
    assert_int_equal(parse(&f), REASON_NONE);
    assert_int_equal(f.params.text.length, 6);
    assert_memory_equal(f.params.text.bytes, "hel\0lo", 6);
    model.has_tokenizer = false;
    assert_int_equal(parse(&f), REASON_NO_TOKENIZER);
    model.has_tokenizer = true;

    char *text = malloc(REQUEST_MAX_TEXT_BYTES + 2);
    memset(text, 'x', REQUEST_MAX_TEXT_BYTES + 1);
    text[REQUEST_MAX_TEXT_BYTES + 1] = 0;
    f.request.text = proto_bytes(text_from(text));
    assert_int_equal(parse(&f), REASON_TEXT_TOO_LONG);
    f.request.text = proto_bytes(text_from(text + 1));
    assert_int_equal(parse(&f), REASON_NONE);
    free(text);
}

static void test_sampling_ranges(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p, min_p;
        enum reason reason;
    } rows[] = {
        {0, 1, 0, REASON_NONE},
        {100, 0.001f, 0.999f, REASON_NONE},
        {-0.1f, 1, 0, REASON_INVALID_SAMPLING},
        {100.1f, 1, 0, REASON_INVALID_SAMPLING},
        {NAN, 1, 0, REASON_INVALID_SAMPLING},
        {INFINITY, 1, 0, REASON_INVALID_SAMPLING},
        {1, 0, 0, REASON_INVALID_SAMPLING},
        {1, 1.01f, 0, REASON_INVALID_SAMPLING},
        {1, NAN, 0, REASON_INVALID_SAMPLING},
        {1, 1, 1, REASON_INVALID_SAMPLING},
        {1, 1, -0.1f, REASON_INVALID_SAMPLING},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture f;
        fixture_init(&f);
        f.sampling.temperature_presence_case =
            BATON__V1__SAMPLING__TEMPERATURE_PRESENCE_TEMPERATURE;
        f.sampling.top_p_presence_case = BATON__V1__SAMPLING__TOP_P_PRESENCE_TOP_P;
        f.sampling.min_p_presence_case = BATON__V1__SAMPLING__MIN_P_PRESENCE_MIN_P;
        f.sampling.temperature = rows[i].temperature;
        f.sampling.top_p = rows[i].top_p;
        f.sampling.min_p = rows[i].min_p;
        assert_int_equal(parse(&f), rows[i].reason);
    }
}

static void test_penalties(void **state)
{
    (void)state;
    static const struct {
        float presence, frequency, repetition;
        const char *named; /* NULL: fine */
    } rows[] = {
        {-2, 2, 0.01f, NULL},
        {2, -2, 100, NULL},
        {2.1f, 0, 1, "presence_penalty must be between -2 and 2, got 2.1"},
        {NAN, 0, 1, "presence_penalty"},
        {0, -2.1f, 1, "frequency_penalty must be between -2 and 2, got -2.1"},
        {0, INFINITY, 1, "frequency_penalty"},
        {0, 0, 0, "repetition_penalty must be between 0.01 and 100, got 0"},
        {0, 0, -1, "repetition_penalty"},
        {0, 0, 100.5f, "repetition_penalty must be between 0.01 and 100, got 100.5"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture f;
        fixture_init(&f);
        f.sampling.presence_penalty_presence_case = 9;
        f.sampling.frequency_penalty_presence_case = 10;
        f.sampling.repetition_penalty_presence_case = 11;
        f.sampling.presence_penalty = rows[i].presence;
        f.sampling.frequency_penalty = rows[i].frequency;
        f.sampling.repetition_penalty = rows[i].repetition;
        assert_int_equal(parse(&f), rows[i].named ? REASON_INVALID_SAMPLING : REASON_NONE);
        if (rows[i].named)
            assert_non_null(strstr(f.err.text, rows[i].named));
        else
            assert_true(f.params.sampling.presence_penalty == rows[i].presence &&
                        f.params.sampling.frequency_penalty == rows[i].frequency &&
                        f.params.sampling.repetition_penalty == rows[i].repetition);
    }
}

struct bias_list {
    Baton__V1__Sampling__LogitBiasEntry entries[SAMPLING_MAX_BIASES + 1];
    Baton__V1__Sampling__LogitBiasEntry *pointers[SAMPLING_MAX_BIASES + 1];
};

static void set_biases(struct fixture *f, struct bias_list *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        list->pointers[i] = &list->entries[i];
    f->sampling.n_logit_bias = count;
    f->sampling.logit_bias = list->pointers;
}

static void test_biases(void **state)
{
    (void)state;
    static struct bias_list list;
    struct fixture f;
    fixture_init(&f);
    for (int i = 0; i <= SAMPLING_MAX_BIASES; i++)
        baton__v1__sampling__logit_bias_entry__init(&list.entries[i]);
    const struct logit_bias want[] = {{0, -100}, {7, 0.5f}, {49, 100}};
    for (int i = 0; i < 3; i++) {
        list.entries[2 - i].key = want[i].id;
        list.entries[2 - i].value = want[i].bias;
    }
    set_biases(&f, &list, 3);
    assert_int_equal(parse(&f), REASON_NONE);
    assert_int_equal(f.params.sampling.bias_count, 3);
    assert_ptr_equal(f.params.sampling.biases, f.params.biases);
    for (int i = 0; i < 3; i++)
        assert_true(f.params.biases[i].id == want[i].id && f.params.biases[i].bias == want[i].bias);

    static const struct {
        uint32_t id;
        float bias;
        enum reason reason;
        const char *told;
    } bad[] = {{50, 1, REASON_INVALID_TOKEN_ID,
                "logit_bias names token 50, but the model's ids end at 49"},
               {1, 100.5f, REASON_INVALID_SAMPLING,
                "logit_bias of token 1 must be between -100 and 100, got 100.5"},
               {1, NAN, REASON_INVALID_SAMPLING, "logit_bias of token 1"},
               {49, 1, REASON_INVALID_SAMPLING, "logit_bias names token 49 twice"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        list.entries[1].key = bad[i].id;
        list.entries[1].value = bad[i].bias;
        assert_int_equal(parse(&f), bad[i].reason);
        assert_non_null(strstr(f.err.text, bad[i].told));
    }
}

static void test_one_bias_more_than_the_limit(void **state)
{
    (void)state;
    static struct bias_list list;
    struct fixture f;
    fixture_init(&f);
    model.vocab = 5000;
    for (uint32_t i = 0; i <= SAMPLING_MAX_BIASES; i++) {
        baton__v1__sampling__logit_bias_entry__init(&list.entries[i]);
        list.entries[i].key = 4999 - i;
    }
    set_biases(&f, &list, SAMPLING_MAX_BIASES);
    assert_int_equal(parse(&f), REASON_NONE);
    assert_int_equal(f.params.biases[0].id, 5000 - SAMPLING_MAX_BIASES);
    set_biases(&f, &list, SAMPLING_MAX_BIASES + 1);
    assert_int_equal(parse(&f), REASON_INVALID_SAMPLING);
    assert_string_equal(f.err.text, "logit_bias may name at most 1024 tokens, got 1025");
    model.vocab = 50;
}

static void test_logprobs_and_echo(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    assert_int_equal(parse(&f), REASON_NONE);
    assert_false(f.params.sampling.logprobs || f.params.sampling.prompt_logprobs || f.params.echo);
    f.output.logprobs_presence_case = 5;
    f.output.prompt_logprobs_presence_case = 6;
    f.output.echo_presence_case = 7;
    f.output.echo = true;
    assert_int_equal(parse(&f), REASON_NONE);
    assert_true(f.params.sampling.logprobs && f.params.sampling.prompt_logprobs && f.params.echo);
    assert_int_equal(f.params.sampling.top_logprobs, 0); /* logprobs of the drawn token alone */
    assert_int_equal(f.params.sampling.prompt_logprobs_from, 1);
    f.output.logprobs = LOGPROBS_MAX_TOP;
    f.output.prompt_logprobs = LOGPROBS_MAX_TOP;
    assert_int_equal(parse(&f), REASON_NONE);
    assert_int_equal(f.params.sampling.top_logprobs, 20);
    f.output.logprobs = LOGPROBS_MAX_TOP + 1;
    assert_int_equal(parse(&f), REASON_INVALID_SAMPLING);
    assert_string_equal(f.err.text, "logprobs must be between 0 and 20, got 21");
    f.output.logprobs = 0;
    f.output.prompt_logprobs = LOGPROBS_MAX_TOP + 1;
    assert_int_equal(parse(&f), REASON_INVALID_SAMPLING);
    assert_string_equal(f.err.text, "prompt_logprobs must be between 0 and 20, got 21");
}

/* Workers compute one token, and no key is charged for it. */
static void test_no_answer_to_a_prompt(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.sampling.max_tokens_presence_case = 6;
    f.sampling.max_tokens = 0;
    assert_int_equal(parse(&f), REASON_INVALID_SAMPLING); /* the answer would be empty */
    assert_string_equal(f.err.text, "max_tokens must be between 1 and 1048576 (0: with echo, for "
                                    "the prompt alone), got 0");
    f.output.echo_presence_case = 7;
    f.output.echo = true;
    assert_int_equal(parse(&f), REASON_NONE);
    assert_true(f.params.prompt_only && f.params.sampling.max_tokens == 1);
    assert_int_equal(request_most_tokens(&model, 30, &f.params), 30);
    assert_int_equal(request_fit(&model, model.context - 1, &f.params, &f.err), REASON_NONE);
    assert_int_equal(request_fit(&model, model.context, &f.params, &f.err),
                     REASON_CONTEXT_LENGTH_EXCEEDED);
    assert_non_null(strstr(f.err.text, "and to compute it takes room for 1 more"));
    f.output.echo = false;
    f.output.prompt_logprobs_presence_case = 6;
    assert_int_equal(parse(&f), REASON_NONE);
    assert_true(f.params.prompt_only);
    f.sampling.min_tokens_presence_case = 7;
    f.sampling.min_tokens = 1;
    assert_int_equal(parse(&f), REASON_INVALID_SAMPLING);
    f.sampling.min_tokens = 0;
    f.sampling.max_tokens = 1;
    assert_int_equal(parse(&f), REASON_NONE);
    assert_false(f.params.prompt_only);
}

/* Options for the one drawn token could end it, delay it or fail. So it is drawn without them;
 * invalid options are still refused. */
static void test_no_answer_has_nothing_asked_of_it(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    Baton__V1__Sampling__LogitBiasEntry entry = BATON__V1__SAMPLING__LOGIT_BIAS_ENTRY__INIT;
    Baton__V1__Sampling__LogitBiasEntry *entries[] = {&entry};
    uint32_t stop_id = 7;
    entry.key = 5;
    entry.value = -100;
    f.sampling.logit_bias = entries;
    f.sampling.n_logit_bias = 1;
    f.sampling.max_tokens_presence_case = 6;
    f.sampling.presence_penalty_presence_case =
        BATON__V1__SAMPLING__PRESENCE_PENALTY_PRESENCE_PRESENCE_PENALTY;
    f.sampling.presence_penalty = 1;
    f.sampling.seed_presence_case = BATON__V1__SAMPLING__SEED_PRESENCE_SEED;
    f.sampling.seed = 27;
    f.stop.token_ids = &stop_id;
    f.stop.n_token_ids = 1;
    f.output.prompt_logprobs_presence_case = 6;
    f.output.prompt_logprobs = 3;
    f.output.logprobs_presence_case = 5;
    assert_int_equal(parse(&f), REASON_NONE);
    const struct sampling *got = &f.params.sampling;
    assert_true(f.params.prompt_only && got->max_tokens == 1 && got->temperature == 0);
    assert_true(!got->bias_count && !got->stop_id_count && got->presence_penalty == 0);
    assert_true(got->prompt_logprobs && got->top_prompt_logprobs == 3 && !got->logprobs);
    assert_int_equal(got->prompt_logprobs_from, 1);
    assert_true(f.params.seed_given && got->seed == 27);
    assert_true(request_prompt_only(&f.request));
    entry.value = 101;
    assert_int_equal(parse(&f), REASON_INVALID_SAMPLING);
    entry.value = 1;
    f.sampling.presence_penalty = 3;
    assert_int_equal(parse(&f), REASON_INVALID_SAMPLING);
}

static void test_more_prompt_logprobs_than_one_message_has(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    assert_int_equal(parse(&f), REASON_NONE);
    assert_int_equal(request_fit_once(REQUEST_MAX_ONCE_SCORED + 1, &f.params, &f.err), REASON_NONE);
    f.params.sampling.prompt_logprobs = true;
    assert_int_equal(request_fit_once(REQUEST_MAX_ONCE_SCORED, &f.params, &f.err), REASON_NONE);
    assert_int_equal(request_fit_once(REQUEST_MAX_ONCE_SCORED + 1, &f.params, &f.err),
                     REASON_ANSWER_TOO_LARGE);
    assert_non_null(strstr(f.err.text, "16385"));
}

static void set_tokens(struct fixture *f, int min_tokens, int max_tokens)
{
    f->sampling.min_tokens_presence_case = min_tokens < 0 ? 0 : 7;
    f->sampling.min_tokens = (uint32_t)min_tokens;
    f->sampling.max_tokens_presence_case = max_tokens < 0 ? 0 : 6;
    f->sampling.max_tokens = (uint32_t)max_tokens;
}

static void test_token_limits(void **state)
{
    (void)state;
    static const struct {
        int min_tokens, max_tokens; /* -1: left out */
        enum reason reason;
        uint32_t result;
    } rows[] = {
        {-1, -1, REASON_NONE, 16},
        {-1, 1, REASON_NONE, 1},
        {-1, 0, REASON_INVALID_SAMPLING, 0},
        {5, 5, REASON_NONE, 5},
        {6, 5, REASON_INVALID_SAMPLING, 0},
        {20, -1, REASON_NONE, 20},
        {-1, SAMPLING_MAX_TOKENS_LIMIT, REASON_NONE, SAMPLING_MAX_TOKENS_LIMIT},
        {-1, SAMPLING_MAX_TOKENS_LIMIT + 1, REASON_INVALID_SAMPLING, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture f;
        fixture_init(&f);
        set_tokens(&f, rows[i].min_tokens, rows[i].max_tokens);
        assert_int_equal(parse(&f), rows[i].reason);
        if (rows[i].reason == REASON_NONE)
            assert_int_equal(f.params.sampling.max_tokens, rows[i].result);
    }
}

static void test_stops(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    char longest[REQUEST_MAX_STOP_BYTES + 2];
    memset(longest, 's', sizeof longest);
    longest[sizeof longest - 1] = 0;
    ProtobufCBinaryData strings[REQUEST_MAX_STOP_STRINGS + 1];
    for (size_t i = 0; i <= REQUEST_MAX_STOP_STRINGS; i++)
        strings[i] = proto_bytes(text_from("stop"));
    uint32_t ids[SAMPLING_MAX_STOP_IDS + 1] = {49};
    f.stop.strings = strings;
    f.stop.token_ids = ids;

    f.stop.n_strings = REQUEST_MAX_STOP_STRINGS;
    f.stop.n_token_ids = SAMPLING_MAX_STOP_IDS;
    strings[3] = proto_bytes(text_from(longest + 1));
    assert_int_equal(parse(&f), REASON_NONE);
    assert_int_equal(f.params.stop_count, REQUEST_MAX_STOP_STRINGS);
    assert_int_equal(f.params.sampling.stop_id_count, SAMPLING_MAX_STOP_IDS);
    assert_int_equal(f.params.sampling.stop_ids[0], 49);

    strings[3] = proto_bytes(text_from(longest));
    assert_int_equal(parse(&f), REASON_INVALID_STOP);
    strings[3] = proto_bytes(text_from(""));
    assert_int_equal(parse(&f), REASON_INVALID_STOP);
    strings[3] = proto_bytes(text_from("stop"));
    f.stop.n_strings++;
    assert_int_equal(parse(&f), REASON_INVALID_STOP);
    f.stop.n_strings = 1;
    f.stop.n_token_ids++;
    assert_int_equal(parse(&f), REASON_INVALID_STOP);
    f.stop.n_token_ids = 1;
    ids[0] = 50;
    assert_int_equal(parse(&f), REASON_INVALID_TOKEN_ID);
    ids[0] = 49;
    model.has_tokenizer = false;
    assert_int_equal(parse(&f), REASON_NO_TOKENIZER);
    f.stop.n_strings = 0;
    assert_int_equal(parse(&f), REASON_NONE);
    model.has_tokenizer = true;
}

static void test_the_most_tokens_that_a_request_may_use(void **state)
{
    (void)state;
    static const struct {
        size_t prompt_tokens;
        uint32_t max_tokens, choices;
        uint64_t most;
    } rows[] = {{1, 5, 1, 6}, {10, 5, 16, 90}, {90, 10, 2, 110}, {90, UINT32_MAX, 2, 110}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct request_params params = {.choices = rows[i].choices};
        params.sampling.max_tokens = rows[i].max_tokens;
        assert_int_equal(request_most_tokens(&model, rows[i].prompt_tokens, &params), rows[i].most);
    }
}

static void test_what_must_fit_the_context(void **state)
{
    (void)state;
    static const struct {
        size_t prompt_tokens;
        int min_tokens, max_tokens;
        enum reason reason;
        uint32_t result;
    } rows[] = {
        {0, -1, -1, REASON_EMPTY_PROMPT, 0},
        {1, -1, 99, REASON_NONE, 99},
        {1, -1, 100, REASON_CONTEXT_LENGTH_EXCEEDED, 0},
        {84, -1, -1, REASON_NONE, 16},
        {85, -1, -1, REASON_NONE, 16}, /* ends with the context, after 15 */
        {99, -1, -1, REASON_NONE, 16},
        {99, 2, -1, REASON_CONTEXT_LENGTH_EXCEEDED, 0},
        {100, -1, -1, REASON_CONTEXT_LENGTH_EXCEEDED, 0},
        {SIZE_MAX - 4, -1, -1, REASON_CONTEXT_LENGTH_EXCEEDED, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture f;
        fixture_init(&f);
        set_tokens(&f, rows[i].min_tokens, rows[i].max_tokens);
        assert_int_equal(parse(&f), REASON_NONE);
        assert_int_equal(request_fit(&model, rows[i].prompt_tokens, &f.params, &f.err),
                         rows[i].reason);
        if (rows[i].reason == REASON_NONE)
            assert_int_equal(f.params.sampling.max_tokens, rows[i].result);
    }
    struct fixture f;
    fixture_init(&f);
    set_tokens(&f, -1, 60);
    assert_int_equal(parse(&f), REASON_NONE);
    assert_int_equal(request_fit(&model, 41, &f.params, &f.err), REASON_CONTEXT_LENGTH_EXCEEDED);
    assert_string_equal(f.err.text, "the prompt has 41 tokens and max_tokens is 60, together 101, "
                                    "but the model's context is 100");
    set_tokens(&f, -1, 100);
    assert_int_equal(parse(&f), REASON_NONE);
    assert_int_equal(request_fit(&model, 1, &f.params, &f.err), REASON_CONTEXT_LENGTH_EXCEEDED);
    assert_string_equal(f.err.text, "the prompt has 1 token and max_tokens is 100, together 101, "
                                    "but the model's context is 100");
}

static void test_outputs(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.output.return_token_ids_presence_case = 1;
    f.output.skip_special_tokens_presence_case = 2;
    f.output.return_timing_presence_case = 3;
    f.output.return_timing = true;
    f.output.return_logits_hash_presence_case = 4;
    f.output.return_logits_hash = true;
    f.request.add_special_tokens_presence_case = 8;
    assert_int_equal(parse(&f), REASON_NONE);
    assert_false(f.params.return_token_ids || f.params.skip_special_tokens ||
                 f.params.add_special_tokens);
    assert_true(f.params.return_timing && f.params.return_logits_hash);
}

static void test_reasons_are_distinct(void **state)
{
    (void)state;
    for (int a = 1; a < REASON_COUNT; a++) {
        assert_true(reason_code(a) != RPC_OK);
        assert_true(*reason_when(a));
        for (int b = 1; b < a; b++)
            assert_string_not_equal(reason_name(a), reason_name(b));
    }
}

static void test_reasons_are_documented(void **state)
{
    (void)state;
    static char text[1 << 16];
    FILE *file = fopen("docs/api.md", "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    for (int reason = 1; reason < REASON_COUNT; reason++) {
        char row[128];
        snprintf(row, sizeof row, "| `%s` | %s |", reason_name(reason),
                 rpc_code_name(reason_code(reason)));
        if (!strstr(text, row))
            fail_msg("docs/api.md has no row %s", row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_model_defaults_lie_between),
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_without_classes),
        cmocka_unit_test(test_the_class_of_a_header),
        cmocka_unit_test(test_request_ids),
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_sampling_ranges),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_biases),
        cmocka_unit_test(test_one_bias_more_than_the_limit),
        cmocka_unit_test(test_logprobs_and_echo),
        cmocka_unit_test(test_no_answer_to_a_prompt),
        cmocka_unit_test(test_no_answer_has_nothing_asked_of_it),
        cmocka_unit_test(test_more_prompt_logprobs_than_one_message_has),
        cmocka_unit_test(test_token_limits),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_what_must_fit_the_context),
        cmocka_unit_test(test_the_most_tokens_that_a_request_may_use),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_reasons_are_distinct),
        cmocka_unit_test(test_reasons_are_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
