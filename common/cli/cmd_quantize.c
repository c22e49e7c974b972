#include "common/cli/commands.h"

#include "common/base/config/config.h"
#include "common/base/failpoint.h"
#include "common/engine/model/quantize_folder.h"

#include <stdio.h>

struct settings {
    char model[4096], out[4096];
    int type; /* index into type_names */
};

static const char *const type_names[] = {"int8", "int4", NULL};
static const enum model_quantization types[] = {MODEL_INT8, MODEL_INT4};

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting table[] = {
    {"model", CONFIG_STRING, AT(model), .required = true, .value = "DIR",
     .help = "Hugging Face folder with bf16, fp16 or fp32 weights"},
    {"type", CONFIG_ENUM, AT(type), "int8", .choices = type_names,
     .help = "int8: a scale for each output; int4: one for 128 weights, head and embedding int8"},
    {"out", CONFIG_STRING, AT(out), .required = true, .value = "DIR",
     .help = "The new folder; it must hold neither a model nor a tokenizer yet"},
};
static const struct config_program program = {
    .name = "baton quantize",
    .summary = "Writes a copy of a model folder with quantized weights.\n"
               "Workers load it to the same bytes as the first folder with --weights int8 or int4.",
    .settings = table,
    .setting_count = sizeof table / sizeof *table,
};

int cmd_quantize(int argc, char **argv)
{
    struct settings settings = {0};
    struct config_result result;
    struct quantize_report report;
    struct error err;
    config_load_or_exit(&program, argc, argv, &settings, &result);
    if (failpoint_init("quantize", &err) != STATUS_OK ||
        quantize_folder(settings.model, types[settings.type], settings.out, &report, &err) !=
            STATUS_OK) {
        fprintf(stderr, "%s: %s\n", program.name, err.text);
        return 1;
    }
    printf("%s: %u matrices as %s, %.1f MiB of tensors (from %.1f)\n", settings.out,
           report.matrices, type_names[settings.type], (double)report.written_bytes / (1 << 20),
           (double)report.source_bytes / (1 << 20));
    return 0;
}
