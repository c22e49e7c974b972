/* A client that doesn't read its stream: the router buffers no more than it was told to, ends the request, frees the workers. */
#include "router_world.h"

#include "common/base/log.h"

#include <unistd.h>

#define BATCH_TOKENS 1000
#define MAX_TOKENS   900000

/* A model folder with a long context; the router reads no weights. */
static void write_model(char *dir)
{
    char path[128];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
          "\"hidden_size\": 64, \"intermediate_size\": 64, \"num_attention_heads\": 4, "
          "\"num_hidden_layers\": 1, \"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-5, "
          "\"vocab_size\": 384, \"max_position_embeddings\": 1000000, \"hidden_act\": \"silu\"}",
          file);
    fclose(file);
}

static void remove_model(const char *dir)
{
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    rmdir(dir);
}

static void test_a_client_that_does_not_read(void **state)
{
    (void)state;
    char dir[] = "/tmp/baton_slow_reader_XXXXXX";
    write_model(dir);
    struct router_config config = world_config();
    snprintf(config.model_dir, sizeof config.model_dir, "%s", dir);
    config.client_buffer_bytes = 256u << 10;
    struct world world;
    struct fake decode;
    struct error err;
    world_start(&world, &config);
    fake_start_with(
        &world, &decode,
        (struct fake_plan){"decode-0", ROLE_DECODE, .context = 1000000, .block_count = 100000});

    /* Its own rpc thread, which it blocks. */
    struct rpc_runtime *runtime;
    struct rpc_channel *channel;
    assert_int_equal(rpc_runtime_create(1, &runtime, &err), STATUS_OK);
    struct rpc_channel_config to = {.target = router_address(world.router)};
    assert_int_equal(rpc_channel_create(runtime, &to, &channel, &err), STATUS_OK);
    sem_t gate;
    sem_init(&gate, 0, 0);
    struct client client = {.gate = &gate};
    struct ask ask = {.max_tokens = MAX_TOKENS, .ids_with_hashes = true};
    client_start_at(channel, &client, "/baton.v1.Baton/Generate", &ask);

    struct seen job = fake_expect(&decode, SEEN_DECODE);
    uint32_t sent = 0;
    while (!ring_count(decode.seen) && sent + BATCH_TOKENS < MAX_TOKENS) {
        fake_tokens(&decode, &job, sent + 1, BATCH_TOKENS, FINISH_NONE);
        sent += BATCH_TOKENS;
    }
    assert_int_equal(fake_expect(&decode, SEEN_RELEASE).request, job.request);
    sem_post(&gate); /* what was sent before comes, and then the reason */
    client_wait_end(&client, RPC_RESOURCE_EXHAUSTED, "slow_reader");
    assert_true(client.id_count < MAX_TOKENS);
    assert_int_equal(client.finished, 0);

    client_stop(&client);
    rpc_channel_destroy(channel);
    rpc_runtime_destroy(runtime);
    sem_destroy(&gate);
    fake_stop(&decode);
    world_stop(&world);
    remove_model(dir);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_client_that_does_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
