/* The router's limits and its door: deadlines, queues, refusals, the pages, and its end. With fake
 * workers and a real client in this process. */
#include "router_world.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/language/text/tokenizer.h"

#include <dirent.h>
#include <poll.h>

static void test_deadlines(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.deadline_us = 300000}, &prefill, &decode);
    client_wait_end(&c.client, RPC_DEADLINE_EXCEEDED, NULL); /* either side's clock may be first */
    cluster_release(&c, &decode);
    client_stop(&c.client);
    cluster_stop(&c);
}

#define LATE "its deadline can't be met any more"

/* A worker that can't meet the client's deadline says so, and no other worker is tried. It doesn't
 * make deadlines up. */
static void test_a_worker_ends_requests_that_are_too_late(void **state)
{
    (void)state;
    struct cluster c;
    struct client second;
    struct seen prefill, decode;
    struct router_config config = world_config();
    config.default_deadline_us = 0;
    cluster_start_with(&c, &config);
    client_start(&c.world, &c.client, &(struct ask){.deadline_us = WORLD_LIMIT_US});
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_true(prefill.deadline_left_us > 0 && prefill.deadline_left_us <= 2 * WORLD_LIMIT_US);
    assert_true(prefill.due_left_us > 0 && prefill.due_left_us <= prefill.deadline_left_us);
    assert_true(prefill.tenant != 0);
    fake_refused_by(&c.prefill, &prefill, "deadline", LATE, false);
    client_wait_end(&c.client, RPC_DEADLINE_EXCEEDED, "deadline");
    assert_non_null(strstr(c.client.sentence, LATE));
    assert_int_equal(fake_expect(&c.prefill, SEEN_RELEASE).request, prefill.request);
    client_stop(&c.client);

    uint64_t tenant = prefill.tenant;
    cluster_to_decode(&c, &(struct ask){.deadline_us = WORLD_LIMIT_US}, &prefill, &decode);
    assert_true(prefill.tenant == tenant && decode.tenant == tenant);
    assert_true(decode.deadline_left_us > 0 && decode.deadline_left_us <= 2 * WORLD_LIMIT_US);
    fake_lost_by(&c.decode, &decode, "deadline", LATE);
    client_wait_end(&c.client, RPC_DEADLINE_EXCEEDED, "deadline");
    assert_non_null(strstr(c.client.sentence, LATE));

    cluster_release(&c, &decode);
    client_start(&c.world, &second, &(struct ask){.max_tokens = 2});
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_true(prefill.deadline_left_us == 0 && prefill.due_left_us == 0);
    fake_refused_by(&c.prefill, &prefill, "deadline", LATE, false);
    client_wait_end(&second, RPC_INVALID_ARGUMENT, "refused");
    client_stop(&second);
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_the_default_deadline(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    struct router_config config = world_config();
    config.default_deadline_us = 200000;
    cluster_start_with(&c, &config);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2}, &prefill, &decode);
    client_wait_end(&c.client, RPC_DEADLINE_EXCEEDED, "deadline");
    cluster_release(&c, &decode);
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_without_workers_requests_end_soon(void **state)
{
    (void)state;
    struct world world;
    struct client client;
    struct router_config config = world_config();
    config.worker_wait_us = 200000;
    world_start(&world, &config);
    uint64_t start_us = clock_now_us();
    client_start(&world, &client, &(struct ask){.max_tokens = 2});
    client_wait_end(&client, RPC_UNAVAILABLE, "no_workers");
    assert_non_null(strstr(client.sentence, "no decode worker is up (none known) (after "));
    assert_true(clock_now_us() - start_us >= 200000);
    assert_true(clock_now_us() - start_us < 5000000);
    client_stop(&client);
    world_stop(&world);
}

