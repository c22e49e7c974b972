/* A YAML file, environment values and flags, each of any bytes, for a table with a setting of every
 * type. Accepted settings are in their bounds; otherwise each line of mistakes is a sentence.
 * Input: the file (a piece), the environment (a count, then for each a setting and a piece), and
 * the flags, ended by NULs. */
#include "common/base/config/config.h"
#include "common/base/config/config_parts.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ARGUMENTS 32

struct settings {
    char text[24];
    uint64_t count;
    uint32_t small;
    double ratio;
    float share;
    bool flag;
    int choice;
    uint64_t bytes, time_us;
    struct config_list items;
};

static const char *const choices[] = {"auto", "shm", "tcp", NULL};

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting table[] = {
    {.name = "text", .help = "h", .type = CONFIG_STRING, AT(text), .default_text = "a"},
    {.name = "count", .help = "h", .type = CONFIG_U64, AT(count), .default_text = "1"},
    {.name = "small",
     .help = "h",
     .type = CONFIG_U64,
     AT(small),
     .default_text = "5",
     .min = "3",
     .max = "9"},
    {.name = "ratio",
     .help = "h",
     .type = CONFIG_DOUBLE,
     AT(ratio),
     .default_text = "0",
     .min = "-1",
     .max = "1"},
    {.name = "share", .help = "h", .type = CONFIG_DOUBLE, AT(share), .default_text = "0.5"},
    {.name = "flag", .help = "h", .type = CONFIG_BOOL, AT(flag), .default_text = "false"},
    {.name = "choice",
     .help = "h",
     .type = CONFIG_ENUM,
     AT(choice),
     .default_text = "shm",
     .choices = choices},
    {.name = "buffer-bytes",
     .help = "h",
     .type = CONFIG_BYTES,
     AT(bytes),
     .default_text = "4KiB",
     .min = "1KiB",
     .max = "1GiB"},
    {.name = "time",
     .help = "h",
     .type = CONFIG_DURATION,
     AT(time_us),
     .default_text = "1s",
     .min = "1ms",
     .max = "10m"},
    {.name = "item", .help = "h", .type = CONFIG_LIST, AT(items)},
};
#define ROWS (sizeof table / sizeof *table)

static const struct config_program program = {.name = "fuzz",
                                              .summary = "Nothing.",
                                              .usage = "ARGUMENT",
                                              .settings = table,
                                              .setting_count = ROWS,
                                              .max_positionals = 2};

static const char *const names[ROWS] = {
    "BATON_TEXT", "BATON_COUNT",  "BATON_SMALL",        "BATON_RATIO", "BATON_SHARE",
    "BATON_FLAG", "BATON_CHOICE", "BATON_BUFFER_BYTES", "BATON_TIME",  "BATON_ITEM"};

static void set_environment(struct fuzz_input *input)
{
    for (size_t i = 0; i < ROWS; i++)
        unsetenv(names[i]);
    for (size_t i = fuzz_take_below(input, ROWS + 1); i > 0; i--) {
        size_t row = fuzz_take_below(input, ROWS);
        char *value = fuzz_copy_text(fuzz_take_piece(input));
        fuzz_setenv(names[row], value);
        free(value);
    }
}

/* Cuts `text` at its NULs; another file than ours isn't read. */
static int add_arguments(struct fuzz_bytes bytes, char *text, char **argv, int argc)
{
    for (size_t at = 0; at < bytes.size && argc < MAX_ARGUMENTS; at += strlen(text + at) + 1)
        if (strncmp(text + at, "--config", 8) != 0)
            argv[argc++] = text + at;
    return argc;
}

static void check_lines(struct str *lines)
{
    char *save = NULL;
    FUZZ_CHECK(lines->length && lines->data[lines->length - 1] == '\n');
    for (char *line = strtok_r(lines->data, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        fuzz_check_sentence(line);
}

/* A variable that no program of Baton knows, or one that it does. */
static void check_foreign_variable(const char *text)
{
    char variable[512], *environment[] = {variable, NULL};
    struct str warnings;
    snprintf(variable, sizeof variable, "BATON_%s", text);
    str_init(&warnings, 1 << 16);
    config_names_check("", environment, &warnings);
    if (warnings.length)
        check_lines(&warnings);
    str_deinit(&warnings);
}

static void check_settings(const struct settings *settings, const struct config_result *result)
{
    FUZZ_CHECK(memchr(settings->text, 0, sizeof settings->text));
    FUZZ_CHECK(settings->small >= 3 && settings->small <= 9);
    FUZZ_CHECK(settings->ratio >= -1 && settings->ratio <= 1);
    FUZZ_CHECK(settings->choice >= 0 && settings->choice <= 2);
    FUZZ_CHECK(settings->bytes >= 1024 && settings->bytes <= 1u << 30);
    FUZZ_CHECK(settings->time_us >= 1000 && settings->time_us <= 600000000u);
    FUZZ_CHECK(settings->items.count <= CONFIG_MAX_LIST && result->positional_count <= 2);
    struct str described;
    str_init(&described, 1 << 16);
    config_describe(&program, settings, result, &described);
    FUZZ_CHECK(described.length > 0);
    str_deinit(&described);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_quiet();
    struct fuzz_input input = {data, data + size};
    char path[256];
    snprintf(path, sizeof path, "%s", fuzz_write("settings.yaml", fuzz_take_piece(&input)));
    set_environment(&input);
    char *argv[MAX_ARGUMENTS] = {"fuzz", "--config", path};
    struct fuzz_bytes rest = fuzz_take_rest(&input);
    char *text = fuzz_copy_text(rest);
    int argc = add_arguments(rest, text, argv, 3);

    struct settings settings = {0};
    struct config_result result;
    struct str mistakes;
    str_init(&mistakes, 1 << 16);
    if (config_load(&program, argc, argv, &settings, &result, &mistakes) != STATUS_OK) {
        check_lines(&mistakes);
    } else if (!result.help && !result.version) {
        check_settings(&settings, &result);
    }
    str_deinit(&mistakes);
    check_foreign_variable(text);
    free(text);
    return 0;
}
