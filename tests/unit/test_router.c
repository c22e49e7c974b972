/* The router with fake workers and a real client, all in this process over loopback: the messages
 * to workers and to the client, without faults and with workers lost at each step. */
#include "router_world.h"

#include "common/base/clock.h"
#include "common/base/domain/placement_policy.h"
#include "common/base/log.h"

#include <poll.h>
#include <unistd.h>

static void test_one_request(void **state)
{
    (void)state;
    struct cluster c;
    struct router_config config = world_config();
    snprintf(config.slo_class, sizeof config.slo_class, "name=chat,ttft=1us,name=bulk,offline");
    cluster_start_with(&c, &config);
    struct ask ask = {.prompt_tokens = 40,
                      .max_tokens = 3,
                      .request_id = "call-7",
                      .slo_class = "bulk", /* its priority is the request's */
                      .ids_with_hashes = true};
    client_start(&c.world, &c.client, &ask);
    struct seen prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_int_equal(prefill.attempt, 1);
    assert_int_equal(prefill.prompt_count, 40);
    assert_int_equal(prefill.emitted_count, 0);
    assert_int_equal(prefill.max_tokens, 3);
    assert_int_equal(prefill.seed, 42);
    assert_int_equal(prefill.priority, 2);
    assert_string_equal(prefill.request_name, "call-7");
    fake_opened(&c.prefill, &prefill, 17);
    struct seen decode = fake_expect(&c.decode, SEEN_DECODE);
    assert_int_equal(decode.request, prefill.request);
    assert_int_equal(decode.attempt, 1);
    assert_int_equal(decode.priority, 2);
    assert_true(decode.has_handle);
    assert_int_equal(decode.handle_id, 17);
    assert_int_equal(decode.handle_blocks, 3);
    assert_string_equal(decode.source_address, c.prefill.info.address);
    assert_string_equal(decode.source_name, "prefill-0");

    fake_tokens(&c.prefill, &prefill, 1, 1, FINISH_NONE);
    client_wait_tokens(&c.client, 1); /* it leaves before the handoff is done */
    fake_pulled(&c.decode, &decode, "shm", 4096);
    fake_tokens(&c.decode, &decode, 1, 1, FINISH_NONE); /* again, from the other side */
    fake_tokens(&c.decode, &decode, 2, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 3);
    assert_int_equal(c.client.hash_count, 3);
    assert_int_equal(c.client.reason, BATON__V1__FINISH_REASON__FINISH_REASON_MAX_TOKENS);
    assert_int_equal(c.client.prompt_tokens, 40);
    assert_int_equal(c.client.prefills, 1);
    assert_int_equal(c.client.seed, 42);
    assert_int_equal(c.client.kv_bytes, 4096);
    assert_string_equal(c.client.lane, "shm");
    assert_string_equal(c.client.prefill_worker, "prefill-0");
    assert_string_equal(c.client.decode_worker, "decode-0");
    assert_string_equal(rpc_call_metadata(c.client.call, "x-request-id"), "call-7");
    const struct router_metrics *figures = router_figures(c.world.router);
    assert_int_equal(counter_value(figures->models[0].requests_by_reason[REASON_NONE]), 1);
    assert_int_equal(counter_value(figures->dropped),
                     0); /* the first token comes from both sides */
    assert_int_equal(counter_value(figures->models[0].completion_tokens), 3);
    struct slo_figures slo;
    slo_books_read(figures->slo, 1, clock_now_us(), &slo);
    assert_true(slo.ever.attained == 1 && slo.ever.missed == 0 && slo.uncounted == 0);
    cluster_finished(&c, &decode);
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_the_first_token_may_be_the_last(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2}, &prefill, &decode);
    fake_tokens(&c.prefill, &prefill, 1, 1, FINISH_EOS);
    client_expect_answer(&c.client, 1);
    assert_int_equal(c.client.reason, BATON__V1__FINISH_REASON__FINISH_REASON_EOS);
    cluster_release(&c, &decode);
    client_stop(&c.client);
    cluster_stop(&c);
}

/* The decode worker's first message is the next request, of two tokens. The same holds if one token
 * of a request is left. */
