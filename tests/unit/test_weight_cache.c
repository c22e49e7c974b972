/* Packed weights that are kept: the same answers from them, and never from a file that isn't of
 * these weights. */
#include "common/engine/model/weight_cache.h"
#include "tests/unit/model_answer.h"

#include <fcntl.h>

#define MODEL     "llama"
#define FILE_NAME "baton.cpu-1.bf16-bf16.packed"

static const struct engine_config BESIDE = {.weight_cache = "beside",
                                            .kernels = {.isa = ISA_PORTABLE, .threads = 2}};

/* Inode of a file in the folder: another one, another file. */
static ino_t file_of(const char *name)
{
    char path[600];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", model_folder, name);
    return stat(path, &info) == 0 ? info.st_ino : 0;
}

static void test_every_type_answers_alike_from_what_is_kept(void **state)
{
    (void)state;
    static const struct {
        enum weight_choice weights;
        bool f32;
        const char *name;
    } cases[] = {
        {WEIGHTS_BF16, false, FILE_NAME},
        {WEIGHTS_INT8, false, "baton.cpu-1.int8-int8.packed"},
        {WEIGHTS_INT4, false, "baton.cpu-1.int4-int8.packed"},
        {WEIGHTS_AUTO, true, "baton.reference-1.f32-f32.packed"},
        {WEIGHTS_INT4, true, "baton.reference-1.int4-int8.packed"},
    };
    model_copy(MODEL, model_folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine_config config = BESIDE;
        config.weights = cases[i].weights;
        config.kernels.f32 = cases[i].f32;
        config.weight_cache = NULL;
        uint64_t plain = model_answer(config);
        assert_int_equal(file_of(cases[i].name), 0);
        config.weight_cache = "beside";
        assert_true(model_answer(config) == plain); /* packed and kept */
        ino_t kept = file_of(cases[i].name);
        assert_true(kept != 0);
        config.kernels.threads = 1;
        assert_true(model_answer(config) == plain); /* mapped */
        assert_int_equal(file_of(cases[i].name), kept);
        config.weight_cache = "off";
        assert_true(model_answer(config) == plain);
    }
}

static void test_a_damaged_file_is_made_again(void **state)
{
    (void)state;
    static const struct mutation damages[] = {
        {.kind = CUT, .file = FILE_NAME, .number = 0},
        {.kind = CUT, .file = FILE_NAME, .number = 100},
        {.kind = CUT, .file = FILE_NAME, .number = -1},
        {.kind = GROW, .file = FILE_NAME, .number = 1},
        {.kind = FLIP, .file = FILE_NAME, .number = 3},
        {.kind = FLIP, .file = FILE_NAME, .number = 60},
        {.kind = FLIP, .file = FILE_NAME, .number = 97},
        {.kind = FLIP, .file = FILE_NAME, .number = 2 << 20},
        {.kind = FLIP, .file = FILE_NAME, .number = (2 << 20) + 77777},
        {.kind = WHOLE, .file = FILE_NAME, .to = "another file"},
        {.kind = FIFO, .file = FILE_NAME},
    };
    model_copy(MODEL, model_folder);
    uint64_t plain = model_answer(BESIDE);
    struct model_bytes sound = model_read(model_folder, FILE_NAME);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        model_mutate(model_folder, &damages[i]);
        ino_t damaged = file_of(FILE_NAME);
        assert_true(model_answer(BESIDE) == plain);
        assert_true(file_of(FILE_NAME) != damaged);
        struct model_bytes again = model_read(model_folder, FILE_NAME);
        assert_int_equal(again.length, sound.length);
        assert_memory_equal(again.data, sound.data, sound.length);
        free(again.data);
    }
    free(sound.data);
}

static void set_mtime(const char *name, struct timespec mtime)
{
    char path[600];
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, mtime};
    snprintf(path, sizeof path, "%s/%s", model_folder, name);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* The file with one thing wrong, of the same size, at the time of the one before. */
static void change_behind_its_back(const struct mutation *change)
{
    char path[600];
    struct stat before, after;
    snprintf(path, sizeof path, "%s/%s", model_folder, change->file);
    assert_int_equal(stat(path, &before), 0);
    model_mutate(model_folder, change);
    set_mtime(change->file, before.st_mtim);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
}

