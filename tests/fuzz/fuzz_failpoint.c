/* Any text as BATON_FAILPOINTS. Nothing is hit: the actions end processes. */
#include "common/base/failpoint.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_copy_text((struct fuzz_bytes){data, size});
    struct error err;
    setenv("BATON_FAILPOINTS", text, 1);
    if (failpoint_init("prefill-0", &err) != STATUS_OK)
        fuzz_check_sentence(err.text);
    free(text);
    return 0;
}
