/* session: a message has a bounded number of tokens, however many a step draws, and an older router
 * hears of each prompt once. The linker puts the test's stream_send in the place of the product's
 * (--wrap). */
#include "common/worker/session.h"

#include "common/net/membership/worker_message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { AT_MOST = 1024, MESSAGES = 4 };

static struct {
    uint32_t count, tokens[MESSAGES], reports[MESSAGES], next_index, prefilled;
} sent;

void __wrap_stream_send(struct stream *stream, const ProtobufCMessage *message);

void __wrap_stream_send(struct stream *stream, const ProtobufCMessage *message)
{
    (void)stream;
    const Baton__Worker__V1__SessionUp *up = (const Baton__Worker__V1__SessionUp *)message;
    if (up->event_case == BATON__WORKER__V1__SESSION_UP__EVENT_PREFILLED) {
        sent.prefilled++;
        return;
    }
    assert_true(sent.count < MESSAGES);
    assert_int_equal(up->event_case, BATON__WORKER__V1__SESSION_UP__EVENT_TOKENS);
    for (size_t i = 0; i < up->tokens->n_tokens; i++)
        assert_int_equal(up->tokens->tokens[i]->index, sent.next_index++);
    sent.tokens[sent.count] = (uint32_t)up->tokens->n_tokens;
    sent.reports[sent.count++] = (uint32_t)up->tokens->n_steps;
}

static void send_step(uint32_t count)
{
    struct session session = {.stream = (struct stream *)&sent, .version = WORKER_PROTOCOL_STEPS};
    struct step_event *event = calloc(1, sizeof *event + count * sizeof *event->tokens);
    assert_non_null(event);
    event->kind = STEP_TOKENS;
    event->report_count = 2;
    event->token_count = count;
    for (uint32_t i = 0; i < count; i++)
        event->tokens[i].index = i;
    sent.count = sent.next_index = 0;
    session_send_step(&session, event);
    assert_int_equal(sent.next_index, count);
    assert_int_equal(sent.reports[0], 2);
    free(event);
}

static void test_tokens_of_a_step_in_bounded_messages(void **state)
{
    (void)state;
    static const struct {
        uint32_t tokens, messages, last;
    } cases[] = {{0, 1, 0},
                 {1, 1, 1},
                 {AT_MOST, 1, AT_MOST},
                 {AT_MOST + 1, 2, 1},
                 {3 * AT_MOST, 3, AT_MOST}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        send_step(cases[i].tokens);
        assert_int_equal(sent.count, cases[i].messages);
        for (uint32_t k = 1; k < sent.count; k++) {
            assert_int_equal(sent.tokens[k - 1], AT_MOST);
            assert_int_equal(sent.reports[k], 0);
        }
        assert_int_equal(sent.tokens[sent.count - 1], cases[i].last);
    }
}

static void test_an_older_router_hears_of_a_prompt_by_its_worker_alone(void **state)
{
    (void)state;
    Baton__Worker__V1__Prefilled prefilled = BATON__WORKER__V1__PREFILLED__INIT;
    for (uint32_t version = WORKER_PROTOCOL_LEAST; version <= WORKER_PROTOCOL_VERSION; version++) {
        struct session session = {.stream = (struct stream *)&sent, .version = version};
        sent.prefilled = 0;
        session_send_prefilled(&session, &prefilled);
        assert_int_equal(sent.prefilled, 1);
        session_relay_prefilled(&session, &prefilled);
        assert_int_equal(sent.prefilled, version < WORKER_PROTOCOL_READER_PREFILLED ? 1 : 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_older_router_hears_of_a_prompt_by_its_worker_alone),
        cmocka_unit_test(test_tokens_of_a_step_in_bounded_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
