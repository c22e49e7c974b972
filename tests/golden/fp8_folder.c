#include "tests/golden/fp8_folder.h"

#include "common/base/str.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_convert.h"
#include "kernels/cpu/e4m3.h"
#include "tests/unit/model_mutation.h"

#include <math.h>

#define FILE_BYTES ((size_t)8 << 20)
#define BLOCK      128

/* A file that is being made. */
struct made {
    enum fp8_kind kind;
    struct str header;
    char *data;
    size_t length;
};

static void add_tensor(struct made *made, const char *name, const char *suffix, const char *dtype,
                       const char *shape, const void *bytes, size_t count)
{
    size_t length = strlen(name) - (*suffix ? strlen("weight") : 0);
    assert_true(made->length + count <= FILE_BYTES);
    memcpy(made->data + made->length, bytes, count);
    str_addf(&made->header,
             "%s\"%.*s%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
             made->header.length > 1 ? "," : "", (int)length, name, suffix, dtype, shape,
             made->length, made->length + count);
    made->length += count;
}

static float largest(const float *values, size_t stride, size_t rows, size_t columns)
{
    float most = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            most = fmaxf(most, fabsf(values[r * stride + c]));
    return most;
}

/* Rounds blocks of [high, wide] by a scale each. Returns how many there are. */
static size_t round_blocks(const float *values, size_t n, size_t k, size_t high, size_t wide,
                           bool in_bf16, uint8_t *numbers, float *scales)
{
    size_t count = 0;
    for (size_t r = 0; r < n; r += high)
        for (size_t c = 0; c < k; c += wide) {
            size_t rows = n - r < high ? n - r : high, columns = k - c < wide ? k - c : wide;
            float scale = largest(values + r * k + c, k, rows, columns) / E4M3_MOST;
            if (in_bf16) {
                uint16_t narrow;
                weight_convert(FLOAT_F32, &scale, 1, WEIGHT_BF16, &narrow);
                weight_convert(FLOAT_BF16, &narrow, 1, WEIGHT_F32, &scale);
            }
            scales[count++] = scale;
            for (size_t i = r; i < r + rows; i++)
                for (size_t j = c; j < c + columns; j++)
                    numbers[i * k + j] = e4m3_round(values[i * k + j] / scale);
        }
    return count;
}

static void add_matrix(struct made *made, const struct tensor_info *info)
{
    size_t n = info->shape[0], k = info->shape[1];
    float *values = malloc(n * k * sizeof *values), *scales = malloc(n * k * sizeof *scales);
    uint8_t *numbers = malloc(n * k);
    char shape[64], of_scales[64] = "";
    bool channel = made->kind == FP8_CHANNEL, blocks = made->kind == FP8_BLOCKS;
    assert_true(values && scales && numbers);
    weight_convert(strcmp(info->dtype, "F16") == 0 ? FLOAT_F16 : FLOAT_BF16, info->bytes, n * k,
                   WEIGHT_F32, values);
    size_t high = blocks ? BLOCK : channel ? 1 : n, wide = blocks ? BLOCK : k;
    size_t count = round_blocks(values, n, k, high, wide, channel, numbers, scales);
    snprintf(shape, sizeof shape, "%zu,%zu", n, k);
    add_tensor(made, info->name, "", "F8_E4M3", shape, numbers, n * k);
    if (made->kind == FP8_STATIC || made->kind == FP8_MIXED)
        snprintf(of_scales, sizeof of_scales, "1");
    if (channel || blocks)
        snprintf(of_scales, sizeof of_scales, "%zu,%zu", (n + high - 1) / high,
                 (k + wide - 1) / wide);
    if (channel)
        weight_convert(FLOAT_F32, scales, count, WEIGHT_BF16, values);
    add_tensor(made, info->name, blocks ? "weight_scale_inv" : "weight_scale",
               channel ? "BF16" : "F32", of_scales, channel ? (void *)values : scales,
               count * (channel ? 2 : 4));
    float input = strstr(info->name, "q_proj")   ? 0.05f
                  : strstr(info->name, "k_proj") ? 0.1f
                                                 : 0.06f;
    if (made->kind == FP8_STATIC || made->kind == FP8_MIXED)
        add_tensor(made, info->name, "input_scale", "F32", "1", &input, sizeof input);
    free(values);
    free(scales);
    free(numbers);
}

