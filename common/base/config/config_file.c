#include "common/base/config/config_parts.h"

#include "common/base/file_read.h"
#include "common/base/utf8.h"

#include <cyaml/cyaml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_KEY "Load: Ignoring key: "

#define MAX_LINES  64 /* mistakes with a line number */
#define WHAT_TO_DO "expected lines of 'name: value'"

/* Collects libcyaml's messages while it loads one file. */
struct listener {
    const struct config_program *program;
    const char *path, *bytes, *end;
    struct str *mistakes;
    size_t lines_told;
    /* The mistake that ended the loading, and its setting; "": none. */
    char what[256], name[64];
    unsigned line; /* line where the mistake is, or begins; 0: unknown */
};

static char *read_bytes(const char *path, size_t *length, struct str *mistakes)
{
    char *bytes;
    struct error err;
    if (file_read(path, CONFIG_MAX_FILE_BYTES, &bytes, length, &err) == STATUS_OK)
        return bytes;
    str_addf(mistakes, "%s\n", err.text);
    return NULL;
}

/* Returns the line that begins with this name; 0: none (it is quoted, or stands in braces). */
static unsigned line_of(const char *bytes, const char *end, const char *name)
{
    size_t length = strlen(name);
    unsigned line = 1;
    for (const char *at = bytes; at && at < end; line++) {
        while (at < end && *at == ' ')
            at++;
        if ((size_t)(end - at) > length && !memcmp(at, name, length) &&
            (at[length] == ':' || at[length] == ' '))
            return line;
        at = memchr(at, '\n', (size_t)(end - at));
        at = at ? at + 1 : NULL;
    }
    return 0;
}

static void add_place(struct str *out, const char *path, const char *word, unsigned line)
{
    str_add(out, path);
    if (line)
        str_addf(out, ", %sline %u", word, line);
    str_add(out, ": ");
}

static void tell_unknown(struct listener *listener, const char *name)
{
    const struct config_program *program = listener->program;
    const char *names[CONFIG_MAX_SETTINGS];
    size_t count = 0;
    for (size_t i = 0; i < program->setting_count; i++)
        if (program->settings[i].type != CONFIG_LIST)
            names[count++] = program->settings[i].name;
    const char *variable = program->starts_others ? config_names_variable(name) : NULL;
    const char *meant = variable ? NULL : config_names_meant(name, names, count);
    const char *hint = config_names_hint(program, name);
    unsigned line =
        listener->lines_told++ < MAX_LINES ? line_of(listener->bytes, listener->end, name) : 0;
    add_place(listener->mistakes, listener->path, "", line);
    str_addf(listener->mistakes, "unknown setting '%s'", name);
    if (hint)
        str_addf(listener->mistakes, ": %s", hint);
    else if (variable)
        str_addf(listener->mistakes, "; programs that have it take %s from the environment",
                 variable);
    else if (meant)
        str_addf(listener->mistakes, ", did you mean %s?", meant);
    str_add(listener->mistakes, "\n");
}

/* libcyaml reports a mistake in several messages: the sentence, "Backtrace:", then the places,
 * indented, from the innermost outwards. It mentions unknown keys at debug. It steps over them, so
 * that all are found. */
static void hear(cyaml_log_t level, void *context, const char *format, va_list args)
{
    struct listener *listener = context;
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = 0;
    utf8_make_printable(text);
    if (!strncmp(text, UNKNOWN_KEY, strlen(UNKNOWN_KEY))) {
        tell_unknown(listener, text + strlen(UNKNOWN_KEY));
    } else if (level < CYAML_LOG_ERROR || strstr(text, "Backtrace:")) {
        return;
    } else if (text[0] != ' ') {
        const char *colon = strstr(text, ": ");
        snprintf(listener->what, sizeof listener->what, "%.255s", colon ? colon + 2 : text);
    } else if (!listener->line) {
        const char *line = strstr(text, "(line: ");
        if (line)
            listener->line = (unsigned)strtoul(line + strlen("(line: "), NULL, 10);
        sscanf(text, " in mapping field '%63[^']'", listener->name);
    }
}

