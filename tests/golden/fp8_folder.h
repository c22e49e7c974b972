/* Folders of fp8 as other tools write them, made of a golden model. For tests: any failure fails
 * the running cmocka test. */
#ifndef BATON_TESTS_GOLDEN_FP8_FOLDER_H
#define BATON_TESTS_GOLDEN_FP8_FOLDER_H

/* TENSOR: "fp8", dynamic, scales without dimensions. CHANNEL: "compressed-tensors", dynamic by
 * token, bf16 scales of rows. STATIC: "compressed-tensors", scales of tensors and of inputs, which
 * differ for q, k and v. BLOCKS: "fp8", weight_scale_inv of 128 x 128. MIXED: as STATIC, but
 * k and up of layer 1 are floats. */
enum fp8_kind { FP8_TENSOR, FP8_CHANNEL, FP8_STATIC, FP8_BLOCKS, FP8_MIXED, FP8_KINDS };

/* Fills the folder, which exists, from tests/golden/models/`model`: matrices of layers become e4m3,
 * all else is copied. */
void fp8_folder_make(const char *model, enum fp8_kind kind, const char *folder);
/* Adds this quantization_config to the folder's config.json. */
void fp8_folder_configure(const char *folder, const char *config);

#endif
