/* Any bytes as a request of baton.v1.Baton, through the code that receives it. It is refused with a
 * sentence, answered with a readable message, or submitted as a request within every bound. The
 * dispatcher behind it is a fake. Input: method, other conditions, the message. */
#include "common/language/constrain/constraint.h"
#include "common/language/model_config/model_config.h"
#include "proto/baton.pb-c.h"
#include "proto/proto_unpack.h"
#include "router/doors/grpc/grpc_api.h"
#include "router/ops/router_metrics.h"
#include "tests/fuzz/fake_rpc.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT 256
#define VOCAB   600

static struct served_models served = {.count = 1,
                                      .items = {{.name = "tested",
                                                 .limits = {.name = "tested",
                                                            .context = CONTEXT,
                                                            .vocab = VOCAB,
                                                            .has_tokenizer = true,
                                                            .tokens_have_text = true}}}};
static struct router_metrics metrics;
static struct status_board board;

static bool refuse;
static unsigned admitted, submitted;

enum reason dispatch_admit(struct dispatch *dispatch, struct call_client client, struct call **call)
{
    (void)dispatch;
    if (refuse)
        return REASON_OVERLOADED;
    *call = call_open(client);
    FUZZ_CHECK(*call);
    admitted++;
    return REASON_NONE;
}

enum reason dispatch_reserve(struct dispatch *dispatch, struct call *call, size_t model,
                             uint32_t choices)
{
    (void)dispatch;
    FUZZ_CHECK(admitted == 1 && model < served.count);
    FUZZ_CHECK(choices >= 1 && choices <= REQUEST_MAX_CHOICES);
    call->model = model;
    call->place_count = choices;
    return REASON_NONE;
}

void dispatch_submit(struct dispatch *dispatch, struct call *const *calls, size_t count)
{
    (void)dispatch;
    struct error err;
    const struct call *call = calls[0];
    FUZZ_CHECK(count == 1 && call->choice_count == call->place_count);
    FUZZ_CHECK(call->prompt_count > 0 && call->prompt_count < CONTEXT);
    for (uint32_t i = 0; i < call->prompt_count; i++)
        FUZZ_CHECK(call->prompt[i] < VOCAB);
    FUZZ_CHECK(sampling_validate(&call->sampling, &err) == STATUS_OK);
    FUZZ_CHECK(call->prompt_count + call->sampling.max_tokens <= CONTEXT);
    for (uint32_t i = 0; i < call->sampling.stop_id_count; i++)
        FUZZ_CHECK(call->sampling.stop_ids[i] < VOCAB);
    FUZZ_CHECK(!call->constraint ||
               call->constraint->length <= CONSTRAINT_MAX_TEXT_BYTES + CONSTRAINT_MAX_LINE_BYTES);
    FUZZ_CHECK(*call->name && request_id_valid(call->name));
    submitted++;
}

void dispatch_give_back(struct dispatch *dispatch, struct call *call)
{
    (void)dispatch;
    FUZZ_CHECK(admitted == 1 && call->state == CALL_ADMITTED);
}

uint32_t dispatch_retry_after_s(const struct dispatch *dispatch, size_t model)
{
    (void)dispatch;
    FUZZ_CHECK(model < served.count);
    return 1;
}

void dispatch_close(struct dispatch *dispatch, struct call *call, enum rpc_code code)
{
    (void)dispatch;
    (void)code;
    FUZZ_CHECK(admitted == 1);
    admitted--;
    call_release(call);
}

static const struct {
    const ProtobufCMessageDescriptor *request, *response;
} types[GRPC_API_METHODS] = {
    {&baton__v1__generate_request__descriptor, &baton__v1__generate_response__descriptor},
    {&baton__v1__generate_request__descriptor, &baton__v1__generate_result__descriptor},
    {&baton__v1__tokenize_request__descriptor, &baton__v1__tokenize_response__descriptor},
    {&baton__v1__detokenize_request__descriptor, &baton__v1__detokenize_response__descriptor},
    {&baton__v1__list_models_request__descriptor, &baton__v1__list_models_response__descriptor},
};

static void check_response(void *observer, struct rpc_call *call, struct rpc_bytes bytes)
{
    (void)call;
    struct arena arena;
    struct error err;
    ProtobufCMessage *message;
    size_t method = *(const size_t *)observer;
    arena_init(&arena, proto_arena_bytes(bytes.size));
    FUZZ_CHECK(proto_unpack(types[method].response, bytes.data, bytes.size, &arena, &message,
                            &err) == STATUS_OK);
    if (types[method].response == &baton__v1__tokenize_response__descriptor) {
        const Baton__V1__TokenizeResponse *ids = (const Baton__V1__TokenizeResponse *)message;
        for (size_t i = 0; i < ids->n_ids; i++)
            FUZZ_CHECK(ids->ids[i] < VOCAB);
    }
    arena_deinit(&arena);
}

static void open_once(void)
{
    fuzz_quiet();
    struct error err;
    FUZZ_CHECK(tokenizer_open("tests/golden/tokenizers/llama3.json", &served.items[0].tokenizer,
                              &err) == STATUS_OK);
    FUZZ_CHECK(router_metrics_create(&metrics, &served) == STATUS_OK);
    status_board_init(&board);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!served.items[0].tokenizer)
        open_once();
    struct fuzz_input input = {data, data + size};
    size_t method = fuzz_take_below(&input, GRPC_API_METHODS);
    uint8_t flags = fuzz_take_u8(&input);
    refuse = flags & 1;
    fake_rpc.full = flags & 2;
    fake_rpc.header = flags & 4 ? "from-the-header" : flags & 8 ? "not an id" : NULL;
    fake_rpc.sent = check_response;
    fake_rpc.observer = &method;
    submitted = 0;

    struct grpc_api api = {.models = &served, .board = &board, .metrics = &metrics};
    struct rpc_method methods[GRPC_API_METHODS];
    grpc_api_methods(&api, methods);
    struct rpc_call *call = fake_call_open(&methods[method]);
    fake_call_receive(call, fuzz_take_rest(&input));
    fake_rpc.full = false;
    fake_rpc_settle();
    FUZZ_CHECK(fake_call_closed(call) == !submitted);
    fake_rpc_forget();
    FUZZ_CHECK(!admitted);
    return 0;
}
