/* The nodes that memory goes to, by a made-up /sys. Asking the kernel harms nothing, and the kernel
 * is asked. */
#include "kernels/cpu/placement.h"

#include "kernels/backend.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_NODES 4

static char folder[] = "/tmp/baton-nodes-XXXXXX";

static void write_list(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void remove_file(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    (void)remove(path);
}

/* NULL: that file isn't there. */
static uint64_t nodes_of(const char *online, const char *const *cpulists, const int *cpus,
                         uint32_t threads)
{
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    assert_non_null(mkdtemp(folder));
    if (online)
        write_list("online", online);
    for (uint32_t i = 0; i < MAX_NODES && cpulists[i]; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s/node%u", folder, i);
        assert_int_equal(mkdir(name, 0700), 0);
        snprintf(name, sizeof name, "node%u/cpulist", i);
        write_list(name, cpulists[i]);
    }
    uint64_t nodes = placement_find(folder, cpus, threads).nodes;
    for (uint32_t i = 0; i < MAX_NODES && cpulists[i]; i++) {
        char name[64];
        snprintf(name, sizeof name, "node%u/cpulist", i);
        remove_file(name);
        snprintf(name, sizeof name, "node%u", i);
        remove_file(name);
    }
    remove_file("online");
    assert_int_equal(rmdir(folder), 0);
    return nodes;
}

static void test_the_nodes_of_those_who_compute(void **state)
{
    (void)state;
    static const int first[] = {0, 3}, second[] = {4, 6}, both[] = {3, 4};
    static const int none[] = {900, 901};
    static const char *const two[MAX_NODES] = {"0-3,8-11\n", "4-7\n"};
    static const char *const all[MAX_NODES] = {"0-1023\n", "0-1023\n", "0-1023\n"};
    assert_int_equal(nodes_of("0\n", two, first, 2), 0); /* one node: nothing is asked */
    assert_int_equal(nodes_of(NULL, two, first, 2), 0);
    assert_int_equal(nodes_of("0-1\n", two, first, 2), 1);
    assert_int_equal(nodes_of("0-1\n", two, second, 2), 2);
    assert_int_equal(nodes_of("0-1\n", two, both, 2), 3);
    assert_int_equal(nodes_of("0-1\n", two, both, 1), 1);
    assert_int_equal(nodes_of("0,1\n", two, none, 2), 0);
    assert_int_equal(nodes_of("0,2\n", all, NULL, 4), 5); /* wherever this process may run */
}

static void test_lists_that_make_no_sense(void **state)
{
    (void)state;
    static const int cpus[] = {1};
    static const char *const odd[MAX_NODES] = {"", "x", "3-1,", "0-99999999999999999999"};
    static const char *const online[] = {"", "x", "-1", "0-", ",", "5-1", "99999-100000", "0 1"};
    for (size_t i = 0; i < sizeof online / sizeof *online; i++)
        assert_int_equal(nodes_of(online[i], odd, cpus, 1), 0);
    assert_int_equal(nodes_of("0-3\n", odd, cpus, 1), 8);
    assert_int_equal(nodes_of("0-1000000\n", odd, cpus, 1), 8);
}

static int policy_of(void *address)
{
    int policy = -1;
    return syscall(SYS_get_mempolicy, &policy, NULL, 0UL, address, MPOL_F_ADDR) == 0 ? policy : -1;
}

static char *map(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* Every machine has node 0, and missing nodes don't count, so interleaving can be requested on a
 * machine with one node. */
static const struct asked {
    struct placement placement;
    int policy;
} asked[] = {{{1}, MPOL_PREFERRED}, {{1 | UINT64_C(1) << 40}, MPOL_INTERLEAVE}};

/* Returns the policy of memory that this test itself allocates in this way, unless mbind isn't
 * available (a container's filter). */
static int policy_given(const struct asked *it)
{
    const size_t bytes = 1 << 20;
    unsigned long mask[2] = {it->placement.nodes, 0};
    char *memory = map(bytes);
    long failed =
        syscall(SYS_mbind, memory, bytes, it->policy, mask, PLACEMENT_MAX_NODES + 1, MPOL_MF_MOVE);
    int policy = policy_of(memory);
    if (failed)
        print_message("mbind: %s: nothing shows where memory was placed\n", strerror(errno));
    else
        assert_int_equal(policy, it->policy);
    munmap(memory, bytes);
    return policy;
}

static void test_memory_is_placed(void **state)
{
    (void)state;
    const size_t bytes = 1 << 20;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        char *untouched = map(bytes), *touched = map(bytes);
        memset(touched, 7, bytes);
        placement_apply(&asked[i].placement, untouched, bytes);
        placement_apply(&asked[i].placement, touched, bytes);
        assert_int_equal(policy_of(untouched), policy_given(&asked[i]));
        assert_int_equal(policy_of(touched), policy_given(&asked[i]));
        munmap(untouched, bytes);
        munmap(touched, bytes);
    }
}

static void test_memory_keeps_its_content(void **state)
{
    (void)state;
    const size_t bytes = 1 << 20;
    const struct placement places[] = {{0}, {1}, {1 | UINT64_C(1) << 40}};
    char *memory = map(bytes);
    memset(memory, 7, bytes);
    int before = policy_of(memory);
    placement_apply(&places[0], memory, bytes);
    assert_int_equal(policy_of(memory), before);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        placement_apply(&places[i], memory + 100, bytes - 200);
        placement_apply(&places[i], memory, 10);
        for (size_t b = 0; b < bytes; b++)
            assert_int_equal(memory[b], 7);
    }
    munmap(memory, bytes);
}

