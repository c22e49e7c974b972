#include "common/base/config/config.h"

#include "common/base/assert.h"
#include "common/base/config/config_parts.h"
#include "common/base/log.h"
#include "common/base/standard_output.h"
#include "common/base/utf8.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MISTAKES_LIMIT_BYTES 65536
#define MAX_FLAG_NAME_BYTES  64

/* The state of one loading, for all its steps. */
struct load {
    const struct config_program *program;
    void *settings;
    struct config_result *result;
    struct str *mistakes;
    bool guessing; /* after an unknown flag: some arguments may be its value */
};

/* Appends one line of mistakes. It may quote any bytes of a file, the environment or a shell. */
static __attribute__((format(printf, 2, 3))) void complain(struct load *load, const char *format,
                                                           ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    utf8_make_printable(line);
    str_addf(load->mistakes, "%s\n", line);
}

void config_mistake(struct str *mistakes, enum status status, const struct error *err)
{
    struct load load = {.mistakes = mistakes};
    if (status != STATUS_OK)
        complain(&load, "%s", err->text);
}

static void set_from(struct load *load, size_t index, const char *text, enum config_source source,
                     const char *where)
{
    const struct config_setting *row = &load->program->settings[index];
    bool twice = source == CONFIG_FROM_FLAG && load->result->sources[index] == CONFIG_FROM_FLAG;
    bool again = row->repeats && twice;
    struct error why;
    if (twice && !again && row->type != CONFIG_LIST) {
        complain(load, "--%s is given more than once, and takes one value: leave one", row->name);
        return;
    }
    bool good = again ? config_value_add(row, load->settings, text, &why)
                      : config_value_set(row, load->settings, text, &why);
    const struct config_setting *judge = row->taker ? row->taker(row->name) : row;
    if (good && judge != row && *text)
        good = config_value_check(judge, text, &why);
    if (!good)
        complain(load, "%s %s, but is '%.80s'", where, why.text, text);
    else if (judge->check && *text && judge->check(text, &why) != STATUS_OK)
        complain(load, "%s: %s", where, why.text);
    load->result->sources[index] = source; /* given, even if wrong */
}

static void apply_defaults(struct load *load)
{
    for (size_t i = 0; i < load->program->setting_count; i++) {
        const struct config_setting *row = &load->program->settings[i];
        struct error why;
        config_value_check_row(row);
        bool good =
            !row->default_text || config_value_set(row, load->settings, row->default_text, &why);
        ASSERT(good);
    }
}

static void apply_file(struct load *load, const char *path)
{
    struct config_file file;
    config_file_read(load->program, path, &file, load->mistakes);
    for (size_t i = 0; i < load->program->setting_count; i++) {
        char where[512];
        snprintf(where, sizeof where, "%s: %s", path, load->program->settings[i].name);
        if (file.texts[i])
            set_from(load, i, file.texts[i], CONFIG_FROM_FILE, where);
    }
    config_file_free(&file);
}

static void apply_environment(struct load *load)
{
    for (size_t i = 0; i < load->program->setting_count; i++) {
        char name[CONFIG_MAX_VARIABLE_BYTES];
        const struct config_setting *row = &load->program->settings[i];
        const char *text = getenv(config_variable(row->name, name));
        if (text && row->type != CONFIG_LIST && !row->flag_only)
            set_from(load, i, text, CONFIG_FROM_ENVIRONMENT, name);
    }
}

static bool find_setting(const struct config_program *program, const char *name, size_t length,
                         size_t *index)
{
    for (size_t i = 0; i < program->setting_count; i++)
        if (strlen(program->settings[i].name) == length &&
            !memcmp(program->settings[i].name, name, length)) {
            *index = i;
            return true;
        }
    return false;
}

static bool is_flag(const char *argument, const char *name)
{
    size_t length = strlen(name);
    return !strncmp(argument, name, length) && (!argument[length] || argument[length] == '=');
}

