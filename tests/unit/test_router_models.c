/* Several models behind one router: each has its workers and its queue, and nothing of one is
 * another's matter. */
#include "router_world.h"

#include "common/base/log.h"
#include "common/base/str.h"
#include "router/dispatch/workers.h"
#include "router/ops/status_board.h"

#define TWO_MODELS "tested=" WORLD_MODEL ",other=tests/golden/models/qwen2"

static struct router_config two_models(void)
{
    struct router_config config = world_config();
    snprintf(config.models, sizeof config.models, TWO_MODELS);
    *config.model_name = 0;
    return config;
}

static void worker_start(struct world *world, struct fake *fake, const char *name,
                         enum worker_role role, const char *model)
{
    fake_start_with(world, fake, (struct fake_plan){.name = name, .role = role, .model = model});
}

/* Computes a whole answer of two tokens on a pair of workers. */
static void serve_pair(struct fake *prefill, struct fake *decode)
{
    struct seen first = fake_expect(prefill, SEEN_PREFILL);
    fake_opened(prefill, &first, 1);
    struct seen second = fake_expect(decode, SEEN_DECODE);
    assert_true(second.has_handle);
    assert_string_equal(second.source_name, prefill->info.name);
    fake_tokens(decode, &second, 1, 2, FINISH_MAX_TOKENS);
}

/* Both names have weights with equal hashes. Even so a request stays with the workers of its
 * model. */
static void test_each_request_goes_to_the_workers_of_its_model(void **state)
{
    (void)state;
    struct world world;
    struct fake prefills[2], decodes[2];
    static const char *const models[] = {"tested", "other"};
    struct router_config config = two_models();
    world_start(&world, &config);
    worker_start(&world, &prefills[0], "prefill-0", ROLE_PREFILL, "tested");
    worker_start(&world, &decodes[1], "decode-1", ROLE_DECODE, "other");
    worker_start(&world, &prefills[1], "prefill-1", ROLE_PREFILL, "other");
    worker_start(&world, &decodes[0], "decode-0", ROLE_DECODE, "tested");
    for (int round = 0; round < 6; round++) {
        struct client client;
        int model = round % 3 == 1;
        client_start(&world, &client, &(struct ask){.max_tokens = 2, .model = models[model]});
        serve_pair(&prefills[model], &decodes[model]);
        client_expect_answer(&client, 2);
        assert_string_equal(client.decode_worker, decodes[model].info.name);
        fake_expect(&prefills[model], SEEN_RELEASE);
        client_stop(&client);
    }
    for (int i = 0; i < 2; i++) {
        fake_stop(&prefills[i]);
        fake_stop(&decodes[i]);
    }
    world_stop(&world);
}

static void test_a_request_must_name_one_of_several(void **state)
{
    (void)state;
    struct world world;
    struct router_config config = two_models();
    world_start(&world, &config);
    static const struct {
        const char *model;
        enum rpc_code code;
        const char *why, *sentence;
    } cases[] = {
        {"", RPC_INVALID_ARGUMENT, "missing_model",
         "the request names no model, and several are served: \"tested\" and \"other\""},
        {"gpt-5", RPC_NOT_FOUND, "model_not_found",
         "model \"gpt-5\" is not served here; \"tested\" and \"other\" are"},
    };
    for (size_t i = 0; i < 2; i++) {
        struct client client;
        client_start(&world, &client, &(struct ask){.model = cases[i].model});
        client_wait_end(&client, cases[i].code, cases[i].why);
        assert_non_null(strstr(client.sentence, cases[i].sentence));
        client_stop(&client);
    }
    world_stop(&world);
}

