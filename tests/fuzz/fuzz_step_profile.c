/* Any text as the file of --profile: it is refused with a sentence, or its steps take finite
 * times. */
#include "common/engine/mock/mock_engine.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct step_profile profile;
    struct error err;
    if (profile_parse((const char *)data, size, &profile, &err) != STATUS_OK) {
        fuzz_check_sentence(err.text);
        return 0;
    }
    const struct step_shape shapes[] = {
        {0}, {65536, 1u << 31, 0, 0}, {0, 0, 4096, 1ull << 32}, {1, 0, 1, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        double us = step_profile_us(&profile, &shapes[i], i);
        if (!isfinite(us) || us < 0)
            abort();
    }
    return 0;
}