static void test_one_token_is_not_handed_over(void **state)
{
    (void)state;
    struct cluster c;
    struct fake second;
    struct seen prefill, decode;
    cluster_start(&c);
    client_start(&c.world, &c.client, &(struct ask){.max_tokens = 1});
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    fake_opened(&c.prefill, &prefill, 1);
    fake_tokens(&c.prefill, &prefill, 1, 1, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 1);
    cluster_finished(&c, &prefill);
    client_stop(&c.client);

    cluster_to_decode(&c, &(struct ask){.max_tokens = 2}, &prefill, &decode);
    assert_int_equal(decode.request, prefill.request);
    fake_tokens(&c.prefill, &prefill, 1, 1, FINISH_NONE);
    client_wait_tokens(&c.client, 1);
    fake_start(&c.world, &second, "decode-1", ROLE_DECODE);
    fake_die(&c.decode);
    decode = fake_expect(&second, SEEN_DECODE);
    assert_int_equal(decode.attempt, 2);
    fake_tokens(&second, &decode, 1, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 2);
    client_stop(&c.client);
    fake_stop(&second);
    cluster_stop(&c);
}

static void test_old_and_doubled_messages_are_dropped(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 5}, &prefill, &decode);
    struct seen old = decode, stranger = decode;
    old.attempt = 0;
    stranger.request++;
    fake_tokens(&c.decode, &decode, 1, 3, FINISH_NONE);
    fake_tokens(&c.decode, &decode, 2, 2, FINISH_NONE);
    fake_tokens(&c.decode, &old, 4, 1, FINISH_MAX_TOKENS);
    fake_tokens(&c.decode, &stranger, 4, 1, FINISH_MAX_TOKENS);
    fake_lost(&c.decode, &old);
    fake_tokens(&c.decode, &decode, 4, 2, FINISH_MAX_TOKENS);
    fake_tokens(&c.decode, &decode, 6, 1, FINISH_NONE); /* after the end */
    client_expect_answer(&c.client, 5);
    assert_int_equal(counter_value(router_figures(c.world.router)->dropped),
                     4); /* 2 old, 2 twice */
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_a_gap_runs_the_prompt_again(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 4}, &prefill, &decode);
    fake_tokens(&c.decode, &decode, 1, 2, FINISH_NONE);
    fake_tokens(&c.decode, &decode, 4, 1, FINISH_NONE);
    cluster_release(&c, &decode);
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_int_equal(prefill.attempt, 2);
    assert_int_equal(prefill.emitted_count, 2);
    fake_opened(&c.prefill, &prefill, 2);
    decode = fake_expect(&c.decode, SEEN_DECODE);
    fake_tokens(&c.decode, &decode, 3, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 4);
    assert_int_equal(c.client.prefills, 2);
    client_stop(&c.client);
    cluster_stop(&c);
}

/* Returns the one of two that got a message first. */
static struct fake *first_told(struct fake *a, struct fake *b)
{
    struct pollfd fds[] = {{.fd = ring_fd(a->seen), .events = POLLIN},
                           {.fd = ring_fd(b->seen), .events = POLLIN}};
    assert_true(poll(fds, 2, WORLD_LIMIT_US / 1000) > 0);
    return fds[0].revents ? a : b;
}

static void test_prefill_dies_before_it_opened(void **state)
{
    (void)state;
    struct cluster c;
    struct fake second;
    cluster_start(&c);
    fake_start(&c.world, &second, "prefill-1", ROLE_PREFILL);
    client_start(&c.world, &c.client, &(struct ask){.max_tokens = 2});
    struct fake *hit = first_told(&c.prefill, &second);
    struct fake *other = hit == &second ? &c.prefill : &second;
    fake_expect(hit, SEEN_PREFILL);
    fake_die(hit);
    struct seen prefill = fake_expect(other, SEEN_PREFILL);
    assert_int_equal(prefill.attempt, 2);
    fake_opened(other, &prefill, 3);
    struct seen decode = fake_expect(&c.decode, SEEN_DECODE);
    assert_int_equal(decode.attempt, 2);
    assert_string_equal(decode.source_address, other->info.address);
    fake_tokens(&c.decode, &decode, 1, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 2);
    assert_int_equal(c.client.prefills, 1); /* an attempt that was never opened costs none */
    assert_string_equal(c.client.prefill_worker, other->info.name);
    client_stop(&c.client);
    fake_stop(&second);
    cluster_stop(&c);
}

