/* Any bytes as model.safetensors: header, shapes, offsets. The target reads an accepted file from
 * the first byte to the last. */
#include "common/engine/model/safetensors.h"
#include "common/engine/model/safetensors_file.h"
#include "common/engine/model/weight_convert.h"
#include "tests/fuzz/fuzz.h"

static void check_file(const struct safetensors_file *file, size_t size)
{
    FUZZ_CHECK(file->length_bytes == size && file->tensor_count <= SAFETENSORS_MAX_TENSORS);
    uint64_t last_end = 0;
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        const struct tensor *tensor = &file->tensors[i];
        uint64_t bytes = tensor->type->bytes;
        FUZZ_CHECK(tensor->rank <= TENSOR_MAX_RANK);
        for (uint32_t d = 0; d < tensor->rank; d++)
            bytes *= tensor->shape[d];
        FUZZ_CHECK(tensor->end_bytes - tensor->begin_bytes == bytes);
        FUZZ_CHECK(tensor->begin_bytes == last_end && tensor->end_bytes <= file->data_bytes);
        last_end = tensor->end_bytes;
        const unsigned char *data = tensor_data(file, tensor);
        FUZZ_CHECK(data >= file->bytes && data + bytes <= file->bytes + size);
        volatile unsigned char sum = 0;
        for (uint64_t b = 0; b < bytes; b++)
            sum = (unsigned char)(sum + data[b]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_quiet();
    const char *path = fuzz_write("model.safetensors", (struct fuzz_bytes){data, size});
    struct error err;
    struct safetensors_file file = {0};
    if (safetensors_file_open(path, &file, &err) == STATUS_OK)
        check_file(&file, size);
    else
        fuzz_check_sentence(err.text);
    safetensors_file_close(&file);

    struct safetensors *tensors;
    if (safetensors_open(fuzz_folder(), &tensors, &err) != STATUS_OK) {
        fuzz_check_sentence(err.text);
        return 0;
    }
    struct tensor_view view;
    float values[6];
    if (safetensors_find(tensors, "a", 2, 3, &view, &err) == STATUS_OK)
        weight_convert(view.type, view.bytes, 6, WEIGHT_F32, values);
    else
        fuzz_check_sentence(err.text);
    volatile unsigned char sum = 0;
    if (safetensors_find_as(tensors, "b", "I8", 2, 3, &view, &err) == STATUS_OK)
        for (size_t i = 0; i < 6; i++)
            sum = (unsigned char)(sum + view.bytes[i]);
    else
        fuzz_check_sentence(err.text);
    if (safetensors_expect_all_found(tensors, &err) != STATUS_OK)
        fuzz_check_sentence(err.text);
    FUZZ_CHECK(safetensors_hash(tensors) == safetensors_hash(tensors));
    safetensors_close(tensors);
    return 0;
}