/* Requests that wait for missing workers, or for room, don't delay the other model's. */
static void test_no_queue_is_another_ones(void **state)
{
    (void)state;
    struct cluster c;
    struct fake other;
    struct client waiting[2], surplus, full, behind;
    struct seen prefill, decode, held;
    struct router_config config = two_models();
    config.max_queue = 2;
    config.worker_wait_us = WORLD_LIMIT_US;
    config.unconfirmed_tokens = 10; /* one of 8 tokens at a time */
    cluster_start_with(&c, &config);
    for (int i = 0; i < 2; i++)
        client_start(&c.world, &waiting[i], &(struct ask){.max_tokens = 2, .model = "other"});
    client_start(&c.world, &surplus, &(struct ask){.max_tokens = 2, .model = "other"});
    /* The three race to the queue: one of them finds it full. */
    struct client *others[] = {&waiting[0], &waiting[1], &surplus};
    struct client *refused = NULL;
    for (int i = 0; !refused; i = (i + 1) % 3) {
        struct client_event *event = ring_wait(others[i]->events, 1000);
        if (!event)
            continue;
        client_take(others[i], event);
        free(event);
        refused = others[i];
    }
    client_wait_end(refused, RPC_RESOURCE_EXHAUSTED, "overloaded");
    /* With the queue of the other pool full, this one is served. */
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2, .model = "tested"}, &prefill, &decode);
    /* It fills up itself: one more request waits behind it. */
    client_start(&c.world, &full, &(struct ask){.max_tokens = 2, .model = "tested"});
    worker_start(&c.world, &other, "decode-9", ROLE_DECODE, "other");
    /* The other pool, with its worker here, doesn't wait: its first request is placed, its second
     * waits for the first. */
    held = fake_expect(&other, SEEN_DECODE);
    assert_false(held.has_handle);
    fake_tokens(&other, &held, 1, 2, FINISH_MAX_TOKENS);
    held = fake_expect(&other, SEEN_DECODE);
    client_start(&c.world, &behind, &(struct ask){.max_tokens = 2, .model = "other"});
    fake_tokens(&other, &held, 1, 2, FINISH_MAX_TOKENS);
    held = fake_expect(&other, SEEN_DECODE);
    fake_tokens(&other, &held, 1, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&behind, 2);
    for (int i = 0; i < 3; i++)
        if (others[i] != refused)
            client_expect_answer(others[i], 2);
    assert_int_equal(full.id_count, 0);
    fake_tokens(&c.decode, &decode, 1, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 2);
    for (int i = 0; i < 3; i++)
        client_stop(others[i]);
    client_stop(&full);
    client_stop(&behind);
    client_stop(&c.client);
    fake_stop(&other);
    cluster_stop(&c);
}

/* Each of two models has one of four places for itself; two places are for the first requests that
 * come. */
static void test_a_model_cannot_take_all_places(void **state)
{
    (void)state;
    struct cluster c;
    struct client greedy[4];
    struct seen prefill, decode;
    struct router_config config = two_models();
    config.max_requests = 4;
    config.worker_wait_us = WORLD_LIMIT_US;
    cluster_start_with(&c, &config);
    for (int i = 0; i < 3; i++)
        client_start(&c.world, &greedy[i], &(struct ask){.model = "other"});
    /* All three wait by the time when a fourth is refused; which of the four it is, is a matter of
     * luck. */
    client_start(&c.world, &greedy[3], &(struct ask){.model = "other"});
    struct client *refused = NULL;
    for (int i = 0; !refused; i = (i + 1) % 4) {
        struct client_event *event = ring_wait(greedy[i].events, 1000);
        if (!event)
            continue;
        client_take(&greedy[i], event);
        free(event);
        refused = &greedy[i];
    }
    client_wait_end(refused, RPC_RESOURCE_EXHAUSTED, "overloaded");
    assert_non_null(strstr(refused->sentence, "too many requests for model \"other\" are here: "));
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2, .model = "tested"}, &prefill, &decode);
    fake_tokens(&c.decode, &decode, 1, 1, FINISH_EOS);
    client_expect_answer(&c.client, 1);
    client_stop(&c.client);
    for (int i = 0; i < 4; i++)
        client_stop(&greedy[i]);
    cluster_stop(&c);
}

/* If one pool dies, its requests end and name the pool without workers; the other's go on. */
static void test_the_last_worker_of_a_model(void **state)
{
    (void)state;
    struct cluster c;
    struct fake other;
    struct client lost, late;
    struct seen prefill, decode;
    struct router_config config = two_models();
    config.worker_wait_us = 200000;
    cluster_start_with(&c, &config);
    worker_start(&c.world, &other, "decode-1", ROLE_DECODE, "other");
    cluster_to_decode(&c, &(struct ask){.max_tokens = 3, .model = "tested"}, &prefill, &decode);
    fake_tokens(&c.decode, &decode, 1, 1, FINISH_NONE);
    client_start(&c.world, &lost, &(struct ask){.max_tokens = 3, .model = "other"});
    struct seen held = fake_expect(&other, SEEN_DECODE);
    fake_tokens(&other, &held, 1, 1, FINISH_NONE);
    client_wait_tokens(&lost, 1);
    fake_die(&other);
    client_wait_end(&lost, RPC_UNAVAILABLE, "no_workers");
    assert_non_null(
        strstr(lost.sentence, "no decode worker of model \"other\" is up (1 known, 1 down)"));
    client_start(&c.world, &late, &(struct ask){.model = "other"});
    client_wait_end(&late, RPC_UNAVAILABLE, "no_workers");
    fake_tokens(&c.decode, &decode, 2, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 3);
    client_stop(&lost);
    client_stop(&late);
    client_stop(&c.client);
    fake_stop(&other);
    cluster_stop(&c);
}

