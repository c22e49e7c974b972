#include "common/net/membership/worker_message.h"

#include "common/base/str.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

bool worker_message_names(const struct worker_info *info, const char *name, uint64_t incarnation)
{
    return incarnation == info->incarnation && !strcmp(name, info->name);
}

struct protocol_range worker_message_protocol(const struct worker_info *info)
{
    if (info->protocol_newest)
        return (struct protocol_range){info->protocol_least, info->protocol_newest};
    return (struct protocol_range){WORKER_PROTOCOL_LEAST, WORKER_PROTOCOL_VERSION};
}

struct protocol_range worker_message_router_protocol(const Baton__Worker__V1__RouterHello *hello)
{
    if (!hello->version) /* a router of before ranges */
        return (struct protocol_range){4, 4};
    return (struct protocol_range){hello->version_min ? hello->version_min : hello->version,
                                   hello->version};
}

uint32_t worker_message_agree(struct protocol_range own, struct protocol_range other,
                              const char *peer, struct error *err)
{
    uint32_t least = own.least > other.least ? own.least : other.least;
    uint32_t newest = own.newest < other.newest ? own.newest : other.newest;
    if (least && least <= newest)
        return newest;
    char theirs[32] = "", ours[32] = "";
    if (other.least != other.newest)
        snprintf(theirs, sizeof theirs, " to %u", other.newest);
    if (own.least != own.newest)
        snprintf(ours, sizeof ours, " to %u", own.newest);
    error_set(err, STATUS_UNSUPPORTED,
              "%.80s speaks protocol version %u%s, this process %u%s: run releases of Baton that "
              "share one (docs/upgrading.md)",
              peer, other.least, theirs, own.least, ours);
    return 0;
}

Baton__Worker__V1__WorkerInfo worker_message_of(const struct worker_info *info)
{
    Baton__Worker__V1__WorkerInfo message = BATON__WORKER__V1__WORKER_INFO__INIT;
    message.version = worker_message_protocol(info).newest;
    message.version_min = worker_message_protocol(info).least;
    message.name = (char *)info->name;
    message.role = info->role == ROLE_PREFILL ? BATON__WORKER__V1__ROLE__ROLE_PREFILL
                                              : BATON__WORKER__V1__ROLE__ROLE_DECODE;
    message.incarnation = info->incarnation;
    message.address = (char *)info->address;
    message.model = (char *)info->model;
    message.model_hash = info->model_hash;
    message.layout_hash = info->layout_hash;
    message.numerics_id = info->numerics_id;
    message.block_tokens = info->block_tokens;
    message.block_count = info->block_count;
    message.context = info->context;
    message.vocab = info->vocab;
    message.numerics_name = (char *)info->numerics_name;
    message.isa = (char *)info->isa;
    message.process_id = info->process_id;
    message.max_sequences = info->max_sequences;
    message.metrics_address = (char *)info->metrics_address;
    message.config_hash = info->config_hash;
    message.tokenizer_hash = info->tokenizer_hash;
    message.started_ms = info->started_ms;
    return message;
}

/* Names and addresses go into log lines, JSON and metadata: printable ASCII without blanks, quotes
 * or backslashes. */
static enum status read_word(const char *field, const char *value, bool required, char *target,
                             size_t size, struct error *err)
{
    if (required && !*value)
        return error_set(err, STATUS_INVALID, "the worker's %s is empty", field);
    for (const char *c = value; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\')
            return error_set(err, STATUS_INVALID,
                             "the worker's %s may hold only printable ASCII without blanks and "
                             "quotes",
                             field);
    if (!str_copy(target, size, value))
        return error_set(err, STATUS_INVALID, "the worker's %s is longer than %zu bytes", field,
                         size - 1);
    return STATUS_OK;
}

enum status worker_name_check(const char *name, struct error *err)
{
    char taken[sizeof((struct worker_info *)NULL)->name];
    return read_word("name", name, true, taken, sizeof taken, err);
}

static enum status read_number(const char *field, uint32_t value, uint32_t *target,
                               struct error *err)
{
    if (!value || value > 1u << 30)
        return error_set(err, STATUS_INVALID, "the worker's %s must be between 1 and %u, got %u",
                         field, 1u << 30, value);
    *target = value;
    return STATUS_OK;
}

enum status worker_message_read(const Baton__Worker__V1__WorkerInfo *message,
                                struct worker_info *info, struct error *err)
{
    struct protocol_range theirs = {message->version_min ? message->version_min : message->version,
                                    message->version};
    char who[80];
    snprintf(who, sizeof who, "the worker %.64s", message->name);
    if (!worker_message_agree(worker_message_protocol(&(struct worker_info){0}), theirs, who,
                              err)) {
        /* For people, read what every version has. A field that can't be read stays empty. */
        struct error ignored;
        *info = (struct worker_info){.role = ROLE_DECODE};
        if (message->role == BATON__WORKER__V1__ROLE__ROLE_PREFILL)
            info->role = ROLE_PREFILL;
        (void)!read_word("name", message->name, true, info->name, sizeof info->name, &ignored);
        (void)!read_word("address", message->address, true, info->address, sizeof info->address,
                         &ignored);
        (void)!read_word("model", message->model, true, info->model, sizeof info->model, &ignored);
        return STATUS_UNSUPPORTED;
    }
    if (message->role != BATON__WORKER__V1__ROLE__ROLE_PREFILL &&
        message->role != BATON__WORKER__V1__ROLE__ROLE_DECODE)
        return error_set(err, STATUS_INVALID, "the worker has the unknown role %d",
                         (int)message->role);
    if (!message->incarnation)
        return error_set(err, STATUS_INVALID, "the worker's incarnation is 0");
    struct worker_info read = {
        .role = message->role == BATON__WORKER__V1__ROLE__ROLE_PREFILL ? ROLE_PREFILL : ROLE_DECODE,
        .incarnation = message->incarnation,
        .model_hash = message->model_hash,
        .layout_hash = message->layout_hash,
        .numerics_id = message->numerics_id,
        .process_id = message->process_id,
        .max_sequences = message->max_sequences,
        .config_hash = message->config_hash,
        .tokenizer_hash = message->tokenizer_hash,
        .started_ms = message->started_ms < INT64_MAX ? message->started_ms : 0,
        .protocol_least = theirs.least,
        .protocol_newest = theirs.newest,
    };
    TRY(read_word("name", message->name, true, read.name, sizeof read.name, err));
    TRY(read_word("address", message->address, true, read.address, sizeof read.address, err));
    TRY(read_word("model", message->model, true, read.model, sizeof read.model, err));
    TRY(read_word("numerics_name", message->numerics_name, false, read.numerics_name,
                  sizeof read.numerics_name, err));
    TRY(read_word("isa", message->isa, false, read.isa, sizeof read.isa, err));
    TRY(read_word("metrics_address", message->metrics_address, false, read.metrics_address,
                  sizeof read.metrics_address, err));
    TRY(read_number("block_tokens", message->block_tokens, &read.block_tokens, err));
    TRY(read_number("block_count", message->block_count, &read.block_count, err));
    TRY(read_number("context", message->context, &read.context, err));
    TRY(read_number("vocab", message->vocab, &read.vocab, err));
    *info = read;
    return STATUS_OK;
}