static void test_decode_gives_up_on_a_dead_prefill(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 3}, &prefill, &decode);
    fake_tokens(&c.prefill, &prefill, 1, 1, FINISH_NONE);
    client_wait_tokens(&c.client, 1);
    struct fake second;
    fake_start(&c.world, &second, "prefill-1", ROLE_PREFILL);
    fake_die(&c.prefill); /* from Decode on this is for the decode worker to say */
    fake_lost(&c.decode, &decode);
    assert_int_equal(fake_expect(&c.decode, SEEN_RELEASE).attempt, 1);
    prefill = fake_expect(&second, SEEN_PREFILL);
    assert_true(prefill.attempt >=
                2); /* the dead one may have been asked again before its loss was seen */
    assert_int_equal(prefill.emitted_count, 1);
    assert_int_equal(prefill.emitted[0], 101);
    fake_opened(&second, &prefill, 4);
    decode = fake_expect(&c.decode, SEEN_DECODE);
    fake_tokens(&c.decode, &decode, 2, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 3);
    assert_int_equal(c.client.prefills, 2);
    assert_true(counter_value(router_figures(c.world.router)->models[0].retries) >= 1);
    client_stop(&c.client);
    fake_stop(&second);
    cluster_stop(&c);
}

static void test_decode_dies_before_its_first_token(void **state)
{
    (void)state;
    struct cluster c;
    struct fake second;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2}, &prefill, &decode);
    fake_start(&c.world, &second, "decode-1", ROLE_DECODE);
    fake_die(&c.decode);
    decode = fake_expect(&second, SEEN_DECODE); /* the same handle, without another prefill */
    assert_int_equal(decode.attempt, 2);
    assert_int_equal(decode.handle_id, 1);
    assert_string_equal(decode.source_address, c.prefill.info.address);
    fake_tokens(&second, &decode, 1, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 2);
    assert_int_equal(c.client.prefills, 1);
    assert_string_equal(c.client.decode_worker, "decode-1");
    assert_int_equal(fake_expect(&c.prefill, SEEN_RELEASE).attempt, 2);
    client_stop(&c.client);
    fake_stop(&second);
    cluster_stop(&c);
}

static void test_decode_dies_after_some_tokens(void **state)
{
    (void)state;
    struct cluster c;
    struct fake second;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 6}, &prefill, &decode);
    fake_tokens(&c.decode, &decode, 1, 3, FINISH_NONE);
    client_wait_tokens(&c.client, 3);
    fake_start(&c.world, &second, "decode-1", ROLE_DECODE);
    fake_die(&c.decode);
    assert_int_equal(fake_expect(&c.prefill, SEEN_RELEASE).attempt, 1);
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_int_equal(prefill.attempt, 2);
    assert_int_equal(prefill.emitted_count, 3);
    assert_int_equal(prefill.emitted[2], 103);
    fake_opened(&c.prefill, &prefill, 2);
    decode = fake_expect(&second, SEEN_DECODE);
    assert_int_equal(decode.emitted_count, 3);
    fake_tokens(&c.prefill, &prefill, 4, 1, FINISH_NONE);
    fake_tokens(&second, &decode, 4, 3, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 6);
    assert_int_equal(c.client.prefills, 2);
    client_stop(&c.client);
    fake_stop(&second);
    cluster_stop(&c);
}

/* A drain that ends before its first report. The request may lose no worker to a crash. */
static void test_one_that_only_says_that_it_leaves_has_not_crashed(void **state)
{
    (void)state;
    struct cluster c;
    struct fake second;
    struct seen prefill, decode;
    struct router_config config = world_config();
    config.retries = 0;
    cluster_start_with(&c, &config);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 6}, &prefill, &decode);
    fake_tokens(&c.decode, &decode, 1, 3, FINISH_NONE);
    client_wait_tokens(&c.client, 3);
    fake_start(&c.world, &second, "decode-1", ROLE_DECODE);
    registrar_leave(c.decode.registrar);
    assert_int_equal(fake_expect(&c.prefill, SEEN_RELEASE).attempt, 1);
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_int_equal(prefill.emitted_count, 3);
    fake_opened(&c.prefill, &prefill, 2);
    decode = fake_expect(&second, SEEN_DECODE);
    fake_tokens(&second, &decode, 4, 3, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 6);
    client_stop(&c.client);
    fake_stop(&second);
    cluster_stop(&c);
}

