#include "router/grpc_tokens.h"

#include "proto/baton.pb-c.h"
#include "proto/proto_unpack.h"
#include "router/grpc_api.h"
#include "router/reply.h"
#include "router/tokenize.h"

#define MAX_DETOKENIZED_BYTES (4u << 20)

static enum reason read_message(const ProtobufCMessageDescriptor *type, struct rpc_bytes bytes,
                                struct arena *arena, ProtobufCMessage **message, struct error *err)
{
    enum status status = proto_unpack(type, bytes.data, bytes.size, arena, message, err);
    return status == STATUS_OK ? REASON_NONE : REASON_MALFORMED;
}

/* The end of a simple call: its one message, or why there is none. */
static void answer(struct rpc_call *call, enum reason reason, const ProtobufCMessage *message,
                   const char *sentence)
{
    const struct grpc_api *api = rpc_call_context(call);
    if (reason)
        reply_status(call, reason, sentence);
    else
        reply_answer(call, message, api->client_buffer_bytes);
}

static enum reason tokenize(const struct served_models *models,
                            const Baton__V1__TokenizeRequest *request, struct token_ids *ids,
                            struct error *err)
{
    size_t index;
    enum reason reason = served_models_find(models, request->model, &index, err);
    if (reason)
        return reason;
    const struct served_model *model = &models->items[index];
    bool add_special = !request->add_special_tokens_presence_case || request->add_special_tokens;
    ids->limit_count = tokenize_most_tokens(model);
    return tokenize_text(model, request->text, add_special, ids, err);
}

void grpc_tokens_tokenize(struct rpc_call *call, struct rpc_bytes bytes)
{
    const struct grpc_api *api = rpc_call_context(call);
    struct arena arena;
    struct token_ids ids;
    struct error err = {""};
    arena_init(&arena, proto_arena_bytes(bytes.size));
    token_ids_init(&ids, 0); /* the model says how many */
    ProtobufCMessage *message;
    Baton__V1__TokenizeResponse response = BATON__V1__TOKENIZE_RESPONSE__INIT;
    enum reason reason =
        read_message(&baton__v1__tokenize_request__descriptor, bytes, &arena, &message, &err);
    if (!reason)
        reason = tokenize(api->models, (const Baton__V1__TokenizeRequest *)message, &ids, &err);
    response.n_ids = ids.count;
    response.ids = ids.data;
    answer(call, reason, &response.base, err.text);
    token_ids_deinit(&ids);
    arena_deinit(&arena);
}

static enum reason detokenize(const struct served_models *models,
                              const Baton__V1__DetokenizeRequest *request, struct str *text,
                              struct error *err)
{
    size_t index;
    bool skip_special = request->skip_special_tokens_presence_case && request->skip_special_tokens;
    enum reason reason = served_models_find(models, request->model, &index, err);
    if (reason)
        return reason;
    return detokenize_ids(&models->items[index], request->ids, request->n_ids, skip_special, text,
                          err);
}

void grpc_tokens_detokenize(struct rpc_call *call, struct rpc_bytes bytes)
{
    const struct grpc_api *api = rpc_call_context(call);
    struct arena arena;
    struct str text;
    struct error err = {""};
    arena_init(&arena, proto_arena_bytes(bytes.size));
    str_init(&text, MAX_DETOKENIZED_BYTES);
    ProtobufCMessage *message;
    Baton__V1__DetokenizeResponse response = BATON__V1__DETOKENIZE_RESPONSE__INIT;
    enum reason reason =
        read_message(&baton__v1__detokenize_request__descriptor, bytes, &arena, &message, &err);
    if (!reason)
        reason =
            detokenize(api->models, (const Baton__V1__DetokenizeRequest *)message, &text, &err);
    response.text = text.data;
    answer(call, reason, &response.base, err.text);
    str_deinit(&text);
    arena_deinit(&arena);
}