static void unknown_flag(struct load *load, const char *flag)
{
    const char *names[CONFIG_MAX_SETTINGS];
    for (size_t i = 0; i < load->program->setting_count; i++)
        names[i] = load->program->settings[i].name;
    const char *variable = config_names_variable(flag + 2);
    const char *hint = config_names_hint(load->program, flag + 2);
    if (hint) {
        complain(load, "unknown flag %s: %s", flag, hint);
        return;
    }
    if (load->program->starts_others && variable) {
        complain(load, "unknown flag %s; programs that have it take %s from the environment", flag,
                 variable);
        return;
    }
    const char *meant = config_names_meant(flag + 2, names, load->program->setting_count);
    complain(load, "unknown flag %s%s%s%s", flag, meant ? ", did you mean --" : "",
             meant ? meant : "", meant ? "?" : "");
}

/* Takes the argument behind an unknown flag for its value, unless it looks like a flag. Returns the
 * number of arguments (1 or 2). */
static int skip_unknown(struct load *load, const char *flag, const char *next)
{
    load->guessing = true;
    bool is_value = next && (next[0] != '-' || isdigit((unsigned char)next[1]));
    return is_value && !strchr(flag, '=') && strncmp(flag, "--no-", 5) != 0 ? 2 : 1;
}

/* Applies one argument that starts with "--". Returns how many arguments it took (1 or 2). `next`
 * may be NULL. */
static int apply_flag(struct load *load, const char *flag, const char *next)
{
    const char *name = flag + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name), index;
    bool found = find_setting(load->program, name, length, &index);
    bool negated = !found && !strncmp(name, "no-", 3) &&
                   find_setting(load->program, name + 3, length - 3, &index) &&
                   load->program->settings[index].type == CONFIG_BOOL;
    char where[MAX_FLAG_NAME_BYTES + 8];
    snprintf(where, sizeof where, "%.*s", (int)length + 2, flag);
    if (!found && !negated) {
        unknown_flag(load, where);
        return skip_unknown(load, flag, next);
    }
    if (negated && equals)
        complain(load, "%s takes no value", where);
    else if (negated)
        set_from(load, index, "false", CONFIG_FROM_FLAG, where);
    else if (equals)
        set_from(load, index, equals + 1, CONFIG_FROM_FLAG, where);
    else if (load->program->settings[index].type == CONFIG_BOOL)
        set_from(load, index, "true", CONFIG_FROM_FLAG, where);
    else if (!next)
        complain(load, "%s needs a value", where);
    else {
        set_from(load, index, next, CONFIG_FROM_FLAG, where);
        return 2;
    }
    return 1;
}

static void add_positional(struct load *load, const char *text)
{
    struct config_result *result = load->result;
    if (result->positional_count == load->program->max_positionals)
        complain(load, "unexpected argument '%.80s'%s", text,
                 result->positional_count ? ": what has blanks stands between quotes" : "");
    else
        result->positionals[result->positional_count++] = text;
}

static void apply_arguments(struct load *load, int argc, char **argv)
{
    bool only_positionals = false;
    for (int i = 1; i < argc;) {
        const char *argument = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (!only_positionals && !strcmp(argument, "--")) {
            only_positionals = true;
            i++;
        } else if (only_positionals || argument[0] != '-' || !argument[1]) {
            add_positional(load, argument);
            i++;
        } else if (argument[1] != '-') {
            complain(load, "unknown flag %.80s", argument);
            i += skip_unknown(load, argument, next);
        } else if (is_flag(argument, "--config")) {
            i += strchr(argument, '=') ? 1 : 2;
        } else {
            i += apply_flag(load, argument, next);
        }
    }
}

