/* Answers for each schema of a file, so that test_schemas.py can check them with the package
 * jsonschema.
 *
 *     generate_answers TOKENIZER SCHEMAS SEEDS MAX_TOKENS [endless]
 *     generate_answers SCHEMAS ANSWERS
 *
 * SCHEMAS has a schema a line. Prints a line for each answer, tab-separated: line number, seed,
 * what became of it (complete, cut or stuck), tokens, and the text as JSON; for a schema that is
 * refused: line number, -, refused, 0, the sentence. `endless`: an answer ends nothing as long as
 * it may go on.
 *
 * The second form judges given answers: ANSWERS has, a line, the number of a schema's line, a tab
 * and a text of JSON. Prints 1 or 0 for each: whether the whole text is taken. */
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

static bool is_taken(const char *schema, size_t schema_length, const char *text, size_t length)
{
    struct constraint *constraint;
    struct constraint_state state;
    struct error err = {""};
    if (constraint_compile(CONSTRAINT_JSON_SCHEMA, schema, schema_length, &constraint, &err) !=
        STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    constraint_state_init(constraint, &state);
    bool taken = constraint_state_take(constraint, &state, text, length) &&
                 constraint_state_may_end(constraint, &state);
    constraint_destroy(constraint);
    return taken;
}

static int judge(const char *schemas_path, const char *answers_path)
{
    struct str schemas, answers;
    str_init(&schemas, 16 << 20);
    str_init(&answers, 16 << 20);
    read_whole(schemas_path, &schemas);
    read_whole(answers_path, &answers);
    for (char *at = answers.data, *end; (end = strchr(at, '\n')); at = end + 1) {
        char *text, *schema = schemas.data;
        for (unsigned long line = strtoul(at, &text, 10); line; line--)
            schema = strchr(schema, '\n') + 1;
        text++; /* the tab */
        puts(is_taken(schema, strcspn(schema, "\n"), text, (size_t)(end - text)) ? "1" : "0");
    }
    str_deinit(&schemas);
    str_deinit(&answers);
    return 0;
}

int main(int argc, char **argv)
{
    struct vocabulary_source source;
    struct str schemas;
    bool endless = argc == 6 && !strcmp(argv[5], "endless");
    if (argc == 3)
        return judge(argv[1], argv[2]);
    if (argc != 5 && !endless) {
        fprintf(stderr,
                "usage: %s TOKENIZER SCHEMAS SEEDS MAX_TOKENS [endless]\n"
                "       %s SCHEMAS ANSWERS\n",
                argv[0], argv[0]);
        return 2;
    }
    vocabulary_source_open(&source, argv[1], 0);
    source.endless = endless;
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
