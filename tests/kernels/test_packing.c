/* The form of packed weights, which files keep. The bytes are the same for every instruction set,
 * number of threads and order of loading, and never change for one name (kernels_info.packing). */
#include "common/base/domain/content_hash.h"
#include "common/base/rng.h"
#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 75, K = 387 };  /* no whole panels, groups or pairs */
enum { PADDED_ROWS = 64 }; /* more than a panel pads */

struct rows {
    uint8_t *bytes;
    float *scales; /* NULL: floats */
    size_t row_bytes, row_scales;
};

/* Any bytes: weights are moved, not computed with. Scales that bf16 holds. */
static struct rows make_rows(enum weight_type type)
{
    struct rng rng = rng_seeded(42);
    struct rows rows = {.row_bytes = weight_row_bytes(type, K),
                        .row_scales = weight_row_scales(type, K)};
    rows.bytes = malloc(N * rows.row_bytes);
    assert_non_null(rows.bytes);
    for (size_t i = 0; i < N * rows.row_bytes; i++)
        rows.bytes[i] = (uint8_t)rng_next(&rng);
    if (!weight_type_is_quantized(type))
        return rows;
    rows.scales = malloc(N * rows.row_scales * sizeof *rows.scales);
    assert_non_null(rows.scales);
    for (size_t i = 0; i < N * rows.row_scales; i++)
        rows.scales[i] = (float)(rng_next(&rng) % 256) / 128.0f;
    return rows;
}

static uint64_t packed_hash(const struct kernels_config *config, enum weight_type type,
                            uint32_t step, const char **packing)
{
    struct rows rows = make_rows(type);
    struct kernels *kernels;
    struct linear linear;
    struct error err;
    if (kernels_open(config, &kernels, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(kernels_linear_create(kernels, type, N, K, &linear), STATUS_OK);
    for (uint32_t row = 0, count; row < N; row += count) {
        count = N - row < step ? N - row : step;
        const float *scales = rows.scales ? rows.scales + row * rows.row_scales : NULL;
        assert_int_equal(kernels_linear_load(kernels, &linear, row, count,
                                             rows.bytes + row * rows.row_bytes, scales),
                         STATUS_OK);
    }
    assert_int_equal(linear.packed.bytes, kernels_linear_bytes(kernels, type, N, K));
    uint64_t hash = content_hash(linear.packed.address, linear.packed.bytes);
    *packing = kernels_info(kernels).packing;
    kernels_linear_destroy(kernels, &linear);
    kernels_close(kernels);
    free(rows.bytes);
    free(rows.scales);
    return hash;
}

/* If one of these changes, the name has to change: otherwise a file of another version would be
 * misread. */
static const struct {
    bool f32;
    enum weight_type type;
    const char *packing;
    uint64_t hash;
} FORMS[] = {
    {false, WEIGHT_BF16, "cpu-1", 0x03d17c72458cd687},
    {false, WEIGHT_INT8, "cpu-1", 0x8be571bb1b60b0c2},
    {false, WEIGHT_INT4, "cpu-1", 0x3136f2f6d46e1906},
    {true, WEIGHT_F32, "reference-1", 0x5934cbfaf162045f},
    {true, WEIGHT_INT8, "reference-1", 0x604c1cb204d38474},
    {true, WEIGHT_INT4, "reference-1", 0xcec0e67461db4344},
};

static void test_a_name_stands_for_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++)
        for (uint32_t threads = 1; threads <= 3; threads++)
            for (uint32_t step = 1; step <= 101; step += 50) {
                struct kernels_config config = {
                    .f32 = FORMS[i].f32, .isa = ISA_PORTABLE, .threads = threads};
                const char *packing;
                uint64_t hash = packed_hash(&config, FORMS[i].type, step, &packing);
                assert_string_equal(packing, FORMS[i].packing);
                if (hash != FORMS[i].hash)
                    fail_msg("%s %s: 0x%016llx", packing, weight_type_names[FORMS[i].type],
                             (unsigned long long)hash);
            }
}