/* Finds --help, --version and the file's path, which are needed before the rest. */
static const char *look_ahead(struct load *load, int argc, char **argv)
{
    const char *path = getenv("BATON_CONFIG");
    bool given = false;
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        const char *argument = argv[i];
        load->result->help |= !strcmp(argument, "--help") || !strcmp(argument, "-h");
        load->result->version |= !strcmp(argument, "--version");
        if (is_flag(argument, "--config")) {
            const char *equals = strchr(argument, '=');
            path = equals ? equals + 1 : argv[i + 1];
            if (!path)
                complain(load, "--config needs a value");
            else if (given)
                complain(load, "--config is given more than once, and takes one value: leave one");
            given = true;
        }
    }
    return path;
}

static void check_what_is_missing(struct load *load)
{
    const struct config_program *program = load->program;
    for (size_t i = 0; i < program->setting_count; i++)
        if (program->settings[i].required && load->result->sources[i] == CONFIG_FROM_DEFAULT)
            complain(load, "--%s is needed: %s", program->settings[i].name,
                     program->settings[i].help);
    if (load->result->positional_count < program->min_positionals && !load->guessing)
        complain(load, "missing argument: %s", program->usage);
}

enum status config_load(const struct config_program *program, int argc, char **argv, void *settings,
                        struct config_result *result, struct str *mistakes)
{
    ASSERT(program->setting_count <= CONFIG_MAX_SETTINGS);
    ASSERT(program->max_positionals <= CONFIG_MAX_POSITIONALS);
    *result = (struct config_result){0};
    struct load load = {program, settings, result, mistakes, false};
    apply_defaults(&load);
    const char *path = look_ahead(&load, argc, argv);
    if (result->help || result->version)
        return STATUS_OK;
    if (path)
        apply_file(&load, path);
    apply_environment(&load);
    apply_arguments(&load, argc, argv);
    check_what_is_missing(&load);
    if (program->check && !mistakes->length)
        program->check(settings, mistakes);
    if (program->check_texts)
        program->check_texts(settings, mistakes);
    return mistakes->length ? STATUS_INVALID : STATUS_OK;
}

