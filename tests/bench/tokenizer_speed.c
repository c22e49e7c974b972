/* Encodes a text on demand, so that a comparison with another tokenizer can take turns. For each
 * line on standard input it encodes the file TEXT with TOKENIZER once, and prints the CPU time (us)
 * and the count of ids as one line. tokenizer_speed.py drives it. */
#include "common/base/str.h"
#include "common/language/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The CPU time of this thread alone, so that other programs on the machine matter less. */
static uint64_t thread_cpu_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void read_all(const char *path, struct str *text)
{
    char buffer[65536];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    for (size_t count; (count = fread(buffer, 1, sizeof buffer, file)) > 0;)
        str_append(text, buffer, count);
    fclose(file);
}

int main(int argc, char **argv)
{
    struct tokenizer *tokenizer;
    struct error err = {""};
    struct str text;
    if (argc != 3) {
        fprintf(stderr, "usage: %s TOKENIZER TEXT\n", argv[0]);
        return 2;
    }
    if (tokenizer_open(argv[1], &tokenizer, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    str_init(&text, TOKENIZER_LIMIT_TEXT);
    read_all(argv[2], &text);
    while (getchar() != EOF) {
        struct token_ids ids;
        token_ids_init(&ids, text.length + 1);
        uint64_t start_us = thread_cpu_us();
        enum status status = tokenizer_encode(tokenizer, text.data, text.length, false, &ids, &err);
        printf("%llu %zu\n", (unsigned long long)(thread_cpu_us() - start_us), ids.count);
        fflush(stdout);
        token_ids_deinit(&ids);
        if (status != STATUS_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
    }
    str_deinit(&text);
    tokenizer_close(tokenizer);
    return 0;
}