static void add_all(struct made *made, struct safetensors *files)
{
    for (size_t i = 0; i < safetensors_count(files); i++) {
        struct tensor_info info = safetensors_at(files, i);
        char shape[64];
        bool in_floats =
            made->kind == FP8_MIXED && (strstr(info.name, "layers.1.self_attn.k_proj") ||
                                        strstr(info.name, "layers.1.mlp.up_proj"));
        if (strstr(info.name, "_proj.weight") && !in_floats) {
            add_matrix(made, &info);
            continue;
        }
        int length = snprintf(shape, sizeof shape, "%zu", (size_t)info.shape[0]);
        if (info.rank == 2)
            snprintf(shape + length, sizeof shape - (size_t)length, ",%zu", (size_t)info.shape[1]);
        add_tensor(made, info.name, "", info.dtype, shape, info.bytes, info.byte_count);
    }
}

#define COMPRESSED(WEIGHTS, INPUTS, DYNAMIC)                                                       \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\",\"ignore\":"          \
    "[\"lm_head\"],\"kv_cache_scheme\":null,\"config_groups\":{\"group_0\":{\"targets\":"          \
    "[\"Linear\"],\"weights\":{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"" WEIGHTS          \
    "\",\"symmetric\":true,\"dynamic\":false},\"input_activations\":{\"num_bits\":8,\"type\":"     \
    "\"float\",\"strategy\":\"" INPUTS "\",\"symmetric\":true,\"dynamic\":" DYNAMIC "}}}}"
static const char *const configs[FP8_KINDS] = {
    [FP8_TENSOR] = "{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\","
                   "\"ignored_layers\":[\"lm_head\"]}",
    [FP8_CHANNEL] = COMPRESSED("channel", "token", "true"),
    [FP8_STATIC] = COMPRESSED("tensor", "tensor", "false"),
    [FP8_MIXED] = COMPRESSED("tensor", "tensor", "false"),
    [FP8_BLOCKS] = "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":\"dynamic\","
                   "\"weight_block_size\":[128,128]}",
};

void fp8_folder_configure(const char *folder, const char *quantization)
{
    struct model_bytes config = model_read(folder, "config.json");
    struct str text;
    str_init(&text, 1 << 20);
    char *end = strrchr(config.data, '}');
    assert_non_null(end);
    str_append(&text, config.data, (size_t)(end - config.data));
    str_addf(&text, ",\"quantization_config\":%s}\n", quantization);
    model_write(folder, "config.json", text.data, text.length);
    str_deinit(&text);
    free(config.data);
}

void fp8_folder_make(const char *model, enum fp8_kind kind, const char *folder)
{
    struct made made = {.kind = kind, .data = malloc(FILE_BYTES)};
    struct safetensors *files;
    struct error err;
    assert_non_null(made.data);
    model_copy(model, folder);
    if (safetensors_open(folder, &files, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    str_init(&made.header, 1 << 20);
    str_add(&made.header, "{");
    add_all(&made, files);
    safetensors_close(files);
    str_add(&made.header, "}");
    uint64_t length = made.header.length;
    char *file = malloc(sizeof length + length + made.length);
    assert_non_null(file);
    memcpy(file, &length, sizeof length);
    memcpy(file + sizeof length, made.header.data, length);
    memcpy(file + sizeof length + length, made.data, made.length);
    model_write(folder, "model.safetensors", file, sizeof length + length + made.length);
    fp8_folder_configure(folder, configs[kind]);
    free(file);
    free(made.data);
    str_deinit(&made.header);
}