static void print_lines(const struct config_program *program, const char *word, struct str *text)
{
    char *save = NULL;
    for (char *line = strtok_r(text->data, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        fprintf(stderr, "%s: %s%s\n", program->name, word, line);
}

void config_warn_environment(const struct config_program *program, const char *where,
                             char *const *environment)
{
    struct str text;
    str_init(&text, MISTAKES_LIMIT_BYTES);
    config_names_check(where, environment, &text);
    print_lines(program, "warning: ", &text);
    str_deinit(&text);
}

void config_load_or_exit(const struct config_program *program, int argc, char **argv,
                         void *settings, struct config_result *result)
{
    struct str text;
    str_init(&text, MISTAKES_LIMIT_BYTES);
    enum status status = config_load(program, argc, argv, settings, result, &text);
    if (status == STATUS_OK && !result->help && !result->version) {
        str_deinit(&text);
        config_warn_environment(program, "the environment's ", environ);
        return;
    }
    if (result->help) {
        str_clear(&text);
        config_help(program, &text);
        fputs(text.data, stdout);
    } else if (result->version) {
        printf("%s %s\n", program->name, BATON_VERSION);
    } else {
        print_lines(program, "", &text);
        fprintf(stderr, "Try: %s --help\n", program->name);
    }
    str_deinit(&text);
    struct error err;
    if (standard_output_flush(&err) != STATUS_OK) {
        fprintf(stderr, "%s: %s\n", program->name, err.text);
        exit(1);
    }
    exit(status == STATUS_OK ? 0 : 2);
}

bool config_given(const struct config_program *program, const struct config_result *result,
                  const char *name)
{
    size_t index;
    bool found = find_setting(program, name, strlen(name), &index);
    ASSERT(found);
    return result->sources[index] != CONFIG_FROM_DEFAULT;
}

const char *config_variable(const char *setting, char name[CONFIG_MAX_VARIABLE_BYTES])
{
    int used = snprintf(name, CONFIG_MAX_VARIABLE_BYTES, "BATON_%s", setting);
    ASSERT(used < CONFIG_MAX_VARIABLE_BYTES);
    for (char *p = name; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    return name;
}

/* --- text --- */

static const char *value_word(enum config_type type)
{
    switch (type) {
    case CONFIG_U64: return "N";
    case CONFIG_DOUBLE: return "X";
    case CONFIG_BYTES: return "BYTES";
    case CONFIG_DURATION: return "TIME";
    default: return "TEXT";
    }
}

static void help_row(const struct config_setting *row, struct str *out)
{
    char left[160];
    size_t used = (size_t)snprintf(left, sizeof left, "  --%s%s",
                                   row->type == CONFIG_BOOL ? "[no-]" : "", row->name);
    if (row->value)
        snprintf(left + used, sizeof left - used, " %s", row->value);
    else if (row->type == CONFIG_ENUM)
        for (int i = 0; row->choices[i] && used < sizeof left; i++)
            used += (size_t)snprintf(left + used, sizeof left - used, "%s%s", i ? "|" : " ",
                                     row->choices[i]);
    else if (row->type != CONFIG_BOOL)
        snprintf(left + used, sizeof left - used, " %s", value_word(row->type));
    str_addf(out, "%-32s%s%s", left, strlen(left) >= 32 ? "\n                                " : "",
             row->help);
    if (row->type == CONFIG_LIST || row->repeats)
        str_add(out, "; may be repeated");
    if (row->flag_only)
        str_add(out, "; not from the environment");
    if (row->unit)
        str_addf(out, ", in %s", row->unit);
    if (row->max && row->type == CONFIG_LIST)
        str_addf(out, ", up to %s times", row->max);
    else if (row->max)
        str_addf(out, "; %s .. %s", row->min ? row->min : "0", row->max);
    else if (row->min && strcmp(row->min, "0"))
        str_addf(out, "; at least %s", row->min);
    if (row->required)
        str_add(out, " (needed)");
    else if (row->default_text && *row->default_text)
        str_addf(out, " (default %s)", row->default_text);
    str_add(out, "\n");
}

void config_help(const struct config_program *program, struct str *out)
{
    str_addf(out, "Usage: %s [FLAGS]%s%s\n\n%s\n\n", program->name, program->usage ? " " : "",
             program->usage ? program->usage : "", program->summary);
    for (size_t i = 0; i < program->setting_count; i++)
        if (!program->settings[i].hidden)
            help_row(&program->settings[i], out);
    str_add(out, "  --config FILE                 Settings in YAML: name: value, names as above\n"
                 "  --help, --version\n\n"
                 "Each setting may also stand in the environment: --some-name is BATON_SOME_NAME.\n"
                 "Flags win over the environment, the environment over the file.\n");
}

static const char *const source_names[] = {"default", "file", "environment", "flag"};

void config_describe(const struct config_program *program, const void *settings,
                     const struct config_result *result, struct str *out)
{
    for (size_t i = 0; i < program->setting_count; i++) {
        str_addf(out, "%s=", program->settings[i].name);
        config_value_format(&program->settings[i], settings, out);
        str_addf(out, " source=%s\n", source_names[result->sources[i]]);
    }
}

void config_log(const struct config_program *program, const void *settings,
                const struct config_result *result)
{
    if (!log_enabled(LOG_DEBUG))
        return;
    struct str value;
    str_init(&value, 1024);
    for (size_t i = 0; i < program->setting_count; i++) {
        char quoted[512];
        str_clear(&value);
        config_value_format(&program->settings[i], settings, &value);
        log_debug("config", "msg=\"effective setting\" name=%s value=%s source=%s",
                  program->settings[i].name, log_quote(value.data, quoted, sizeof quoted),
                  source_names[result->sources[i]]);
    }
    str_deinit(&value);
}
