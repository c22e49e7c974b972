#include "tests/constrain/adversarial.h"

#include "common/base/assert.h"
#include "common/base/str.h"

#include <stdlib.h>
#include <string.h>

#define EXPONENTIAL "(a|b)*a(a|b){11}" /* 2^12 states of its automaton */

/* Built from these, in order. */
struct shape {
    const char *name;
    enum constraint_kind kind;
    const char *before, *part, *between;
    size_t count;
    const char *after;
};

static const struct shape to_compile[] = {
    {"enums, each with a pattern", CONSTRAINT_JSON_SCHEMA, "{\"properties\":{",
     "\"p#\":{\"enum\":[\"a\"],\"pattern\":\"" EXPONENTIAL "\"}", ",", 1800, "}}"},
    {"patterns, each for itself", CONSTRAINT_JSON_SCHEMA, "{\"properties\":{",
     "\"p#\":{\"type\":\"string\",\"pattern\":\"^(a|b)*#(a|b){11}$\"}", ",", 1800, "}}"},
    {"small patterns", CONSTRAINT_JSON_SCHEMA, "{\"properties\":{",
     "\"p#\":{\"enum\":[\"a\"],\"pattern\":\"a\"}", ",", 3000, "}}"},
    {"one pattern in each of many alternatives", CONSTRAINT_JSON_SCHEMA,
     "{\"type\":\"string\",\"pattern\":\"" EXPONENTIAL "\",\"anyOf\":[", "{\"minLength\":#}", ",",
     512, "]}"},
    {"repeats of nothing", CONSTRAINT_REGEX, "", "(((){4096}){4096}){8}", "", 1, "a"},
    {"repeats of nothing, many times", CONSTRAINT_REGEX, "", "(((){4096}){4096}){8}", "", 300, "a"},
    {"repeats written out", CONSTRAINT_JSON_SCHEMA, "{\"properties\":{",
     "\"p#\":{\"type\":\"string\",\"pattern\":\"(a{4000}){15}\"}", ",", 1800, "}}"},
    {"states of many places", CONSTRAINT_REGEX, "(a|b)*", "(a|b)?", "", 900, ""},
    {"states of very many places", CONSTRAINT_REGEX, "", "((a|b){0,120}c?){120}", "", 1, ""},
    {"many classes of characters", CONSTRAINT_REGEX, "(", "[\\u{1#}-\\u{9#}]{0,9}", "|", 300, ")*"},
    {"many sets of characters", CONSTRAINT_REGEX, "", "[a-b\\u{1#}]", "", 540, ""},
    {"long sets of characters", CONSTRAINT_REGEX, "([", "\\S", "", 3000, "]a){200}"},
    {"an enum of numbers", CONSTRAINT_JSON_SCHEMA, "{\"enum\":[", "#", ",", 22000, "]}"},
    {"an enum of equal objects", CONSTRAINT_JSON_SCHEMA, "{\"enum\":[", "{\"a\":[[[1]],2]}", ",",
     7000, "]}"},
    {"an enum of two large objects", CONSTRAINT_JSON_SCHEMA,
     "{\"allOf\":[{\"enum\":[1]},{\"enum\":[1]}],\"enum\":[1,{", "\"k#\":1", ",", 9000, "}]}"},
    {"choices between values", CONSTRAINT_JSON_SCHEMA, "{\"oneOf\":[", "{\"const\":#}", ",", 7000,
     "]}"},
    {"tags that tell nothing apart", CONSTRAINT_JSON_SCHEMA, "{\"oneOf\":[{\"properties\":{",
     "\"#\":{\"const\":1}", ",", 6500, "}},{}]}"},
    {"a pattern as large as is taken", CONSTRAINT_JSON_SCHEMA,
     "{\"type\":\"string\",\"pattern\":\"", "(a|b)*a(a|b){13}$", "", 1, "\"}"},
    {"properties", CONSTRAINT_JSON_SCHEMA, "{\"properties\":{", "\"p#\":{}", ",", 8000, "}}"},
    {"required names", CONSTRAINT_JSON_SCHEMA, "{\"required\":[", "\"p#\"", ",", 14000, "]}"},
    {"parts of one value", CONSTRAINT_JSON_SCHEMA, "{\"allOf\":[", "{\"$ref\":\"#/$defs/a\"}", ",",
     5500, "],\"$defs\":{\"a\":{\"type\":\"null\"}}}"},
    {"a map, counted, with a pattern", CONSTRAINT_JSON_SCHEMA,
     "{\"maxProperties\":1024,\"additionalProperties\":false,\"patternProperties\":{\"",
     EXPONENTIAL, "", 1, "\":{}}}"},
    {"maps in maps", CONSTRAINT_JSON_SCHEMA, "{\"properties\":{",
     "\"p#\":{\"maxProperties\":1024,\"additionalProperties\":{\"const\":#}}", ",", 1000, "}}"},
    {"lists of alternatives", CONSTRAINT_JSON_SCHEMA, "{\"properties\":{",
     "\"p#\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":\"array\",\"items\":{\"const\":#},"
     "\"maxItems\":1024}]}",
     ",", 900, "},\"$defs\":{\"a\":{\"type\":\"object\"}}}"},
};

