/* Files of packed weights: the read bytes are the written ones. Any other file is refused with its
 * reason. */
#include "common/base/clock.h"
#include "common/engine/model/load_progress.h"
#include "common/engine/model/weight_cache.h"
#include "tests/unit/model_mutation.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>

#define NAME "a.packed"

static char path[600];
static struct kernels *kernels;
static struct packed_plan plan;
static struct packed_header header;
static char *data; /* bytes of the layers, zeros between them */
static const struct packed_identity IDENTITY = {"cpu-1", 7, 8};

/* Three layers, one of them longer than a piece: two pieces and zeros between. */
static const uint64_t BYTES[] = {5000, PACKED_PIECE_BYTES + 12345, 64};

static int open_world(void **state)
{
    (void)state;
    struct error err;
    struct kernels_config config = {.f32 = true, .threads = 2};
    if (kernels_open(&config, &kernels, &err) != STATUS_OK)
        return -1;
    snprintf(path, sizeof path, "%s/%s", model_folder, NAME);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(packed_plan_add(&plan, WEIGHT_INT8, i + 1, 2, BYTES[i]), STATUS_OK);
    }
    header = packed_plan_header(&plan, &IDENTITY);
    data = calloc(1, header.data_bytes);
    assert_non_null(data);
    for (uint32_t i = 0; i < 3; i++)
        for (uint64_t b = 0; b < BYTES[i]; b++)
            data[plan.sections[i].offset + b] = (char)(b * 31 + b / 251 + i);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    free(data);
    packed_plan_deinit(&plan);
    kernels_close(kernels);
    model_clear(model_folder);
    return 0;
}

static enum status write_file(struct error *err)
{
    struct load_progress progress =
        load_progress_begin("writing", header.data_bytes, NULL, clock_now_us());
    return packed_file_write(path, &header, data, &progress, err);
}

static enum status map_as(const struct packed_header *expected, struct packed_map *map,
                          struct error *err)
{
    struct load_progress progress =
        load_progress_begin("reading", expected->data_bytes, NULL, clock_now_us());
    return packed_file_map(path, expected, kernels, &progress, map, err);
}

