/* Files of packed weights (packed_plan.h): written whole or not at all, and mapped, so that all
 * processes of a machine that serve one model share one copy in memory. Outside bytes: what a
 * header says is compared, never followed, and every byte of the data has to have its checksum
 * before any is used. A file that somebody truncates while it is mapped ends the process (SIGBUS);
 * we never do, a new one takes the place of the old by its name.
 *
 * Owner: the step thread. Failures: one sentence that starts with the path. */
#ifndef BATON_ENGINE_MODEL_PACKED_FILE_H
#define BATON_ENGINE_MODEL_PACKED_FILE_H

#include "common/engine/model/packed_plan.h"

struct load_progress;

struct packed_map {
    char *data; /* read only, at a 2 MiB boundary; NULL: nothing is mapped */
    uint64_t bytes;
    void *region; /* with what alignment took */
    size_t region_bytes;
};

/* STATUS_NOT_FOUND: there is none. STATUS_CORRUPT, STATUS_INVALID: not what is expected
 * (packed_header_check), or a piece without its checksum. The data is read once, by all compute
 * threads of `kernels`. */
enum status packed_file_map(const char *path, const struct packed_header *expected,
                            struct kernels *kernels, struct load_progress *progress,
                            struct packed_map *map, struct error *err) WARN_UNUSED;
void packed_file_unmap(struct packed_map *map);

/* data: of header->data_bytes, as the plan lays it out. There whole or not at all (whole_file.h);
 * STATUS_UNAVAILABLE: another process writes it just now. On failure the old file, if there is one,
 * stays, and no other. */
enum status packed_file_write(const char *path, const struct packed_header *header,
                              const char *data, struct load_progress *progress,
                              struct error *err) WARN_UNUSED;

#endif
