/* The router with fake workers: outputs besides the answer. These are logprobs, the prompt, and the
 * prompt's logprobs, which come before the answer whatever is lost on the way. */
#include "router_world.h"

static void test_logprobs_of_both_sides(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 4, .logprobs = true}, &prefill, &decode);
    assert_true(prefill.logprobs && decode.logprobs && !prefill.prompt_logprobs);
    fake_tokens(&c.prefill, &prefill, 1, 1, FINISH_NONE);
    fake_tokens(&c.decode, &decode, 1, 4, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 4);
    assert_int_equal(c.client.logprobs_count, 4);
    client_stop(&c.client);
    cluster_stop(&c);
}

/* A worker that leaves out a requested output isn't of this version. */
static void test_a_token_without_its_logprobs(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 4, .logprobs = true}, &prefill, &decode);
    decode.logprobs = false;
    fake_tokens(&c.decode, &decode, 1, 1, FINISH_NONE);
    fake_expect(&c.decode, SEEN_CLOSED);
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_an_echo_comes_first(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2, .echo = true}, &prefill, &decode);
    fake_tokens(&c.decode, &decode, 1, 1, FINISH_EOS);
    client_expect_answer(&c.client, 1);
    assert_int_equal(c.client.prompts, 1);
    client_stop(&c.client);
    cluster_stop(&c);
}

/* The prompt alone is the answer, whatever the one drawn token is, and whether it is an end. */
static void test_a_prompt_without_an_answer(void **state)
{
    (void)state;
    static const enum finish_reason ends[] = {FINISH_MAX_TOKENS, FINISH_EOS, FINISH_NONE};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct cluster c;
        struct seen prefill;
        cluster_start(&c);
        client_start(&c.world, &c.client,
                     &(struct ask){.prompt_logprobs = true, .echo = true, .no_answer = true});
        prefill = fake_expect(&c.prefill, SEEN_PREFILL);
        assert_int_equal(prefill.max_tokens, 1);
        fake_opened(&c.prefill, &prefill, 1);
        fake_scores(&c.prefill, &prefill, 1, 7);
        fake_tokens(&c.prefill, &prefill, 1, 2, ends[i]);
        client_expect_answer(&c.client, 0);
        assert_int_equal(c.client.reason, BATON__V1__FINISH_REASON__FINISH_REASON_MAX_TOKENS);
        assert_int_equal(c.client.prompts, 1);
        assert_int_equal(c.client.scores, 7);
        const struct model_metrics *figures = &router_figures(c.world.router)->models[0];
        assert_int_equal(counter_value(figures->prompt_tokens), 8);
        assert_int_equal(counter_value(figures->completion_tokens), 0);
        cluster_finished(&c, &prefill);
        assert_null(ring_pop(c.decode.seen)); /* no decode worker gets the handle */
        client_stop(&c.client);
        cluster_stop(&c);
    }
}

/* With the last of its logprobs the request is answered: if its worker dies then, nothing is
 * computed again. */
static void test_a_prompt_alone_whose_worker_dies(void **state)
{
    (void)state;
    for (uint32_t lacking = 0; lacking < 2; lacking++) {
        struct cluster c;
        struct fake second;
        cluster_start(&c);
        client_start(&c.world, &c.client,
                     &(struct ask){.prompt_logprobs = true, .echo = true, .no_answer = true});
        struct seen prefill = fake_expect(&c.prefill, SEEN_PREFILL);
        fake_opened(&c.prefill, &prefill, 1);
        fake_scores(&c.prefill, &prefill, 1, 7 - lacking);
        while (c.client.scores < 7 - lacking)
            client_step(&c.client);
        fake_start(&c.world, &second, "prefill-1", ROLE_PREFILL);
        fake_die(&c.prefill);
        if (lacking) {
            prefill = fake_expect(&second, SEEN_PREFILL);
            assert_int_equal(prefill.scores_from, 7);
            fake_scores(&second, &prefill, 7, 1);
            fake_tokens(&second, &prefill, 1, 1, FINISH_MAX_TOKENS);
        }
        client_expect_answer(&c.client, 0);
        assert_int_equal(c.client.reason, BATON__V1__FINISH_REASON__FINISH_REASON_MAX_TOKENS);
        assert_int_equal(c.client.scores, 7);
        if (lacking)
            assert_int_equal(fake_expect(&second, SEEN_RELEASE).request, prefill.request);
        assert_null(ring_pop(second.seen));
        const struct model_metrics *figures = &router_figures(c.world.router)->models[0];
        assert_int_equal(counter_value(figures->prompt_tokens), 8);
        client_stop(&c.client);
        fake_stop(&second);
        cluster_stop(&c);
    }
}

