/* wire: the content of a Prefill or Decode is checked before anything is queued. One end of a
 * handoff receives the messages that the other end sent. */
#include "common/language/constrain/constraint.h"
#include "common/worker/wire.h"

#include "common/net/membership/worker_message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 100 };
static const struct worker_info INFO = {.vocab = VOCAB, .model_hash = 5, .numerics_id = 6};
static const struct handle_ref REF = {UINT64_MAX, 7, UINT32_MAX};

static Baton__Worker__V1__Sampling good_sampling(void)
{
    Baton__Worker__V1__Sampling sampling = BATON__WORKER__V1__SAMPLING__INIT;
    sampling.temperature = 0.5f;
    sampling.top_p = 1;
    sampling.max_tokens = 4;
    sampling.seed = 9;
    return sampling;
}

static void test_prompt_and_emitted_become_one(void **state)
{
    (void)state;
    const uint32_t prompt[] = {1, 2, 3}, emitted[] = {4};
    Baton__Worker__V1__Sampling sampling = good_sampling();
    struct wire_prompt in = {prompt, emitted, 3, 1, &sampling, NULL, 0, 0, 0, 0};
    struct sequence_spec spec = {0};
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, NULL), STATUS_OK);
    const uint32_t want[] = {1, 2, 3, 4};
    assert_int_equal(spec.token_count, 4);
    assert_int_equal(spec.emitted_count, 1);
    assert_memory_equal(spec.tokens, want, sizeof want);
    assert_int_equal(spec.sampling.seed, 9);
    free(spec.tokens);
}

/* The root of a request's names decides which cached prompts it may use. */
static void test_each_tenant_has_its_own_root(void **state)
{
    (void)state;
    const uint32_t prompt[] = {1, 2, 3};
    static const struct {
        const char *salt;
        uint64_t model_hash, numerics_id;
    } cases[] = {{"", 5, 6}, {"a", 5, 6}, {"b", 5, 6}, {"", 6, 6}, {"", 5, 5}};
    Baton__Worker__V1__Sampling sampling = good_sampling();
    struct prefix_hash roots[5];
    for (int i = 0; i < 5; i++) {
        struct worker_info info = INFO;
        info.model_hash = cases[i].model_hash;
        info.numerics_id = cases[i].numerics_id;
        struct wire_prompt in = {
            prompt, NULL, 3, 0, &sampling, cases[i].salt, strlen(cases[i].salt), 0, 0, 0};
        struct sequence_spec spec = {0};
        assert_int_equal(wire_sequence_spec(&in, &info, &spec, NULL), STATUS_OK);
        free(spec.tokens);
        roots[i] = spec.root;
        for (int j = 0; j < i; j++)
            assert_false(prefix_hash_equal(roots[i], roots[j]));
    }
    assert_true(prefix_hash_equal(roots[0], prefix_hash_root(5, 6, NULL, 0)));
}

/* Blocks that another worker's arithmetic has computed are found by prompts from such a worker
 * alone: not by our own, nor by the other's at another worker. */
static void test_received_prompts_say_whose_they_are(void **state)
{
    (void)state;
    const uint32_t prompt[] = {1, 2, 3};
    Baton__Worker__V1__Sampling sampling = good_sampling();
    static const struct {
        uint64_t theirs, ours;
        const char *salt;
    } cases[] = {{6, 6, ""}, {7, 6, ""}, {6, 7, ""}, {8, 6, ""}, {7, 7, ""}, {7, 6, "a"}};
    struct prefix_hash roots[6];
    for (int i = 0; i < 6; i++) {
        struct worker_info info = INFO;
        info.numerics_id = cases[i].ours;
        struct wire_prompt in = {
            prompt, NULL, 3, 0, &sampling, cases[i].salt, strlen(cases[i].salt), 0, 0, 0};
        struct sequence_spec spec = {0};
        assert_int_equal(wire_sequence_spec(&in, &info, &spec, NULL), STATUS_OK);
        free(spec.tokens);
        wire_mark_received(&in, &info, cases[i].theirs, &spec);
        roots[i] = spec.root;
        for (int j = 0; j < i; j++)
            assert_false(prefix_hash_equal(roots[i], roots[j]));
    }
    assert_true(prefix_hash_equal(roots[0], prefix_hash_root(5, 6, NULL, 0)));
    assert_true(prefix_hash_equal(roots[4], prefix_hash_root(5, 7, NULL, 0)));
}

