/* The table of a test program: which files it holds. tests/CMakeLists.txt writes it. */
#pragma once

struct test_file {
    const char *name; /* test_sink */
    int (*main)(int argc, char **argv);
};

/* Ends with a row of nulls. */
extern const struct test_file TEST_FILES[];