static void test_other_weights_are_never_answered_from_it(void **state)
{
    (void)state;
    model_copy(MODEL, model_folder);
    uint64_t first = model_answer(BESIDE);
    ino_t kept = file_of(FILE_NAME);
    /* touched: packed again, the same answer */
    set_mtime("model.safetensors", (struct timespec){.tv_sec = 1000000000});
    assert_true(model_answer(BESIDE) == first);
    assert_true(file_of(FILE_NAME) != kept);
    kept = file_of(FILE_NAME);
    /* another header, in bytes that no tensor's sample includes */
    change_behind_its_back(&(struct mutation){
        .kind = HEADER, .file = "model.safetensors", .from = "\"pt\"", .to = "\"tp\""});
    assert_true(model_answer(BESIDE) == first);
    assert_true(file_of(FILE_NAME) != kept);
    kept = file_of(FILE_NAME);
    /* other weights under the same name, size, header and even mtime */
    struct model_bytes bytes = model_read(model_folder, "model.safetensors");
    free(bytes.data);
    change_behind_its_back(&(struct mutation){
        .kind = FLIP, .file = "model.safetensors", .number = (long long)bytes.length - 1});
    struct engine_config without = BESIDE;
    without.weight_cache = NULL;
    uint64_t second = model_answer(without);
    assert_true(second != first);
    assert_true(model_answer(BESIDE) == second);
    assert_true(file_of(FILE_NAME) != kept);
}

static void test_a_folder_of_its_own(void **state)
{
    (void)state;
    char folder[] = "/tmp/baton-weight-cache-XXXXXX", path[WEIGHT_CACHE_PATH_BYTES];
    const struct weight_types types = {.layers = WEIGHT_BF16, .ends = WEIGHT_BF16};
    struct engine_config config = BESIDE, without = BESIDE;
    struct error err;
    without.weight_cache = NULL;
    assert_non_null(mkdtemp(folder));
    model_copy(MODEL, model_folder);
    config.weight_cache = folder;
    uint64_t plain = model_answer(without);
    assert_true(model_answer(config) == plain);
    assert_true(model_answer(config) == plain);
    assert_int_equal(weight_cache_path(folder, model_folder, "cpu-1", types, path, &err),
                     STATUS_OK);
    assert_true(strncmp(path, folder, strlen(folder)) == 0);
    assert_non_null(strstr(path, ".cpu-1.bf16-bf16.packed"));
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(file_of(FILE_NAME), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(weight_cache_path(folder, model_folder, "cpu-1", types, path, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, "weight-cache: /tmp/baton-weight-cache-"));
    assert_non_null(strstr(err.text, "No such file or directory"));
    assert_int_equal(weight_cache_path("/dev/null", model_folder, "cpu-1", types, path, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, "is no folder"));
    assert_int_equal(weight_cache_path("off", "no such folder", "cpu-1", types, path, &err),
                     STATUS_OK);
    assert_string_equal(path, "");
}

static void test_paths_that_are_too_long(void **state)
{
    (void)state;
    char folder[WEIGHT_CACHE_PATH_BYTES + 1], path[WEIGHT_CACHE_PATH_BYTES];
    const struct weight_types types = {.layers = WEIGHT_BF16, .ends = WEIGHT_BF16};
    struct error err;
    size_t length = 0;
    while (length + 2 <
           WEIGHT_CACHE_PATH_BYTES - 20) { /* /tmp, with many steps that lead nowhere */
        memcpy(folder + length, length ? "/." : "/tmp", length ? 2 : 4);
        length += length ? 2 : 4;
    }
    folder[length] = '\0';
    assert_int_equal(weight_cache_path(folder, model_folder, "cpu-1", types, path, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, "weight-cache: the path is too long"));
}

/* Simulates a read-only model folder: root could write, so a folder blocks the file's name. */
static void test_what_cannot_be_kept_is_served_all_the_same(void **state)
{
    (void)state;
    char in_the_way[600];
    model_copy(MODEL, model_folder);
    snprintf(in_the_way, sizeof in_the_way, "%s/%s.tmp", model_folder, FILE_NAME);
    assert_int_equal(mkdir(in_the_way, 0700), 0);
    struct engine_config without = BESIDE;
    without.weight_cache = NULL;
    assert_true(model_answer(BESIDE) == model_answer(without));
    assert_int_equal(file_of(FILE_NAME), 0);
    assert_int_equal(rmdir(in_the_way), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_answers_alike_from_what_is_kept),
        cmocka_unit_test(test_a_damaged_file_is_made_again),
        cmocka_unit_test(test_other_weights_are_never_answered_from_it),
        cmocka_unit_test(test_a_folder_of_its_own),
        cmocka_unit_test(test_paths_that_are_too_long),
        cmocka_unit_test(test_what_cannot_be_kept_is_served_all_the_same),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_drop);
}
