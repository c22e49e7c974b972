/* Any text as --kv-faults. */
#include "common/kv/transport/kv_faults.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_copy_text((struct fuzz_bytes){data, size});
    struct error err;
    struct kv_faults *faults;
    if (kv_faults_create(text, &faults, &err) == STATUS_OK)
        kv_faults_destroy(faults);
    else
        fuzz_check_sentence(err.text);
    free(text);
    return 0;
}
