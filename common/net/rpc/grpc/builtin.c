#include "common/net/rpc/grpc/builtin.h"

#include "common/base/arena.h"
#include "common/base/assert.h"
#include "common/net/rpc/message.h"
#include "proto/descriptors.h"
#include "proto/health.pb-c.h"
#include "proto/proto_unpack.h"
#include "proto/reflection.pb-c.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEALTH_BYTES     4096 /* a service's name fits many times */
#define MAX_SERVICES     64
#define REFLECTION_BYTES 16384

#define STATE(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

static void keep_service(struct rpc_call *call, void *service)
{
    rpc_call_set_context(call, service);
}

/* --- streams --- */

/* False: there is no room, and the call was finished. Otherwise leave_stream must follow. */
static bool enter_stream(struct builtin_streams *streams, struct rpc_call *call)
{
    if (atomic_fetch_add(&streams->count, 1) < BUILTIN_MAX_STREAMS)
        return true;
    atomic_fetch_sub(&streams->count, 1);
    char sentence[128];
    snprintf(
        sentence, sizeof sentence,
        "%d streams of health watches and reflection are open at this server, which is its limit",
        BUILTIN_MAX_STREAMS);
    rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "too_many_watches", sentence);
    return false;
}

static void leave_stream(struct builtin_streams *streams)
{
    atomic_fetch_sub(&streams->count, 1);
}

/* --- health --- */

struct watch {
    struct watch *previous, *next;
    struct health *health;
    struct rpc_call *call; /* valid until its closed handler, which takes the watch out first */
};

struct health {
    const char *const *services;
    size_t service_count;
    struct builtin_streams *streams;
    pthread_mutex_t lock; /* guards the fields below; taken before a call's lock */
    bool serving;
    struct watch *watches; /* for known services */
};

struct health *health_create(const char *const *services, size_t service_count,
                             struct builtin_streams *streams)
{
    struct health *health = calloc(1, sizeof *health);
    ASSERT(health);
    health->services = services;
    health->service_count = service_count;
    health->streams = streams;
    pthread_mutex_init(&health->lock, NULL);
    return health;
}

void health_destroy(struct health *health)
{
    ASSERT(!health->watches);
    pthread_mutex_destroy(&health->lock);
    free(health);
}

/* Reads whether the request's service is known. False: the request can't be read, and the call was
 * finished. */
static bool read_request(const struct health *health, struct rpc_call *call, struct rpc_bytes bytes,
                         bool *is_known)
{
    struct arena arena;
    arena_init(&arena, HEALTH_BYTES);
    ProtobufCMessage *message;
    struct error err;
    enum status status = proto_unpack(&grpc__health__v1__health_check_request__descriptor,
                                      bytes.data, bytes.size, &arena, &message, &err);
    if (status == STATUS_OK) {
        const char *service = ((Grpc__Health__V1__HealthCheckRequest *)message)->service;
        *is_known = !*service; /* "" is the server as a whole */
        for (size_t i = 0; i < health->service_count && !*is_known; i++)
            *is_known = !strcmp(health->services[i], service);
    } else {
        rpc_call_finish(call, RPC_INVALID_ARGUMENT, "malformed_request", err.text);
    }
    arena_deinit(&arena);
    return status == STATUS_OK;
}

/* A client that doesn't even read this little is cut off. */
static void send_state(struct rpc_call *call, int state)
{
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)state;
    if (rpc_call_send_message(call, &response.base) == STATUS_LIMIT)
        rpc_call_cancel(call);
}

static int state_of(const struct health *health)
{
    return health->serving ? STATE(SERVING) : STATE(NOT_SERVING);
}

static void on_check(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct health *health = rpc_call_context(call);
    bool is_known;
    if (!read_request(health, call, bytes, &is_known))
        return;
    if (!is_known) {
        rpc_call_finish(call, RPC_NOT_FOUND, "unknown_service", "unknown service");
        return;
    }
    pthread_mutex_lock(&health->lock);
    int state = state_of(health);
    pthread_mutex_unlock(&health->lock);
    send_state(call, state);
    rpc_call_finish(call, RPC_OK, NULL, NULL);
}

