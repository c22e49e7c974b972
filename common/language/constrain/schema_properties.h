/* What a schema says of an object's properties: which names there are, in order, which must be
 * there, and what else may be. schema_object.c makes edges of it. Internal to this folder; the
 * compiler's thread. */
#ifndef BATON_LANGUAGE_CONSTRAIN_SCHEMA_PROPERTIES_H
#define BATON_LANGUAGE_CONSTRAIN_SCHEMA_PROPERTIES_H

#include "common/language/constrain/schema_compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A property that the schema names. */
struct schema_property {
    const char *name;
    uint32_t rule, path;
    bool required;
};

/* Properties come in the order in which the schema names them, then those that it doesn't name. */
struct schema_properties {
    struct schema_compiler *compiler;
    const struct schema_facts *facts;
    struct schema_property *list;
    size_t count, capacity, required_count;
    bool open;                  /* other names may follow */
    uint32_t rule;              /* of their values */
    struct text_pattern *names; /* what they must match; NULL */
    uint32_t names_path;
    const char *names_keyword;
};

/* Compiler and facts are there, all else is 0. Fails with the keyword that can't be kept. To be
 * deinited also then. */
enum status schema_properties_read(struct schema_properties *object) WARN_UNUSED;
void schema_properties_deinit(struct schema_properties *object);

#endif