static void test_a_request_waits_for_workers_to_come(void **state)
{
    (void)state;
    struct cluster c;
    struct router_config config = world_config();
    config.worker_wait_us = WORLD_LIMIT_US;
    world_start(&c.world, &config);
    fake_start(&c.world, &c.prefill, "prefill-0", ROLE_PREFILL);
    client_start(&c.world, &c.client, &(struct ask){.max_tokens = 2});
    fake_start(&c.world, &c.decode, "decode-0", ROLE_DECODE);
    struct seen prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    fake_opened(&c.prefill, &prefill, 1);
    struct seen decode = fake_expect(&c.decode, SEEN_DECODE);
    fake_tokens(&c.decode, &decode, 1, 1, FINISH_EOS);
    client_expect_answer(&c.client, 1);
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_a_full_queue_refuses(void **state)
{
    (void)state;
    struct world world;
    struct client clients[3];
    struct router_config config = world_config();
    config.max_queue = 1;
    config.max_requests = 2;
    config.worker_wait_us = 500000;
    snprintf(config.slo_class, sizeof config.slo_class, "name=chat,ttft=1h");
    world_start(&world, &config);
    for (int i = 0; i < 3; i++)
        client_start(&world, &clients[i], &(struct ask){.max_tokens = 2});
    int overloaded = 0, waited = 0;
    for (int i = 0; i < 3; i++) {
        while (!clients[i].closed)
            client_step(&clients[i]);
        overloaded +=
            clients[i].code == RPC_RESOURCE_EXHAUSTED && !strcmp(clients[i].why, "overloaded");
        waited += clients[i].code == RPC_UNAVAILABLE && !strcmp(clients[i].why, "no_workers");
        client_stop(&clients[i]);
    }
    assert_int_equal(waited, 1);
    assert_int_equal(overloaded, 2);
    struct slo_figures slo; /* all three miss, also the one that was refused before it was read */
    slo_books_read(router_figures(world.router)->slo, 0, clock_now_us(), &slo);
    assert_int_equal(slo.ever.attained, 0);
    assert_int_equal(slo.ever.missed_by[SLO_FAILED], 1);
    assert_int_equal(slo.hour.missed_by[SLO_REJECTED], 2);
    world_stop(&world);
}

static void test_unconfirmed_tokens_hold_others_back(void **state)
{
    (void)state;
    struct cluster c;
    struct client waiting, next;
    struct seen prefill, decode;
    struct router_config config = world_config();
    config.unconfirmed_tokens = 10;
    config.default_deadline_us = 200000; /* for the request without a deadline */
    cluster_start_with(&c, &config);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2, .deadline_us = WORLD_LIMIT_US}, &prefill,
                      &decode);
    /* 8 tokens are on their way, so 8 more wait until their deadline, and no worker gets them. */
    client_start(&c.world, &waiting, &(struct ask){.max_tokens = 2});
    client_wait_end(&waiting, RPC_DEADLINE_EXCEEDED, "deadline");
    client_start(&c.world, &next, &(struct ask){.max_tokens = 2, .deadline_us = WORLD_LIMIT_US});
    fake_pulled(&c.decode, &decode, "tcp", 1);
    struct seen other = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_int_not_equal(other.request, prefill.request);
    fake_opened(&c.prefill, &other, 2);
    other = fake_expect(&c.decode, SEEN_DECODE);
    fake_tokens(&c.decode, &other, 1, 1, FINISH_EOS);
    client_expect_answer(&next, 1);
    fake_tokens(&c.decode, &decode, 1, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 2);
    client_stop(&waiting);
    client_stop(&next);
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_prompts_are_computed_on_decode_only_where_they_must(void **state)
{
    (void)state;
    for (int forced = 0; forced < 2; forced++) {
        struct cluster c;
        struct router_config config = world_config();
        config.force_local_prefill = forced;
        world_start(&c.world, &config);
        if (forced)
            fake_start(&c.world, &c.prefill, "prefill-0", ROLE_PREFILL);
        fake_start(&c.world, &c.decode, "decode-0", ROLE_DECODE);
        client_start(&c.world, &c.client, &(struct ask){.max_tokens = 2});
        struct seen decode = fake_expect(&c.decode, SEEN_DECODE);
        assert_false(decode.has_handle);
        assert_string_equal(decode.source_name, "");
        fake_tokens(&c.decode, &decode, 1, 2, FINISH_MAX_TOKENS);
        client_expect_answer(&c.client, 2);
        assert_string_equal(c.client.prefill_worker, "");
        assert_int_equal(counter_value(router_figures(c.world.router)->models[0].local_prefills),
                         1);
        client_stop(&c.client);
        if (forced)
            fake_stop(&c.prefill);
        fake_stop(&c.decode);
        world_stop(&c.world);
    }
}