/* Other weights under the same name serve too, but never continue an answer of the first ones. */
static void test_an_answer_ends_with_the_weights_that_it_began_with(void **state)
{
    (void)state;
    struct world world;
    struct fake old, update;
    struct client begun, fresh, moved;
    struct router_config config = world_config();
    config.worker_wait_us = 200000;
    world_start(&world, &config);
    fake_start(&world, &old, "decode-0", ROLE_DECODE);
    client_start(&world, &begun, &(struct ask){.max_tokens = 3});
    struct seen first = fake_expect(&old, SEEN_DECODE);
    fake_tokens(&old, &first, 1, 1, FINISH_NONE);
    client_wait_tokens(&begun, 1);
    client_start(&world, &moved, &(struct ask){.max_tokens = 1});
    fake_expect(&old, SEEN_DECODE);
    fake_start_with(&world, &update,
                    (struct fake_plan){.name = "decode-1", .role = ROLE_DECODE, .model_hash = 2});
    fake_die(&old);
    /* A request without a token may begin anew. */
    struct seen again = fake_expect(&update, SEEN_DECODE);
    assert_int_equal(again.emitted_count, 0);
    fake_tokens(&update, &again, 1, 1, FINISH_MAX_TOKENS);
    client_expect_answer(&moved, 1);
    client_wait_end(&begun, RPC_UNAVAILABLE, "no_workers");
    assert_non_null(strstr(begun.sentence,
                           "the decode workers that are up (2 known, 1 down) have other weights or "
                           "numerics than its answer began with"));
    client_start(&world, &fresh, &(struct ask){.max_tokens = 1});
    again = fake_expect(&update, SEEN_DECODE);
    fake_tokens(&update, &again, 1, 1, FINISH_MAX_TOKENS);
    client_expect_answer(&fresh, 1);
    client_stop(&begun);
    client_stop(&moved);
    client_stop(&fresh);
    fake_stop(&old);
    fake_stop(&update);
    world_stop(&world);
}

/* A worker asks to be taken in; returns why not. */
static void ask_in(struct world *world, const char *name, const char *model, const char *why)
{
    struct worker_info info = {.role = ROLE_DECODE,
                               .incarnation = 1,
                               .block_tokens = 32,
                               .block_count = 1,
                               .context = 1,
                               .vocab = WORLD_VOCAB,
                               .address = "127.0.0.1:1"};
    snprintf(info.name, sizeof info.name, "%s", name);
    snprintf(info.model, sizeof info.model, "%s", model);
    struct client client;
    register_start(world, &client, &info, 0);
    struct client_event *event;
    do { /* skips the answer's message, if there is one */
        event = ring_wait(client.events, WORLD_LIMIT_US);
        assert_non_null(event);
        client.closed = event->closed;
        if (event->closed)
            assert_string_equal(event->why, why);
        free(event);
    } while (!client.closed);
    client_stop(&client);
}

static void test_status_tells_models_and_who_was_refused(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    struct str body;
    str_init(&body, 1 << 20);
    struct router_config config = two_models();
    cluster_start_with(&c, &config);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2, .model = "tested"}, &prefill, &decode);
    fake_tokens(&c.decode, &decode, 1, 1, FINISH_NONE);
    client_wait_tokens(&c.client, 1);
    char name[32];
    for (int i = 0; i <= STATUS_MAX_REFUSED; i++) {
        snprintf(name, sizeof name, "stranger-%02d", i);
        ask_in(&c.world, name, "unknown", "wrong_model");
    }
    assert_int_equal(world_get(&c.world, "/status", &body), STATUS_OK);
    assert_null(strstr(body.data, "{\"model\": "));
    assert_non_null(strstr(body.data, "\"models\": [{\"name\": \"tested\", "));
    assert_non_null(strstr(body.data,
                           "\"prefill_workers\": 1, \"decode_workers\": 1, \"queue\": 0, "
                           "\"running\": 1, "));
    assert_non_null(strstr(body.data, "{\"name\": \"other\", \"numerics\": \"\", "));
    assert_non_null(strstr(body.data,
                           "\"prefill_workers\": 0, \"decode_workers\": 0, \"queue\": 0, "
                           "\"running\": 0, "));
    assert_non_null(strstr(body.data, "{\"name\": \"decode-0\", \"model\": \"tested\", "));
    assert_null(strstr(body.data, "stranger-00")); /* the newest are listed */
    assert_non_null(strstr(body.data, "{\"name\": \"stranger-16\", \"role\": \"decode\", "));
    assert_non_null(strstr(body.data,
                           "serves model unknown, for which this router has no folder: "
                           "it serves \\\"tested\\\" and \\\"other\\\"; start the router"));
    ask_in(&c.world, "stranger-16", "other", "");
    assert_int_equal(world_get(&c.world, "/status", &body), STATUS_OK);
    assert_null(strstr(body.data, "{\"name\": \"stranger-16\", \"role\": "));
    assert_non_null(strstr(body.data, "{\"name\": \"stranger-15\", \"role\": "));
    assert_int_equal(world_get(&c.world, "/metrics", &body), STATUS_OK);
    assert_non_null(
        strstr(body.data, "baton_router_workers_up{model_name=\"tested\",role=\"decode\"} 1\n"));
    assert_non_null(
        strstr(body.data, "baton_router_workers_up{model_name=\"other\",role=\"decode\"} 0\n"));
    assert_non_null(
        strstr(body.data, "baton_router_requests{model_name=\"tested\",state=\"decode\"} 1\n"));
    client_stop(&c.client);
    cluster_stop(&c);
    str_deinit(&body);
}

