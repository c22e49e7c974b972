#include "common/net/rpc/grpc/reflection.h"

#include "common/base/arena.h"
#include "common/base/assert.h"
#include "common/net/rpc/grpc/descriptor_files.h"
#include "common/net/rpc/message.h"
#include "proto/descriptors.h"
#include "proto/proto_unpack.h"
#include "proto/reflection.pb-c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SERVICES  64
#define REQUEST_BYTES 16384

/* Both versions of the protocol have the same wire format: v1's messages serve for both. */
#define REQUEST(name)  GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name
#define RESPONSE(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name

struct reflection {
    struct descriptor_files files;
    const char *services[MAX_SERVICES];
    size_t service_count;
};

static const char *const builtin_services[] = {"grpc.health.v1.Health",
                                               "grpc.reflection.v1.ServerReflection",
                                               "grpc.reflection.v1alpha.ServerReflection"};
#define BUILTIN_COUNT (sizeof builtin_services / sizeof *builtin_services)

struct reflection *reflection_create(const struct rpc_server_config *config)
{
    struct reflection *reflection = calloc(1, sizeof *reflection);
    ASSERT(reflection && config->service_count <= MAX_SERVICES - BUILTIN_COUNT);
    for (size_t i = 0; i < config->service_count; i++)
        reflection->services[reflection->service_count++] = config->services[i];
    for (size_t i = 0; i < BUILTIN_COUNT; i++)
        reflection->services[reflection->service_count++] = builtin_services[i];
    for (size_t i = 0; i < config->descriptor_count; i++)
        descriptor_files_add_set(&reflection->files, config->descriptors[i]);
    const struct rpc_bytes builtin[] = {
        {health_descriptors, health_descriptors_size},
        {reflection_descriptors, reflection_descriptors_size},
        {reflection_v1alpha_descriptors, reflection_v1alpha_descriptors_size},
    };
    for (size_t i = 0; i < BUILTIN_COUNT; i++)
        descriptor_files_add_set(&reflection->files, builtin[i]);
    return reflection;
}

void reflection_destroy(struct reflection *reflection)
{
    free(reflection);
}

/* One answer; what the response points to lives here until it is packed. */
struct answer {
    Grpc__Reflection__V1__ServerReflectionResponse response;
    Grpc__Reflection__V1__FileDescriptorResponse files;
    ProtobufCBinaryData file_bytes[DESCRIPTOR_FILES_MAX];
    Grpc__Reflection__V1__ListServiceResponse list;
    Grpc__Reflection__V1__ServiceResponse services[MAX_SERVICES];
    Grpc__Reflection__V1__ServiceResponse *service_pointers[MAX_SERVICES];
    Grpc__Reflection__V1__ExtensionNumberResponse extensions;
    Grpc__Reflection__V1__ErrorResponse error;
    char error_text[512];
};

static void answer_error(struct answer *answer, enum rpc_code code, const char *what,
                         const char *name)
{
    bool fits =
        strlen(what) + strlen(name) < sizeof answer->error_text; /* cut, it may not be UTF-8 */
    snprintf(answer->error_text, sizeof answer->error_text, "%s%s", what,
             fits ? name : "(too long)");
    answer->error.error_code = (int32_t)code;
    answer->error.error_message = answer->error_text;
    answer->response.message_response_case = RESPONSE(ERROR_RESPONSE);
    answer->response.error_response = &answer->error;
}

static void answer_file(const struct reflection *reflection, struct answer *answer, size_t index,
                        const char *what, const char *name)
{
    if (index == reflection->files.count) {
        answer_error(answer, RPC_NOT_FOUND, what, name);
        return;
    }
    struct rpc_bytes closure[DESCRIPTOR_FILES_MAX];
    answer->files.n_file_descriptor_proto =
        descriptor_files_closure(&reflection->files, index, closure);
    for (size_t i = 0; i < answer->files.n_file_descriptor_proto; i++)
        answer->file_bytes[i] = (ProtobufCBinaryData){closure[i].size, (uint8_t *)closure[i].data};
    answer->files.file_descriptor_proto = answer->file_bytes;
    answer->response.message_response_case = RESPONSE(FILE_DESCRIPTOR_RESPONSE);
    answer->response.file_descriptor_response = &answer->files;
}

