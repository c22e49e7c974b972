/* Any text as BATON_FAILPOINTS, or, behind a '@', as the file that it names. Nothing is hit: the
 * actions end processes. */
#include "common/base/failpoint.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_copy_text((struct fuzz_bytes){data, size});
    struct error err;
    if (*text == '@') {
        char path[256];
        snprintf(path, sizeof path, "@%s",
                 fuzz_write("failpoints", (struct fuzz_bytes){data + 1, size - 1}));
        fuzz_setenv("BATON_FAILPOINTS", path);
    } else {
        fuzz_setenv("BATON_FAILPOINTS", text);
    }
    if (failpoint_init("prefill-0", &err) != STATUS_OK)
        fuzz_check_sentence(err.text);
    free(text);
    return 0;
}