static void test_instruction_sets_share_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        struct kernels_config config = {.f32 = FORMS[i].f32, .isa = ISA_AUTO, .threads = 2};
        const char *packing;
        assert_true(packed_hash(&config, FORMS[i].type, 32, &packing) == FORMS[i].hash);
        assert_string_equal(packing, FORMS[i].packing);
    }
}

/* Two layers that are filled in one piece of memory equal each layer by itself. */
static void test_layers_lie_where_the_caller_wants_them(void **state)
{
    (void)state;
    struct kernels_config config = {.threads = 1};
    struct kernels *kernels;
    struct buffer memory;
    struct error err;
    struct rows rows = make_rows(WEIGHT_INT4);
    assert_int_equal(kernels_open(&config, &kernels, &err), STATUS_OK);
    size_t bytes = kernels_linear_bytes(kernels, WEIGHT_INT4, N, K);
    size_t second = (bytes + LINEAR_ALIGN_BYTES - 1) / LINEAR_ALIGN_BYTES * LINEAR_ALIGN_BYTES;
    assert_int_equal(kernels_alloc(kernels, second + bytes, &memory), STATUS_OK);
    for (size_t offset = 0; offset <= second; offset += second) {
        struct linear linear = {.type = WEIGHT_INT4, .n = N, .k = K};
        assert_int_equal(kernels_linear_adopt(kernels, &memory, offset, &linear), STATUS_OK);
        assert_ptr_equal(linear.packed.address, (char *)memory.address + offset);
        assert_int_equal(kernels_linear_load(kernels, &linear, 0, N, rows.bytes, rows.scales),
                         STATUS_OK);
        assert_int_equal(linear.packed.bytes, bytes);
    }
    for (size_t offset = 0; offset <= second; offset += second)
        assert_true(content_hash((char *)memory.address + offset, bytes) == FORMS[2].hash);
    static const struct {
        size_t beyond;
        uint32_t n, k;
        enum status status;
    } bad[] = {{1, N, K, STATUS_INVALID},
               {LINEAR_ALIGN_BYTES, N, K, STATUS_INVALID},
               {(size_t)1 << 40, N, K, STATUS_INVALID},
               {0, 0, K, STATUS_INVALID},
               {0, N + PADDED_ROWS, K, STATUS_INVALID},
               {0, 1, WEIGHT_MAX_QUANTIZED_K + 1, STATUS_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct linear linear = {.type = WEIGHT_INT4, .n = bad[i].n, .k = bad[i].k};
        assert_int_equal(kernels_linear_adopt(kernels, &memory, second + bad[i].beyond, &linear),
                         bad[i].status);
        assert_null(linear.packed.address);
    }
    kernels_free(kernels, &memory);
    kernels_close(kernels);
    free(rows.bytes);
    free(rows.scales);
}

struct tally {
    uint32_t done[100];
};

static void count_items(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    for (uint32_t i = first; i < last; i++)
        ((struct tally *)context)->done[i]++;
}

static void test_host_work_does_each_item_once(void **state)
{
    (void)state;
    for (int f32 = 0; f32 <= 1; f32++) {
        struct kernels_config config = {.f32 = f32, .threads = 3};
        struct tally tally = {{0}};
        struct kernels *kernels;
        struct error err;
        assert_int_equal(kernels_open(&config, &kernels, &err), STATUS_OK);
        kernels_host_work(kernels, 100, 7, count_items, &tally);
        for (uint32_t i = 0; i < 100; i++)
            assert_int_equal(tally.done[i], 1);
        kernels_close(kernels);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_stands_for_bytes),
        cmocka_unit_test(test_instruction_sets_share_it),
        cmocka_unit_test(test_layers_lie_where_the_caller_wants_them),
        cmocka_unit_test(test_host_work_does_each_item_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
