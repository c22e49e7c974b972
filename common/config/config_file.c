#include "common/config/config_file.h"

#include "common/base/utf8.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_KEY "Load: Ignoring key: "

/* What libcyaml says while it loads one file. */
struct listener {
    const char *path;
    struct str *mistakes;
};

static char *read_bytes(const char *path, size_t *length, struct str *mistakes)
{
    FILE *stream = fopen(path, "re");
    if (!stream) {
        str_addf(mistakes, "%s: cannot be read: %s\n", path, strerror(errno));
        return NULL;
    }
    char *bytes = malloc(CONFIG_MAX_FILE_BYTES + 1);
    *length = bytes ? fread(bytes, 1, CONFIG_MAX_FILE_BYTES + 1, stream) : 0;
    bool failed = !bytes || ferror(stream);
    fclose(stream);
    if (!failed && *length <= CONFIG_MAX_FILE_BYTES)
        return bytes;
    str_addf(mistakes, "%s: %s\n", path, failed ? "cannot be read" : "is larger than 1 MiB");
    free(bytes);
    return NULL;
}

/* libcyaml tells a mistake in several messages: the sentence, "Backtrace:", then where, indented. Unknown keys, which it
 * is told to step over so that all of them are found, it mentions at debug. */
static void hear(cyaml_log_t level, void *context, const char *format, va_list args)
{
    struct listener *listener = context;
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = 0;
    utf8_make_printable(text);
    struct str *out = listener->mistakes;
    bool unknown_key = !strncmp(text, UNKNOWN_KEY, strlen(UNKNOWN_KEY));
    if ((level < CYAML_LOG_ERROR && !unknown_key) || strstr(text, "Backtrace:"))
        return;
    if (text[0] == ' ' && out->length && out->data[out->length - 1] == '\n') {
        out->data[--out->length] = 0;
        str_addf(out, " %s\n", text + strspn(text, " "));
    } else if (unknown_key) {
        str_addf(out, "%s: unknown setting '%s'\n", listener->path, text + strlen(UNKNOWN_KEY));
    } else {
        const char *colon = strstr(text, ": ");
        str_addf(out, "%s: %s\n", listener->path, colon ? colon + 2 : text);
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
    struct listener listener = {path, mistakes};
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
    size_t heard = mistakes->length;
    cyaml_err_t result = cyaml_load_data((const uint8_t *)bytes, length, &config, &top,
                                         (cyaml_data_t **)&loaded, NULL);
    if (result != CYAML_OK && mistakes->length == heard)
        str_addf(mistakes, "%s: %s\n", path, cyaml_strerror(result));
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
