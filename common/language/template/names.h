/* The names of a template, each kept once, so that equal names are one pointer. */
#ifndef BATON_LANGUAGE_TEMPLATE_NAMES_H
#define BATON_LANGUAGE_TEMPLATE_NAMES_H

#include <stddef.h>

struct arena;
struct name;

#define NAMES_BUCKETS 256

struct names {
    struct name *buckets[NAMES_BUCKETS];
};

/* The one pointer for this name, NUL-terminated; NULL where the arena is full. */
const char *names_intern(struct names *names, struct arena *arena, const char *bytes,
                         size_t length);
const char *names_find(const struct names *names, const char *name); /* NULL: not in the template */

#endif
