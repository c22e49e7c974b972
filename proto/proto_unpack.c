#include "proto/proto_unpack.h"

#include "common/base/utf8.h"

#include <stdbool.h>
#include <string.h>

#define MAX_FIELD_NUMBER ((1u << 29) - 1)
#define TEXT_PACKAGE     "baton.v1" /* its fields of bytes are texts */

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct wire {
    const uint8_t *at, *end;
};

static bool wire_varint(struct wire *wire, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && wire->at < wire->end; shift += 7) {
        uint8_t byte = *wire->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool wire_skip(struct wire *wire, uint64_t bytes)
{
    if (bytes > (uint64_t)(wire->end - wire->at))
        return false;
    wire->at += bytes;
    return true;
}

static enum status check_message(const ProtobufCMessageDescriptor *type, struct wire wire,
                                 unsigned depth, struct error *err);

/* Checks one length-delimited field. Skips unknown fields, as protobuf-c does. */
static enum status check_bytes(const ProtobufCMessageDescriptor *type, uint64_t number,
                               struct wire inner, unsigned depth, struct error *err)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(type, (unsigned)number);
    if (!field)
        return STATUS_OK;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return check_message(field->descriptor, inner, depth + 1, err);
    bool text = field->type == PROTOBUF_C_TYPE_BYTES && !strcmp(type->package_name, TEXT_PACKAGE);
    if (field->type != PROTOBUF_C_TYPE_STRING && !text)
        return STATUS_OK;
    if (!text && inner.at < inner.end && memchr(inner.at, 0, (size_t)(inner.end - inner.at)))
        return error_set(err, STATUS_INVALID, "%s holds a NUL byte", field->name);
    if (!utf8_valid((const char *)inner.at, (size_t)(inner.end - inner.at), NULL))
        return error_set(err, STATUS_INVALID, "%s is not valid UTF-8", field->name);
    return STATUS_OK;
}

static enum status check_message(const ProtobufCMessageDescriptor *type, struct wire wire,
                                 unsigned depth, struct error *err)
{
    if (depth > PROTO_MAX_DEPTH)
        return error_set(err, STATUS_INVALID, "message is nested too deeply");
    while (wire.at < wire.end) {
        uint64_t tag, value = 0;
        bool good = wire_varint(&wire, &tag) && tag >> 3 && tag >> 3 <= MAX_FIELD_NUMBER;
        const uint8_t *start;
        switch (good ? (int)(tag & 7) : -1) {
        case WIRE_VARINT: good = wire_varint(&wire, &value); break;
        case WIRE_64: good = wire_skip(&wire, 8); break;
        case WIRE_32: good = wire_skip(&wire, 4); break;
        case WIRE_BYTES:
            good = wire_varint(&wire, &value);
            start = wire.at;
            good = good && wire_skip(&wire, value);
            if (good)
                TRY(check_bytes(type, tag >> 3, (struct wire){start, wire.at}, depth, err));
            break;
        default: good = false;
        }
        if (!good)
            return error_set(err, STATUS_INVALID, "malformed %s message", type->short_name);
    }
    return STATUS_OK;
}

struct bounded {
    struct arena *arena;
    bool full;
};

static void *bounded_alloc(void *data, size_t size)
{
    struct bounded *bounded = data;
    void *memory = arena_take(bounded->arena, size);
    bounded->full |= !memory;
    return memory;
}

static void bounded_free(void *data, void *pointer)
{
    (void)data;
    (void)pointer; /* the arena is freed as a whole */
}

enum status proto_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                         struct arena *arena, ProtobufCMessage **message, struct error *err)
{
    struct wire wire = {data, size ? (const uint8_t *)data + size : data};
    TRY(check_message(type, wire, 0, err));
    struct bounded bounded = {arena, false};
    ProtobufCAllocator allocator = {bounded_alloc, bounded_free, &bounded};
    ProtobufCMessage *unpacked = protobuf_c_message_unpack(type, &allocator, size, data);
    if (unpacked) {
        *message = unpacked;
        return STATUS_OK;
    }
    if (bounded.full)
        return error_set(err, STATUS_LIMIT, "%s message needs too much memory", type->short_name);
    return error_set(err, STATUS_INVALID, "malformed %s message", type->short_name);
}
