/* The calls of baton.v1.Baton that are answered at once, and requests that are refused before any
 * worker gets them. */
#include "router_world.h"

#include "common/base/log.h"
#include "proto/proto_text.h"

static struct world world;

static int start(void **state)
{
    (void)state;
    struct router_config config = world_config();
    snprintf(config.models, sizeof config.models, "deploy/local/tiny-shakespeare");
    *config.model_name = 0; /* the folder's */
    world_start(&world, &config);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    world_stop(&world);
    return 0;
}

/* One unary call: the answer's event (NULL: none), and its end in `client`. */
static struct client_event *call(struct client *client, const char *path, const void *data,
                                 size_t size)
{
    memset(client, 0, sizeof *client);
    assert_int_equal(ring_create(16, &client->events), STATUS_OK);
    assert_int_equal(
        rpc_call_start(world.channel, path, &client_handlers, client, 0, true, &client->call),
        STATUS_OK);
    assert_int_equal(rpc_call_send(client->call, data, size), STATUS_OK);
    rpc_call_half_close(client->call);
    struct client_event *answer = NULL;
    while (!client->closed) {
        struct client_event *event = ring_wait(client->events, WORLD_LIMIT_US);
        assert_non_null(event);
        if (event->closed) {
            client_take(client, event);
            free(event);
        } else {
            assert_null(answer);
            answer = event;
        }
    }
    return answer;
}

static struct client_event *call_message(struct client *client, const char *path,
                                         const ProtobufCMessage *message)
{
    uint8_t packed[4096];
    size_t size = protobuf_c_message_get_packed_size(message);
    assert_true(size <= sizeof packed);
    protobuf_c_message_pack(message, packed);
    return call(client, path, packed, size);
}

static void test_text_to_ids_and_back(void **state)
{
    (void)state;
    struct client client;
    Baton__V1__TokenizeRequest ask = BATON__V1__TOKENIZE_REQUEST__INIT;
    ask.model = "tiny-shakespeare";
    const struct text asked = {"What's in \0 a n\xc3\xa4me?", 20};
    ask.text = proto_bytes(asked);
    struct client_event *event = call_message(&client, "/baton.v1.Baton/Tokenize", &ask.base);
    assert_int_equal(client.code, RPC_OK);
    Baton__V1__TokenizeResponse *ids =
        baton__v1__tokenize_response__unpack(NULL, event->size, event->bytes);
    assert_true(ids && ids->n_ids > 3 && ids->n_ids < asked.length);
    client_stop(&client);
    free(event);

    Baton__V1__DetokenizeRequest back = BATON__V1__DETOKENIZE_REQUEST__INIT;
    back.n_ids = ids->n_ids;
    back.ids = ids->ids;
    back.skip_special_tokens_presence_case =
        BATON__V1__DETOKENIZE_REQUEST__SKIP_SPECIAL_TOKENS_PRESENCE_SKIP_SPECIAL_TOKENS;
    back.skip_special_tokens = true;
    event = call_message(&client, "/baton.v1.Baton/Detokenize", &back.base);
    assert_int_equal(client.code, RPC_OK);
    Baton__V1__DetokenizeResponse *text =
        baton__v1__detokenize_response__unpack(NULL, event->size, event->bytes);
    assert_non_null(text);
    assert_int_equal(text->text.len, asked.length);
    assert_memory_equal(text->text.data, asked.bytes, asked.length);
    client_stop(&client);
    free(event);
    baton__v1__tokenize_response__free_unpacked(ids, NULL);
    baton__v1__detokenize_response__free_unpacked(text, NULL);
}

static void test_what_tokenizing_refuses(void **state)
{
    (void)state;
    struct client client;
    Baton__V1__TokenizeRequest ask = BATON__V1__TOKENIZE_REQUEST__INIT;
    ask.model = "gpt-6";
    assert_null(call_message(&client, "/baton.v1.Baton/Tokenize", &ask.base));
    assert_int_equal(client.code, RPC_NOT_FOUND);
    assert_string_equal(client.why, "model_not_found");
    client_stop(&client);

    Baton__V1__DetokenizeRequest back = BATON__V1__DETOKENIZE_REQUEST__INIT;
    uint32_t id = 2048;
    back.n_ids = 1;
    back.ids = &id;
    assert_null(call_message(&client, "/baton.v1.Baton/Detokenize", &back.base));
    assert_int_equal(client.code, RPC_INVALID_ARGUMENT);
    assert_string_equal(client.why, "invalid_token_id");
    client_stop(&client);
}

static void test_models_are_listed(void **state)
{
    (void)state;
    struct client client;
    struct client_event *event = call(&client, "/baton.v1.Baton/ListModels", "", 0);
    assert_int_equal(client.code, RPC_OK);
    Baton__V1__ListModelsResponse *list =
        baton__v1__list_models_response__unpack(NULL, event->size, event->bytes);
    assert_true(list && list->n_models == 1);
    assert_string_equal(list->models[0]->name, "tiny-shakespeare");
    assert_int_equal(list->models[0]->context, 2048);
    assert_int_equal(list->models[0]->vocab, 2048);
    assert_true(list->models[0]->has_tokenizer);
    baton__v1__list_models_response__free_unpacked(list, NULL);
    client_stop(&client);
    free(event);
}

static void test_malformed_bytes_are_refused(void **state)
{
    (void)state;
    static const char *const paths[] = {"/baton.v1.Baton/Generate", "/baton.v1.Baton/GenerateOnce",
                                        "/baton.v1.Baton/Tokenize", "/baton.v1.Baton/Detokenize",
                                        "/baton.worker.v1.Registry/RegisterWorker"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct client client;
        assert_null(call(&client, paths[i], "\xff\xff\xff", 3));
        assert_int_equal(client.code, RPC_INVALID_ARGUMENT);
        assert_string_equal(client.why, "malformed");
        client_stop(&client);
    }
}