/* One request may have 100 tokens there. */
static void small_decode_start(struct cluster *c)
{
    fake_start_with(&c->world, &c->decode,
                    (struct fake_plan){.name = "decode-0", .role = ROLE_DECODE, .context = 100});
}

static void small_start(struct cluster *c)
{
    struct router_config config = world_config();
    world_start(&c->world, &config);
    fake_start(&c->world, &c->prefill, "prefill-0", ROLE_PREFILL);
    small_decode_start(c);
}

/* With a decode worker that is larger, and none yet that is small. */
static void large_start(struct cluster *c, const struct router_config *config, struct fake *large,
                        uint64_t model_hash)
{
    world_start(&c->world, config);
    fake_start(&c->world, &c->prefill, "prefill-0", ROLE_PREFILL);
    fake_start_with(
        &c->world, large,
        (struct fake_plan){.name = "decode-1", .role = ROLE_DECODE, .model_hash = model_hash});
}

static void test_what_no_worker_can_hold(void **state)
{
    (void)state;
    struct cluster c;
    small_start(&c);
    client_start(&c.world, &c.client, &(struct ask){.prompt_tokens = 99, .max_tokens = 2});
    client_wait_end(&c.client, RPC_INVALID_ARGUMENT, "context_length_exceeded");
    client_stop(&c.client);
    cluster_stop(&c);
}

/* Without a max_tokens, the workers' room is the limit. It stays the same once the answer has
 * begun. */
static void test_a_max_tokens_of_nobodys(void **state)
{
    (void)state;
    struct cluster c;
    struct fake large;
    small_start(&c);
    struct ask ask = {.prompt_tokens = 90, .no_max_tokens = true};
    client_start(&c.world, &c.client, &ask);
    struct seen prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_int_equal(prefill.max_tokens, 10);
    fake_opened(&c.prefill, &prefill, 1);
    struct seen decode = fake_expect(&c.decode, SEEN_DECODE);
    assert_int_equal(decode.max_tokens, 10);
    fake_tokens(&c.decode, &decode, 1, 1, FINISH_NONE);
    while (c.client.id_count < 1)
        client_step(&c.client);
    fake_start(&c.world, &large, "decode-1", ROLE_DECODE);
    fake_die(&c.decode);
    fake_expect(&c.prefill, SEEN_RELEASE);
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    fake_opened(&c.prefill, &prefill, 2);
    decode = fake_expect(&large, SEEN_DECODE);
    assert_int_equal(decode.max_tokens, 10);
    fake_tokens(&large, &decode, 2, 9, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 10);
    client_stop(&c.client);

    ask.prompt_tokens = 200; /* the largest decides, and its own most is 16 */
    client_start(&c.world, &c.client, &ask);
    prefill = fake_expect(&c.prefill, SEEN_RELEASE);
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_int_equal(prefill.max_tokens, 16);
    client_stop(&c.client);
    fake_stop(&large);
    cluster_stop(&c);
}

/* Before the answer has begun, its limit follows the room of the remaining workers, the same for
 * all choices. */
static void test_a_max_tokens_of_nobodys_shrinks(void **state)
{
    (void)state;
    struct cluster c;
    struct fake large;
    struct router_config config = world_config();
    large_start(&c, &config, &large, 0);
    client_start(&c.world, &c.client,
                 &(struct ask){.prompt_tokens = 90, .no_max_tokens = true, .n = 2});
    struct seen prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_int_equal(prefill.max_tokens, 16);
    fake_opened(&c.prefill, &prefill, 1);
    struct seen decode = fake_expect(&large, SEEN_DECODE), other;
    assert_int_equal(decode.max_tokens, 16);
    small_decode_start(&c);
    fake_die(&large);
    decode = fake_expect(&c.decode, SEEN_DECODE);
    assert_int_equal(decode.max_tokens, 10);
    fake_tokens(&c.decode, &decode, 1, 1, FINISH_NONE);
    other = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_int_equal(other.choice, 1);
    assert_int_equal(other.max_tokens, 10);
    fake_opened(&c.prefill, &other, 2);
    other = fake_expect(&c.decode, SEEN_DECODE);
    assert_int_equal(other.max_tokens, 10);
    fake_tokens(&c.decode, &decode, 2, 9, FINISH_MAX_TOKENS);
    fake_tokens(&c.decode, &other, 1, 10, FINISH_MAX_TOKENS);
    client_wait_end(&c.client, RPC_OK, "");
    assert_int_equal(c.client.completion_tokens, 20);
    client_stop(&c.client);
    fake_stop(&large);
    cluster_stop(&c);
}

