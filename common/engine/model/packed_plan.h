/* What a file of packed weights must be, byte for byte, but for its checksums: PURE.
 *
 *     header       struct packed_header, the checksums of the data's pieces, a checksum of all before it
 *     from 2 MiB boundary on: the packed weights of each linear layer, each at a page boundary; zeros between and behind them
 *
 * A reader computes the plan from the model it wants to run and takes no file whose header says
 * anything else: nothing in the file steers what is read. So a file of another model, other source
 * files, another version, packing or weight type is not "converted", but refused. Checksums are
 * XXH3 with 64 bits: they find what disks, copies and editors do, not what somebody does on
 * purpose, who could as well change the model. Little endian. */
#ifndef BATON_ENGINE_MODEL_PACKED_PLAN_H
#define BATON_ENGINE_MODEL_PACKED_PLAN_H

#include "common/base/status.h"
#include "kernels/kernels.h"

#define PACKED_FORMAT_VERSION 1
#define PACKED_ALIGN_BYTES    ((uint64_t)2 << 20) /* of the data: so it can be mapped by huge pages */
#define PACKED_PIECE_BYTES                                                                         \
    ((uint64_t)8 << 20) /* of data, with a checksum of its own; the last is shorter */
#define PACKED_MAX_SECTIONS 16384
#define PACKED_MAX_BYTES    ((uint64_t)1 << 42) /* of the data */

/* Whose packed weights. */
struct packed_identity {
    char packing[32]; /* kernels_info.packing, zeros behind */
    /* KERNELS_VERSION; size, mtime and checksum of the header of each file of weights, by name. */
    uint64_t sources_hash;
    uint64_t model_hash; /* safetensors_hash: also samples of every tensor */
};

struct packed_header {
    char magic[8];
    uint32_t version, header_bytes; /* with all checksums */
    struct packed_identity identity;
    uint64_t plan_hash; /* type, shape and place of each section */
    uint64_t data_offset, data_bytes;
    uint64_t piece_count;
};

/* One linear layer. */
struct packed_section {
    enum weight_type type;
    uint32_t n, k;
    uint64_t offset, bytes; /* in the data */
};

struct packed_plan {
    struct packed_section *sections; /* [section_count], ours */
    uint32_t section_count, section_capacity;
    uint64_t data_bytes; /* so far; with the last section's end rounded up */
};

/* STATUS_LIMIT: too many, too large, or no memory. */
enum status packed_plan_add(struct packed_plan *plan, enum weight_type type, uint32_t n, uint32_t k,
                            uint64_t bytes) WARN_UNUSED;
void packed_plan_deinit(struct packed_plan *plan);

/* The header that a file of this plan has. */
struct packed_header packed_plan_header(const struct packed_plan *plan,
                                        const struct packed_identity *identity);
uint64_t packed_piece_bytes(const struct packed_header *header, uint64_t piece);
/* Of the header with its checksums: what header_bytes says. */
#define PACKED_HEADER_BYTES(pieces)                                                                \
    (sizeof(struct packed_header) + ((pieces) + 1) * sizeof(uint64_t))

/* Are these bytes, the first of a file of `file_bytes`, the expected header, undamaged?
 * `byte_count` may be less than header_bytes: then not. STATUS_CORRUPT, or STATUS_INVALID where it
 * is a sound header of something else; the sentence says what is wrong. */
enum status packed_header_check(const struct packed_header *expected, const void *bytes,
                                size_t byte_count, uint64_t file_bytes,
                                struct error *err) WARN_UNUSED;

#endif