static void expect_refused(struct wire_prompt in, const char *words)
{
    struct error err;
    struct sequence_spec spec = {0};
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, words));
    assert_null(spec.tokens);
}

static void test_what_is_wrong_is_named(void **state)
{
    (void)state;
    const uint32_t good[] = {1}, bad[] = {1, VOCAB};
    Baton__Worker__V1__Sampling sampling = good_sampling(), cold = sampling, crowded = sampling;
    expect_refused((struct wire_prompt){good, NULL, 1, 0, NULL, NULL, 0, 0, 0, 0}, "no sampling");
    expect_refused((struct wire_prompt){bad, NULL, 2, 0, &sampling, NULL, 0, 0, 0, 0},
                   "token id 100 at position 1");
    expect_refused((struct wire_prompt){good, bad, 1, 2, &sampling, NULL, 0, 0, 0, 0},
                   "token id 100");
    expect_refused((struct wire_prompt){NULL, NULL, 0, 0, &sampling, NULL, 0, 0, 0, 0},
                   "prompt of 0 tokens");
    cold.temperature = -1;
    expect_refused((struct wire_prompt){good, NULL, 1, 0, &cold, NULL, 0, 0, 0, 0}, "temperature");
    uint32_t stops[SAMPLING_MAX_STOP_IDS + 1] = {0};
    crowded.stop_ids = stops;
    crowded.n_stop_ids = SAMPLING_MAX_STOP_IDS + 1;
    expect_refused((struct wire_prompt){good, NULL, 1, 0, &crowded, NULL, 0, 0, 0, 0}, "stop ids");
    static const char salt[257];
    expect_refused((struct wire_prompt){good, NULL, 1, 0, &sampling, salt, 257, 0, 0, 0},
                   "257 bytes");
    expect_refused((struct wire_prompt){good, NULL, 1, 0, &sampling, NULL, 0, 3, 0, 0},
                   "priority 3");
    expect_refused((struct wire_prompt){good, NULL, 1, 0, &sampling, NULL, 0, -1, 0, 0},
                   "priority -1");
}

static void test_all_of_sampling_is_taken_over(void **state)
{
    (void)state;
    const uint32_t prompt[] = {1}, bias_ids[] = {3, 99};
    const float biases[] = {-100, 1.5f};
    Baton__Worker__V1__Sampling sampling = good_sampling();
    struct wire_prompt in = {prompt, NULL, 1, 0, &sampling, NULL, 0, 0, 0, 0};
    struct sequence_spec spec = {0};
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, NULL), STATUS_OK);
    assert_true(spec.sampling.repetition_penalty == 1 && !spec.sampling.biases);
    assert_false(spec.sampling.logits_hash);
    sequence_spec_free(&spec);

    sampling.presence_penalty = 0.5f;
    sampling.frequency_penalty = -0.5f;
    sampling.repetition_penalty = 1.25f;
    sampling.logits_hash = sampling.logprobs = sampling.prompt_logprobs = true;
    sampling.top_logprobs = 20;
    sampling.top_prompt_logprobs = 7;
    sampling.prompt_logprobs_from = 2;
    sampling.choice = 3;
    sampling.n_bias_ids = sampling.n_biases = 2;
    sampling.bias_ids = (uint32_t *)bias_ids;
    sampling.biases = (float *)biases;
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, NULL), STATUS_OK);
    const struct sampling *s = &spec.sampling;
    assert_true(s->presence_penalty == 0.5f && s->frequency_penalty == -0.5f);
    assert_true(s->repetition_penalty == 1.25f && s->choice == 3);
    assert_true(s->logits_hash && s->logprobs && s->top_logprobs == 20);
    assert_true(s->prompt_logprobs && s->top_prompt_logprobs == 7 && s->prompt_logprobs_from == 2);
    assert_int_equal(s->bias_count, 2);
    assert_true(s->biases[0].id == 3 && s->biases[0].bias == -100);
    assert_true(s->biases[1].id == 99 && s->biases[1].bias == 1.5f);
    sequence_spec_free(&spec);
}

