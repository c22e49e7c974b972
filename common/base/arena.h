/* A bump allocator with a limit. It serves what one request allocates, and one call frees all of
 * it. Owner: one thread. arena_take returns zeroed memory aligned to 16 bytes, or NULL at the
 * limit. */
#ifndef BATON_BASE_ARENA_H
#define BATON_BASE_ARENA_H

#include <stddef.h>

struct arena_chunk;
struct arena {
    struct arena_chunk *head;
    size_t used_bytes;  /* in the newest chunk */
    size_t total_bytes; /* in all chunks */
    size_t limit_bytes;
};

void arena_init(struct arena *arena, size_t limit_bytes);
void arena_deinit(struct arena *arena);
void *arena_take(struct arena *arena, size_t bytes);
void *arena_copy(struct arena *arena, const void *source, size_t bytes);
char *arena_copy_str(struct arena *arena, const char *text);

#endif