/* Long walks, by a class of characters, a counted run or many words at once: no set of plain tokens
 * is ready for them. */
static const struct shape to_mask[] = {
    {"any text", CONSTRAINT_REGEX, "", ".*", "", 1, ""},
    {"letters only", CONSTRAINT_REGEX, "", "[a-z ]*", "", 1, ""},
    {"no e", CONSTRAINT_REGEX, "", "[^e]*", "", 1, ""},
    {"no vowel after another", CONSTRAINT_REGEX, "", "([^aeiou]|[aeiou][^aeiou])*", "", 1, ""},
    {"each second one a letter", CONSTRAINT_REGEX, "", "([a-z].)*", "", 1, ""},
    {"every third character is no space", CONSTRAINT_REGEX, "", "(..[^ ])*", "", 1, ""},
    {"an even count of e", CONSTRAINT_REGEX, "", "([^e]*e[^e]*e)*[^e]*", "", 1, ""},
    {"an e, far from the end", CONSTRAINT_REGEX, "", ".*e.{9}", "", 1, ""},
    {"counted to a length", CONSTRAINT_REGEX, "", ".{200,300}", "", 1, ""},
    {"no th, no he", CONSTRAINT_REGEX, "", "([^th]|t+[^th]|h+[^eth])*", "", 1, ""},
    {"all bytes but one letter, in JSON", CONSTRAINT_JSON_SCHEMA,
     "{\"type\":\"string\",\"pattern\":\"", "^([^e]|e[^e])*$", "", 1, "\"}"},
    {"a pattern anywhere", CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"",
     "the end|THE END|e.a.e", "", 1, "\"}"},
    {"a pattern of lengths", CONSTRAINT_JSON_SCHEMA,
     "{\"type\":\"string\",\"minLength\":40,\"maxLength\":400,\"pattern\":\"", "[^ ]{3}e[^q]{2}",
     "", 1, "\"}"},
    {"words not to be used", CONSTRAINT_REGEX, "(", "[^a-z][a-z]{#,9}", "|", 9, ")*"},
};

char *adversarial_repeated(const char *before, const char *part, const char *between, size_t count,
                           const char *after)
{
    struct str text;
    str_init(&text, 4u << 20);
    str_add(&text, before);
    for (size_t i = 0; i < count; i++) {
        str_add(&text, i ? between : "");
        for (const char *c = part; *c; c++)
            if (*c == '#' && c[1] != '/')
                str_addf(&text, "%zu", i);
            else
                str_append(&text, c, 1);
    }
    str_add(&text, after);
    ASSERT(!text.truncated);
    return text.data;
}

static size_t make(const struct shape *shapes, size_t count, struct adversarial *list)
{
    for (size_t i = 0; i < count; i++) {
        const struct shape *shape = &shapes[i];
        list[i] =
            (struct adversarial){shape->name, shape->kind,
                                 adversarial_repeated(shape->before, shape->part, shape->between,
                                                      shape->count, shape->after)};
    }
    return count;
}

#define COUNT(shapes) (sizeof(shapes) / sizeof *(shapes))
_Static_assert(COUNT(to_compile) <= ADVERSARIAL_MAX && COUNT(to_mask) <= ADVERSARIAL_MAX, "");

size_t adversarial_to_compile(struct adversarial list[ADVERSARIAL_MAX])
{
    return make(to_compile, COUNT(to_compile), list);
}

size_t adversarial_to_mask(struct adversarial list[ADVERSARIAL_MAX])
{
    return make(to_mask, COUNT(to_mask), list);
}

void adversarial_free(struct adversarial *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i].text);
}
