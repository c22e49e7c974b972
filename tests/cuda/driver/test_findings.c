/* The decisions of kernels/cuda/driver.c: findings from facts, a fault from a result, an XID from
 * its number, and the reasons of a low clock. */
#include "common/base/domain/device_health.h"
#include "kernels/cuda/driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The first of several faults is told, from the program to the device. */
static void test_findings_are_decided_by_facts(void **state)
{
    (void)state;
    const struct cuda_facts good = {.file = "libcuda.so.1",
                                    .built = true,
                                    .loaded = true,
                                    .version = CUDA_LEAST_VERSION,
                                    .devices = 2,
                                    .ordinal = 1,
                                    .capability = CUDA_LEAST_CAPABILITY};
    struct cuda_facts facts = good;
    struct error err = {0};
    assert_int_equal(cuda_judge(&good), CUDA_USABLE);
    assert_int_equal(cuda_explain(CUDA_USABLE, &good, &err), STATUS_OK);
    assert_string_equal(err.text, "");
    facts.capability--;
    assert_int_equal(cuda_judge(&facts), CUDA_DEVICE_TOO_OLD);
    facts.ordinal++;
    assert_int_equal(cuda_judge(&facts), CUDA_NO_SUCH_DEVICE);
    facts.devices = 0;
    assert_int_equal(cuda_judge(&facts), CUDA_NO_DEVICE);
    facts.init = CUDA_NO_DEVICE_FOUND;
    assert_int_equal(cuda_judge(&facts), CUDA_NO_DEVICE);
    facts.init = CUDA_UNKNOWN;
    assert_int_equal(cuda_judge(&facts), CUDA_DRIVER_FAILS);
    facts.lacking = "cuInit";
    assert_int_equal(cuda_judge(&facts), CUDA_DRIVER_PARTIAL);
    facts.version--;
    assert_int_equal(cuda_judge(&facts), CUDA_DRIVER_TOO_OLD);
    facts.loaded = false;
    assert_int_equal(cuda_judge(&facts), CUDA_NO_DRIVER);
    facts.built = false;
    assert_int_equal(cuda_judge(&facts), CUDA_NOT_BUILT);
    for (enum cuda_finding f = CUDA_NOT_BUILT; f <= CUDA_DEVICE_TOO_OLD; f++) {
        assert_int_equal(cuda_explain(f, &facts, &err), STATUS_NOT_FOUND);
        assert_non_null(strstr(err.text, cuda_finding_codes[f]));
    }
}

static void test_faults_have_names(void **state)
{
    (void)state;
    static const struct {
        int result;
        const char *name, *xid;
        bool lost;
    } cases[] = {
        {CUDA_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "48, 94, 95", true},
        {CUDA_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "31", true},
        {CUDA_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "13, 31, 79", true},
        {CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "", false},
        {12345, "CUDA_ERROR", "", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cuda_fault fault = cuda_fault_of(cases[i].result);
        assert_int_equal(fault.result, cases[i].result);
        assert_string_equal(fault.name, cases[i].name);
        assert_string_equal(fault.xid, cases[i].xid);
        assert_int_equal(fault.lost, cases[i].lost);
        assert_true(strlen(fault.meaning) > 0);
    }
}

static void test_a_device_is_watched_by_facts(void **state)
{
    (void)state;
    struct nvml_facts facts = {.file = "libnvidia-ml.so.1", .loaded = true};
    struct error err = {0};
    assert_int_equal(nvml_judge(&facts), NVML_USABLE);
    assert_int_equal(nvml_explain(NVML_USABLE, &facts, &err), STATUS_OK);
    static const char *const codes[] = {"nvml_no_device", "nvml_fails", "nvml_partial",
                                        "nvml_no_library"};
    for (int i = 0; i < 4; i++) {
        facts.device = NVML_NOT_FOUND; /* the first of several is told */
        facts.init = i >= 1 ? NVML_DRIVER_NOT_LOADED : NVML_OK;
        facts.lacking = i >= 2 ? "nvmlShutdown" : NULL;
        facts.loaded = i < 3;
        enum nvml_finding finding = nvml_judge(&facts);
        assert_int_equal(finding, NVML_NO_DEVICE - i);
        assert_int_equal(nvml_explain(finding, &facts, &err), STATUS_NOT_FOUND);
        assert_non_null(strstr(err.text, codes[i]));
    }
}

/* A fault of one process's kernel doesn't end the others on its device; an error of the device
 * does. */
static void test_xids_have_meanings(void **state)
{
    (void)state;
    static const struct {
        unsigned long long number;
        const char *meaning;
        bool ends;
    } cases[] = {
        {13, "isn't sound", false},      {31, "memory that isn't there", false},
        {43, "its own error", false},    {45, "was ended", false},
        {48, "ECC can't correct", true}, {63, "next reset", false},
        {74, "NVLink", false},           {79, "fell off its bus", true},
        {94, "was contained", true},     {95, "wasn't contained", true},
        {119, "doesn't answer", true},   {123456789012ull, "doesn't know", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cuda_xid xid = cuda_xid_of(cases[i].number);
        assert_true(xid.number == cases[i].number);
        assert_non_null(strstr(xid.meaning, cases[i].meaning));
        assert_int_equal(xid.ends, cases[i].ends);
    }
}

static void test_a_low_clock_has_reasons(void **state)
{
    (void)state;
    static const struct {
        unsigned long long reasons;
        uint32_t slowdowns;
    } cases[] = {
        {0, 0},
        {0x1 | 0x2 | 0x10 | 0x100, 0}, /* idle, or as it was set */
        {0x4, 1u << DEVICE_POWER_CAP},
        {0x8, 1u << DEVICE_HARDWARE},
        {0x20, 1u << DEVICE_THERMAL},
        {0x40, 1u << DEVICE_HARDWARE_THERMAL},
        {0x80 | 0x1, 1u << DEVICE_POWER_BRAKE},
        {0xffff, (1u << DEVICE_SLOWDOWNS) - 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(cuda_slowdowns_of(cases[i].reasons), cases[i].slowdowns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_findings_are_decided_by_facts),
        cmocka_unit_test(test_faults_have_names),
        cmocka_unit_test(test_a_device_is_watched_by_facts),
        cmocka_unit_test(test_xids_have_meanings),
        cmocka_unit_test(test_a_low_clock_has_reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