static void test_biases_and_logprobs_that_no_router_asks_for(void **state)
{
    (void)state;
    const uint32_t good[] = {1}, foreign[] = {VOCAB}, disordered[] = {5, 5};
    const float biases[] = {1, 1};
    const Baton__Worker__V1__Sampling sound = good_sampling();
    Baton__Worker__V1__Sampling sampling = sound;
    const struct wire_prompt in = {good, NULL, 1, 0, &sampling, NULL, 0, 0, 0, 0};
    sampling.n_bias_ids = sampling.n_biases = 1;
    sampling.bias_ids = (uint32_t *)foreign;
    sampling.biases = (float *)biases;
    expect_refused(in, "token id 100");
    sampling.bias_ids = (uint32_t *)disordered;
    sampling.n_bias_ids = sampling.n_biases = 2;
    expect_refused(in, "token 5 twice");
    sampling.n_biases = 1;
    expect_refused(in, "2 ids and 1");
    sampling = sound;
    sampling.n_bias_ids = sampling.n_biases = SAMPLING_MAX_BIASES + 1;
    expect_refused(in, "at most 1024 biases");
    sampling = sound;
    sampling.prompt_logprobs = true;
    expect_refused(in, "first token has no logprobs");
    sampling = sound;
    sampling.top_logprobs = LOGPROBS_MAX_TOP + 1;
    expect_refused(in, "logprobs must be");
}

static void test_a_constraint_is_taken_over(void **state)
{
    (void)state;
    const uint32_t prompt[] = {1};
    Baton__Worker__V1__Sampling sampling = good_sampling();
    Baton__Worker__V1__Constraint constraint = BATON__WORKER__V1__CONSTRAINT__INIT;
    struct wire_prompt in = {prompt, NULL, 1, 0, &sampling, NULL, 0, 0, 0, 0};
    struct sequence_spec spec = {0};
    struct error err;
    sampling.constraint = &constraint;
    constraint.kind = BATON__WORKER__V1__CONSTRAINT_KIND__REGEX;
    constraint.text = "a+";
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, &err), STATUS_OK);
    assert_int_equal(spec.constraint_source->kind, CONSTRAINT_REGEX);
    assert_string_equal(spec.constraint_source->text, "a+");
    assert_int_equal(spec.constraint_source->length, 2);
    sequence_spec_free(&spec);
    char *text = calloc(1, CONSTRAINT_MAX_TEXT_BYTES + CONSTRAINT_MAX_LINE_BYTES + 2);
    assert_non_null(text);
    memset(text, 'a', CONSTRAINT_MAX_TEXT_BYTES);
    constraint.text = text;
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, &err), STATUS_OK);
    sequence_spec_free(&spec);
    text[CONSTRAINT_MAX_TEXT_BYTES] = 'a';
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, &err), STATUS_INVALID);
    /* Behind reasoning a line comes before as long a text. */
    constraint.kind = BATON__WORKER__V1__CONSTRAINT_KIND__BEHIND_REASONING;
    memset(text, 'a', CONSTRAINT_MAX_TEXT_BYTES + CONSTRAINT_MAX_LINE_BYTES);
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, &err), STATUS_OK);
    sequence_spec_free(&spec);
    text[CONSTRAINT_MAX_TEXT_BYTES + CONSTRAINT_MAX_LINE_BYTES] = 'a';
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, &err), STATUS_INVALID);
    constraint.text = "";
    constraint.kind = CONSTRAINT_KINDS;
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "kind 6"));
    free(text);
}

static void test_a_priority_is_taken_over(void **state)
{
    (void)state;
    const uint32_t prompt[] = {1};
    Baton__Worker__V1__Sampling sampling = good_sampling();
    for (int priority = 0; priority < PRIORITIES; priority++) {
        struct wire_prompt in = {prompt, NULL, 1, 0, &sampling, NULL, 0, priority, 0, 0};
        struct sequence_spec spec = {0};
        assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, NULL), STATUS_OK);
        assert_int_equal(spec.priority, priority);
        free(spec.tokens);
    }
}