static void test_a_restarted_worker_is_another_one(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c);
    client_start(&c.world, &c.client, &(struct ask){.max_tokens = 2});
    fake_expect(&c.prefill, SEEN_PREFILL);
    registrar_stop(c.prefill.registrar);
    c.prefill.info.incarnation++; /* same name, same address */
    fake_register(&c.prefill);
    struct seen seen;
    do { /* the old stream ends and a new one opens; the reports come in either order */
        struct seen *next = ring_wait(c.prefill.seen, WORLD_LIMIT_US);
        assert_non_null(next);
        seen = *next;
        free(next);
        if (seen.kind == SEEN_SESSION)
            registrar_session_up(c.prefill.registrar, true);
    } while (seen.kind != SEEN_PREFILL);
    assert_int_equal(seen.attempt, 2);
    fake_opened(&c.prefill, &seen, 1);
    struct seen decode = fake_expect(&c.decode, SEEN_DECODE);
    fake_tokens(&c.decode, &decode, 1, 1, FINISH_EOS);
    client_expect_answer(&c.client, 1);
    client_stop(&c.client);
    struct str body; /* it didn't drain, so that was no planned move */
    str_init(&body, 1 << 20);
    assert_int_equal(world_get(&c.world, "/metrics", &body), STATUS_OK);
    assert_non_null(strstr(body.data, "\nbaton_router_moves_total{model_name=\"tested\"} 0\n"));
    assert_non_null(strstr(body.data, "\nbaton_router_retries_total{model_name=\"tested\"} 1\n"));
    str_deinit(&body);
    cluster_stop(&c);
}

static void test_workers_that_die_again_and_again(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    struct router_config config = world_config();
    config.retries = 1;
    cluster_start_with(&c, &config);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 3}, &prefill, &decode);
    fake_lost(&c.decode, &decode);
    cluster_release(&c, &decode);
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    fake_opened(&c.prefill, &prefill, 2);
    decode = fake_expect(&c.decode, SEEN_DECODE);
    fake_lost(&c.decode, &decode);
    client_wait_end(&c.client, RPC_UNAVAILABLE, "workers_lost");
    cluster_release(&c, &decode);
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_steps_that_fail(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    struct router_config config = world_config();
    config.retries = 0;
    cluster_start_with(&c, &config);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 3}, &prefill, &decode);
    fake_step_failed(&c.prefill, &prefill, "the model gave no number");
    client_wait_end(&c.client, RPC_INTERNAL, "step_failed");
    assert_non_null(
        strstr(c.client.sentence,
               "a prefill worker could not compute a step: the model gave no number (after "));
    cluster_release(&c, &decode);
    client_stop(&c.client);
    cluster_stop(&c);
}

/* If either worker reports it, with retries left, no worker is asked again. */
static void test_no_token_that_may_be_drawn(void **state)
{
    (void)state;
    static const char how[] = "at position 9 the constraint allows no token";
    for (int by_decode = 0; by_decode < 2; by_decode++) {
        struct cluster c;
        struct seen prefill, decode;
        struct router_config config = world_config();
        config.retries = 3;
        cluster_start_with(&c, &config);
        cluster_to_decode(&c, &(struct ask){.max_tokens = 3}, &prefill, &decode);
        fake_lost_by(by_decode ? &c.decode : &c.prefill, by_decode ? &decode : &prefill,
                     "no_token_allowed", how);
        client_wait_end(&c.client, RPC_INVALID_ARGUMENT, "no_token_allowed");
        assert_string_equal(c.client.sentence, how);
        cluster_release(&c, &decode);
        client_stop(&c.client);
        cluster_stop(&c);
    }
}

