/* The main of a program that holds several test files:
 *
 *     PROGRAM                     runs every test of every file
 *     PROGRAM --list              prints FILE.TEST of each test, one a line
 *     PROGRAM FILE                runs every test of one file
 *     PROGRAM FILE WORD...        calls the main of that file with the words
 *     PROGRAM FILE.TEST           runs one test here, between the setup and teardown of its group
 *
 * Every test runs in a process of its own, a fork of one that has run no code of any file: it finds
 * the state of a fresh start, without the time that loading sixty libraries takes. The line of a
 * test is "FILE.TEST: ok", or "FILE.TEST: FAILED" and everything that it printed.
 *
 * Exits with 1 if a test failed or if no test has that name. A program of one file hands all other
 * words to the main of that file: a test starts its own program anew with them. */
#include "tests/runner.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* Calls main of `which` in a child, to list its tests or to run one, with `output` as its stdout
 * and stderr. Returns the child's status, as waitpid gives it. */
static int run_in_child(const struct test_file *which, const char *test, char **argv, FILE *output)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(fileno(output), STDOUT_FILENO) < 0 || dup2(fileno(output), STDERR_FILENO) < 0)
            _exit(1);
        lists = !test;
        wanted = test;
        exit(run(which, 1, argv));
    }
    int status = 1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

/* Copies all that was written to `output`. */
static void show(FILE *output)
{
    char part[4096];
    rewind(output);
    for (size_t n; (n = fread(part, 1, sizeof part, output)) > 0;)
        fwrite(part, 1, n, stdout);
}

/* Runs one test, FILE.TEST. Returns 1 if it failed, otherwise 0. */
static int run_case(const struct test_file *which, const char *name, char **argv)
{
    FILE *output = tmpfile();
    if (!output) {
        perror("tests/runner.c: no file for a test's output");
        return 1;
    }
    printf("%s: ", name);
    int status = run_in_child(which, strchr(name, '.') + 1, argv, output);
    puts(status ? "FAILED" : "ok");
    if (status)
        show(output);
    if (WIFSIGNALED(status))
        printf("%s was ended by a signal: %s\n", name, strsignal(WTERMSIG(status)));
    fclose(output);
    return status != 0;
}

/* Runs every test of one file. A test that is in several groups is listed once a group, and runs
 * in each of them at its first line. Returns the number that failed. */
static int run_file(const struct test_file *which, char **argv)
{
    FILE *output = tmpfile();
    if (!output || run_in_child(which, NULL, argv, output)) {
        printf("%s: its tests could not be listed\n", which->name);
        if (output)
            show(output);
        return 1;
    }
    /* No stream is open while a test runs: as it exits it would set back the place of ours. */
    char *names = NULL;
    size_t capacity = 0;
    rewind(output);
    bool any = getdelim(&names, &capacity, '\0', output) > 0;
    fclose(output);
    int failures = !any;
    for (char *name = any ? strtok(names, "\n") : NULL; name; name = strtok(NULL, "\n")) {
        bool ran = false; /* strtok has ended each earlier name with a zero */
        for (char *before = names; before < name && !ran; before += strlen(before) + 1)
            ran = !strcmp(before, name);
        if (!ran)
            failures += run_case(which, name, argv);
    }
    free(names);
    return failures;
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
    const char *test = named ? strchr(argv[1], '.') : NULL;
    if (test || argc > 2) {
        wanted = test ? test + 1 : NULL;
        argv[1] = argv[0];
        int failures = run(named, argc - 1, argv + 1);
        if (wanted && !found) {
            fprintf(stderr, "%s has no test '%s' (--list prints all tests)\n", named->name, wanted);
            return 1;
        }
        return failures ? 1 : 0;
    }
    int failures = 0;
    for (const struct test_file *each = TEST_FILES; each->name; each++) {
        if (lists)
            failures += run(each, 1, argv) != 0;
        else if (!named || named == each)
            failures += run_file(each, argv);
    }
    return failures ? 1 : 0;
}
