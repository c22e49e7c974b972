/* Tokens that a client doesn't read in time are bounded: if the buffer of its call is full, the
 * request ends and frees its workers. (test_rpc shows that a stopped reader fills this buffer, and
 * no more.) */
#include "router_world.h"

#include "common/base/log.h"

#define BUFFER_BYTES 4096
#define MANY_TOKENS  1000 /* more than the buffer holds, with their hashes */

struct scene {
    struct world world;
    struct fake decode;
    struct client client;
};

static struct seen scene_start(struct scene *scene, const char *path)
{
    struct router_config config = world_config();
    config.client_buffer_bytes = BUFFER_BYTES;
    world_start(&scene->world, &config);
    fake_start(&scene->world, &scene->decode, "decode-0", ROLE_DECODE);
    struct ask ask = {.max_tokens = 2 * MANY_TOKENS, .prompt_tokens = 8, .ids_with_hashes = true};
    client_start_at(scene->world.channel, &scene->client, path, &ask);
    return fake_expect(&scene->decode, SEEN_DECODE);
}

static void scene_stop(struct scene *scene)
{
    client_stop(&scene->client);
    fake_stop(&scene->decode);
    world_stop(&scene->world);
}

static void test_a_stream_that_is_not_read(void **state)
{
    (void)state;
    struct scene scene;
    struct seen job = scene_start(&scene, "/baton.v1.Baton/Generate");
    fake_tokens(&scene.decode, &job, 1, 10, FINISH_NONE);
    client_wait_tokens(&scene.client, 10);
    fake_tokens(&scene.decode, &job, 11, MANY_TOKENS, FINISH_NONE);
    client_wait_end(&scene.client, RPC_RESOURCE_EXHAUSTED, "slow_reader");
    assert_int_equal(scene.client.id_count, 10);
    assert_int_equal(scene.client.finished, 0);
    assert_int_equal(fake_expect(&scene.decode, SEEN_RELEASE).request, job.request);
    scene_stop(&scene);
}

/* The last delta and the messages after it count as well. */
static void test_an_end_that_does_not_fit(void **state)
{
    (void)state;
    struct scene scene;
    struct seen job = scene_start(&scene, "/baton.v1.Baton/Generate");
    fake_tokens(&scene.decode, &job, 1, MANY_TOKENS, FINISH_EOS);
    client_wait_end(&scene.client, RPC_RESOURCE_EXHAUSTED, "slow_reader");
    assert_int_equal(scene.client.finished, 0);
    scene_stop(&scene);
}

/* GenerateOnce has no stream to slow down: an answer too large for one message is an error. */
static void test_an_answer_too_large_for_one_message(void **state)
{
    (void)state;
    struct scene scene;
    struct seen job = scene_start(&scene, "/baton.v1.Baton/GenerateOnce");
    fake_tokens(&scene.decode, &job, 1, MANY_TOKENS, FINISH_EOS);
    client_wait_end(&scene.client, RPC_RESOURCE_EXHAUSTED, "answer_too_large");
    scene_stop(&scene);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stream_that_is_not_read),
        cmocka_unit_test(test_an_end_that_does_not_fit),
        cmocka_unit_test(test_an_answer_too_large_for_one_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
