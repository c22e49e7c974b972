/* The build includes this before anything else in every file of a test program
 * (baton_test_program in tests/CMakeLists.txt). The file's main becomes TEST_FILE_MAIN, which
 * runner.c calls. Its cmocka groups go through runner.c, which picks tests by name. */
#pragma once

int TEST_FILE_MAIN(int argc, char **argv);

#define main(...)                                                                                  \
    TEST_FILE_MAIN(int argc __attribute__((unused)), char **argv __attribute__((unused)))
#define _cmocka_run_group_tests test_file_run_group