static void test_a_worker_refuses(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c);
    client_start(&c.world, &c.client, &(struct ask){.max_tokens = 1});
    struct seen prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    fake_refused(&c.prefill, &prefill, true); /* another worker might; there is no other */
    fake_expect(&c.prefill, SEEN_RELEASE);
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    assert_int_equal(prefill.attempt, 2);
    fake_refused(&c.prefill, &prefill, false);
    client_wait_end(&c.client, RPC_INVALID_ARGUMENT, "refused");
    assert_string_equal(c.client.sentence, "needs 9 blocks, the pool has 8");
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_a_worker_that_lies_is_cut_off(void **state)
{
    (void)state;
    struct cluster c;
    struct fake second;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2}, &prefill, &decode);
    fake_start(&c.world, &second, "decode-1", ROLE_DECODE);
    fake_token_id(&c.decode, &decode, 1, WORLD_VOCAB); /* no such id */
    fake_expect(&c.decode, SEEN_CLOSED);
    decode = fake_expect(&second, SEEN_DECODE);
    fake_tokens(&second, &decode, 1, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 2);
    client_stop(&c.client);
    fake_stop(&second);
    cluster_stop(&c);
}

static void say_cache(struct fake *fake, uint64_t first, const int *kinds, size_t count)
{
    Baton__Worker__V1__CacheEvent events[4], *pointers[4];
    for (size_t i = 0; i < count; i++) {
        baton__worker__v1__cache_event__init(&events[i]);
        events[i].kind = (Baton__Worker__V1__CacheEventKind)kinds[i];
        events[i].token_count = 32;
        pointers[i] = &events[i];
    }
    Baton__Worker__V1__CacheEvents batch = BATON__WORKER__V1__CACHE_EVENTS__INIT;
    batch.first_number = first;
    batch.n_events = count;
    batch.events = pointers;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_CACHE;
    up.cache = &batch;
    fake_say(fake, &up);
}

/* Events of workers' caches are counted. A worker with a gap in its numbers is asked to begin
 * again. One that says what can't be begins again on a new session. */
static void test_a_cache_is_told_without_gaps(void **state)
{
    (void)state;
    enum { C = PREFIX_CLEARED, S = PREFIX_STORED, R = PREFIX_REMOVED };
    struct cluster c;
    struct seen prefill, decode;
    struct fake old;
    cluster_start(&c);
    say_cache(&c.decode, 1, (int[]){C, S, S, R}, 4);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2}, &prefill, &decode);
    fake_tokens(&c.decode, &decode, 1, 2, FINISH_MAX_TOKENS); /* behind it on the stream */
    client_expect_answer(&c.client, 2);
    const struct router_metrics *figures = router_figures(c.world.router);
    assert_int_equal(counter_value(figures->cache_changes[C]), 1);
    assert_int_equal(counter_value(figures->cache_changes[S]), 2);
    assert_int_equal(counter_value(figures->cache_changes[R]), 1);
    cluster_finished(&c, &decode);
    say_cache(&c.decode, 6, (int[]){S}, 1);
    fake_expect(&c.decode, SEEN_CACHE_RESTART);
    say_cache(&c.decode, 7, (int[]){S, C, S, C}, 4); /* the first one was under way */
    say_cache(&c.decode, 11, (int[]){R}, 1);
    fake_expect(&c.decode, SEEN_CLOSED);
    fake_expect(&c.decode, SEEN_SESSION);
    assert_int_equal(counter_value(figures->cache_changes[C]), 3);
    assert_int_equal(counter_value(figures->cache_changes[S]), 3);
    assert_int_equal(counter_value(figures->cache_gaps), 1);
    assert_int_equal(counter_value(figures->cache_restarts), 1);
    /* An older worker doesn't know the question. */
    fake_start_with(&c.world, &old,
                    (struct fake_plan){.name = "decode-1",
                                       .role = ROLE_DECODE,
                                       .protocol = WORKER_PROTOCOL_CACHE_RESTART - 1});
    say_cache(&old, 1, (int[]){C, S}, 2);
    say_cache(&old, 9, (int[]){S, C, R}, 3);
    fake_expect(&old, SEEN_CLOSED);
    assert_int_equal(counter_value(figures->cache_gaps), 2);
    assert_int_equal(counter_value(figures->cache_restarts), 1);
    fake_stop(&old);
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_workers_that_differ_about_a_token(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2}, &prefill, &decode);
    fake_tokens(&c.prefill, &prefill, 1, 1, FINISH_NONE);
    client_wait_tokens(&c.client, 1);
    fake_token_id(&c.decode, &decode, 1, 102); /* the client has 101 */
    client_wait_end(&c.client, RPC_INTERNAL, "internal");
    assert_int_equal(c.client.id_count, 1);
    assert_int_equal(c.client.ids[0], 101);
    cluster_release(&c, &decode);
    client_stop(&c.client);
    cluster_stop(&c);
}