/* Without a tenant of its own a salt stands for one: salts are of tenants, too. */
static void test_tenant_and_deadline_are_taken_over(void **state)
{
    (void)state;
    const uint32_t prompt[] = {1};
    Baton__Worker__V1__Sampling sampling = good_sampling();
    struct wire_prompt in = {prompt, NULL, 1, 0, &sampling,
                             "salt", 4,    0, 7, WORKER_MAX_DEADLINE_US};
    struct sequence_spec spec = {0};
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, NULL), STATUS_OK);
    assert_int_equal(spec.tenant, 7);
    assert_int_equal(spec.deadline_left_us, WORKER_MAX_DEADLINE_US);
    free(spec.tokens);
    in.tenant = 0;
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, NULL), STATUS_OK);
    assert_int_not_equal(spec.tenant, 0);
    free(spec.tokens);
    in.cache_salt_bytes = 0;
    assert_int_equal(wire_sequence_spec(&in, &INFO, &spec, NULL), STATUS_OK);
    assert_int_equal(spec.tenant, 0);
    free(spec.tokens);
    in.deadline_left_us++;
    expect_refused(in, "at most a year");
}

/* A handle is taken for the tokens it was made of, and for no others, though as many. */
static void test_a_handle_is_of_one_prompt(void **state)
{
    (void)state;
    uint32_t tokens[] = {1, 2, 3, 4}, others[] = {1, 2, 4, 3};
    struct sequence_spec spec = {.tokens = tokens, .token_count = 4};
    struct handle handle = {.token_count = 4, .prompt_hash = wire_prompt_hash(&spec)};
    assert_true(wire_handle_fits(&handle, &spec));
    struct sequence_spec shorter = {.tokens = tokens, .token_count = 3};
    struct sequence_spec mixed = {.tokens = others, .token_count = 4};
    assert_false(wire_handle_fits(&handle, &shorter));
    assert_false(wire_handle_fits(&handle, &mixed));
    handle.token_count = 3;
    assert_false(wire_handle_fits(&handle, &shorter));
}

static void test_handles_survive_the_wire(void **state)
{
    (void)state;
    const uint32_t blocks[] = {7, 8, 3};
    struct handle handle = {.ref = {1, 2, 3},
                            .model_hash = 4,
                            .layout_hash = 5,
                            .numerics_id = 6,
                            .token_count = 70,
                            .prompt_hash = 71,
                            .block_count = 3,
                            .blocks = blocks};
    Baton__Worker__V1__Handle message;
    wire_handle_pack(&handle, &message);
    struct handle back = wire_handle(&message);
    assert_true(handle_ref_equal(back.ref, handle.ref));
    assert_int_equal(back.token_count, 70);
    assert_int_equal(back.prompt_hash, 71);
    assert_int_equal(back.block_count, 3);
    assert_memory_equal(back.blocks, blocks, sizeof blocks);
    assert_true(back.model_hash == 4 && back.layout_hash == 5 && back.numerics_id == 6);
    struct handle_ref none = wire_ref(NULL);
    assert_false(handle_ref_equal(none, handle.ref));
}

static void test_questions_survive_the_wire(void **state)
{
    (void)state;
    for (int kind = PEER_SUBSCRIBE; kind <= PEER_RELEASE; kind++) {
        const struct peer_down said = {(enum peer_down_kind)kind, UINT64_MAX - 1, 3, REF};
        struct wire_peer_down_room room;
        uint8_t bytes[160];
        wire_peer_down_pack(&said, &room);
        assert_in_range(baton__worker__v1__peer_down__get_packed_size(&room.message), 1,
                        sizeof bytes);
        size_t count = baton__worker__v1__peer_down__pack(&room.message, bytes);
        Baton__Worker__V1__PeerDown *message =
            baton__worker__v1__peer_down__unpack(NULL, count, bytes);
        assert_non_null(message);
        assert_int_equal(wire_peer_down_count(message), 1);
        struct peer_down heard = wire_peer_down(message, 0);
        assert_int_equal(heard.kind, said.kind);
        assert_int_equal(heard.request, said.request);
        assert_int_equal(heard.attempt, said.attempt);
        assert_true(handle_ref_equal(heard.ref, REF));
        baton__worker__v1__peer_down__free_unpacked(message, NULL);
    }
}

