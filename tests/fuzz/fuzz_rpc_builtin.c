/* Any bytes as requests of health (Check, Watch) and reflection (v1, v1alpha): each is answered
 * with a message that can be read, or ends with a sentence. Input: pairs of a byte (what happens)
 * and a piece. */
#include "common/net/rpc/grpc/builtin.h"
#include "proto/descriptors.h"
#include "proto/health.pb-c.h"
#include "proto/proto_unpack.h"
#include "proto/reflection.pb-c.h"
#include "tests/fuzz/fake_rpc.h"

#define METHODS (HEALTH_METHODS + REFLECTION_METHODS)

static void check_answer(void *observer, struct rpc_call *call, struct rpc_bytes bytes)
{
    (void)observer;
    bool health = fake_call_is_to(call, "/grpc.health.v1.Health/Check") ||
                  fake_call_is_to(call, "/grpc.health.v1.Health/Watch");
    struct arena arena;
    struct error err;
    ProtobufCMessage *message;
    arena_init(&arena, proto_arena_bytes(bytes.size));
    FUZZ_CHECK(proto_unpack(health ? &grpc__health__v1__health_check_response__descriptor
                                   : &grpc__reflection__v1__server_reflection_response__descriptor,
                            bytes.data, bytes.size, &arena, &message, &err) == STATUS_OK);
    arena_deinit(&arena);
}

static void drive(struct fuzz_input *input, struct health *health, const struct rpc_method *methods)
{
    struct rpc_call *calls[METHODS];
    for (int i = 0; i < METHODS; i++)
        calls[i] = fake_call_open(&methods[i]);
    bool serving = false;
    while (input->at < input->end) {
        size_t what = fuzz_take_below(input, METHODS + 4);
        struct fuzz_bytes bytes = fuzz_take_piece(input);
        if (what < METHODS)
            fake_call_receive(calls[what], bytes);
        else if (what == METHODS)
            health_set_serving(health, serving = !serving);
        else if (what == METHODS + 1)
            fake_call_half_close(calls[bytes.size % METHODS]);
        else if (what == METHODS + 2)
            fake_call_end(calls[bytes.size % METHODS], RPC_CANCELLED);
        else
            fake_rpc.full = !fake_rpc.full;
        fake_rpc_settle();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_quiet();
    struct fuzz_input input = {data, data + size};
    static const char *const services[] = {"baton.v1.Baton"};
    const struct rpc_bytes descriptors[] = {{baton_descriptors, baton_descriptors_size},
                                            {worker_descriptors, worker_descriptors_size}};
    struct rpc_server_config config = {.services = services,
                                       .service_count = 1,
                                       .descriptors = descriptors,
                                       .descriptor_count = 2};
    static struct builtin_streams streams;
    static struct reflection *reflection; /* nothing changes after its creation */
    if (!reflection)
        reflection = reflection_create(&config, &streams);
    struct health *health = health_create(services, 1, &streams);
    struct rpc_method methods[METHODS];
    health_methods(health, methods);
    reflection_methods(reflection, methods + HEALTH_METHODS);
    fake_rpc.sent = check_answer;
    fake_rpc.full = false;
    drive(&input, health, methods);
    fake_rpc_forget();
    FUZZ_CHECK(atomic_load(&streams.count) == 0);
    health_destroy(health);
    return 0;
}
