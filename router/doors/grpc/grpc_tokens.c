#include "router/doors/grpc/grpc_tokens.h"

#include "proto/baton.pb-c.h"
#include "proto/proto_unpack.h"
#include "router/doors/grpc/grpc_call.h"
#include "router/doors/grpc/reply.h"
#include "router/doors/tokenize.h"

#define MAX_DETOKENIZED_BYTES (4u << 20)

/* The end of a simple call: its one message, or why there is none. */
static void answer(struct rpc_call *call, enum reason reason, const ProtobufCMessage *message,
                   const char *sentence)
{
    struct grpc_call *self = rpc_call_context(call);
    grpc_call_name(self, call, NULL);
    if (reason)
        reply_status(call, reason, sentence);
    else
        reply_answer(call, message, self->api->client_buffer_bytes);
}

static enum reason tokenize(struct grpc_call *self, const Baton__V1__TokenizeRequest *request,
                            struct token_ids *ids, struct error *err)
{
    size_t index;
    enum reason reason = served_models_find(self->api->models, request->model, &index, err);
    if (reason)
        return reason;
    const struct served_model *model = &self->api->models->items[index];
    self->model = model->name;
    bool add_special = !request->add_special_tokens_presence_case || request->add_special_tokens;
    ids->limit_count = tokenize_most_tokens(model);
    return tokenize_text(model, request->text, add_special, ids, err);
}

void grpc_tokens_tokenize(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct grpc_call *self = rpc_call_context(call);
    if (!self || self->refused)
        return;
    struct arena arena;
    struct token_ids ids;
    struct error err = {""};
    arena_init(&arena, proto_arena_bytes(bytes.size));
    token_ids_init(&ids, 0); /* the model says how many */
    ProtobufCMessage *message;
    Baton__V1__TokenizeResponse response = BATON__V1__TOKENIZE_RESPONSE__INIT;
    enum reason reason =
        grpc_call_read(&baton__v1__tokenize_request__descriptor, bytes, &arena, &message, &err);
    if (!reason)
        reason = tokenize(self, (const Baton__V1__TokenizeRequest *)message, &ids, &err);
    response.n_ids = ids.count;
    response.ids = ids.data;
    answer(call, reason, &response.base, err.text);
    token_ids_deinit(&ids);
    arena_deinit(&arena);
}

static enum reason detokenize(struct grpc_call *self, const Baton__V1__DetokenizeRequest *request,
                              struct str *text, struct error *err)
{
    size_t index;
    bool skip_special = request->skip_special_tokens_presence_case && request->skip_special_tokens;
    enum reason reason = served_models_find(self->api->models, request->model, &index, err);
    if (reason)
        return reason;
    self->model = self->api->models->items[index].name;
    return detokenize_ids(&self->api->models->items[index], request->ids, request->n_ids,
                          skip_special, text, err);
}

void grpc_tokens_detokenize(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct grpc_call *self = rpc_call_context(call);
    if (!self || self->refused)
        return;
    struct arena arena;
    struct str text;
    struct error err = {""};
    arena_init(&arena, proto_arena_bytes(bytes.size));
    str_init(&text, MAX_DETOKENIZED_BYTES);
    ProtobufCMessage *message;
    Baton__V1__DetokenizeResponse response = BATON__V1__DETOKENIZE_RESPONSE__INIT;
    enum reason reason =
        grpc_call_read(&baton__v1__detokenize_request__descriptor, bytes, &arena, &message, &err);
    if (!reason)
        reason = detokenize(self, (const Baton__V1__DetokenizeRequest *)message, &text, &err);
    response.text = text.data;
    answer(call, reason, &response.base, err.text);
    str_deinit(&text);
    arena_deinit(&arena);
}