static void test_an_extend_asks_for_each_handle(void **state)
{
    (void)state;
    Baton__Worker__V1__Subscribe named[3], *handles[3];
    Baton__Worker__V1__HandleRef ref = BATON__WORKER__V1__HANDLE_REF__INIT;
    ref.id = 9;
    for (uint32_t i = 0; i < 3; i++) {
        baton__worker__v1__subscribe__init(&named[i]);
        named[i].request = 100 + i;
        named[i].attempt = 1 + i;
        handles[i] = &named[i];
    }
    named[2].handle = &ref; /* the others name none: no source has that */
    Baton__Worker__V1__Extend extend = BATON__WORKER__V1__EXTEND__INIT;
    extend.n_handles = 3;
    extend.handles = handles;
    Baton__Worker__V1__PeerDown message = BATON__WORKER__V1__PEER_DOWN__INIT;
    message.message_case = BATON__WORKER__V1__PEER_DOWN__MESSAGE_EXTEND;
    message.extend = &extend;
    assert_int_equal(wire_peer_down_count(&message), 3);
    for (uint32_t i = 0; i < 3; i++) {
        struct peer_down heard = wire_peer_down(&message, i);
        assert_int_equal(heard.kind, PEER_EXTEND);
        assert_int_equal(heard.request, 100 + i);
        assert_int_equal(heard.attempt, 1 + i);
        assert_int_equal(heard.ref.id, i == 2 ? 9 : 0);
        assert_int_equal(heard.ref.incarnation, 0);
    }
}

static void test_answers_survive_the_wire(void **state)
{
    (void)state;
    const uint32_t checksums[] = {1, UINT32_MAX};
    const uint64_t sums[] = {UINT64_MAX, 2};
    const struct peer_up cases[] = {
        {.kind = PEER_READY,
         .request = 5,
         .attempt = 2,
         .ready_tokens = 64,
         .sum_first = 3,
         .sum_count = 1,
         .sums = sums},
        {.kind = PEER_COMPLETE,
         .request = 6,
         .attempt = 3,
         .first_token = 17,
         .logits_hash = UINT64_MAX,
         .logprobs = {.given = true,
                      .logprob = -1.5f,
                      .top_count = 2,
                      .top_ids = {9, 4},
                      .top_logprobs = {-0.25f, -1.5f}},
         .finish = FINISH_EOS,
         .sum_count = 2,
         .checksum_count = 2,
         .sums = sums,
         .checksums = checksums},
        {.kind = PEER_HELD, .request = 7, .attempt = 4},
        {.kind = PEER_GONE, .request = 8, .attempt = 5},
        {.kind = PEER_EXTENDED, .request = 9, .attempt = 6, .left_us = UINT64_MAX},
    };
    for (size_t turn = 0; turn < 2 * (sizeof cases / sizeof *cases); turn++) {
        const size_t i = turn / 2;
        const bool old = turn % 2;
        struct wire_peer_up_room room;
        uint8_t bytes[128];
        wire_peer_up_pack(&cases[i], WORKER_PROTOCOL_SUMS - old, &room);
        assert_in_range(baton__worker__v1__peer_up__get_packed_size(&room.message), 1,
                        sizeof bytes);
        size_t count = baton__worker__v1__peer_up__pack(&room.message, bytes);
        Baton__Worker__V1__PeerUp *message = baton__worker__v1__peer_up__unpack(NULL, count, bytes);
        assert_non_null(message);
        struct peer_up heard;
        assert_true(wire_peer_up(message, &heard));
        assert_int_equal(heard.kind, cases[i].kind);
        assert_int_equal(heard.request, cases[i].request);
        assert_int_equal(heard.attempt, cases[i].attempt);
        assert_int_equal(heard.ready_tokens, cases[i].ready_tokens);
        assert_int_equal(heard.first_token, cases[i].first_token);
        assert_int_equal(heard.logits_hash, cases[i].logits_hash);
        assert_int_equal(heard.finish, cases[i].finish);
        assert_int_equal(heard.logprobs.given, cases[i].logprobs.given);
        if (heard.logprobs.given) {
            assert_true(heard.logprobs.logprob == -1.5f && heard.logprobs.top_count == 2);
            assert_memory_equal(heard.logprobs.top_ids, cases[i].logprobs.top_ids, 8);
            assert_memory_equal(heard.logprobs.top_logprobs, cases[i].logprobs.top_logprobs, 8);
        }
        assert_int_equal(heard.left_us, cases[i].left_us);
        assert_int_equal(heard.checksum_count, old ? cases[i].checksum_count : 0);
        if (heard.checksum_count)
            assert_memory_equal(heard.checksums, checksums, sizeof checksums);
        assert_int_equal(heard.sum_first, old ? 0 : cases[i].sum_first);
        assert_int_equal(heard.sum_count, old ? 0 : cases[i].sum_count);
        if (heard.sum_count)
            assert_memory_equal(heard.sums, sums, heard.sum_count * sizeof *sums);
        baton__worker__v1__peer_up__free_unpacked(message, NULL);
    }
}