/* A watch that is refused has no context. */
static void open_watch(struct rpc_call *call, void *service)
{
    struct health *health = service;
    rpc_call_set_context(call, NULL);
    if (!enter_stream(health->streams, call))
        return;
    struct watch *watch = calloc(1, sizeof *watch);
    ASSERT(watch);
    watch->health = health;
    rpc_call_set_context(call, watch);
}

static void on_watch(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct watch *watch = rpc_call_context(call);
    bool is_known;
    if (!watch || !read_request(watch->health, call, bytes, &is_known))
        return;
    /* Stays open: the protocol allows that the service appears later. Ours are fixed. */
    if (!is_known) {
        send_state(call, STATE(SERVICE_UNKNOWN));
        return;
    }
    struct health *health = watch->health;
    pthread_mutex_lock(&health->lock);
    watch->call = call;
    watch->next = health->watches;
    if (watch->next)
        watch->next->previous = watch;
    health->watches = watch;
    send_state(call, state_of(health));
    pthread_mutex_unlock(&health->lock);
}

static void on_watch_closed(struct rpc_call *call, const struct rpc_end *end)
{
    (void)end;
    struct watch *watch = rpc_call_context(call);
    if (!watch)
        return;
    struct health *health = watch->health;
    pthread_mutex_lock(&health->lock);
    if (watch->call) {
        if (watch->previous)
            watch->previous->next = watch->next;
        else
            health->watches = watch->next;
        if (watch->next)
            watch->next->previous = watch->previous;
    }
    pthread_mutex_unlock(&health->lock);
    leave_stream(health->streams);
    free(watch);
}

void health_methods(struct health *health, struct rpc_method methods[HEALTH_METHODS])
{
    methods[0] = (struct rpc_method){.path = "/grpc.health.v1.Health/Check",
                                     .handlers = {.open = keep_service, .message = on_check},
                                     .service = health};
    methods[1] = (struct rpc_method){
        .path = "/grpc.health.v1.Health/Watch",
        .handlers = {.open = open_watch, .message = on_watch, .closed = on_watch_closed},
        .service = health};
}

void health_set_serving(struct health *health, bool serving)
{
    pthread_mutex_lock(&health->lock);
    bool changed = health->serving != serving;
    health->serving = serving;
    for (struct watch *watch = health->watches; watch && changed; watch = watch->next)
        send_state(watch->call, state_of(health));
    pthread_mutex_unlock(&health->lock);
}

/* --- the .proto files that reflection serves --- */

/* Field numbers of FileDescriptorSet and FileDescriptorProto; in every descriptor 1 is the name. */
enum { SET_FILE = 1, NAME = 1, FILE_PACKAGE = 2, FILE_DEPENDENCY = 3 };

static bool read_varint(struct rpc_bytes *wire, uint64_t *value)
{
    const uint8_t *at = wire->data;
    *value = 0;
    for (unsigned i = 0; i < 10 && i < wire->size; i++) {
        *value |= (uint64_t)(at[i] & 0x7f) << (7 * i);
        if (!(at[i] & 0x80)) {
            *wire = (struct rpc_bytes){at + i + 1, wire->size - i - 1};
            return true;
        }
    }
    return false;
}

/* Takes fields off `wire` up to the next length-delimited one. False at the end. */
static bool next_field(struct rpc_bytes *wire, uint64_t *number, struct rpc_bytes *content)
{
    uint64_t tag, length;
    while (wire->size && read_varint(wire, &tag)) {
        *number = tag >> 3;
        switch (tag & 7) {
        case 0:
            if (!read_varint(wire, &length))
                return false;
            continue;
        case 1: length = 8; break;
        case 5: length = 4; break;
        case 2:
            if (!read_varint(wire, &length))
                return false;
            break;
        default: return false;
        }
        if (length > wire->size)
            return false;
        *content = (struct rpc_bytes){wire->data, (size_t)length};
        *wire = (struct rpc_bytes){(const char *)wire->data + length, wire->size - (size_t)length};
        if ((tag & 7) == 2)
            return true;
    }
    return false;
}