/* A worker without a fitting prefill worker gives no room to answers of open length. A request that
 * it alone can hold goes to it, and it computes the prompt. */
static void test_a_large_worker_of_another_kind_gives_no_room(void **state)
{
    (void)state;
    struct cluster c;
    struct fake large;
    struct router_config config = world_config();
    large_start(&c, &config, &large, 2);
    small_decode_start(&c);
    struct seen prefill, decode;
    cluster_to_decode(&c, &(struct ask){.prompt_tokens = 90, .no_max_tokens = true}, &prefill,
                      &decode);
    assert_int_equal(decode.max_tokens, 10);
    fake_tokens(&c.decode, &decode, 1, 10, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 10);
    client_stop(&c.client);
    client_start(&c.world, &c.client, &(struct ask){.prompt_tokens = 99, .max_tokens = 2});
    decode = fake_expect(&large, SEEN_DECODE);
    assert_false(decode.has_handle);
    fake_tokens(&large, &decode, 1, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 2);
    client_stop(&c.client);
    fake_stop(&large);
    cluster_stop(&c);
}

static void test_a_prompt_without_room_for_an_answer(void **state)
{
    (void)state;
    struct cluster c;
    small_start(&c);
    client_start(&c.world, &c.client, &(struct ask){.prompt_tokens = 100, .no_max_tokens = true});
    client_wait_end(&c.client, RPC_INVALID_ARGUMENT, "context_length_exceeded");
    assert_string_equal(c.client.sentence,
                        "the prompt has 100 tokens, and its answer needs room, but one request "
                        "may have 100 on a decode worker");
    client_stop(&c.client);
    cluster_stop(&c);
}

/* The only worker that is large enough is down: that is the cause, not how well the others fit
 * together. */
static void test_what_no_worker_that_is_up_can_hold(void **state)
{
    (void)state;
    struct cluster c;
    struct fake large;
    struct router_config config = world_config();
    config.worker_wait_us = 200000;
    large_start(&c, &config, &large, 0);
    small_decode_start(&c);
    fake_die(&large);
    client_start(&c.world, &c.client, &(struct ask){.prompt_tokens = 99, .max_tokens = 2});
    client_wait_end(&c.client, RPC_UNAVAILABLE, "no_workers");
    assert_non_null(strstr(c.client.sentence,
                           "the workers that are up (decode: 2 known, 1 down; prefill: 1 known, 0 "
                           "down) are too small for its 101 tokens, prompt and max_tokens"));
    client_stop(&c.client);
    client_start(&c.world, &c.client,
                 &(struct ask){.prompt_tokens = 100, .no_answer = true, .echo = true});
    client_wait_end(&c.client, RPC_UNAVAILABLE, "no_workers");
    assert_non_null(strstr(c.client.sentence,
                           "are too small for its 100 tokens of prompt, and room for 1 more"));
    client_stop(&c.client);
    client_start(&c.world, &c.client, &(struct ask){.prompt_tokens = 100, .no_max_tokens = true});
    client_wait_end(&c.client, RPC_UNAVAILABLE, "no_workers");
    assert_non_null(
        strstr(c.client.sentence,
               "are too small for its 100 tokens of prompt, and its answer needs room"));
    client_stop(&c.client);
    fake_stop(&large);
    cluster_stop(&c);
}

