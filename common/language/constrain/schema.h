/* JSON Schema (2020-12, and what drafts 4 to 7 wrote differently) to a grammar. Every text that the
 * grammar takes is valid; what can't be kept exactly is refused, naming the keyword by its JSON
 * pointer. docs/api.md says what is taken and how it is read. Plain memory; one thread; the parsed
 * schema is needed while compiling only. */
#ifndef BATON_LANGUAGE_CONSTRAIN_SCHEMA_H
#define BATON_LANGUAGE_CONSTRAIN_SCHEMA_H

#include "common/base/json/json.h"
#include "common/base/status.h"
#include "common/language/constrain/grammar.h"

#define SCHEMA_MAX_DEPTH        64   /* of the schema's own text, and of chains of $ref and allOf */
#define SCHEMA_MAX_LENGTH       8192 /* minLength; a larger maxLength counts as this */
#define SCHEMA_MAX_ITEMS        1024 /* minItems; a larger maxItems or maxProperties counts as this */
#define SCHEMA_MAX_NAME_BYTES   512 /* of a property */
#define SCHEMA_MAX_ALTERNATIVES 512 /* of one value: products of anyOf and oneOf */

struct schema_compiler;

/* The compiler holds what messages need after compiling; destroy it last. */
struct schema_compiler *schema_compiler_create(struct grammar *grammar);
void schema_compiler_destroy(struct schema_compiler *compiler); /* NULL is fine */

/* Adds the rules for the schema; *rule is that of a whole document. */
enum status schema_compile(struct schema_compiler *compiler, const struct json_value *schema,
                           uint32_t *rule, struct error *err) WARN_UNUSED;
/* Objects of a schema that is a document of its own, as the arguments of the tool `name`: messages
 * call its root so. The name and the schema live as long as the compiler. */
enum status schema_compile_arguments(struct schema_compiler *compiler, const char *name,
                                     const struct json_value *schema, uint32_t *rule,
                                     struct error *err) WARN_UNUSED;
/* Any JSON object. */
enum status schema_compile_any_object(struct schema_compiler *compiler, uint32_t *rule,
                                      struct error *err) WARN_UNUSED;
/* The JSON pointer of what a rule was made for, by its note. Truncated to the size. */
void schema_pointer(const struct schema_compiler *compiler, uint32_t note, char *text, size_t size);

#endif
