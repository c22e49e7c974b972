/* Opening a backend: the choice, and refusals with their sentences. */
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "tests/kernels/fixture.h"

#include <string.h>

static enum status open_config(struct kernels_config config, struct kernels **kernels,
                               struct error *err)
{
    *kernels = NULL;
    memset(err, 0, sizeof *err);
    return kernels_open(&config, kernels, err);
}

static void test_backends_have_their_names(void **state)
{
    (void)state;
    struct kernels *kernels;
    struct error err;
    assert_int_equal(
        open_config((struct kernels_config){.f32 = true, .threads = 2}, &kernels, &err), STATUS_OK);
    struct kernels_info info = kernels_info(kernels);
    assert_string_equal(info.name, "f32");
    assert_int_equal(info.kv_type, KV_F32);
    assert_int_equal(info.threads, 2);
    assert_true(info.device_is_host);
    kernels_close(kernels);
    assert_int_equal(
        open_config((struct kernels_config){.isa = ISA_PORTABLE, .threads = 1}, &kernels, &err),
        STATUS_OK);
    info = kernels_info(kernels);
    assert_string_equal(info.name, "bf16-portable");
    assert_int_equal(info.kv_type, KV_BF16);
    kernels_close(kernels);
    kernels_close(NULL);
}

static void test_auto_goes_by_cpuid(void **state)
{
    (void)state;
    struct kernels *kernels;
    struct error err;
    assert_int_equal(
        open_config((struct kernels_config){.isa = ISA_AUTO, .threads = 1}, &kernels, &err),
        STATUS_OK);
    assert_string_equal(kernels_info(kernels).name, isa_allows_amx()           ? "bf16-amx"
                                                    : isa_prefers_avx512bf16() ? "bf16-avx512bf16"
                                                                               : "bf16-portable");
    kernels_close(kernels);
}