static void test_stop_strings_end_the_work(void **state)
{
    (void)state;
    struct cluster c;
    struct router_config config = world_config();
    snprintf(config.models, sizeof config.models, "deploy/local/tiny-shakespeare");
    struct error err;
    struct tokenizer *tokenizer;
    struct token_ids ids;
    token_ids_init(&ids, 100);
    assert_int_equal(
        tokenizer_open("deploy/local/tiny-shakespeare/tokenizer.json", &tokenizer, &err),
        STATUS_OK);
    static const char text[] = "To be, or not to be";
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), false, &ids, &err), STATUS_OK);
    world_start(&c.world, &config);
    fake_start_with(&c.world, &c.prefill,
                    (struct fake_plan){.name = "prefill-0", .role = ROLE_PREFILL, .vocab = 2048});
    fake_start_with(&c.world, &c.decode,
                    (struct fake_plan){.name = "decode-0", .role = ROLE_DECODE, .vocab = 2048});
    struct ask ask = {.text = "Hamlet:", .stop = ", or", .max_tokens = 50};
    client_start(&c.world, &c.client, &ask);
    struct seen prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    fake_opened(&c.prefill, &prefill, 1);
    struct seen decode = fake_expect(&c.decode, SEEN_DECODE);
    for (uint32_t i = 0; i < ids.count; i++)
        fake_token_id(&c.decode, &decode, i + 1, ids.data[i]);
    client_wait_end(&c.client, RPC_OK, "");
    assert_string_equal(c.client.text, "To be");
    assert_int_equal(c.client.reason, BATON__V1__FINISH_REASON__FINISH_REASON_STOP_STRING);
    assert_string_equal(c.client.stop_string, ", or");
    assert_true(c.client.completion_tokens < ids.count);
    cluster_release(&c, &decode);
    client_stop(&c.client);
    cluster_stop(&c);
    token_ids_deinit(&ids);
    tokenizer_close(tokenizer);
}

static void test_generate_once(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c);
    struct ask ask = {.max_tokens = 3, .request_id = "once"};
    client_start_at(c.world.channel, &c.client, "/baton.v1.Baton/GenerateOnce", &ask);
    struct seen prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    fake_opened(&c.prefill, &prefill, 1);
    struct seen decode = fake_expect(&c.decode, SEEN_DECODE);
    fake_tokens(&c.decode, &decode, 1, 2, FINISH_NONE);
    fake_tokens(&c.decode, &decode, 3, 1, FINISH_MAX_TOKENS);
    struct client_event *event = ring_wait(c.client.events, WORLD_LIMIT_US);
    assert_non_null(event);
    assert_false(event->closed);
    Baton__V1__GenerateResult *result =
        baton__v1__generate_result__unpack(NULL, event->size, event->bytes);
    assert_non_null(result);
    assert_string_equal(result->request_id, "once");
    assert_int_equal(result->n_token_ids, 3);
    assert_int_equal(result->token_ids[2], 103);
    assert_int_equal(result->usage->completion_tokens, 3);
    assert_int_equal(result->finished->reason, BATON__V1__FINISH_REASON__FINISH_REASON_MAX_TOKENS);
    baton__v1__generate_result__free_unpacked(result, NULL);
    free(event);
    client_wait_end(&c.client, RPC_OK, "");
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_wrong_requests_are_refused_at_the_door(void **state)
{
    (void)state;
    static const struct {
        struct ask ask;
        enum rpc_code code;
        const char *why;
    } rows[] = {
        {{.text = "hello"}, RPC_FAILED_PRECONDITION, "no_tokenizer"},
        {{.prompt_tokens = 2040, .max_tokens = 9}, RPC_INVALID_ARGUMENT, "context_length_exceeded"},
        {{.request_id = "two words"}, RPC_INVALID_ARGUMENT, "invalid_request_id"},
    };
    struct world world;
    struct router_config config = world_config();
    world_start(&world, &config);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct client client;
        client_start(&world, &client, &rows[i].ask);
        client_wait_end(&client, rows[i].code, rows[i].why);
        client_stop(&client);
    }
    world_stop(&world);
}

