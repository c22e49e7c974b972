#include "common/engine/model/packed_plan.h"

#include "common/base/domain/content_hash.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC "BATONPK" /* and its NUL: eight bytes */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file has the bytes of the struct");
_Static_assert(sizeof(struct packed_header) == 16 + 48 + 32, "no padding: every byte is compared");

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

enum status packed_plan_add(struct packed_plan *plan, enum weight_type type, uint32_t n, uint32_t k,
                            uint64_t bytes)
{
    if (plan->section_count == PACKED_MAX_SECTIONS || bytes > PACKED_MAX_BYTES - plan->data_bytes)
        return STATUS_LIMIT;
    if (plan->section_count == plan->section_capacity) {
        uint32_t capacity = plan->section_capacity ? 2 * plan->section_capacity : 64;
        struct packed_section *more = realloc(plan->sections, capacity * sizeof *more);
        if (!more)
            return STATUS_LIMIT;
        plan->sections = more;
        plan->section_capacity = capacity;
    }
    plan->sections[plan->section_count++] = (struct packed_section){
        .type = type, .n = n, .k = k, .offset = plan->data_bytes, .bytes = bytes};
    plan->data_bytes += round_up(bytes, LINEAR_ALIGN_BYTES);
    return STATUS_OK;
}

void packed_plan_deinit(struct packed_plan *plan)
{
    free(plan->sections);
    *plan = (struct packed_plan){0};
}

struct packed_header packed_plan_header(const struct packed_plan *plan,
                                        const struct packed_identity *identity)
{
    uint64_t pieces = round_up(plan->data_bytes, PACKED_PIECE_BYTES) / PACKED_PIECE_BYTES;
    struct packed_header header = {.magic = MAGIC,
                                   .version = PACKED_FORMAT_VERSION,
                                   .header_bytes = (uint32_t)PACKED_HEADER_BYTES(pieces),
                                   .identity = *identity,
                                   .data_offset =
                                       round_up(PACKED_HEADER_BYTES(pieces), PACKED_ALIGN_BYTES),
                                   .data_bytes = plan->data_bytes,
                                   .piece_count = pieces};
    uint64_t hash = 0;
    for (uint32_t i = 0; i < plan->section_count; i++) {
        const struct packed_section *section = &plan->sections[i];
        const uint64_t words[] = {hash,       section->type,   section->n,
                                  section->k, section->offset, section->bytes};
        hash = content_hash(words, sizeof words);
    }
    header.plan_hash = hash;
    return header;
}

uint64_t packed_piece_bytes(const struct packed_header *header, uint64_t piece)
{
    uint64_t left = header->data_bytes - piece * PACKED_PIECE_BYTES;
    return left < PACKED_PIECE_BYTES ? left : PACKED_PIECE_BYTES;
}

/* Compares sound headers. Returns a sentence about the first difference; NULL: they are equal. */
static const char *difference(const struct packed_header *expected,
                              const struct packed_header *found)
{
    if (memcmp(found->identity.packing, expected->identity.packing, sizeof found->identity.packing))
        return "it was packed in another form";
    if (found->identity.sources_hash != expected->identity.sources_hash)
        return "the files of the model have changed since, or it was made from other files";
    if (found->identity.model_hash != expected->identity.model_hash)
        return "the weights of the model have changed since";
    if (memcmp(found, expected, sizeof *found) != 0)
        return "it has other layers";
    return NULL;
}

enum status packed_header_check(const struct packed_header *expected, const void *bytes,
                                size_t byte_count, uint64_t file_bytes, struct error *err)
{
    struct packed_header found;
    uint64_t checksum;
    if (byte_count < sizeof found)
        return error_set(err, STATUS_CORRUPT, "it is cut short: %zu bytes are no header",
                         byte_count);
    memcpy(&found, bytes, sizeof found);
    if (memcmp(found.magic, expected->magic, sizeof found.magic) != 0)
        return error_set(err, STATUS_INVALID, "it is no file of packed weights");
    if (found.version != expected->version)
        return error_set(err, STATUS_INVALID, "it is of version %u of its format, expected %u",
                         found.version, expected->version);
    if (found.header_bytes < PACKED_HEADER_BYTES(0) || found.header_bytes > byte_count)
        return error_set(err, STATUS_CORRUPT,
                         "its header is damaged or cut short: %u bytes long, %zu are there",
                         found.header_bytes, byte_count);
    size_t before = found.header_bytes - sizeof checksum;
    memcpy(&checksum, (const char *)bytes + before, sizeof checksum);
    if (checksum != content_hash(bytes, before))
        return error_set(err, STATUS_CORRUPT, "its header is damaged: the checksum is wrong");
    const char *other = difference(expected, &found);
    if (other)
        return error_set(err, STATUS_INVALID, "%s", other);
    uint64_t wanted = expected->data_offset + expected->data_bytes;
    if (file_bytes != wanted)
        return error_set(err, STATUS_CORRUPT, "it has %llu bytes, expected %llu (cut short?)",
                         (unsigned long long)file_bytes, (unsigned long long)wanted);
    return STATUS_OK;
}
