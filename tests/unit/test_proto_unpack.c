/* proto_unpack: strings are UTF-8 without NUL, malformed bytes and amplification end in a
 * status. */
#include "proto/baton.pb-c.h"
#include "proto/proto_text.h"
#include "proto/proto_unpack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static enum status unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                          size_t limit_bytes, struct error *err)
{
    struct arena arena;
    arena_init(&arena, limit_bytes);
    ProtobufCMessage *message = NULL;
    enum status status = proto_unpack(type, data, size, &arena, &message, err);
    assert_int_equal(status == STATUS_OK, message != NULL);
    arena_deinit(&arena);
    return status;
}

static enum status unpack_text(const char *text, size_t size, struct error *err)
{
    uint8_t wire[64] = {3 << 3 | 2, (uint8_t)size}; /* GenerateRequest.text */
    memcpy(wire + 2, text, size);
    return unpack(&baton__v1__generate_request__descriptor, wire, size + 2, 4096, err);
}

static void test_strings_are_utf8(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "plain",
                                       "\xc2\x80",
                                       "\xe2\x82\xac",
                                       "\xed\x9f\xbf",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xc0\xaf",
                                      "\xc3",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xe2\x82",
                                      "\xf0\x80\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xff",
                                      "a\xe2\x28\xa1"};
    struct error err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(unpack_text(good[i], strlen(good[i]), &err), STATUS_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(unpack_text(bad[i], strlen(bad[i]), &err), STATUS_INVALID);
        assert_string_equal(err.text, "text is not valid UTF-8");
    }
}

/* A text may hold a NUL; a name may not. */
static void test_a_nul_is_part_of_a_text(void **state)
{
    (void)state;
    static const uint8_t wire[] = {2 << 3 | 2, 1,          'm', 3 << 3 | 2, 3, 'a', 0,
                                   'b',        6 << 3 | 2, 3,   1 << 3 | 2, 1, 0};
    static const uint8_t named[] = {2 << 3 | 2, 2, 'm', 0}; /* model */
    struct arena arena;
    struct error err;
    ProtobufCMessage *message = NULL;
    arena_init(&arena, 4096);
    assert_int_equal(proto_unpack(&baton__v1__generate_request__descriptor, wire, sizeof wire,
                                  &arena, &message, &err),
                     STATUS_OK);
    const Baton__V1__GenerateRequest *request = (const Baton__V1__GenerateRequest *)message;
    assert_int_equal(proto_text(request->text).length, 3);
    assert_memory_equal(proto_text(request->text).bytes, "a\0b", 3);
    assert_int_equal(proto_text(request->stop->strings[0]).length, 1);
    uint8_t packed[sizeof wire];
    assert_int_equal(protobuf_c_message_get_packed_size(message), sizeof wire);
    protobuf_c_message_pack(message, packed);
    assert_memory_equal(packed, wire, sizeof wire);
    arena_deinit(&arena);
    assert_int_equal(
        unpack(&baton__v1__generate_request__descriptor, named, sizeof named, 4096, &err),
        STATUS_INVALID);
    assert_string_equal(err.text, "model holds a NUL byte");
}

static void test_nested_strings_are_checked(void **state)
{
    (void)state;
    static const uint8_t wire[] = {6 << 3 | 2, 3, 1 << 3 | 2, 1, 0xff}; /* stop { strings } */
    struct error err;
    assert_int_equal(
        unpack(&baton__v1__generate_request__descriptor, wire, sizeof wire, 4096, &err),
        STATUS_INVALID);
    assert_string_equal(err.text, "strings is not valid UTF-8");
}

static void test_malformed_bytes_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint8_t wire[6];
        size_t size;
    } bad[] = {
        {{0x80}, 1},                            /* a tag without end */
        {{3 << 3 | 2, 5, 'a'}, 3},              /* shorter than its length */
        {{3 << 3 | 3}, 1},                      /* a group */
        {{1 << 3 | 1, 1}, 2},                   /* a short fixed64 */
        {{3 << 3 | 2}, 1},                      /* no length */
        {{0x80, 0, 0}, 3},                      /* field number 0 */
        {{0x80, 0x80, 0x80, 0x80, 0x10, 0}, 6}, /* and one beyond 2^29 - 1 */
    };
    struct error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(
            unpack(&baton__v1__generate_request__descriptor, bad[i].wire, bad[i].size, 4096, &err),
            STATUS_INVALID);
}