static void test_a_text_longer_than_the_context(void **state)
{
    (void)state;
    static char text[20001];
    memset(text, '7', sizeof text - 1);
    struct client client;
    client_start(&world, &client, &(struct ask){.text = text});
    client_wait_end(&client, RPC_INVALID_ARGUMENT, "context_length_exceeded");
    client_stop(&client);
}

/* Text of a size that is read beside the rpc threads. */
static char *large_text(size_t size)
{
    char *text = malloc(size + 1);
    assert_non_null(text);
    for (size_t i = 0; i < size; i++)
        text[i] = i % 7 ? (char)('a' + i % 26) : ' ';
    text[size] = 0;
    return text;
}

static void test_large_messages_are_read_beside_the_rpc_threads(void **state)
{
    (void)state;
    struct client client;
    char *text = large_text(300u << 10);
    Baton__V1__TokenizeRequest ask = BATON__V1__TOKENIZE_REQUEST__INIT;
    ask.text = proto_bytes(text_from(text));
    size_t size = baton__v1__tokenize_request__get_packed_size(&ask);
    uint8_t *packed = malloc(size);
    assert_non_null(packed);
    baton__v1__tokenize_request__pack(&ask, packed);
    struct client_event *event = call(&client, "/baton.v1.Baton/Tokenize", packed, size);
    assert_int_equal(client.code, RPC_OK);
    Baton__V1__TokenizeResponse *ids =
        baton__v1__tokenize_response__unpack(NULL, event->size, event->bytes);
    assert_true(ids && ids->n_ids > (300u << 10) / 64);
    baton__v1__tokenize_response__free_unpacked(ids, NULL);
    client_stop(&client);
    free(event);
    memset(packed, 0xff, size);
    assert_null(call(&client, "/baton.v1.Baton/Tokenize", packed, size));
    assert_string_equal(client.why, "malformed");
    client_stop(&client);
    client_start(&world, &client, &(struct ask){.text = text});
    client_wait_end(&client, RPC_INVALID_ARGUMENT, "context_length_exceeded");
    client_stop(&client);
    free(packed);
    free(text);
}

/* They leave before, while or after their message is read: each call is closed once, and the next
 * one is served. */
static void test_clients_of_large_messages_that_leave(void **state)
{
    (void)state;
    char *text = large_text(1u << 20);
    for (int i = 0; i < 12; i++) {
        struct client client;
        client_start(&world, &client, &(struct ask){.text = text});
        if (i % 3 == 2)
            client_wait_end(&client, RPC_INVALID_ARGUMENT, "context_length_exceeded");
        else
            rpc_call_cancel(client.call);
        client_stop(&client);
    }
    free(text);
    test_text_to_ids_and_back(NULL);
}

/* As over HTTP: a proxy in front might take the other one. */
static void test_two_authorizations_are_refused(void **state)
{
    (void)state;
    static const struct rpc_metadata twice[] = {{"authorization", "Bearer a"},
                                                {"authorization", "Bearer a"}};
    static const char *const paths[] = {"/baton.v1.Baton/Generate", "/baton.v1.Baton/ListModels"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        for (size_t count = 1; count <= 2; count++) {
            struct client client = {.closed = false};
            struct rpc_call_options options = {.path = paths[i],
                                               .handlers = client_handlers,
                                               .context = &client,
                                               .wait_for_ready = true,
                                               .metadata = twice,
                                               .metadata_count = count};
            assert_int_equal(ring_create(16, &client.events), STATUS_OK);
            assert_int_equal(rpc_call_start_with(world.channel, &options, &client.call), STATUS_OK);
            (void)!rpc_call_send(client.call, "", 0);
            rpc_call_half_close(client.call);
            while (!client.closed) {
                struct client_event *event = ring_wait(client.events, WORLD_LIMIT_US);
                assert_non_null(event);
                if (event->closed)
                    client_take(&client, event);
                free(event);
            }
            bool refused = !strcmp(client.why, "malformed");
            assert_int_equal(refused, count == 2);
            assert_true(!refused || client.code == RPC_INVALID_ARGUMENT);
            assert_true(!refused || strstr(client.sentence, "more than one metadata entry"));
            client_stop(&client);
        }
}

static void test_request_ids(void **state)
{
    (void)state;
    struct client client;
    struct fake decode;
    fake_start_with(
        &world, &decode,
        (struct fake_plan){"decode-0", ROLE_DECODE, .vocab = 2048, .model = "tiny-shakespeare"});
    client_start(&world, &client, &(struct ask){.text = "a", .max_tokens = 1});
    struct seen job = fake_expect(&decode, SEEN_DECODE);
    fake_tokens(&decode, &job, 1, 1, FINISH_MAX_TOKENS);
    client_expect_answer(&client, 1);
    const char *minted = rpc_call_metadata(client.call, "x-request-id");
    assert_int_equal(strlen(minted), 32);
    client_stop(&client);
    fake_stop(&decode);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_to_ids_and_back),
        cmocka_unit_test(test_what_tokenizing_refuses),
        cmocka_unit_test(test_models_are_listed),
        cmocka_unit_test(test_malformed_bytes_are_refused),
        cmocka_unit_test(test_a_text_longer_than_the_context),
        cmocka_unit_test(test_large_messages_are_read_beside_the_rpc_threads),
        cmocka_unit_test(test_clients_of_large_messages_that_leave),
        cmocka_unit_test(test_two_authorizations_are_refused),
        cmocka_unit_test(test_request_ids),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
