/* A backend's functions for benchmarks: bounds are numbers if the machine has them, reads stay
 * inside their memory, a profile grows only for computed operations. */
#include "kernels/cpu/limits.h"
#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static struct kernels *open_backend(bool f32, uint32_t threads)
{
    struct kernels_config config = {.f32 = f32, .threads = threads};
    struct kernels *kernels;
    struct error err;
    assert_int_equal(kernels_open(&config, &kernels, &err), STATUS_OK);
    return kernels;
}

static void test_a_peak_has_a_name_or_is_not_known(void **state)
{
    (void)state;
    for (int f32 = 0; f32 < 2; f32++) {
        struct kernels *kernels = open_backend(f32, 2);
        const enum weight_type types[] = {kernels_info(kernels).weight_type, WEIGHT_INT8,
                                          WEIGHT_INT4};
        for (int i = 0; i < 3; i++) {
            const char *instruction = NULL;
            double peak = kernels_measure_peak(kernels, types[i], &instruction);
            assert_non_null(instruction);
            assert_true(*instruction ? peak > 0.1 : peak == 0);
        }
        kernels_close(kernels);
    }
}

/* Other features of the CPU don't matter. */
static void test_a_peak_is_of_the_set_that_runs(void **state)
{
    (void)state;
#if defined(__x86_64__)
    static const struct {
        enum isa isa;
        const char *floats, *int8, *int4;
    } sets[] = {{ISA_PORTABLE, "mulps xmm", "pmaddwd xmm", "pmaddwd xmm"},
                {ISA_AVX2, "vfmadd231ps ymm", "vpmaddwd ymm", "vpmaddubsw ymm"},
                {ISA_AVX512, "vfmadd231ps zmm", NULL, NULL}, /* VNNI or tiles, as available */
                {ISA_AVX512BF16, "vdpbf16ps zmm", NULL, NULL},
                {ISA_AMX, "tdpbf16ps", "tdpbsud", "tdpbsud"}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct kernels_config config = {.isa = sets[i].isa, .threads = 1};
        struct kernels *kernels;
        struct error err;
        enum status status = kernels_open(&config, &kernels, &err);
        if (status == STATUS_UNSUPPORTED)
            continue; /* this CPU has it not */
        assert_int_equal(status, STATUS_OK);
        const char *instruction;
        assert_true(kernels_measure_peak(kernels, WEIGHT_BF16, &instruction) > 0.1);
        assert_string_equal(instruction, sets[i].floats);
        assert_true(kernels_measure_peak(kernels, WEIGHT_INT8, &instruction) > 0.1);
        if (sets[i].int8)
            assert_string_equal(instruction, sets[i].int8);
        assert_true(kernels_measure_peak(kernels, WEIGHT_INT4, &instruction) > 0.1);
        if (sets[i].int4)
            assert_string_equal(instruction, sets[i].int4);
        kernels_close(kernels);
    }
#endif
}

static void test_every_size_can_be_read(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 255, 256, 257, 4096, 1 << 20};
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct kernels *kernels = open_backend(false, threads);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct buffer memory;
            assert_int_equal(kernels_alloc(kernels, sizes[i], &memory), STATUS_OK);
            uint64_t ns = kernels_measure_read(kernels, &memory);
            assert_true(ns > 0 && ns < 10000000000);
            kernels_free(kernels, &memory);
        }
        kernels_close(kernels);
    }
}

/* Every way of reading, not only the fastest here, reads no byte behind the memory: its next page
 * faults. */
static void test_reads_stay_inside_their_memory(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 3 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(mprotect(pages, page, PROT_NONE), 0);
    assert_int_equal(mprotect(pages + 2 * page, page, PROT_NONE), 0);
    struct pool *pool;
    struct error err;
    assert_int_equal(pool_create(3, NULL, false, &pool, &err), STATUS_OK);
    for (uint32_t threads = 1; threads <= 3; threads++)
        for (enum limits_way way = LIMITS_UNKNOWN; way < LIMITS_WAYS; way++)
            for (size_t bytes = 0; bytes <= page; bytes += 61) {
                enum limits_way taken = way;
                (void)limits_read(pool, threads, &taken, pages + 2 * page - bytes, bytes);
                assert_true(way ? taken == way : taken != LIMITS_UNKNOWN);
            }
    pool_destroy(pool);
    assert_int_equal(munmap(pages, 3 * page), 0);
}

static void run_swiglu(struct kernels *kernels, const struct buffer *in, struct buffer *out)
{
    assert_int_equal(kernels_swiglu(kernels, in, 4, 16, out), STATUS_OK);
}

static void test_a_profile_counts_what_ran(void **state)
{
    (void)state;
    struct kernels *kernels = open_backend(false, 1);
    struct buffer in, out;
    assert_int_equal(kernels_alloc(kernels, 4 * 32 * sizeof(float), &in), STATUS_OK);
    assert_int_equal(kernels_alloc(kernels, 4 * 16 * sizeof(float), &out), STATUS_OK);
    struct kernels_profile profile = {0}, only_swiglu = {0};
    run_swiglu(kernels, &in, &out);
    assert_int_equal(profile.swiglu, 0);
    kernels_profile_to(kernels, &profile);
    for (int i = 0; i < 100 && !profile.swiglu; i++) /* a coarse clock may not see the first */
        run_swiglu(kernels, &in, &out);
    assert_true(profile.swiglu > 0);
    only_swiglu.swiglu = profile.swiglu;
    assert_memory_equal(&profile, &only_swiglu, sizeof profile);
    kernels_profile_to(kernels, NULL);
    run_swiglu(kernels, &in, &out);
    assert_memory_equal(&profile, &only_swiglu, sizeof profile);
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
    kernels_close(kernels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_peak_has_a_name_or_is_not_known),
        cmocka_unit_test(test_a_peak_is_of_the_set_that_runs),
        cmocka_unit_test(test_every_size_can_be_read),
        cmocka_unit_test(test_reads_stay_inside_their_memory),
        cmocka_unit_test(test_a_profile_counts_what_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
