/* Answers for each schema of a file, so that test_schemas.py can check them with the package
 * jsonschema.
 *
 *     generate_answers TOKENIZER SCHEMAS SEEDS MAX_TOKENS
 *
 * SCHEMAS has a schema a line. Prints a line for each answer, tab-separated: line number, seed,
 * what became of it (complete, cut or stuck), tokens, and the text as JSON; for a schema that is
 * refused: line number, -, refused, 0, the sentence. */
#include "common/base/json/json_quote.h"
#include "tests/constrain/generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print(size_t line, const char *seed, const char *outcome, uint32_t tokens,
                  const char *text, size_t length)
{
    struct str quoted;
    str_init(&quoted, 8 * length + 16);
    json_quote(&quoted, text, length);
    printf("%zu\t%s\t%s\t%u\t%s\n", line, seed, outcome, tokens, quoted.data);
    str_deinit(&quoted);
}

static void answer(const struct vocabulary_source *source, size_t line,
                   const struct constraint *constraint, uint64_t seeds, uint32_t max_tokens)
{
    struct constraint_masks *masks = constraint_masks_create(constraint, source->trie, 256);
    for (uint64_t seed = 0; seed < seeds; seed++) {
        char name[24];
        struct str text;
        str_init(&text, 1 << 20);
        struct generated result =
            generate(source, constraint, masks, line * 1000 + seed, max_tokens, &text);
        snprintf(name, sizeof name, "%" PRIu64, seed);
        print(line, name,
              result.stuck      ? "stuck"
              : result.complete ? "complete"
                                : "cut",
              result.tokens, text.data, text.length);
        str_deinit(&text);
    }
    constraint_masks_destroy(masks);
}

int main(int argc, char **argv)
{
    struct vocabulary_source source;
    struct str schemas;
    if (argc != 5) {
        fprintf(stderr, "usage: %s TOKENIZER SCHEMAS SEEDS MAX_TOKENS\n", argv[0]);
        return 2;
    }
    vocabulary_source_open(&source, argv[1], 0);
    str_init(&schemas, 16 << 20);
    read_whole(argv[2], &schemas);
    size_t line = 0;
    for (char *at = schemas.data, *end; (end = strchr(at, '\n')); at = end + 1, line++) {
        struct constraint *constraint;
        struct error err = {""};
        if (constraint_compile(CONSTRAINT_JSON_SCHEMA, at, (size_t)(end - at), &constraint, &err) !=
            STATUS_OK) {
            print(line, "-", "refused", 0, err.text, strlen(err.text));
            continue;
        }
        answer(&source, line, constraint, strtoull(argv[3], NULL, 10),
               (uint32_t)strtoul(argv[4], NULL, 10));
        constraint_destroy(constraint);
    }
    str_deinit(&schemas);
    vocabulary_source_close(&source);
    return 0;
}