/* The address of a worker is taken over by another process, which never registered here. */
static void test_a_stranger_at_the_address(void **state)
{
    (void)state;
    struct cluster c;
    struct router_config config = world_config();
    config.worker_wait_us = 300000;
    cluster_start_with(&c, &config);
    registrar_stop(c.decode.registrar);
    c.decode.registrar = NULL;
    c.decode.info.incarnation += 1000; /* the incarnation that its Hello will have */
    pthread_mutex_lock(&c.decode.mutex);
    rpc_call_cancel(c.decode.session);
    pthread_mutex_unlock(&c.decode.mutex);
    fake_expect(&c.decode, SEEN_CLOSED);
    fake_expect(&c.decode, SEEN_SESSION); /* dialled again ... */
    fake_expect(&c.decode, SEEN_CLOSED);  /* ... and given up: it is not the one that registered */
    client_start(&c.world, &c.client, &(struct ask){.max_tokens = 1});
    client_wait_end(&c.client, RPC_UNAVAILABLE, "no_workers");
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_workers_come_back_to_a_router_that_was_restarted(void **state)
{
    (void)state;
    struct cluster c;
    struct error err;
    cluster_start(&c);
    struct router_config config = world_config();
    snprintf(config.listen, sizeof config.listen, "%s", router_address(c.world.router));
    router_stop(c.world.router);
    c.prefill.router_address = c.decode.router_address = config.listen;
    struct fake *fakes[] = {&c.prefill, &c.decode};
    for (int i = 0; i < 2; i++) {
        fake_expect(fakes[i], SEEN_CLOSED);
        registrar_session_up(fakes[i]->registrar, false);
    }
    assert_int_equal(router_start(&config, &c.world.router, &err), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        fake_expect(fakes[i], SEEN_SESSION);
        registrar_session_up(fakes[i]->registrar, true);
    }
    struct seen prefill, decode;
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2}, &prefill, &decode);
    fake_tokens(&c.decode, &decode, 1, 1, FINISH_EOS);
    client_expect_answer(&c.client, 1);
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_a_client_that_leaves_frees_both_workers(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 9}, &prefill, &decode);
    fake_tokens(&c.prefill, &prefill, 1, 1, FINISH_NONE);
    client_wait_tokens(&c.client, 1);
    rpc_call_cancel(c.client.call);
    cluster_release(&c, &decode);
    client_wait_end(&c.client, RPC_CANCELLED, NULL);
    client_stop(&c.client);

    client_start(&c.world, &c.client, &(struct ask){.max_tokens = 9});
    prefill = fake_expect(&c.prefill, SEEN_PREFILL);
    rpc_call_cancel(c.client.call); /* before the decode worker has heard of it */
    assert_int_equal(fake_expect(&c.prefill, SEEN_RELEASE).request, prefill.request);
    client_wait_end(&c.client, RPC_CANCELLED, NULL);
    client_stop(&c.client);
    cluster_stop(&c);
}

static void test_the_only_decode_worker_dies(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    struct router_config config = world_config();
    config.worker_wait_us = 300000;
    cluster_start_with(&c, &config);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 9}, &prefill, &decode);
    fake_tokens(&c.decode, &decode, 1, 2, FINISH_NONE);
    client_wait_tokens(&c.client, 2);
    fake_die(&c.decode);
    client_wait_end(&c.client, RPC_UNAVAILABLE, "no_workers");
    assert_non_null(strstr(c.client.sentence, "no decode worker is up (1 known, 1 down)"));
    assert_int_equal(c.client.id_count, 2);
    fake_expect(&c.prefill, SEEN_RELEASE); /* so that its blocks are free again */
    client_stop(&c.client);
    cluster_stop(&c);
}