/* The sink gives up such a handoff: no vocabulary has that token. */
static void test_logprobs_that_no_worker_sends(void **state)
{
    (void)state;
    uint32_t ids[LOGPROBS_MAX_TOP + 1] = {0};
    float logprobs[LOGPROBS_MAX_TOP + 1] = {0};
    Baton__Worker__V1__Logprobs told = BATON__WORKER__V1__LOGPROBS__INIT;
    Baton__Worker__V1__Complete complete = BATON__WORKER__V1__COMPLETE__INIT;
    Baton__Worker__V1__PeerUp message = BATON__WORKER__V1__PEER_UP__INIT;
    message.message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_COMPLETE;
    message.complete = &complete;
    complete.logprobs = &told;
    complete.first_token = 5;
    told.top_ids = ids;
    told.top = logprobs;
    for (size_t count = LOGPROBS_MAX_TOP; count <= LOGPROBS_MAX_TOP + 1; count++) {
        struct peer_up heard;
        told.n_top_ids = told.n_top = count;
        assert_true(wire_peer_up(&message, &heard));
        assert_int_equal(heard.first_token, count == LOGPROBS_MAX_TOP ? 5 : UINT32_MAX);
        assert_int_equal(heard.logprobs.given, count == LOGPROBS_MAX_TOP);
    }
}

static void test_what_opens_a_stream_is_no_message_of_the_handoff(void **state)
{
    (void)state;
    Baton__Worker__V1__PeerHello hello = BATON__WORKER__V1__PEER_HELLO__INIT;
    Baton__Worker__V1__PeerDown down = BATON__WORKER__V1__PEER_DOWN__INIT;
    assert_int_equal(wire_peer_down_count(&down), 0);
    down.message_case = BATON__WORKER__V1__PEER_DOWN__MESSAGE_HELLO;
    down.hello = &hello;
    assert_int_equal(wire_peer_down_count(&down), 0);
    Baton__Worker__V1__PeerWelcome welcome = BATON__WORKER__V1__PEER_WELCOME__INIT;
    Baton__Worker__V1__PeerUp up = BATON__WORKER__V1__PEER_UP__INIT;
    struct peer_up heard = {.request = 1};
    assert_false(wire_peer_up(&up, &heard));
    up.message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_WELCOME;
    up.welcome = &welcome;
    assert_false(wire_peer_up(&up, &heard));
    assert_int_equal(heard.request, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_and_emitted_become_one),
        cmocka_unit_test(test_each_tenant_has_its_own_root),
        cmocka_unit_test(test_received_prompts_say_whose_they_are),
        cmocka_unit_test(test_what_is_wrong_is_named),
        cmocka_unit_test(test_all_of_sampling_is_taken_over),
        cmocka_unit_test(test_biases_and_logprobs_that_no_router_asks_for),
        cmocka_unit_test(test_a_constraint_is_taken_over),
        cmocka_unit_test(test_a_priority_is_taken_over),
        cmocka_unit_test(test_tenant_and_deadline_are_taken_over),
        cmocka_unit_test(test_a_handle_is_of_one_prompt),
        cmocka_unit_test(test_handles_survive_the_wire),
        cmocka_unit_test(test_questions_survive_the_wire),
        cmocka_unit_test(test_an_extend_asks_for_each_handle),
        cmocka_unit_test(test_answers_survive_the_wire),
        cmocka_unit_test(test_logprobs_that_no_worker_sends),
        cmocka_unit_test(test_what_opens_a_stream_is_no_message_of_the_handoff),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
