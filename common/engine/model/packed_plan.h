/* The layout of a file of packed weights, byte for byte, except its checksums. PURE.
 *
 *     header  struct packed_header, the checksums of the data's pieces, a checksum of all before
 *     data    from a 2 MiB boundary on: the packed weights of each linear layer, each at a page
 *             boundary; zeros between and behind them
 *
 * A reader computes the plan from the model that it wants to run, and refuses a file with any other
 * header: nothing in the file steers the reading. So a file of another model, other source files,
 * another version, packing or weight type is refused, not converted. Checksums are XXH3 with 64
 * bits. They find damage by disks, copies and editors, not an attacker, which could as well change
 * the model. Little endian. */
#ifndef BATON_ENGINE_MODEL_PACKED_PLAN_H
#define BATON_ENGINE_MODEL_PACKED_PLAN_H

#include "common/base/status.h"
#include "kernels/kernels.h"

#define PACKED_FORMAT_VERSION 1
#define PACKED_ALIGN_BYTES    ((uint64_t)2 << 20) /* the data's: huge pages can map it */
#define PACKED_PIECE_BYTES    ((uint64_t)8 << 20) /* has its own checksum; the last is shorter */
#define PACKED_MAX_SECTIONS   16384
#define PACKED_MAX_BYTES      ((uint64_t)1 << 42) /* data */

/* The model and the form of packed weights. */
struct packed_identity {
    char packing[32]; /* kernels_info.packing, then zeros */
    /* KERNELS_VERSION, and for each file of weights its name, size, mtime and header checksum */
    uint64_t sources_hash;
    uint64_t model_hash; /* safetensors_hash: samples of every tensor */
};

struct packed_header {
    char magic[8];
    uint32_t version, header_bytes; /* header_bytes includes all checksums */
    struct packed_identity identity;
    uint64_t plan_hash; /* over type, shape and place of each section */
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
    uint64_t data_bytes; /* so far, with the last section's end rounded up */
};

/* STATUS_LIMIT: too many sections, too many bytes, or no memory. */
enum status packed_plan_add(struct packed_plan *plan, enum weight_type type, uint32_t n, uint32_t k,
                            uint64_t bytes) WARN_UNUSED;
void packed_plan_deinit(struct packed_plan *plan);

/* Returns the header of a file of this plan. */
struct packed_header packed_plan_header(const struct packed_plan *plan,
                                        const struct packed_identity *identity);
uint64_t packed_piece_bytes(const struct packed_header *header, uint64_t piece);
/* The size of the header with its checksums: header_bytes. */
#define PACKED_HEADER_BYTES(pieces)                                                                \
    (sizeof(struct packed_header) + ((pieces) + 1) * sizeof(uint64_t))

/* Checks the first bytes of a file of `file_bytes` against the expected header. STATUS_CORRUPT:
 * it is damaged, or byte_count is less than its header_bytes. STATUS_INVALID: a sound header of
 * something else. The sentence says what is wrong. */
enum status packed_header_check(const struct packed_header *expected, const void *bytes,
                                size_t byte_count, uint64_t file_bytes,
                                struct error *err) WARN_UNUSED;

#endif