static const char *kind_in(const char *what)
{
    return strstr(what, "SEQUENCE")        ? "a list"
           : strstr(what, "MAPPING_START") ? "names and values of its own"
           : strstr(what, "SCALAR")        ? "a single word or text"
                                           : "something else";
}

/* Reports why the loading ended: file, line, the expected and the found. */
static void tell_end(const struct listener *listener, cyaml_err_t result)
{
    static const char by_libyaml[] = "libyaml: ";
    const char *what = *listener->what ? listener->what : cyaml_strerror(result);
    struct str *out = listener->mistakes;
    bool no_yaml = !strncmp(what, by_libyaml, strlen(by_libyaml));
    bool exact = !strncmp(what, "Expecting",
                          strlen("Expecting")); /* otherwise the end of the last good thing */
    add_place(out, listener->path, exact ? "" : "in or after ", listener->line);
    char joint = 0;
    for (size_t i = 0; i < listener->program->setting_count; i++)
        if (!strcmp(listener->program->settings[i].name, listener->name))
            joint = listener->program->settings[i].repeats;
    if (!strncmp(what, "Expecting STRING", strlen("Expecting STRING"))) {
        str_addf(out, "expected one value for '%s', but found %s", listener->name, kind_in(what));
        if (joint)
            str_addf(out, ": write several as one text, with '%c' between them", joint);
        str_add(out, "\n");
    } else if (!strncmp(what, "Expecting MAPPING", strlen("Expecting MAPPING"))) {
        str_addf(out, WHAT_TO_DO ", but found %s\n", kind_in(what));
    } else if (strstr(what, "already seen")) {
        str_addf(out, "'%s' is given a second time\n", listener->name);
    } else {
        str_addf(out, "this is not YAML that can be read (%s): " WHAT_TO_DO "\n",
                 no_yaml ? what + strlen(by_libyaml) : what);
    }
}

void config_file_read(const struct config_program *program, const char *path,
                      struct config_file *file, struct str *mistakes)
{
    *file = (struct config_file){0};
    size_t length;
    char *bytes = read_bytes(path, &length, mistakes);
    if (!bytes)
        return;
    cyaml_schema_field_t fields[CONFIG_MAX_SETTINGS + 1] = {0};
    size_t field_count = 0;
    for (size_t i = 0; i < program->setting_count; i++)
        if (program->settings[i].type != CONFIG_LIST)
            fields[field_count++] = (cyaml_schema_field_t){
                .key = program->settings[i].name,
                .data_offset = (uint32_t)(offsetof(struct config_file, texts) + i * sizeof(char *)),
                .value = {.type = CYAML_STRING,
                          .flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                          .data_size = sizeof(char),
                          .string = {.min = 0, .max = CONFIG_MAX_FILE_BYTES}}};
    struct listener listener = {.program = program,
                                .path = path,
                                .bytes = bytes,
                                .end = bytes + length,
                                .mistakes = mistakes};
    const cyaml_schema_value_t top = {.type = CYAML_MAPPING,
                                      .flags = CYAML_FLAG_POINTER,
                                      .data_size = sizeof(struct config_file),
                                      .mapping = {.fields = fields}};
    const cyaml_config_t config = {.log_fn = hear,
                                   .log_ctx = &listener,
                                   .log_level = CYAML_LOG_DEBUG,
                                   .mem_fn = cyaml_mem,
                                   .flags = CYAML_CFG_IGNORE_UNKNOWN_KEYS};
    struct config_file *loaded = NULL;
    cyaml_err_t result = cyaml_load_data((const uint8_t *)bytes, length, &config, &top,
                                         (cyaml_data_t **)&loaded, NULL);
    if (result != CYAML_OK)
        tell_end(&listener, result);
    if (loaded) {
        *file = *loaded;
        free(loaded);
    }
    free(bytes);
}

void config_file_free(struct config_file *file)
{
    for (size_t i = 0; i < CONFIG_MAX_SETTINGS; i++)
        free(file->texts[i]);
}
