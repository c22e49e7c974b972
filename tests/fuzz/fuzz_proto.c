/* Any bytes as each of the messages that Baton receives; the first byte takes the type. Memory
 * stays within the limit of proto_arena_bytes. Strings of an accepted message are UTF-8. Packed and
 * unpacked again, it is the same. */
#include "common/base/utf8.h"
#include "proto/baton.pb-c.h"
#include "proto/health.pb-c.h"
#include "proto/proto_unpack.h"
#include "proto/reflection.pb-c.h"
#include "proto/worker.pb-c.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static const ProtobufCMessageDescriptor *const types[] = {
    &baton__v1__generate_request__descriptor,
    &baton__v1__tokenize_request__descriptor,
    &baton__v1__detokenize_request__descriptor,
    &baton__v1__generate_response__descriptor,
    &baton__v1__generate_result__descriptor,
    &baton__worker__v1__register_request__descriptor,
    &baton__worker__v1__session_down__descriptor,
    &baton__worker__v1__session_up__descriptor,
    &baton__worker__v1__peer_down__descriptor,
    &baton__worker__v1__peer_up__descriptor,
    &grpc__health__v1__health_check_request__descriptor,
    &grpc__reflection__v1__server_reflection_request__descriptor,
};
#define TYPES (sizeof types / sizeof *types)

static void check_message(const ProtobufCMessage *message, int depth);

static void check_value(const ProtobufCFieldDescriptor *field, const void *value, int depth)
{
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        const char *text = *(const char *const *)value;
        FUZZ_CHECK(!text || utf8_valid(text, strlen(text), NULL));
    } else if (field->type == PROTOBUF_C_TYPE_MESSAGE && *(ProtobufCMessage *const *)value) {
        check_message(*(ProtobufCMessage *const *)value, depth + 1);
    }
}

static void check_message(const ProtobufCMessage *message, int depth)
{
    FUZZ_CHECK(depth <= PROTO_MAX_DEPTH);
    const char *base = (const char *)message;
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        bool is_pointer =
            field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE;
        if (!is_pointer)
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t count = *(const size_t *)(const void *)(base + field->quantifier_offset);
            void *const *items = *(void *const *const *)(const void *)(base + field->offset);
            for (size_t k = 0; k < count; k++)
                check_value(field, &items[k], depth);
        } else if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
                   *(const uint32_t *)(const void *)(base + field->quantifier_offset) ==
                       field->id) {
            check_value(field, base + field->offset, depth);
        }
    }
}

static uint8_t *pack(const ProtobufCMessage *message, size_t *size)
{
    *size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(*size + 1);
    FUZZ_CHECK(bytes && protobuf_c_message_pack(message, bytes) == *size);
    return bytes;
}

static void check_again(const ProtobufCMessage *message)
{
    struct arena arena;
    struct error err;
    ProtobufCMessage *second;
    size_t size, second_size;
    uint8_t *bytes = pack(message, &size);
    arena_init(&arena, proto_arena_bytes(size) * 2);
    FUZZ_CHECK(proto_unpack(message->descriptor, bytes, size, &arena, &second, &err) == STATUS_OK);
    uint8_t *second_bytes = pack(second, &second_size);
    FUZZ_CHECK(size == second_size && !memcmp(bytes, second_bytes, size));
    arena_deinit(&arena);
    free(second_bytes);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    const ProtobufCMessageDescriptor *type = types[fuzz_take_below(&input, TYPES)];
    struct fuzz_bytes bytes = fuzz_take_rest(&input);
    struct arena arena;
    struct error err;
    ProtobufCMessage *message;
    arena_init(&arena, proto_arena_bytes(bytes.size));
    if (proto_unpack(type, bytes.data, bytes.size, &arena, &message, &err) == STATUS_OK) {
        check_message(message, 0);
        check_again(message);
    } else {
        fuzz_check_sentence(err.text);
    }
    FUZZ_CHECK(arena.total_bytes <= proto_arena_bytes(bytes.size));
    arena_deinit(&arena);
    return 0;
}
