/* The main of a program that holds several test files:
 *
 *     PROGRAM                     runs every test of every file
 *     PROGRAM --list              prints FILE.TEST of each test, one a line
 *     PROGRAM FILE [WORD...]      runs the tests of one file; the words go to its main
 *     PROGRAM FILE.TEST           runs one test, between the setup and teardown of its group
 *
 * Exits with 1 if a test failed or if no test has that name. A program of one file hands all other
 * words to the main of that file: a test starts its own program anew with them. */
#include "tests/runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The cmocka groups of the files: test_file.h renames their calls of _cmocka_run_group_tests. */
int test_file_run_group(const char *group, const struct CMUnitTest *tests, size_t count,
                        CMFixtureFunction setup, CMFixtureFunction teardown);

static const struct test_file *file; /* its main runs */
static bool lists;
static const char *wanted; /* the one test to run; NULL: all */
static size_t found;

int test_file_run_group(const char *group, const struct CMUnitTest *tests, size_t count,
                        CMFixtureFunction setup, CMFixtureFunction teardown)
{
    if (lists) {
        for (size_t i = 0; i < count; i++)
            printf("%s.%s\n", file->name, tests[i].name);
        return 0;
    }
    struct CMUnitTest *chosen = malloc(count * sizeof *chosen);
    size_t chosen_count = 0;
    for (size_t i = 0; chosen && i < count; i++)
        if (!wanted || !strcmp(tests[i].name, wanted))
            chosen[chosen_count++] = tests[i];
    found += chosen_count;
    int failures =
        chosen_count ? _cmocka_run_group_tests(group, chosen, chosen_count, setup, teardown) : 0;
    free(chosen);
    return failures;
}

static int run(const struct test_file *which, int argc, char **argv)
{
    file = which;
    return which->main(argc, argv);
}

static const struct test_file *find(const char *name)
{
    size_t length = strcspn(name, ".");
    for (const struct test_file *each = TEST_FILES; each->name; each++)
        if (strlen(each->name) == length && !strncmp(each->name, name, length))
            return each;
    return NULL;
}

int main(int argc, char **argv)
{
    const struct test_file *named = argc > 1 ? find(argv[1]) : NULL;
    lists = argc == 2 && !strcmp(argv[1], "--list");
    if (argc > 1 && !named && !lists) {
        if (!TEST_FILES[1].name)
            return run(&TEST_FILES[0], argc, argv);
        fprintf(stderr, "%s has no test file '%s' (--list prints all tests)\n", argv[0], argv[1]);
        return 1;
    }
    int failures = 0;
    if (named) {
        wanted = strchr(argv[1], '.') ? strchr(argv[1], '.') + 1 : NULL;
        argv[1] = argv[0];
        failures = run(named, argc - 1, argv + 1);
    } else {
        for (const struct test_file *each = TEST_FILES; each->name; each++)
            failures += run(each, 1, argv) != 0;
    }
    if (wanted && !found) {
        fprintf(stderr, "%s has no test '%s' (--list prints all tests)\n", named->name, wanted);
        return 1;
    }
    return failures ? 1 : 0;
}