/* Both sides' files are named, so that the one that is wrong can be found. */
static void test_a_worker_of_another_model_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        uint64_t config_hash, tokenizer_hash;
        uint32_t newer;
        enum rpc_code code;
        const char *reason, *sentence;
    } cases[] = {
        {"another", 0, 0, 0, RPC_FAILED_PRECONDITION, "wrong_model",
         "worker stranger serves model another"},
        {"tested", 0xabc, 0xdef, 0, RPC_FAILED_PRECONDITION, "wrong_model",
         "config.json 0000000000000abc, tokenizer.json 0000000000000def), but this router"},
        {"tested", 0, 0, 1, RPC_FAILED_PRECONDITION, "wrong_version", "protocol version"},
    };
    struct world world;
    struct router_config config = world_config();
    world_start(&world, &config);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct worker_info info = {.role = ROLE_DECODE,
                                   .incarnation = 1,
                                   .block_tokens = 32,
                                   .block_count = 1,
                                   .context = 1,
                                   .vocab = WORLD_VOCAB,
                                   .name = "stranger",
                                   .address = "127.0.0.1:1",
                                   .config_hash = cases[i].config_hash,
                                   .tokenizer_hash = cases[i].tokenizer_hash};
        snprintf(info.model, sizeof info.model, "%s", cases[i].model);
        struct client client;
        register_start(&world, &client, &info, cases[i].newer);
        client_wait_end(&client, cases[i].code, cases[i].reason);
        assert_non_null(strstr(client.sentence, cases[i].sentence));
        client_stop(&client);
    }
    world_stop(&world);
}

static void test_drain(void **state)
{
    (void)state;
    struct cluster c;
    struct client late;
    struct seen prefill, decode;
    struct str body;
    str_init(&body, 1 << 20);
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2}, &prefill, &decode);
    assert_int_equal(world_get(&c.world, "/healthz", &body), STATUS_OK);
    router_drain(c.world.router);
    client_start(&c.world, &late, &(struct ask){.max_tokens = 2});
    client_wait_end(&late, RPC_UNAVAILABLE, "draining");
    assert_int_not_equal(world_get(&c.world, "/healthz", &body), STATUS_OK);
    struct pollfd idle = {.fd = router_idle_fd(c.world.router), .events = POLLIN};
    assert_int_equal(poll(&idle, 1, 0), 0); /* one is still running */
    fake_tokens(&c.decode, &decode, 1, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 2);
    assert_int_equal(poll(&idle, 1, WORLD_LIMIT_US / 1000), 1);
    client_stop(&late);
    client_stop(&c.client);
    str_deinit(&body);
    cluster_stop(&c);
}

static void test_stopping_ends_what_runs(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2}, &prefill, &decode);
    router_stop(c.world.router);
    c.world.router = NULL;
    client_wait_end(&c.client, RPC_UNAVAILABLE, "draining");
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_status_page(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    struct str body;
    str_init(&body, 1 << 20);
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2}, &prefill, &decode);
    fake_load(&c.decode, 77);
    fake_pulled(&c.decode, &decode, "shm", 1);
    fake_tokens(&c.decode, &decode, 1, 1, FINISH_NONE);
    client_wait_tokens(&c.client, 1); /* so the report before it was seen */
    assert_int_equal(world_get(&c.world, "/status", &body), STATUS_OK);
    assert_non_null(strstr(body.data, "\"model\": \"tested\""));
    assert_non_null(strstr(body.data, "\"name\": \"prefill-0\""));
    assert_non_null(
        strstr(body.data, "\"blocks\": 100, \"blocks_free\": 77, \"blocks_cached\": 78"));
    assert_non_null(strstr(body.data, "\"blocks\": 100, \"blocks_free\": 100")); /* no report yet */
    assert_non_null(strstr(body.data, "\"lane\": \"shm\""));
    assert_int_equal(world_get(&c.world, "/metrics", &body), STATUS_OK);
    assert_non_null(
        strstr(body.data, "baton_router_workers_up{model_name=\"tested\",role=\"decode\"} 1"));
    client_stop(&c.client);
    cluster_stop(&c);
    str_deinit(&body);
}

/* Whatever the limit of open files is, the doors and the workers together stay below it, and no
 * door takes what another or the workers have. */