static struct rpc_bytes get_field(struct rpc_bytes wire, uint64_t wanted)
{
    uint64_t number;
    struct rpc_bytes content;
    while (next_field(&wire, &number, &content))
        if (number == wanted)
            return content;
    return (struct rpc_bytes){"", 0};
}

static bool equals(struct rpc_bytes bytes, const char *text, size_t length)
{
    return bytes.size == length && !memcmp(bytes.data, text, length);
}

static size_t find_name(const struct descriptor_files *files, const char *name, size_t length)
{
    size_t i = 0;
    while (i < files->count && !equals(get_field(files->items[i], NAME), name, length))
        i++;
    return i;
}

size_t descriptor_files_by_name(const struct descriptor_files *files, const char *name)
{
    return find_name(files, name, strlen(name));
}

void descriptor_files_add_set(struct descriptor_files *files, struct rpc_bytes set)
{
    uint64_t number;
    struct rpc_bytes file;
    while (next_field(&set, &number, &file)) {
        struct rpc_bytes name = get_field(file, NAME);
        if (number != SET_FILE || find_name(files, name.data, name.size) < files->count)
            continue;
        ASSERT(files->count < DESCRIPTOR_FILES_MAX); /* the sets are compiled in */
        files->items[files->count++] = file;
    }
}

/* The scopes that hold named things, with their field numbers. */
enum scope { LEAF, FILE_SCOPE, MESSAGE, ENUM, SERVICE };
static const struct {
    enum scope parent;
    uint64_t number;
    enum scope child;
} children[] = {
    {FILE_SCOPE, 4, MESSAGE}, {FILE_SCOPE, 5, ENUM}, {FILE_SCOPE, 6, SERVICE},
    {FILE_SCOPE, 7, LEAF},    {MESSAGE, 2, LEAF},    {MESSAGE, 3, MESSAGE},
    {MESSAGE, 4, ENUM},       {MESSAGE, 6, LEAF},    {MESSAGE, 8, LEAF},
    {ENUM, 2, LEAF},          {SERVICE, 2, LEAF},
};

/* Returns whether this scope has something called `path`. Recursion ends: each level takes a name
 * off the path, and an enum, with values named like its neighbours, holds no scopes. */
static bool scope_has(enum scope scope, struct rpc_bytes wire, const char *path)
{
    uint64_t number;
    struct rpc_bytes content;
    size_t length = strcspn(path, ".");
    while (next_field(&wire, &number, &content)) {
        size_t row = 0;
        while (row < sizeof children / sizeof *children &&
               (children[row].parent != scope || children[row].number != number))
            row++;
        if (row == sizeof children / sizeof *children)
            continue;
        enum scope child = children[row].child;
        if (child == ENUM && scope_has(ENUM, content, path))
            return true;
        if (!equals(get_field(content, NAME), path, length))
            continue;
        if (!path[length])
            return true;
        if ((child == MESSAGE || child == SERVICE) && scope_has(child, content, path + length + 1))
            return true;
    }
    return false;
}

size_t descriptor_files_by_symbol(const struct descriptor_files *files, const char *symbol)
{
    for (size_t i = 0; i < files->count; i++) {
        struct rpc_bytes package = get_field(files->items[i], FILE_PACKAGE);
        size_t skip = package.size ? package.size + 1 : 0;
        if (strlen(symbol) > skip &&
            (!skip ||
             (!memcmp(symbol, package.data, package.size) && symbol[package.size] == '.')) &&
            scope_has(FILE_SCOPE, files->items[i], symbol + skip))
            return i;
    }
    return files->count;
}

