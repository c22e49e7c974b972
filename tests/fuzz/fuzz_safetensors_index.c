/* Any bytes as model.safetensors.index.json beside two valid shards: tests the files that it may
 * name, and their content. */
#include "common/engine/model/safetensors.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* One bf16 tensor of 2 x 3. */
static void write_shard(const char *name, const char *header)
{
    uint8_t bytes[256] = {(uint8_t)strlen(header)};
    memcpy(bytes + 8, header, strlen(header));
    fuzz_write(name, (struct fuzz_bytes){bytes, 8 + strlen(header) + 12});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready) {
        fuzz_quiet();
        write_shard("1.safetensors",
                    "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}");
        write_shard("2.safetensors",
                    "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}");
        ready = true;
    }
    fuzz_write("model.safetensors.index.json", (struct fuzz_bytes){data, size});
    struct error err;
    struct safetensors *tensors;
    if (safetensors_open(fuzz_folder(), &tensors, &err) != STATUS_OK) {
        fuzz_check_sentence(err.text);
        return 0;
    }
    struct tensor_view a = {0}, b = {0};
    if (safetensors_find(tensors, "a", 2, 3, &a, &err) == STATUS_OK)
        FUZZ_CHECK(a.bytes[0] == 0 && a.bytes[11] == 0);
    if (safetensors_find(tensors, "b", 2, 3, &b, &err) == STATUS_OK)
        FUZZ_CHECK(b.bytes[0] == 0 && b.bytes[11] == 0);
    FUZZ_CHECK(a.bytes || b.bytes);
    safetensors_close(tensors);
    return 0;
}