/* The memory that weights and pools get: zero, aligned, and given back. */
static void test_device_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4096, (2 << 20) - 1, 2 << 20, (5 << 20) + 3};
    struct kernels_config config = {.f32 = true, .threads = 1};
    struct kernels *kernels;
    struct error err;
    assert_int_equal(kernels_open(&config, &kernels, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct buffer buffer;
        assert_int_equal(kernels_alloc(kernels, sizes[i], &buffer), STATUS_OK);
        uint8_t *at = buffer.address;
        assert_int_equal((uintptr_t)at % (sizes[i] < 2 << 20 ? 64 : 2 << 20), 0);
        for (size_t b = 0; b < sizes[i]; b++)
            assert_int_equal(at[b], 0);
        memset(at, 1, sizes[i]);
        kernels_free(kernels, &buffer);
        assert_null(buffer.address);
    }
    struct buffer none;
    assert_int_equal(kernels_alloc(kernels, SIZE_MAX - 4096, &none), STATUS_LIMIT);
    assert_int_equal(kernels_alloc(kernels, SIZE_MAX / 2, &none), STATUS_LIMIT);
    kernels_close(kernels);
}

/* Returns whether the memory at `address` is advised to use huge pages, by the kernel's flags of
 * its mapping. */
static bool asks_for_huge_pages(const void *address)
{
    char line[512];
    bool inside = false, asks = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        uintptr_t first, end;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &first, &end) == 2)
            inside = first <= (uintptr_t)address && (uintptr_t)address < end;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            asks = strstr(line, " hg") != NULL;
    }
    fclose(file);
    return asks;
}

/* Weights and pools get the requested advice for their mapping, as far as this kernel takes any,
 * and the requested place. */
static void test_device_memory_is_advised_and_placed(void **state)
{
    (void)state;
    const size_t bytes = 4 << 20;
    const struct kernels_config config = {.f32 = true, .threads = 1};
    char *own = map(bytes);
    (void)madvise(own, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct kernels *kernels;
        struct error err;
        struct buffer buffer, adopted;
        char *pool = map(bytes);
        assert_int_equal(kernels_open(&config, &kernels, &err), STATUS_OK);
        kernels->placement = asked[i].placement;
        assert_int_equal(kernels_alloc(kernels, bytes, &buffer), STATUS_OK);
        assert_int_equal(kernels_adopt(kernels, pool, bytes, &adopted), STATUS_OK);
        assert_int_equal(policy_of(buffer.address), policy_given(&asked[i]));
        assert_int_equal(policy_of(pool), policy_given(&asked[i]));
        assert_int_equal(asks_for_huge_pages(buffer.address), asks_for_huge_pages(own));
        kernels_free(kernels, &buffer);
        munmap(pool, bytes);
        kernels_close(kernels);
    }
    munmap(own, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_nodes_of_those_who_compute),
        cmocka_unit_test(test_lists_that_make_no_sense),
        cmocka_unit_test(test_memory_is_placed),
        cmocka_unit_test(test_memory_keeps_its_content),
        cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_device_memory_is_advised_and_placed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
