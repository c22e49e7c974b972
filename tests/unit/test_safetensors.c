/* model/safetensors: one file, and the sentence for each way in which it can be wrong. */
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/engine/model/safetensors_file.h"
#include "common/engine/model/weight_convert.h"
#include "tests/unit/safetensors_fixture.h"

static void test_one_file(void **state)
{
    (void)state;
    remove_files();
    write_file("model.safetensors", HEAD(A ", " B ", " C), 24);
    struct safetensors *tensors = open_folder();
    struct tensor_view view = {0};
    struct error err;
    assert_int_equal(safetensors_find(tensors, "a", 2, 3, &view, &err), STATUS_OK);
    assert_int_equal(view.type, FLOAT_BF16);
    assert_memory_equal(view.bytes, "\0\1\2\3\4\5\6\7\10\11\12\13", 12);
    assert_int_equal(safetensors_find(tensors, "b", 0, 4, &view, &err), STATUS_OK);
    assert_memory_equal(view.bytes, "\14\15\16\17\20\21\22\23", 8);
    assert_true(safetensors_has(tensors, "c"));
    assert_false(safetensors_has(tensors, "d"));
    safetensors_close(tensors);
}

static void test_tensors_that_are_not_as_expected(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t rows, columns;
        enum status status;
        const char *sentence;
    } cases[] = {
        {"a", 3, 2, STATUS_INVALID,
         "tensor a: expected the shape [3, 2] by config.json, found [2, 3]"},
        {"a", 0, 6, STATUS_INVALID,
         "tensor a: expected the shape [6] by config.json, found [2, 3]"},
        {"b", 4, 1, STATUS_INVALID,
         "tensor b: expected the shape [4, 1] by config.json, found [4]"},
        {"c", 0, 1, STATUS_UNSUPPORTED, "tensor c: expected BF16, F16 or F32, found I32"},
        {"d", 1, 1, STATUS_NOT_FOUND, "tensor d: expected, but not found"},
    };
    remove_files();
    write_file("model.safetensors", HEAD(A ", " B ", " C), 24);
    struct safetensors *tensors = open_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensor_view view;
        struct error err;
        char expected[512];
        snprintf(expected, sizeof expected, "%s/model.safetensors: %s", folder, cases[i].sentence);
        assert_int_equal(
            safetensors_find(tensors, cases[i].name, cases[i].rows, cases[i].columns, &view, &err),
            cases[i].status);
        assert_string_equal(err.text, expected);
    }
    safetensors_close(tensors);
}

#define T(dtype, shape, offsets)                                                                   \
    "{\"t\": {\"dtype\": \"" dtype "\", \"shape\": " shape ", \"data_offsets\": " offsets "}}"

