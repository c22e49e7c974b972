#include "common/language/template/names.h"

#include "common/base/arena.h"
#include "common/base/str.h"

#include <string.h>

struct name {
    struct name *next;
    size_t length;
    char text[];
};

static size_t bucket_of(const char *bytes, size_t length)
{
    return hash_bytes(bytes, length, HASH_SEED) % NAMES_BUCKETS;
}

static struct name *look(const struct names *names, const char *bytes, size_t length)
{
    struct name *name = names->buckets[bucket_of(bytes, length)];
    while (name && (name->length != length || memcmp(name->text, bytes, length) != 0))
        name = name->next;
    return name;
}

const char *names_intern(struct names *names, struct arena *arena, const char *bytes, size_t length)
{
    struct name *name = look(names, bytes, length);
    if (name)
        return name->text;
    name = arena_take(arena, sizeof *name + length + 1);
    if (!name)
        return NULL;
    struct name **bucket = &names->buckets[bucket_of(bytes, length)];
    name->length = length;
    memcpy(name->text, bytes, length);
    name->next = *bucket;
    *bucket = name;
    return name->text;
}

const char *names_find(const struct names *names, const char *name)
{
    struct name *found = look(names, name, strlen(name));
    return found ? found->text : NULL;
}
