/* JSON Schema (2020-12, and the older forms of drafts 4 to 7) as rules of a grammar. Every text
 * that the grammar takes is valid. A keyword that can't be kept exactly is refused with its JSON
 * pointer. docs/api.md lists the keywords and how they are read. Plain memory; one thread; the
 * parsed schema is needed only while compiling. */
#ifndef BATON_LANGUAGE_CONSTRAIN_SCHEMA_H
#define BATON_LANGUAGE_CONSTRAIN_SCHEMA_H

#include "common/base/json/json.h"
#include "common/base/status.h"
#include "common/language/constrain/grammar.h"

#define SCHEMA_MAX_DEPTH  64   /* depth of the schema's text, and of chains of $ref and allOf */
#define SCHEMA_MAX_LENGTH 8192 /* minLength; a larger maxLength counts as this */
/* Limit of minItems; a larger maxItems or maxProperties counts as this. */
#define SCHEMA_MAX_ITEMS        1024
#define SCHEMA_MAX_NAME_BYTES   512 /* a property's name */
#define SCHEMA_MAX_ALTERNATIVES 512 /* alternatives of one value: products of anyOf and oneOf */

struct schema_compiler;

/* The compiler keeps the paths for error sentences about its rules: destroy it last. */
struct schema_compiler *schema_compiler_create(struct grammar *grammar);
void schema_compiler_destroy(struct schema_compiler *compiler); /* NULL is fine */

/* Each of these adds rules to the grammar; *rule is the rule of a whole document. STATUS_INVALID,
 * STATUS_UNSUPPORTED or STATUS_LIMIT: the sentence starts with a JSON pointer. */

enum status schema_compile(struct schema_compiler *compiler, const struct json_value *schema,
                           uint32_t *rule, struct error *err) WARN_UNUSED;
/* Takes only objects: the arguments of the tool `name`, which sentences show as the pointer's root.
 * The schema is a document of its own. Name and schema must outlive the compiler. */
enum status schema_compile_arguments(struct schema_compiler *compiler, const char *name,
                                     const struct json_value *schema, uint32_t *rule,
                                     struct error *err) WARN_UNUSED;
/* Takes any JSON object. */
enum status schema_compile_any_object(struct schema_compiler *compiler, uint32_t *rule,
                                      struct error *err) WARN_UNUSED;
/* Writes the JSON pointer of the schema that a rule was made for, by the rule's note. Truncates it
 * to `size` bytes. */
void schema_pointer(const struct schema_compiler *compiler, uint32_t note, char *text, size_t size);

#endif
