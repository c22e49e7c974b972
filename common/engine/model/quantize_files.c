#include "common/engine/model/quantize_files.h"

#include "common/base/str.h"
#include "common/language/model_config/quantization_config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES       4096
#define CONFIG_LIMIT     ((size_t)1 << 20)
#define SMALL_FILE_LIMIT ((size_t)256 << 20)

static const char *const SMALL_FILES[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "added_tokens.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
};

static enum status path_of(const char *dir, const char *name, char path[PATH_BYTES],
                           struct error *err)
{
    if (snprintf(path, PATH_BYTES, "%s/%s", dir, name) < PATH_BYTES)
        return STATUS_OK;
    return error_set(err, STATUS_LIMIT, "the path of %s is too long", name);
}

static enum status find(const char *dir, const char *name, char path[PATH_BYTES], bool *found,
                        struct error *err)
{
    TRY(path_of(dir, name, path, err));
    *found = access(path, F_OK) == 0;
    return STATUS_OK;
}

static enum status make_folder(const char *path, struct error *err)
{
    struct stat found;
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return error_set(err, STATUS_IO, "cannot make the folder %s: %s%s", path, strerror(errno),
                         errno == ENOENT ? ": the folder above it must be there already" : "");
    if (stat(path, &found) == 0 && !S_ISDIR(found.st_mode))
        return error_set(err, STATUS_INVALID, "%s is a file: a folder without a model is wanted",
                         path);
    return STATUS_OK;
}

static enum status refuse(const char *path, struct error *err)
{
    return error_set(err, STATUS_INVALID,
                     "%s: it is there already: a folder without a model is wanted", path);
}

/* One that the source has would be written over. */
static enum status check_small_file(const char *model_dir, const char *out_dir, const char *name,
                                    struct error *err)
{
    char source[PATH_BYTES], target[PATH_BYTES];
    bool copied, found;
    TRY(find(model_dir, name, source, &copied, err));
    TRY(find(out_dir, name, target, &found, err));
    return copied && found ? refuse(target, err) : STATUS_OK;
}

enum status quantize_files_make_target(const char *model_dir, const char *out_dir,
                                       struct error *err)
{
    static const char *const model_files[] = {"config.json", "model.safetensors.index.json",
                                              "model.safetensors"};
    char path[PATH_BYTES];
    bool stopped, found;
    TRY(make_folder(out_dir, err));
    TRY(find(out_dir, "config.json.tmp", path, &stopped, err));
    for (size_t i = 0; i < sizeof model_files / sizeof *model_files; i++) {
        TRY(find(out_dir, model_files[i], path, &found, err));
        if (found && !(stopped && strcmp(model_files[i], "model.safetensors") == 0))
            return refuse(path, err);
    }
    for (size_t i = 0; i < sizeof SMALL_FILES / sizeof *SMALL_FILES && !stopped; i++)
        TRY(check_small_file(model_dir, out_dir, SMALL_FILES[i], err));
    return STATUS_OK;
}

static void remove_file(const char *dir, const char *name)
{
    char path[PATH_BYTES];
    if (path_of(dir, name, path, NULL) == STATUS_OK)
        (void)unlink(path);
}

void quantize_files_remove(const char *model_dir, const char *out_dir)
{
    char source[PATH_BYTES];
    bool copied;
    remove_file(out_dir, "config.json");
    remove_file(out_dir, "model.safetensors");
    for (size_t i = 0; i < sizeof SMALL_FILES / sizeof *SMALL_FILES; i++)
        if (find(model_dir, SMALL_FILES[i], source, &copied, NULL) == STATUS_OK && copied)
            remove_file(out_dir, SMALL_FILES[i]);
}

/* All of a file, NUL-terminated; STATUS_NOT_FOUND where it isn't there. */
static enum status read_file(const char *path, struct str *text, struct error *err)
{
    char bytes[65536];
    FILE *file = fopen(path, "rb");
    if (!file)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: %s", path,
                         strerror(errno));
    for (size_t got; (got = fread(bytes, 1, sizeof bytes, file)) > 0;)
        str_append(text, bytes, got);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed)
        return error_set(err, STATUS_IO, "%s: it can't be read", path);
    if (text->truncated)
        return error_set(err, STATUS_LIMIT, "%s: more than %zu bytes", path, text->limit);
    return STATUS_OK;
}

static enum status write_file(const char *path, const struct str *text, struct error *err)
{
    FILE *file = fopen(path, "wb");
    bool done = file && fwrite(text->data, 1, text->length, file) == text->length;
    if (file && fclose(file) != 0)
        done = false;
    return done ? STATUS_OK : error_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
}

static enum status copy_small_file(const struct quantize_files *files, const char *name,
                                   struct error *err)
{
    char source[PATH_BYTES], target[PATH_BYTES];
    struct str text;
    TRY(path_of(files->model_dir, name, source, err));
    TRY(path_of(files->out_dir, name, target, err));
    str_init(&text, SMALL_FILE_LIMIT);
    enum status status = read_file(source, &text, err);
    if (status == STATUS_OK)
        status = write_file(target, &text, err);
    str_deinit(&text);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* The source's config.json and one member more, in front of its last brace. */
static enum status write_config(const struct quantize_files *files, struct error *err)
{
    char source[PATH_BYTES];
    struct str text;
    TRY(path_of(files->model_dir, "config.json", source, err));
    str_init(&text, CONFIG_LIMIT);
    enum status status = read_file(source, &text, err);
    char *brace = status == STATUS_OK ? strrchr(text.data, '}') : NULL;
    if (brace) { /* it was parsed: there is one */
        while (brace > text.data && strchr(" \t\r\n", brace[-1]))
            brace--;
        struct str whole;
        str_init(&whole, CONFIG_LIMIT);
        str_append(&whole, text.data, (size_t)(brace - text.data));
        str_addf(&whole,
                 ",\n  \"quantization_config\": {\n    \"quant_method\": \"%s\",\n    \"version\": "
                 "%d,\n    \"weights\": \"%s\"",
                 QUANTIZATION_METHOD, QUANTIZATION_VERSION, weight_type_names[files->layers]);
        if (files->layers == WEIGHT_INT4)
            str_addf(&whole, ",\n    \"group_size\": %d", QUANTIZATION_GROUP_SIZE);
        str_add(&whole, "\n  }\n}\n");
        status = whole_file_put(files->config, whole.data, whole.length, 0, err);
        if (status != STATUS_OK)
            status = error_prefix(err, status, "%s", files->config->path);
        str_deinit(&whole);
    }
    str_deinit(&text);
    return status;
}

enum status quantize_files_copy(const struct quantize_files *files, struct error *err)
{
    for (size_t i = 0; i < sizeof SMALL_FILES / sizeof *SMALL_FILES; i++)
        TRY(copy_small_file(files, SMALL_FILES[i], err));
    return write_config(files, err);
}
