#include "common/base/arena.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 4096
#define ALIGNMENT   16

struct arena_chunk {
    struct arena_chunk *next;
    size_t capacity;
    _Alignas(ALIGNMENT) unsigned char data[];
};

void arena_init(struct arena *arena, size_t limit_bytes)
{
    *arena = (struct arena){.limit_bytes = limit_bytes};
}

void arena_deinit(struct arena *arena)
{
    while (arena->head) {
        struct arena_chunk *next = arena->head->next;
        free(arena->head);
        arena->head = next;
    }
    arena_init(arena, arena->limit_bytes);
}

void *arena_take(struct arena *arena, size_t bytes)
{
    if (bytes > arena->limit_bytes)
        return NULL;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!arena->head || arena->head->capacity - arena->used_bytes < bytes) {
        size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        if (capacity > arena->limit_bytes - arena->total_bytes)
            capacity = bytes;
        if (capacity > arena->limit_bytes - arena->total_bytes)
            return NULL;
        struct arena_chunk *chunk = calloc(1, sizeof *chunk + capacity);
        if (!chunk)
            return NULL;
        chunk->next = arena->head;
        chunk->capacity = capacity;
        arena->head = chunk;
        arena->used_bytes = 0;
        arena->total_bytes += capacity;
    }
    void *memory = arena->head->data + arena->used_bytes;
    arena->used_bytes += bytes;
    return memory;
}

void *arena_copy(struct arena *arena, const void *source, size_t bytes)
{
    void *copy = arena_take(arena, bytes);
    if (copy && bytes)
        memcpy(copy, source, bytes);
    return copy;
}

char *arena_copy_str(struct arena *arena, const char *text)
{
    return arena_copy(arena, text, strlen(text) + 1);
}