static void test_malformed_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        enum status status;
        const char *sentence;
    } cases[] = {
        {"[]", STATUS_INVALID, "header: expected an object, found an array"},
        {"{\"t\": 1}", STATUS_INVALID, "tensor t: expected an object, found an integer"},
        {"{\"t\": {}}", STATUS_NOT_FOUND, "tensor t: \"dtype\" is missing"},
        {T("BF17", "[1]", "[0, 2]"), STATUS_UNSUPPORTED, "tensor t: unknown dtype \"BF17\""},
        {T("BF16", "[-1]", "[0, 2]"), STATUS_INVALID,
         "tensor t: -1 is not within 0..9223372036854775807"},
        {T("BF16", "[4294967296, 4294967296]", "[0, 0]"), STATUS_INVALID,
         "tensor t: the shape needs more than 2^64 bytes"},
        {T("BF16", "[1,1,1,1,1,1,1,1,1]", "[0, 2]"), STATUS_INVALID,
         "tensor t: at most 8 dimensions, found 9"},
        {T("BF16", "[4]", "[0, 6]"), STATUS_INVALID,
         "tensor t: expected 8 bytes for its dtype and shape, found data_offsets 0..6"},
        {T("BF16", "[4]", "[8, 0]"), STATUS_INVALID,
         "tensor t: expected 8 bytes for its dtype and shape, found data_offsets 8..0"},
        {T("BF16", "[4]", "[0, 8, 8]"), STATUS_INVALID,
         "tensor t: data_offsets: expected 2 numbers, found 3"},
        {T("BF16", "[4]", "[18, 26]"), STATUS_INVALID,
         "tensor t: ends at byte 26 of the data, but the file has only 24 (cut short?)"},
        {T("BF16", "[4]", "[9223372036854775800, 9223372036854775808]"), STATUS_INVALID,
         "tensor t: the number is over 9223372036854775807"},
        {"{" A ", \"z\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [10, 14]}}",
         STATUS_INVALID, "tensor z starts at byte 10, inside tensor a"},
        {"{" A ", " A "}", STATUS_INVALID, "an object in the JSON has the same key twice"},
        {"{" A ", " B "}", STATUS_INVALID,
         "4 bytes after the last tensor, which ends at byte 20 of the data"},
        {"{" B ", " C "}", STATUS_INVALID,
         "tensor b starts at byte 12 of the data: the bytes from 0 on belong to no tensor"},
        {"{" A ", " C "}", STATUS_INVALID,
         "tensor c starts at byte 20 of the data: the bytes from 12 on belong to no tensor"},
        {"{}", STATUS_INVALID, "24 bytes after the last tensor, which ends at byte 0 of the data"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char sentence[512];
        remove_files();
        write_file("model.safetensors", cases[i].header, 24);
        snprintf(sentence, sizeof sentence, "/model.safetensors: %s", cases[i].sentence);
        expect_refusal(cases[i].status, sentence);
    }
}

#define NO_FILE ": this is no safetensors file, or it was cut off"

static void test_lengths_are_checked_against_the_file(void **state)
{
    (void)state;
    remove_files();
    write_bytes("model.safetensors", "1234567", 7);
    expect_refusal(
        STATUS_INVALID,
        "/model.safetensors: expected a regular file of at least 8 bytes, found 7 bytes");
    write_bytes("model.safetensors", "\x03\0\0\0\0\0\0\0{}", 10);
    expect_refusal(
        STATUS_INVALID,
        "/model.safetensors: expected a header of at most 2 bytes, found a length of 3" NO_FILE);
    write_bytes("model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    expect_refusal(STATUS_INVALID, "/model.safetensors: expected a header of at most 2 bytes, "
                                   "found a length of 18446744073709551615" NO_FILE);
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:12\n";
    write_bytes("model.safetensors", pointer, sizeof pointer - 1);
    expect_refusal(STATUS_INVALID, "/model.safetensors: this is Git LFS's pointer to the file, not "
                                   "the file: `git lfs pull` in its folder gets it");
    remove_files();
    expect_refusal(STATUS_NOT_FOUND,
                   ": expected model.safetensors or model.safetensors.index.json, found neither "
                   "(*.bin and *.gguf aren't read)");
}