static void test_open_files_are_shared(void **state)
{
    (void)state;
    struct router_config config = world_config();
    snprintf(config.http_listen, sizeof config.http_listen, "127.0.0.1:0");
    for (int apart = 0; apart < 2; apart++) {
        snprintf(config.registry_listen, sizeof config.registry_listen, apart ? "127.0.0.1:0" : "");
        for (uint64_t limit = 128; limit <= 65536; limit *= 2) {
            struct router_room room = router_room_divide(&config, limit);
            uint64_t taken = room.own + room.http_connections + room.http_surplus +
                             room.grpc_connections * RPC_CONNECTION_DESCRIPTORS +
                             room.figures_connections + room.workers;
            taken += apart ? room.registrations : 0;
            assert_true(taken < limit);
            assert_true(room.http_connections && room.grpc_connections && room.workers);
            assert_int_equal(room.registrations > 0, apart);
            assert_int_equal(room.open_files, limit);
            bool enough = limit >= room.needed;
            assert_int_equal(enough, room.http_connections == config.max_connections &&
                                         room.grpc_connections == config.max_connections);
            struct router_config fitting = config;
            fitting.max_connections = (uint32_t)room.fitting;
            if (room.fitting)
                assert_true(router_room_divide(&fitting, limit).needed <= limit);
            fitting.max_connections++;
            assert_true(router_room_divide(&fitting, limit).needed > limit);
        }
    }
    config.max_connections = 40; /* fewer than are told that they are too many */
    assert_int_equal(router_room_divide(&config, 65536).http_connections, 40);
    assert_int_equal(router_room_divide(&config, 65536).http_surplus, HTTP_MAX_SURPLUS);
    config.max_connections = router_config_default().max_connections;
    assert_true(router_room_divide(&config, 4096).needed > 4096); /* the default needs more */
    *config.http_listen = 0;
    assert_int_equal(router_room_divide(&config, 65536).http_connections, 0);
}

static size_t open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    size_t count = 0;
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* A router that has just started has no more descriptors open than are set aside for itself, with
 * few threads and with many, with one gate and with two. */
static void test_own_descriptors_are_set_aside(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++)
        for (uint32_t threads = 1; threads <= 64; threads += 63) {
            struct router_config config = world_config();
            struct router *router;
            struct error err;
            config.rpc_threads = threads;
            snprintf(config.http_listen, sizeof config.http_listen, "127.0.0.1:0");
            if (apart)
                snprintf(config.registry_listen, sizeof config.registry_listen, "127.0.0.1:0");
            size_t before = open_descriptors();
            if (router_start(&config, &router, &err) != STATUS_OK)
                fail_msg("%s", err.text);
            size_t own = open_descriptors() - before;
            if (own > router_room_divide(&config, 65536).own)
                fail_msg("%zu descriptors, with %u threads", own, threads);
            router_stop(router);
        }
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_a_worker_ends_requests_that_are_too_late),
        cmocka_unit_test(test_the_default_deadline),
        cmocka_unit_test(test_without_workers_requests_end_soon),
        cmocka_unit_test(test_a_request_waits_for_workers_to_come),
        cmocka_unit_test(test_a_full_queue_refuses),
        cmocka_unit_test(test_unconfirmed_tokens_hold_others_back),
        cmocka_unit_test(test_prompts_are_computed_on_decode_only_where_they_must),
        cmocka_unit_test(test_what_no_worker_can_hold),
        cmocka_unit_test(test_a_max_tokens_of_nobodys),
        cmocka_unit_test(test_a_max_tokens_of_nobodys_shrinks),
        cmocka_unit_test(test_a_large_worker_of_another_kind_gives_no_room),
        cmocka_unit_test(test_a_prompt_without_room_for_an_answer),
        cmocka_unit_test(test_what_no_worker_that_is_up_can_hold),
        cmocka_unit_test(test_stop_strings_end_the_work),
        cmocka_unit_test(test_generate_once),
        cmocka_unit_test(test_wrong_requests_are_refused_at_the_door),
        cmocka_unit_test(test_a_worker_of_another_model_is_refused),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_stopping_ends_what_runs),
        cmocka_unit_test(test_status_page),
        cmocka_unit_test(test_open_files_are_shared),
        cmocka_unit_test(test_own_descriptors_are_set_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
