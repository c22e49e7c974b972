/* wire_peer: one end of a handoff receives the messages that the other end sent. */
#include "common/worker/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct handle_ref REF = {UINT64_MAX, 7, UINT32_MAX};

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
    const struct peer_up cases[] = {
        {.kind = PEER_READY, .request = 5, .attempt = 2, .ready_tokens = 64},
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
         .checksum_count = 2,
         .checksums = checksums},
        {.kind = PEER_HELD, .request = 7, .attempt = 4},
        {.kind = PEER_GONE, .request = 8, .attempt = 5},
        {.kind = PEER_EXTENDED, .request = 9, .attempt = 6, .left_us = UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wire_peer_up_room room;
        uint8_t bytes[128];
        wire_peer_up_pack(&cases[i], &room);
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
        assert_int_equal(heard.checksum_count, cases[i].checksum_count);
        if (heard.checksum_count)
            assert_memory_equal(heard.checksums, checksums, sizeof checksums);
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
        cmocka_unit_test(test_questions_survive_the_wire),
        cmocka_unit_test(test_an_extend_asks_for_each_handle),
        cmocka_unit_test(test_answers_survive_the_wire),
        cmocka_unit_test(test_logprobs_that_no_worker_sends),
        cmocka_unit_test(test_what_opens_a_stream_is_no_message_of_the_handoff),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