/* A header of `count` tensors without bytes. */
static void write_tensors(uint32_t count)
{
    struct str header;
    str_init(&header, 16u << 20);
    str_append(&header, "12345678", 8);
    str_add(&header, "{");
    for (uint32_t i = 0; i < count; i++)
        str_addf(&header, "%s\"%u\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                 i ? "," : "", i);
    str_add(&header, "}");
    uint64_t length = header.length - 8;
    memcpy(header.data, &length, 8);
    write_bytes("model.safetensors", header.data, header.length);
    str_deinit(&header);
}

static void test_tensors_and_headers_over_the_limits(void **state)
{
    (void)state;
    remove_files();
    write_tensors(SAFETENSORS_MAX_TENSORS);
    safetensors_close(open_folder());
    write_tensors(SAFETENSORS_MAX_TENSORS + 1);
    expect_refusal(STATUS_LIMIT, "/model.safetensors: at most 65536 tensors, found 65537");
    /* The file is long enough, and as sparse as it can be. */
    char path[256];
    write_bytes("model.safetensors", "\x01\0\0\x02\0\0\0\0{}", 10);
    path_of("model.safetensors", path);
    assert_int_equal(truncate(path, 40 << 20), 0);
    expect_refusal(STATUS_INVALID, "/model.safetensors: expected a header of at most 33554432 "
                                   "bytes, found a length of 33554433" NO_FILE);
    remove_files();
}

/* Every cut and many single wrong bytes of a valid file: it is refused, or all returned tensors lie
 * inside the file (ASan checks). */
static void test_damaged_files_never_reach_outside(void **state)
{
    (void)state;
    unsigned char file[4096], damaged[4096];
    size_t bytes = make_file(HEAD(A ", " B ", " C), 24, file);
    struct rng rng = rng_seeded(11);
    remove_files();
    for (size_t trial = 0; trial < 1500; trial++) {
        size_t length = trial < bytes ? trial : bytes;
        memcpy(damaged, file, bytes);
        if (trial >= bytes)
            damaged[rng_below(&rng, bytes)] ^= (unsigned char)(1 + rng_below(&rng, 255));
        write_bytes("model.safetensors", damaged, length);
        struct safetensors *tensors;
        struct error err = {0};
        if (safetensors_open(folder, &tensors, &err) != STATUS_OK) {
            assert_true(strlen(err.text) > 0);
            continue;
        }
        assert_true(trial >= bytes); /* a cut file is never whole */
        struct tensor_view view;
        volatile unsigned char sum = 0;
        if (safetensors_find(tensors, "a", 2, 3, &view, &err) == STATUS_OK)
            for (int i = 0; i < 12; i++)
                sum = (unsigned char)(sum + view.bytes[i]);
        (void)safetensors_hash(tensors);
        safetensors_close(tensors);
    }
}

static void test_values_at_an_odd_byte(void **state)
{
    (void)state;
    remove_files();
    write_file("model.safetensors", T("BF16", "[2]", "[0, 4]") " ", 4);
    struct safetensors *tensors = open_folder();
    struct tensor_view view;
    struct error err;
    assert_int_equal(safetensors_find(tensors, "t", 0, 2, &view, &err), STATUS_OK);
    assert_int_equal((uintptr_t)view.bytes % 2, 1); /* old files are like that */
    assert_false(weight_is_ready(view.type, view.bytes, WEIGHT_BF16));
    uint16_t values[2];
    weight_convert(view.type, view.bytes, 2, WEIGHT_BF16, values);
    assert_int_equal(values[0], 0x0100);
    assert_int_equal(values[1], 0x0302);
    safetensors_close(tensors);
}

static void test_what_nobody_asked_for(void **state)
{
    (void)state;
    remove_files();
    write_file("model.safetensors", HEAD(A ", " B ", " C), 24);
    struct safetensors *tensors = open_folder();
    struct tensor_view view;
    struct error err;
    char expected[512];
    assert_int_equal(safetensors_find(tensors, "a", 2, 3, &view, &err), STATUS_OK);
    assert_int_equal(safetensors_expect_all_found(tensors, &err), STATUS_UNSUPPORTED);
    snprintf(expected, sizeof expected,
             "%s/model.safetensors: tensor b: there is no place for it in this model by "
             "config.json, nor for 1 others: tensors are never left out silently",
             folder);
    assert_string_equal(err.text, expected);
    safetensors_close(tensors);
    remove_files();
    write_file("model.safetensors",
               HEAD(A ", \"l.0.rotary_emb.inv_freq\": {\"dtype\": \"F32\", \"shape\": [2], "
                      "\"data_offsets\": [12, 20]}"),
               20);
    tensors = open_folder();
    assert_int_equal(safetensors_find(tensors, "a", 2, 3, &view, &err), STATUS_OK);
    assert_int_equal(safetensors_expect_all_found(tensors, &err), STATUS_OK);
    safetensors_close(tensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_file),
        cmocka_unit_test(test_tensors_that_are_not_as_expected),
        cmocka_unit_test(test_malformed_headers),
        cmocka_unit_test(test_lengths_are_checked_against_the_file),
        cmocka_unit_test(test_tensors_and_headers_over_the_limits),
        cmocka_unit_test(test_damaged_files_never_reach_outside),
        cmocka_unit_test(test_values_at_an_odd_byte),
        cmocka_unit_test(test_what_nobody_asked_for),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