static void say_draining(struct fake *fake, bool draining)
{
    Baton__Worker__V1__Load load = BATON__WORKER__V1__LOAD__INIT;
    load.draining = draining;
    Baton__Worker__V1__SessionUp up = BATON__WORKER__V1__SESSION_UP__INIT;
    up.event_case = BATON__WORKER__V1__SESSION_UP__EVENT_LOAD;
    up.load = &load;
    fake_say(fake, &up);
}

/* Waits until the router shows so many workers as draining. */
static void until_draining(const struct world *world, int workers)
{
    struct str body;
    str_init(&body, 1 << 20);
    for (int found = 0; found < workers;) {
        found = 0;
        assert_int_equal(world_get(world, "/status", &body), STATUS_OK);
        for (const char *at = body.data; (at = strstr(at, "\"state\": \"draining\"")); at++)
            found++;
    }
    str_deinit(&body);
}

/* A worker that drains is told, once, that no request needs it any more. The decode worker of a
 * prompt that is computed gets its handle, also where it was a guess, and is told so afterwards. */
static void test_a_worker_that_drains_is_dismissed(void **state)
{
    (void)state;
    struct cluster c;
    struct fake older;
    struct router_config config = world_config();
    for (int guess = 0; guess < 2; guess++) {
        config.placement_policy = guess ? PLACEMENT_GOODPUT : PLACEMENT_LEAST_TOKENS;
        cluster_start_with(&c, &config);
        client_start(&c.world, &c.client, &(struct ask){.max_tokens = 4});
        struct seen prefill = fake_expect(&c.prefill, SEEN_PREFILL);
        say_draining(&c.decode, true);
        say_draining(&c.decode, false); /* no worker takes it back: it is an old word */
        say_draining(&c.prefill, true);
        until_draining(&c.world, 2);
        fake_opened(&c.prefill, &prefill, 1);
        struct seen decode = fake_expect(&c.decode, SEEN_DECODE); /* no Dismiss came before it */
        fake_tokens(&c.decode, &decode, 1, 4, FINISH_MAX_TOKENS);
        client_expect_answer(&c.client, 4);
        fake_expect(&c.prefill, SEEN_DISMISS); /* the handle is read */
        cluster_finished(&c, &prefill);
        fake_expect(&c.decode, SEEN_DISMISS);
        say_draining(&c.decode, true); /* again: it is dismissed once */
        fake_start_with(&c.world, &older,
                        (struct fake_plan){.name = "decode-1", .role = ROLE_DECODE, .protocol = 5});
        say_draining(&older, true); /* it knows no Dismiss */
        until_draining(&c.world, 3);
        client_stop(&c.client);
        router_stop(c.world.router);
        c.world.router = NULL;
        fake_expect(&c.decode, SEEN_CLOSED);
        fake_expect(&older, SEEN_CLOSED);
        fake_stop(&older);
        cluster_stop(&c);
    }
}

/* A prompt is counted where it was computed with the first token of its attempt: the prefill
 * worker's own report may come after the answer has ended. */
static void test_prompt_tokens_are_counted_without_a_report(void **state)
{
    (void)state;
    struct cluster c;
    struct seen prefill, decode;
    struct str body;
    str_init(&body, 1 << 20);
    cluster_start(&c);
    cluster_to_decode(&c, &(struct ask){.prompt_tokens = 40, .max_tokens = 2}, &prefill, &decode);
    fake_tokens(&c.decode, &decode, 1, 2, FINISH_MAX_TOKENS);
    client_expect_answer(&c.client, 2);
    cluster_finished(&c, &prefill);
    say_draining(&c.prefill, true); /* so that the figures are shown again */
    until_draining(&c.world, 1);
    assert_int_equal(world_get(&c.world, "/status", &body), STATUS_OK);
    const char *worker = strstr(body.data, "{\"name\": \"prefill-0\"");
    assert_non_null(worker);
    const char *figure = strstr(worker, "\"prompt_tokens\": ");
    assert_non_null(figure);
    assert_int_equal(strtol(figure + strlen("\"prompt_tokens\": "), NULL, 10), 40);
    client_stop(&c.client);
    cluster_stop(&c);
    str_deinit(&body);
}