static void shown_worker(struct workers *workers, struct worker *worker, enum worker_role role,
                         uint64_t numerics_id, uint32_t context)
{
    worker->key = workers->count + 1;
    worker->info = (struct worker_info){.role = role,
                                        .numerics_id = numerics_id,
                                        .context = context,
                                        .block_count = 100,
                                        .block_tokens = 32};
    worker->state = WORKER_UP;
    workers->items[workers->count++] = worker;
    worker_changed(workers, worker, 1);
}

/* The context that is shown is that of the workers on which one request could be placed. */
static void test_the_context_that_is_shown(void **state)
{
    (void)state;
    struct workers *workers = calloc(1, sizeof *workers);
    struct worker *list = calloc(3, sizeof *list);
    struct status_board *board = calloc(1, sizeof *board);
    struct served_models *models = calloc(1, sizeof *models);
    struct placement *placement = calloc(1, sizeof *placement);
    assert_true(workers && list && board && models && placement);
    assert_int_equal(placement_init(placement, &(struct placement_config){.model_count = 1}),
                     STATUS_OK);
    models->count = 1;
    workers->models = models;
    workers->placement = placement;
    const struct membership_config members = {.limit = 1, .ttl_us = 1};
    assert_int_equal(membership_create(&members, &workers->membership), STATUS_OK);
    models->items[0].limits.context = 2048;
    status_board_init(board);
    workers_show(workers, board, 1);
    assert_int_equal(status_board_context(board, models, 0), 2048);
    shown_worker(workers, &list[0], ROLE_DECODE, 1, 100);
    shown_worker(workers, &list[1], ROLE_DECODE, 2, 1000);
    workers_show(workers, board, 1);
    assert_int_equal(status_board_context(board, models, 0), 1000);
    shown_worker(workers, &list[2], ROLE_PREFILL, 1, 2048);
    workers_show(workers, board, 1);
    assert_int_equal(status_board_context(board, models, 0), 100);
    list[0].load.draining = true; /* the other takes work, and computes prompts itself */
    worker_changed(workers, &list[0], 1);
    workers_show(workers, board, 1);
    assert_int_equal(status_board_context(board, models, 0), 1000);
    list[1].load.draining = true;
    list[0].info.context = 1500;
    worker_changed(workers, &list[0], 1);
    worker_changed(workers, &list[1], 1);
    workers_show(workers, board, 1);
    assert_int_equal(status_board_context(board, models, 0), 1500);
    membership_destroy(workers->membership);
    status_board_deinit(board);
    placement_deinit(placement);
    free(placement);
    free(models);
    free(board);
    free(list);
    free(workers);
}

/* Between the end of its membership and that of its session, too, a worker that leaves on request
 * doesn't count as lost. */
static void test_who_leaves_in_order_is_not_down(void **state)
{
    (void)state;
    static const enum worker_state states[] = {WORKER_WAITING, WORKER_DIALLING, WORKER_UP,
                                               WORKER_LEAVING};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        struct worker_status worker = {.state = states[i]};
        assert_string_equal(worker_status_state(&worker), states[i] == WORKER_UP ? "up" : "down");
        worker.load.draining = true;
        assert_string_equal(worker_status_state(&worker), "draining");
    }
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_request_goes_to_the_workers_of_its_model),
        cmocka_unit_test(test_the_context_that_is_shown),
        cmocka_unit_test(test_who_leaves_in_order_is_not_down),
        cmocka_unit_test(test_a_request_must_name_one_of_several),
        cmocka_unit_test(test_no_queue_is_another_ones),
        cmocka_unit_test(test_a_model_cannot_take_all_places),
        cmocka_unit_test(test_the_last_worker_of_a_model),
        cmocka_unit_test(test_an_answer_ends_with_the_weights_that_it_began_with),
        cmocka_unit_test(test_status_tells_models_and_who_was_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