static void test_amplification_is_bounded(void **state)
{
    (void)state;
    static uint8_t wire[20000]; /* ListModelsResponse with 10,000 empty models */
    for (size_t i = 0; i < sizeof wire; i += 2)
        wire[i] = 1 << 3 | 2;
    struct error err;
    assert_int_equal(unpack(&baton__v1__list_models_response__descriptor, wire, sizeof wire,
                            proto_arena_bytes(sizeof wire), &err),
                     STATUS_LIMIT);
}

/* --- texts in the public interface --- */

struct fields {
    char text[4096]; /* "Message.field\n" in the order of the walk */
    size_t length;
};

/* Adds the fields of that type in the message and in all within it, each message once. */
static void collect(const ProtobufCMessageDescriptor *message, ProtobufCType type,
                    const ProtobufCMessageDescriptor *seen[64], struct fields *fields)
{
    size_t at = 0;
    while (seen[at] && seen[at] != message)
        at++;
    if (seen[at])
        return;
    assert_true(at < 63);
    seen[at] = message;
    for (unsigned i = 0; i < message->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->fields[i];
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            collect(field->descriptor, type, seen, fields);
        if (field->type != type)
            continue;
        fields->length +=
            (size_t)snprintf(fields->text + fields->length, sizeof fields->text - fields->length,
                             "%s.%s\n", message->short_name, field->name);
        assert_true(fields->length < sizeof fields->text);
    }
}

static void check_fields(const ProtobufCMessageDescriptor *const *messages, ProtobufCType type,
                         const char *wanted)
{
    const ProtobufCMessageDescriptor *seen[64] = {NULL};
    struct fields fields = {.length = 0};
    for (size_t i = 0; messages[i]; i++)
        collect(messages[i], type, seen, &fields);
    assert_string_equal(fields.text, wanted);
}

/* A text that may hold a NUL must be `bytes` in C (text_fields in proto/CMakeLists.txt). A `string`
 * is a name, or a part of a constraint, which ends at a NUL. A new field must be in one of the
 * lists. */
static void test_which_fields_are_texts(void **state)
{
    (void)state;
    static const ProtobufCMessageDescriptor *const requests[] = {
        &baton__v1__generate_request__descriptor, &baton__v1__tokenize_request__descriptor,
        &baton__v1__detokenize_request__descriptor, &baton__v1__list_models_request__descriptor,
        NULL};
    static const ProtobufCMessageDescriptor *const answers[] = {
        &baton__v1__generate_response__descriptor,    &baton__v1__generate_result__descriptor,
        &baton__v1__tokenize_response__descriptor,    &baton__v1__detokenize_response__descriptor,
        &baton__v1__list_models_response__descriptor, NULL};
    check_fields(requests, PROTOBUF_C_TYPE_BYTES,
                 "GenerateRequest.text\n"
                 "Stop.strings\n"
                 "Choices.texts\n"
                 "TokenizeRequest.text\n");
    check_fields(answers, PROTOBUF_C_TYPE_BYTES,
                 "Delta.text\n"
                 "Finished.stop_string\n"
                 "Prompt.text\n"
                 "GenerateResult.text\n"
                 "Choice.text\n"
                 "DetokenizeResponse.text\n");
    check_fields(requests, PROTOBUF_C_TYPE_STRING,
                 "GenerateRequest.request_id\n"
                 "GenerateRequest.model\n"
                 "Constraint.json_schema\n"
                 "Constraint.regex\n"
                 "Tool.name\n"
                 "Tool.begin\n"
                 "Tool.json_schema\n"
                 "Tool.end\n"
                 "ToolCalls.begin\n"
                 "ToolCalls.separator\n"
                 "ToolCalls.end\n"
                 "ToolCalls.special_tokens\n"
                 "Reasoning.begin\n"
                 "Reasoning.end\n"
                 "GenerateRequest.slo_class\n"
                 "TokenizeRequest.model\n"
                 "DetokenizeRequest.model\n");
    check_fields(answers, PROTOBUF_C_TYPE_STRING,
                 "Timing.prefill_worker\n"
                 "Timing.decode_worker\n"
                 "Timing.lane\n"
                 "GenerateResult.request_id\n"
                 "Model.name\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings_are_utf8),
        cmocka_unit_test(test_a_nul_is_part_of_a_text),
        cmocka_unit_test(test_nested_strings_are_checked),
        cmocka_unit_test(test_malformed_bytes_are_refused),
        cmocka_unit_test(test_amplification_is_bounded),
        cmocka_unit_test(test_which_fields_are_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
