/* Gives every file of the folders named on the command line to the fuzz target, in the order of
 * their names: the seeds of a target as a test, without libFuzzer. Prints a name before its file is
 * tried where BATON_FUZZ_VERBOSE is set. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void try_file(const char *path)
{
    if (getenv("BATON_FUZZ_VERBOSE"))
        fprintf(stderr, "%s\n", path);
    FILE *file = fopen(path, "re");
    FUZZ_CHECK(file);
    FUZZ_CHECK(fseek(file, 0, SEEK_END) == 0);
    long size = ftell(file);
    FUZZ_CHECK(size >= 0);
    rewind(file);
    /* Exactly as long as the file, so that a read behind its end is seen. */
    uint8_t *bytes = malloc((size_t)size + !size);
    FUZZ_CHECK(bytes);
    FUZZ_CHECK(fread(bytes, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, (size_t)size);
    free(bytes);
}

static int try_folder(const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort), tried = 0;
    FUZZ_CHECK(count >= 0);
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            try_file(path);
            tried++;
        }
        free(entries[i]);
    }
    free(entries);
    return tried;
}

int main(int argc, char **argv)
{
    int tried = 0;
    for (int i = 1; i < argc; i++)
        tried += try_folder(argv[i]);
    printf("%d inputs\n", tried);
    return tried ? 0 : 1;
}