/* Each failed step of a prompt alone counts as a run, although its Opened isn't passed on and its
 * logprobs haven't come. */
static void test_a_prompt_alone_whose_steps_fail(void **state)
{
    (void)state;
    struct cluster c;
    struct router_config config = world_config();
    config.retries = 0;
    cluster_start_with(&c, &config);
    client_start(&c.world, &c.client,
                 &(struct ask){.prompt_logprobs = true, .echo = true, .no_answer = true});
    struct seen prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    fake_opened(&c.prefill, &prefill, 1);
    fake_scores(&c.prefill, &prefill, 1, 1);
    fake_step_failed(&c.prefill, &prefill, "the model gave no number");
    client_wait_end(&c.client, RPC_INTERNAL, "step_failed");
    client_stop(&c.client);
    cluster_stop(&c);
}

/* The decode worker gets the handle only when all logprobs have come: its tokens can't come
 * before. */
static void test_logprobs_of_a_prompt_come_before_the_answer(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    client_start(&c.world, &c.client,
                 &(struct ask){.prompt_tokens = 40, .max_tokens = 2, .prompt_logprobs = true});
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_true(prefill.prompt_logprobs && prefill.scores_from == 1);
    fake_opened(&c.prefill, &prefill, 1);
    fake_scores(&c.prefill, &prefill, 1, 33);
    while (c.client.scores < 33)
        client_step(&c.client);
    assert_null(ring_pop(c.decode.seen));
    fake_scores(&c.prefill, &prefill, 34, 6);
    decode = fake_expect(&c.decode, SEEN_DECODE);
    assert_true(decode.has_handle && !decode.prompt_logprobs);
    assert_int_equal(decode.handle_blocks, 3);
    fake_tokens(&c.decode, &decode, 1, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 2);
    assert_int_equal(c.client.scores, 39);
    assert_int_equal(c.client.prefills, 1);
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_after_a_loss_the_rest_of_them_is_asked_for(void **state)
{
    (void)state;
    struct cluster c;
    struct fake second;
    struct seen prefill, decode;
    cluster_start(&c);
    client_start(&c.world, &c.client,
                 &(struct ask){.prompt_tokens = 40, .max_tokens = 2, .prompt_logprobs = true});
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    fake_opened(&c.prefill, &prefill, 1);
    fake_scores(&c.prefill, &prefill, 1, 20);
    while (c.client.scores < 20)
        client_step(&c.client);
    fake_start(&c.world, &second, "prefill-1", ROLE_PREFILL);
    fake_die(&c.prefill);
    prefill = fake_expect(&second, SEEN_PREFILL);
    assert_int_equal(prefill.attempt, 2);
    assert_true(prefill.prompt_logprobs && prefill.scores_from == 21);
    fake_scores(&second, &prefill, 21, 19); /* before it is opened: as good */
    fake_opened(&second, &prefill, 2);
    decode = fake_expect(&c.decode, SEEN_DECODE);
    assert_int_equal(decode.handle_id, 2);
    fake_tokens(&c.decode, &decode, 1, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 2);
    assert_int_equal(c.client.scores, 39);
    client_stop(&c.client);
    fake_stop(&second);
    cluster_stop(&c);
}

/* A gap, more than there are, or an answer before them: no worker of ours. */
static void test_logprobs_that_no_worker_sends(void **state)
{
    (void)state;
    static const struct {
        uint32_t first, count;
    } cases[] = {{2, 1}, {1, 40}, {0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster c;
        cluster_start(&c);
        client_start(&c.world, &c.client,
                     &(struct ask){.prompt_tokens = 40, .prompt_logprobs = true});
        struct seen prefill = fake_expect(&c.prefill, SEEN_PREFILL);
        if (cases[i].count)
            fake_scores(&c.prefill, &prefill, cases[i].first, cases[i].count);
        else
            fake_tokens(&c.prefill, &prefill, 1, 1, FINISH_NONE);
        fake_expect(&c.prefill, SEEN_CLOSED);
        client_stop(&c.client);
        cluster_stop(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logprobs_of_both_sides),
        cmocka_unit_test(test_a_token_without_its_logprobs),
        cmocka_unit_test(test_an_echo_comes_first),
        cmocka_unit_test(test_a_prompt_without_an_answer),
        cmocka_unit_test(test_a_prompt_alone_whose_worker_dies),
        cmocka_unit_test(test_a_prompt_alone_whose_steps_fail),
        cmocka_unit_test(test_logprobs_of_a_prompt_come_before_the_answer),
        cmocka_unit_test(test_after_a_loss_the_rest_of_them_is_asked_for),
        cmocka_unit_test(test_logprobs_that_no_worker_sends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