static void test_a_forced_set_runs_or_is_refused(void **state)
{
    (void)state;
    const struct {
        enum isa isa;
        bool here;
        const char *name, *lacking;
    } cases[] = {
        {ISA_PORTABLE, true, "bf16-portable", ""},
        {ISA_AVX2, isa_reports_avx2(), "bf16-portable", "this CPU has no AVX2 with FMA: use isa"},
        {ISA_AVX512, isa_reports_avx512(), "bf16-portable", "this CPU has no AVX-512 (F, BW,"},
        {ISA_AVX512BF16, isa_executes_avx512bf16(), "bf16-avx512bf16", "AVX512-BF16"},
        {ISA_AMX, isa_allows_amx(), "bf16-amx", "this CPU or its kernel has no AMX (tdpbf16ps)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernels *kernels;
        struct error err;
        struct kernels_config config = {.isa = cases[i].isa, .threads = 1};
        enum status status = open_config(config, &kernels, &err);
        if (cases[i].here) {
            assert_int_equal(status, STATUS_OK);
            assert_string_equal(kernels_info(kernels).name, cases[i].name);
            assert_string_equal(kernels_info(kernels).isa, isa_names[cases[i].isa]);
            assert_int_equal(kernels_info(kernels).weight_type, WEIGHT_BF16);
            kernels_close(kernels);
            continue;
        }
        assert_int_equal(status, STATUS_UNSUPPORTED);
        assert_null(kernels);
        assert_non_null(strstr(err.text, cases[i].lacking));
        for (size_t other = 0; other < sizeof cases / sizeof *cases; other++)
            if (cases[other].here)
                assert_non_null(strstr(err.text, isa_names[cases[other].isa]));
    }
}

static void test_the_sets_that_are_here_are_named(void **state)
{
    (void)state;
    static const struct {
        bool here[ISA_AMX + 1];
        const char *told;
    } cases[] = {
        {{false}, "auto or portable"},
        {{[ISA_AVX2] = true}, "auto, avx2 or portable"},
        {{[ISA_AVX2] = true, [ISA_AVX512] = true}, "auto, avx512, avx2 or portable"},
        {{[ISA_AVX2] = true, [ISA_AVX512] = true, [ISA_AVX512BF16] = true, [ISA_AMX] = true},
         "auto, amx, avx512bf16, avx512, avx2 or portable"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[80];
        isa_choices(cases[i].here, text, sizeof text);
        assert_string_equal(text, cases[i].told);
        char small[9];
        isa_choices(cases[i].here, small, sizeof small);
        assert_memory_equal(small, cases[i].told, sizeof small - 1);
    }
}

static void test_f32_is_one_path(void **state)
{
    (void)state;
    for (enum isa isa = ISA_AUTO; isa <= ISA_AMX; isa++) {
        struct kernels *kernels;
        struct error err;
        struct kernels_config config = {.f32 = true, .isa = isa, .threads = 1};
        enum status status = open_config(config, &kernels, &err);
        if (isa <= ISA_PORTABLE) {
            assert_int_equal(status, STATUS_OK);
            assert_string_equal(kernels_info(kernels).isa, "portable");
            kernels_close(kernels);
            continue;
        }
        assert_int_equal(status, STATUS_INVALID);
        assert_non_null(strstr(err.text, "compute f32 is portable code on every CPU"));
    }
}

static void test_impossible_threads_are_refused(void **state)
{
    (void)state;
    struct kernels *kernels;
    struct error err;
    static const int no_cpu[] = {0, -1};
    const struct kernels_config bad[] = {
        {.f32 = true, .threads = 0},
        {.f32 = true, .threads = KERNELS_MAX_THREADS + 1},
        {.f32 = true, .threads = 2, .cpus = no_cpu},
        {.threads = 2, .cpus = no_cpu},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(open_config(bad[i], &kernels, &err), STATUS_INVALID);
        assert_null(kernels);
        assert_true(strlen(err.text) > 0);
    }
}

static void test_memory_is_bounded_and_adoptable(void **state)
{
    (void)state;
    struct kernels *kernels;
    struct error err;
    assert_int_equal(
        open_config((struct kernels_config){.f32 = true, .threads = 1}, &kernels, &err), STATUS_OK);
    struct buffer big = {0}, huge = {0}, adopted = {0};
    assert_int_equal(kernels_alloc(kernels, SIZE_MAX - 1, &huge), STATUS_LIMIT);
    assert_null(huge.address);
    assert_int_equal(kernels_alloc(kernels, ((size_t)2 << 20) + 1, &big), STATUS_OK);
    assert_int_equal((uintptr_t)big.address % ((size_t)2 << 20), 0);
    size_t available = kernels_available_bytes(kernels);
    assert_true(available > (size_t)64 << 20 && available < (size_t)1 << 50);
    char mine[64] = "pool", read[5] = "";
    assert_int_equal(kernels_adopt(kernels, mine, sizeof mine, &adopted), STATUS_OK);
    assert_int_equal(kernels_download(kernels, &adopted, 0, read, 5), STATUS_OK);
    assert_string_equal(read, "pool");
    const void *seen = NULL;
    assert_int_equal(kernels_view(kernels, &adopted, 60, 5, NULL, &seen), STATUS_INVALID);
    assert_null(seen);
    assert_int_equal(kernels_view(kernels, &adopted, 2, 3, NULL, &seen), STATUS_OK);
    assert_ptr_equal(seen, mine + 2); /* its device is the host */
    assert_int_equal(kernels_copy(kernels, KERNELS_STEPS, &adopted, 0, &adopted, 32, 5), STATUS_OK);
    assert_int_equal(kernels_sync(kernels), STATUS_OK);
    assert_string_equal(mine + 32, "pool");
    static const size_t bad[][3] = {{60, 0, 5}, {0, 60, 5}, {0, 4, 5}, {4, 0, 5}, {SIZE_MAX, 0, 5}};
    for (int i = 0; i < 5; i++) /* beyond the ends, and onto itself */
        assert_int_equal(kernels_copy(kernels, KERNELS_STEPS, &adopted, bad[i][0], &adopted,
                                      bad[i][1], bad[i][2]),
                         STATUS_INVALID);
    kernels_free(kernels, &big);
    assert_null(big.address);
    kernels_close(kernels);
}

/* The reference, except for the description of its memory. */
static void test_a_view_of_a_device_is_a_copy(void **state)
{
    (void)state;
    struct kernels *kernels;
    struct error err;
    assert_int_equal(
        open_config((struct kernels_config){.f32 = true, .threads = 1}, &kernels, &err), STATUS_OK);
    const struct kernels_backend *host = kernels->backend;
    struct kernels_backend device = *host;
    device.device_is_host = false;
    kernels->backend = &device;
    char mine[64] = "pool", copy[4] = "";
    const void *seen = NULL;
    struct buffer adopted = {0};
    assert_int_equal(kernels_adopt(kernels, mine, sizeof mine, &adopted), STATUS_OK);
    assert_int_equal(kernels_view(kernels, &adopted, 1, 4, copy, &seen), STATUS_OK);
    assert_ptr_equal(seen, copy);
    assert_string_equal(copy, "ool");
    kernels->backend = host;
    kernels_close(kernels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends_have_their_names),
        cmocka_unit_test(test_auto_goes_by_cpuid),
        cmocka_unit_test(test_a_forced_set_runs_or_is_refused),
        cmocka_unit_test(test_the_sets_that_are_here_are_named),
        cmocka_unit_test(test_f32_is_one_path),
        cmocka_unit_test(test_impossible_threads_are_refused),
        cmocka_unit_test(test_memory_is_bounded_and_adoptable),
        cmocka_unit_test(test_a_view_of_a_device_is_a_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
