/* The router with fake workers: several answers to one request (n > 1), from one call and to its
 * one status. */
#include "router_world.h"

struct two {
    struct cluster c;
    struct seen prefills[2], decodes[2];
};

/* Both decode; the second choice began with the first one's first token. */
static void two_start(struct two *t, const struct ask *ask)
{
    cluster_start(&t->c);
    cluster_to_decode(&t->c, ask, &t->prefills[0], &t->decodes[0]);
    assert_int_equal(t->prefills[0].choice, 0);
    assert_null(ring_pop(t->c.prefill.seen));
    fake_tokens(&t->c.prefill, &t->prefills[0], 1, 1, FINISH_NONE);
    t->prefills[1] = fake_expect(&t->c.prefill, SEEN_PREFILL);
    assert_int_equal(t->prefills[1].choice, 1);
    assert_int_equal(t->prefills[1].seed, t->prefills[0].seed);
    assert_int_equal(t->prefills[1].prompt_count, t->prefills[0].prompt_count);
    assert_int_not_equal(t->prefills[1].request, t->prefills[0].request);
    fake_opened(&t->c.prefill, &t->prefills[1], 2);
    t->decodes[1] = fake_expect(&t->c.decode, SEEN_DECODE);
    assert_int_equal(t->decodes[1].choice, 1);
}

static void two_stop(struct two *t)
{
    client_stop(&t->c.client);
    cluster_stop(&t->c);
}

static void test_two_choices(void **state)
{
    (void)state;
    struct two t;
    two_start(&t, &(struct ask){.max_tokens = 4, .n = 2});
    fake_tokens(&t.c.decode, &t.decodes[1], 1, 2, FINISH_EOS); /* the second ends first */
    while (!t.c.client.finished_of[1])
        client_step(&t.c.client);
    assert_int_equal(t.c.client.tokens_of[1], 2);
    assert_int_equal(t.c.client.usages, 0);
    fake_tokens(&t.c.decode, &t.decodes[0], 1, 4, FINISH_MAX_TOKENS);
    client_wait_end(&t.c.client, RPC_OK, "");
    assert_int_equal(t.c.client.id_count, 4);
    assert_int_equal(t.c.client.finished, 1);
    assert_int_equal(t.c.client.usages, 1);
    assert_int_equal(t.c.client.prompt_tokens, 8);
    assert_int_equal(t.c.client.completion_tokens, 6);
    const struct model_metrics *figures = &router_figures(t.c.world.router)->models[0];
    assert_int_equal(counter_value(figures->requests_by_reason[REASON_NONE]), 1);
    assert_int_equal(counter_value(figures->prompt_tokens), 8);
    assert_int_equal(counter_value(figures->completion_tokens), 6);
    two_stop(&t);
}

/* If one choice fails, so does the call, once, and no worker goes on for the other. */
static void test_one_that_fails(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        struct two t;
        two_start(&t, &(struct ask){.max_tokens = 4, .n = 2});
        fake_refused(&t.c.decode, &t.decodes[which], false);
        client_wait_end(&t.c.client, RPC_INVALID_ARGUMENT, "refused");
        bool released[2] = {false};
        while (!released[!which]) {
            struct seen seen = fake_expect(&t.c.decode, SEEN_RELEASE);
            released[seen.request == t.decodes[1].request] = true;
        }
        const struct model_metrics *figures = &router_figures(t.c.world.router)->models[0];
        assert_int_equal(counter_value(figures->requests_by_reason[REASON_REFUSED]), 1);
        two_stop(&t);
    }
}

static void test_a_client_that_leaves_frees_all_choices(void **state)
{
    (void)state;
    for (int ended = 0; ended < 2; ended++) { /* the first has its end already, or not */
        struct two t;
        two_start(&t, &(struct ask){.max_tokens = 4, .n = 2});
        if (ended) {
            fake_tokens(&t.c.decode, &t.decodes[0], 1, 4, FINISH_MAX_TOKENS);
            while (!t.c.client.finished)
                client_step(&t.c.client);
        }
        rpc_call_cancel(t.c.client.call);
        for (int i = ended; i < 2; i++)
            fake_expect(&t.c.decode, SEEN_RELEASE);
        two_stop(&t);
    }
}

/* Others never begin for a first one that has no first token. */
static void test_a_first_choice_that_fails_before_its_first_token(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 4, .n = 16}, &prefill, &decode);
    fake_refused(&c.decode, &decode, false);
    client_wait_end(&c.client, RPC_INVALID_ARGUMENT, "refused");
    client_stop(&c.client);
    cluster_stop(&c);
}

/* If its decode worker dies, a choice goes on from its own tokens. */
static void test_choices_survive_their_workers(void **state)
{
    (void)state;
    struct two t;
    struct fake second;
    two_start(&t, &(struct ask){.max_tokens = 5, .n = 2});
    fake_tokens(&t.c.decode, &t.decodes[0], 1, 2, FINISH_NONE);
    fake_tokens(&t.c.decode, &t.decodes[1], 1, 3, FINISH_NONE);
    while (t.c.client.id_count < 2 || t.c.client.tokens_of[1] < 3)
        client_step(&t.c.client);
    fake_start(&t.c.world, &second, "decode-1", ROLE_DECODE);
    fake_die(&t.c.decode);
    for (int i = 0; i < 2; i++)
        fake_expect(&t.c.prefill, SEEN_RELEASE);
    for (int i = 0; i < 2; i++) {
        struct seen prefill = fake_expect(&t.c.prefill, SEEN_PREFILL);
        assert_int_equal(prefill.emitted_count, prefill.choice ? 3 : 2);
        fake_opened(&t.c.prefill, &prefill, 10 + prefill.choice);
        t.decodes[i] = fake_expect(&second, SEEN_DECODE);
    }
    for (int i = 0; i < 2; i++) {
        uint32_t known = t.decodes[i].emitted_count;
        fake_tokens(&second, &t.decodes[i], known + 1, 5 - known, FINISH_MAX_TOKENS);
    }
    client_wait_end(&t.c.client, RPC_OK, "");
    assert_int_equal(t.c.client.id_count, 5);
    assert_int_equal(t.c.client.tokens_of[1], 5);
    fake_stop(&second);
    two_stop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_choices),
        cmocka_unit_test(test_one_that_fails),
        cmocka_unit_test(test_a_client_that_leaves_frees_all_choices),
        cmocka_unit_test(test_a_first_choice_that_fails_before_its_first_token),
        cmocka_unit_test(test_choices_survive_their_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
