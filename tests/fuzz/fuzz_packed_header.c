/* Any bytes as the start of a file of packed weights, and any length of that file. An accepted
 * header is undamaged and, except for the checksums of pieces, the expected one. If the first byte
 * is odd, the target corrects the header's checksum: mutations alone don't find it. */
#include "common/base/domain/content_hash.h"
#include "common/engine/model/packed_plan.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static struct packed_header expected_header(void)
{
    static const struct packed_identity identity = {"cpu-1", 1, 2};
    struct packed_plan plan = {0};
    FUZZ_CHECK(packed_plan_add(&plan, WEIGHT_BF16, 64, 64, 8192) == STATUS_OK);
    FUZZ_CHECK(packed_plan_add(&plan, WEIGHT_INT8, 4096, 4096, (16 << 20) + 9) == STATUS_OK);
    struct packed_header header = packed_plan_header(&plan, &identity);
    packed_plan_deinit(&plan);
    return header;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    uint8_t flags = fuzz_take_u8(&input);
    uint64_t less = fuzz_take_u8(&input);
    struct fuzz_bytes rest = fuzz_take_rest(&input);
    struct packed_header expected = expected_header(), found;
    uint8_t *bytes = malloc(rest.size + !rest.size);
    struct error err;
    FUZZ_CHECK(bytes);
    memcpy(bytes, rest.data, rest.size);
    if (flags & 1 && rest.size >= sizeof found) {
        memcpy(&found, bytes, sizeof found);
        if (found.header_bytes >= sizeof(uint64_t) && found.header_bytes <= rest.size) {
            size_t before = found.header_bytes - sizeof(uint64_t);
            uint64_t checksum = content_hash(bytes, before);
            memcpy(bytes + before, &checksum, sizeof checksum);
        }
    }
    uint64_t file_bytes = expected.data_offset + expected.data_bytes - less;
    if (packed_header_check(&expected, bytes, rest.size, file_bytes, &err) == STATUS_OK) {
        FUZZ_CHECK(less == 0 && rest.size >= expected.header_bytes);
        FUZZ_CHECK(!memcmp(bytes, &expected, sizeof expected));
    } else {
        fuzz_check_sentence(err.text);
    }
    free(bytes);
    return 0;
}
