/* The table of a test program's files. tests/CMakeLists.txt writes it. */
#pragma once

struct test_file {
    const char *name; /* test_sink */
    int (*main)(int argc, char **argv);
};

/* Ends with a row of nulls. */
extern const struct test_file TEST_FILES[];