size_t descriptor_files_closure(const struct descriptor_files *files, size_t index,
                                struct rpc_bytes closure[DESCRIPTOR_FILES_MAX])
{
    bool taken[DESCRIPTOR_FILES_MAX] = {0};
    size_t count = 0;
    closure[count++] = files->items[index];
    taken[index] = true;
    for (size_t i = 0; i < count; i++) {
        struct rpc_bytes wire = closure[i], content;
        uint64_t number;
        while (next_field(&wire, &number, &content)) {
            if (number != FILE_DEPENDENCY)
                continue;
            size_t found = find_name(files, content.data, content.size);
            if (found < files->count && !taken[found]) {
                taken[found] = true;
                closure[count++] = files->items[found];
            }
        }
    }
    return count;
}

/* --- reflection --- */

/* Both versions of the protocol have the same wire format: v1's messages serve for both. */
#define REQUEST(name)  GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name
#define RESPONSE(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name

struct reflection {
    struct descriptor_files files;
    const char *services[MAX_SERVICES];
    size_t service_count;
    struct builtin_streams *streams;
};

static const char *const builtin_services[] = {"grpc.health.v1.Health",
                                               "grpc.reflection.v1.ServerReflection",
                                               "grpc.reflection.v1alpha.ServerReflection"};
#define BUILTIN_COUNT (sizeof builtin_services / sizeof *builtin_services)

struct reflection *reflection_create(const struct rpc_server_config *config,
                                     struct builtin_streams *streams)
{
    struct reflection *reflection = calloc(1, sizeof *reflection);
    ASSERT(reflection && config->service_count <= MAX_SERVICES - BUILTIN_COUNT);
    reflection->streams = streams;
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

/* One answer. The response points into it until it is packed. */
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
        /* proto3 has no extensions: a type that exists has none. */
        answer->extensions.base_type_name = request->all_extension_numbers_of_type;
        answer->response.message_response_case = RESPONSE(ALL_EXTENSION_NUMBERS_RESPONSE);
        answer->response.all_extension_numbers_response = &answer->extensions;
        if (descriptor_files_by_symbol(files, request->all_extension_numbers_of_type) ==
            files->count)
            answer_error(answer, RPC_NOT_FOUND, "unknown type ",
                         request->all_extension_numbers_of_type);
        break;
    case REQUEST(LIST_SERVICES): answer_services(reflection, answer); break;
    default: answer_error(answer, RPC_INVALID_ARGUMENT, "the request asks for nothing", ""); break;
    }
}

/* A call that is refused has no context. */
static void open_reflection(struct rpc_call *call, void *service)
{
    struct reflection *reflection = service;
    rpc_call_set_context(call, enter_stream(reflection->streams, call) ? reflection : NULL);
}

static void on_message(struct rpc_call *call, struct rpc_bytes bytes)
{
    const struct reflection *reflection = rpc_call_context(call);
    if (!reflection)
        return;
    struct arena arena;
    arena_init(&arena, REFLECTION_BYTES);
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
    if (rpc_call_context(call))
        rpc_call_finish(call, RPC_OK, NULL, NULL);
}

static void on_reflection_closed(struct rpc_call *call, const struct rpc_end *end)
{
    (void)end;
    const struct reflection *reflection = rpc_call_context(call);
    if (reflection)
        leave_stream(reflection->streams);
}

void reflection_methods(struct reflection *reflection,
                        struct rpc_method methods[REFLECTION_METHODS])
{
    static const char *const paths[REFLECTION_METHODS] = {
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
    for (size_t i = 0; i < REFLECTION_METHODS; i++)
        methods[i] = (struct rpc_method){.path = paths[i],
                                         .handlers = {.open = open_reflection,
                                                      .message = on_message,
                                                      .half_close = on_half_close,
                                                      .closed = on_reflection_closed},
                                         .service = reflection,
                                         .client_streams = true};
}