/* The decode worker reports that it drains, then ends silently. Returns the router's log about it.
 * `busy`: with a request running. */
static void draining_worker_dies(bool busy, char *text, size_t size)
{
    struct cluster c;
    struct seen prefill, decode;
    char path[] = "/tmp/test_router.XXXXXX";
    int kept = dup(STDERR_FILENO), file = mkstemp(path);
    assert_true(file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    log_init("test", LOG_INFO);
    struct router_config config = world_config();
    config.worker_wait_us = 100000;
    cluster_start_with(&c, &config);
    cluster_to_decode(&c, &(struct ask){.max_tokens = 2}, &prefill, &decode);
    say_draining(&c.decode, true);
    fake_tokens(&c.decode, &decode, 1, busy ? 1 : 2, busy ? FINISH_NONE : FINISH_MAX_TOKENS);
    if (busy)
        client_wait_tokens(&c.client, 1);
    else
        client_expect_answer(&c.client, 2);
    fake_die(&c.decode);
    if (busy)
        client_wait_end(&c.client, RPC_UNAVAILABLE, "no_workers");
    client_stop(&c.client);
    cluster_stop(&c);
    dup2(kept, STDERR_FILENO);
    log_init("test", LOG_ERROR);
    ssize_t length = pread(file, text, size - 1, 0);
    assert_true(length > 0);
    text[length] = 0;
    close(kept);
    close(file);
    unlink(path);
}

/* The level of the line that says that decode-0's session is lost, as "level=info ". */
static bool lost_session_is(char *text, const char *level)
{
    char *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (strstr(line, "worker=decode-0") && strstr(line, "session is lost"))
            return strstr(line, level) != NULL;
    fail_msg("no such line");
    return false;
}

static void test_a_draining_worker_that_leaves_work_behind_is_a_warning(void **state)
{
    (void)state;
    char text[16384];
    draining_worker_dies(true, text, sizeof text);
    assert_true(lost_session_is(text, "level=warn "));
    draining_worker_dies(false, text, sizeof text);
    assert_true(lost_session_is(text, "level=info "));
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_request),
        cmocka_unit_test(test_the_first_token_may_be_the_last),
        cmocka_unit_test(test_one_token_is_not_handed_over),
        cmocka_unit_test(test_old_and_doubled_messages_are_dropped),
        cmocka_unit_test(test_a_gap_runs_the_prompt_again),
        cmocka_unit_test(test_prefill_dies_before_it_opened),
        cmocka_unit_test(test_decode_gives_up_on_a_dead_prefill),
        cmocka_unit_test(test_decode_dies_before_its_first_token),
        cmocka_unit_test(test_decode_dies_after_some_tokens),
        cmocka_unit_test(test_one_that_only_says_that_it_leaves_has_not_crashed),
        cmocka_unit_test(test_a_restarted_worker_is_another_one),
        cmocka_unit_test(test_workers_that_die_again_and_again),
        cmocka_unit_test(test_steps_that_fail),
        cmocka_unit_test(test_no_token_that_may_be_drawn),
        cmocka_unit_test(test_a_worker_refuses),
        cmocka_unit_test(test_a_worker_that_lies_is_cut_off),
        cmocka_unit_test(test_a_cache_is_told_without_gaps),
        cmocka_unit_test(test_workers_that_differ_about_a_token),
        cmocka_unit_test(test_a_stranger_at_the_address),
        cmocka_unit_test(test_workers_come_back_to_a_router_that_was_restarted),
        cmocka_unit_test(test_a_client_that_leaves_frees_both_workers),
        cmocka_unit_test(test_the_only_decode_worker_dies),
        cmocka_unit_test(test_a_worker_that_drains_is_dismissed),
        cmocka_unit_test(test_prompt_tokens_are_counted_without_a_report),
        cmocka_unit_test(test_a_draining_worker_that_leaves_work_behind_is_a_warning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