static void write_sound(void)
{
    struct error err;
    if (write_file(&err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void expect_sound(void)
{
    struct error err;
    struct packed_map map;
    if (map_as(&header, &map, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal((uintptr_t)map.data % PACKED_ALIGN_BYTES, 0);
    assert_memory_equal(map.data, data, header.data_bytes);
    packed_file_unmap(&map);
    assert_null(map.data);
}

static void expect_refused(const struct packed_header *expected, enum status status,
                           const char *why)
{
    struct error err;
    struct packed_map map = {0};
    assert_int_equal(map_as(expected, &map, &err), status);
    assert_null(map.data);
    assert_true(strncmp(err.text, path, strlen(path)) == 0);
    if (!strstr(err.text, why))
        fail_msg("expected \"%s\" in \"%s\"", why, err.text);
}

static bool is_there(const char *name)
{
    char other[600];
    snprintf(other, sizeof other, "%s/%s", model_folder, name);
    return access(other, F_OK) == 0;
}

static void test_what_was_written_comes_back(void **state)
{
    (void)state;
    struct error err;
    struct packed_map map;
    assert_int_equal(header.piece_count, 2);
    assert_int_equal(map_as(&header, &map, &err), STATUS_NOT_FOUND);
    write_sound();
    assert_false(is_there(NAME ".tmp"));
    expect_sound();
    write_sound(); /* in the place of the old one */
    expect_sound();
}

static void test_cut_files_are_refused(void **state)
{
    (void)state;
    write_sound();
    long long whole = (long long)(header.data_offset + header.data_bytes);
    const struct {
        long long length;
        const char *why;
    } cuts[] = {
        {0, "cut short"},
        {sizeof header - 1, "cut short"},
        {header.header_bytes - 1, "damaged or cut short"},
        {header.header_bytes, "(cut short?)"},
        {whole - 1, "(cut short?)"},
        {whole + 1, "(cut short?)"},
    };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        assert_int_equal(truncate(path, cuts[i].length), 0);
        expect_refused(&header, STATUS_CORRUPT, cuts[i].why);
        write_sound();
    }
    expect_sound();
}

static void flip(uint64_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

static void test_a_flipped_bit_is_found_wherever_it_is(void **state)
{
    (void)state;
    struct error err;
    struct packed_map map = {0};
    write_sound();
    for (uint64_t at = 0; at < header.header_bytes; at++) {
        flip(at);
        enum status status = map_as(&header, &map, &err);
        assert_true(status == STATUS_CORRUPT || status == STATUS_INVALID);
        flip(at);
    }
    const uint64_t places[] = {0,
                               4999,
                               5000 /* amid zeros */,
                               PACKED_PIECE_BYTES - 1,
                               PACKED_PIECE_BYTES,
                               header.data_bytes - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char why[64];
        uint64_t piece = places[i] / PACKED_PIECE_BYTES * PACKED_PIECE_BYTES;
        snprintf(why, sizeof why, "damaged from byte %llu on",
                 (unsigned long long)(header.data_offset + piece));
        flip(header.data_offset + places[i]);
        expect_refused(&header, STATUS_CORRUPT, why);
        flip(header.data_offset + places[i]);
    }
    expect_sound();
}

static void test_files_of_something_else_are_refused(void **state)
{
    (void)state;
    write_sound();
    struct packed_header other = header;
    other.version++;
    expect_refused(&other, STATUS_INVALID, "version 1 of its format, expected 2");
    other = header;
    strcpy(other.identity.packing, "cpu-2");
    expect_refused(&other, STATUS_INVALID, "packed in another form");
    other = header;
    other.identity.sources_hash++;
    expect_refused(&other, STATUS_INVALID, "files of the model have changed since");
    other = header;
    other.identity.model_hash++;
    expect_refused(&other, STATUS_INVALID, "weights of the model have changed since");
    other = header;
    other.plan_hash++;
    expect_refused(&other, STATUS_INVALID, "it has other layers");
    static const char text[] = "a text that is no file of packed weights, long enough for a header "
                               "of one, as far as its length goes";
    model_write(model_folder, NAME, text, strlen(text));
    expect_refused(&header, STATUS_INVALID, "no file of packed weights");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refused(&header, STATUS_INVALID, "no regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(&header, STATUS_INVALID, "no regular file");
    assert_int_equal(unlink(path), 0);
}

static void test_plans_that_differ_have_other_hashes(void **state)
{
    (void)state;
    struct packed_plan other = {0};
    assert_int_equal(packed_plan_add(&other, WEIGHT_INT8, 1, 2, BYTES[0]), STATUS_OK);
    uint64_t shorter = packed_plan_header(&other, &IDENTITY).plan_hash;
    packed_plan_deinit(&other);
    assert_int_equal(packed_plan_add(&other, WEIGHT_INT4, 1, 2, BYTES[0]), STATUS_OK);
    assert_true(packed_plan_header(&other, &IDENTITY).plan_hash != shorter);
    packed_plan_deinit(&other);
    assert_int_equal(packed_plan_add(&other, WEIGHT_INT8, 1, 2, PACKED_MAX_BYTES), STATUS_OK);
    assert_int_equal(packed_plan_add(&other, WEIGHT_INT8, 1, 2, 1), STATUS_LIMIT);
    packed_plan_deinit(&other);
    for (uint32_t i = 0; i < PACKED_MAX_SECTIONS; i++)
        assert_int_equal(packed_plan_add(&other, WEIGHT_INT8, 1, 2, 1), STATUS_OK);
    assert_int_equal(packed_plan_add(&other, WEIGHT_INT8, 1, 2, 1), STATUS_LIMIT);
    packed_plan_deinit(&other);
}

static void test_what_cannot_be_written_leaves_the_old_file(void **state)
{
    (void)state;
    struct error err;
    struct rlimit whole, little;
    write_sound();
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    little = whole;
    little.rlim_cur = header.data_offset + PACKED_PIECE_BYTES;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    assert_int_equal(write_file(&err), STATUS_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    assert_non_null(strstr(err.text, "File too large"));
    assert_false(is_there(NAME ".tmp"));
    expect_sound();
}

static void test_an_unfinished_file_is_written_over_and_a_locked_one_is_left(void **state)
{
    (void)state;
    struct error err;
    model_write(model_folder, NAME ".tmp", "left by a process that was killed", 33);
    write_sound();
    assert_false(is_there(NAME ".tmp"));
    expect_sound();
    char other[620];
    snprintf(other, sizeof other, "%s.tmp", path);
    int fd = open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(write_file(&err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "another process is writing it"));
    assert_true(is_there(NAME ".tmp"));
    close(fd);
    write_sound();
    expect_sound();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_was_written_comes_back, open_world, close_world),
        cmocka_unit_test_setup_teardown(test_cut_files_are_refused, open_world, close_world),
        cmocka_unit_test_setup_teardown(test_a_flipped_bit_is_found_wherever_it_is, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(test_files_of_something_else_are_refused, open_world,
                                        close_world),
        cmocka_unit_test(test_plans_that_differ_have_other_hashes),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_written_leaves_the_old_file, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(
            test_an_unfinished_file_is_written_over_and_a_locked_one_is_left, open_world,
            close_world),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_drop);
}
