/* model/safetensors: models in several files, and the sentence for each way in which their index
 * can be wrong. */
#include "tests/unit/safetensors_fixture.h"

static void write_index(const char *text)
{
    write_bytes("model.safetensors.index.json", text, strlen(text));
}

#define INDEX(map) "{\"metadata\": {\"total_size\": 20}, \"weight_map\": {" map "}}"

static void test_shards(void **state)
{
    (void)state;
    remove_files();
    write_file("model.safetensors", HEAD(A ", " B), 20);
    struct safetensors *whole = open_folder();
    remove_files();
    write_file("a.safetensors", HEAD(A), 12);
    unsigned char file[4096];
    size_t bytes = make_file(HEAD(B0), 8, file);
    for (size_t i = 0; i < 8; i++)
        file[bytes - 8 + i] = (unsigned char)(12 + i); /* the bytes that b has in the one file */
    write_bytes("b.safetensors", file, bytes);
    write_index(INDEX("\"a\": \"a.safetensors\", \"b\": \"b.safetensors\""));
    struct safetensors *shards = open_folder();
    struct tensor_view view;
    struct error err;
    assert_int_equal(safetensors_find(shards, "b", 0, 4, &view, &err), STATUS_OK);
    assert_memory_equal(view.bytes, "\14\15\16\17\20\21\22\23", 8);
    assert_int_equal(safetensors_hash(shards), safetensors_hash(whole));
    assert_int_equal(safetensors_find(shards, "x", 0, 4, &view, &err), STATUS_NOT_FOUND);
    assert_non_null(
        strstr(err.text, "/a.safetensors and its other shards: tensor x: expected, but not found"));
    safetensors_close(shards);
    safetensors_close(whole);
}

static void test_indexes_that_are_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *b_header, *index;
        enum status status;
        const char *sentence;
    } cases[] = {
        {HEAD(B0), "{}", STATUS_NOT_FOUND,
         "/model.safetensors.index.json: \"weight_map\" is missing"},
        {HEAD(B0), INDEX("\"a\": \"../a.safetensors\""), STATUS_INVALID,
         "/model.safetensors.index.json: tensor a: expected the name of a .safetensors file, found "
         "\"../a.safetensors\""},
        {HEAD(B0), INDEX("\"a\": \"a.safetensors\", \"b\": \"c.safetensors\""), STATUS_NOT_FOUND,
         "/c.safetensors: No such file or directory"},
        {HEAD(B0), INDEX("\"a\": \"b.safetensors\", \"b\": \"a.safetensors\""), STATUS_INVALID,
         "/model.safetensors.index.json: tensor a: expected in b.safetensors, found in "
         "a.safetensors"},
        {HEAD(B0), INDEX("\"a\": \"a.safetensors\", \"x\": \"b.safetensors\""), STATUS_NOT_FOUND,
         "/model.safetensors.index.json: tensor x: expected in b.safetensors, found in no file"},
        {HEAD("\"a\": {\"dtype\": \"BF16\", \"shape\": [4], \"data_offsets\": [0, 8]}"),
         INDEX("\"a\": \"a.safetensors\", \"b\": \"b.safetensors\""), STATUS_INVALID,
         "/a.safetensors: tensor a: found in b.safetensors too"},
        {HEAD(B0), INDEX(""), STATUS_INVALID, "/model.safetensors.index.json: no tensor in it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        remove_files();
        write_file("a.safetensors", HEAD(A), 12);
        write_file("b.safetensors", cases[i].b_header, 8);
        write_index(cases[i].index);
        expect_refusal(cases[i].status, cases[i].sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_indexes_that_are_wrong),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
