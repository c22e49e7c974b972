/* Texts of the public interface: prompts, answers, stop strings. They may have a NUL inside, so C's
 * side has them as fields of bytes (CMakeLists.txt). */
#ifndef BATON_PROTO_PROTO_TEXT_H
#define BATON_PROTO_PROTO_TEXT_H

#include "common/base/str.h"
#include "proto/baton.pb-c.h"

/* Returns the field's text: .bytes is never NULL, and no NUL need follow it. */
static inline struct text proto_text(ProtobufCBinaryData field)
{
    return (struct text){field.len ? (const char *)field.data : "", field.len};
}

/* Returns a field with the text, which only packing reads. */
static inline ProtobufCBinaryData proto_bytes(struct text text)
{
    return (ProtobufCBinaryData){text.length, (uint8_t *)text.bytes};
}

#endif