static void answer_services(const struct reflection *reflection, struct answer *answer)
{
    for (size_t i = 0; i < reflection->service_count; i++) {
        grpc__reflection__v1__service_response__init(&answer->services[i]);
        answer->services[i].name = (char *)reflection->services[i];
        answer->service_pointers[i] = &answer->services[i];
    }
    answer->list.n_service = reflection->service_count;
    answer->list.service = answer->service_pointers;
    answer->response.message_response_case = RESPONSE(LIST_SERVICES_RESPONSE);
    answer->response.list_services_response = &answer->list;
}

/* proto3 has no extensions: a type that exists has none. */
static void answer_extensions(const struct reflection *reflection, struct answer *answer,
                              char *type)
{
    if (descriptor_files_by_symbol(&reflection->files, type) == reflection->files.count) {
        answer_error(answer, RPC_NOT_FOUND, "unknown type ", type);
        return;
    }
    answer->extensions.base_type_name = type;
    answer->response.message_response_case = RESPONSE(ALL_EXTENSION_NUMBERS_RESPONSE);
    answer->response.all_extension_numbers_response = &answer->extensions;
}

static void answer_request(const struct reflection *reflection, struct answer *answer,
                           Grpc__Reflection__V1__ServerReflectionRequest *request)
{
    const struct descriptor_files *files = &reflection->files;
    grpc__reflection__v1__server_reflection_response__init(&answer->response);
    grpc__reflection__v1__file_descriptor_response__init(&answer->files);
    grpc__reflection__v1__list_service_response__init(&answer->list);
    grpc__reflection__v1__extension_number_response__init(&answer->extensions);
    grpc__reflection__v1__error_response__init(&answer->error);
    answer->response.valid_host = request->host;
    answer->response.original_request = request;
    switch (request->message_request_case) {
    case REQUEST(FILE_BY_FILENAME):
        answer_file(reflection, answer, descriptor_files_by_name(files, request->file_by_filename),
                    "unknown file ", request->file_by_filename);
        break;
    case REQUEST(FILE_CONTAINING_SYMBOL):
        answer_file(reflection, answer,
                    descriptor_files_by_symbol(files, request->file_containing_symbol),
                    "unknown symbol ", request->file_containing_symbol);
        break;
    case REQUEST(FILE_CONTAINING_EXTENSION):
        answer_error(answer, RPC_NOT_FOUND, "no extensions of ",
                     request->file_containing_extension->containing_type);
        break;
    case REQUEST(ALL_EXTENSION_NUMBERS_OF_TYPE):
        answer_extensions(reflection, answer, request->all_extension_numbers_of_type);
        break;
    case REQUEST(LIST_SERVICES): answer_services(reflection, answer); break;
    default: answer_error(answer, RPC_INVALID_ARGUMENT, "the request asks for nothing", ""); break;
    }
}

static void on_open(struct rpc_call *call, void *service)
{
    rpc_call_set_context(call, service);
}

static void on_message(struct rpc_call *call, struct rpc_bytes bytes)
{
    const struct reflection *reflection = rpc_call_context(call);
    struct arena arena;
    arena_init(&arena, REQUEST_BYTES);
    struct answer *answer = calloc(1, sizeof *answer);
    ASSERT(answer);
    ProtobufCMessage *request;
    struct error err;
    if (proto_unpack(&grpc__reflection__v1__server_reflection_request__descriptor, bytes.data,
                     bytes.size, &arena, &request, &err) != STATUS_OK) {
        rpc_call_finish(call, RPC_INVALID_ARGUMENT, "malformed_request", err.text);
    } else {
        answer_request(reflection, answer,
                       (Grpc__Reflection__V1__ServerReflectionRequest *)request);
        if (rpc_call_send_message(call, &answer->response.base) == STATUS_LIMIT)
            rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "slow_reader",
                            "answers are asked for faster than they are read");
    }
    free(answer);
    arena_deinit(&arena);
}

static void on_half_close(struct rpc_call *call)
{
    rpc_call_finish(call, RPC_OK, NULL, NULL);
}

void reflection_methods(struct reflection *reflection,
                        struct rpc_method methods[REFLECTION_METHODS])
{
    static const char *const paths[REFLECTION_METHODS] = {
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
    for (size_t i = 0; i < REFLECTION_METHODS; i++)
        methods[i] = (struct rpc_method){
            .path = paths[i],
            .handlers = {.open = on_open, .message = on_message, .half_close = on_half_close},
            .service = reflection,
            .client_streams = true};
}
