/* cluster_file and cluster_status: the other commands read the same values that `baton up` and the
 * router write. */
#include "common/cli/cluster_file.h"
#include "common/cli/cluster_status.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/test_cluster_file.XXXXXX";

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) ? setenv("XDG_RUNTIME_DIR", folder, 1) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char path[CLUSTER_PATH_BYTES];
    snprintf(path, sizeof path, "%s/baton", folder);
    rmdir(path);
    return rmdir(folder);
}

static struct cluster_file example(pid_t pid)
{
    return (struct cluster_file){.pid = pid,
                                 .grpc = "127.0.0.1:1",
                                 .http = "127.0.0.1:2",
                                 .openai = "127.0.0.1:4",
                                 .logs = "/tmp/\"a\\b",
                                 .count = 2,
                                 .members = {{.name = "router",
                                              .role = "router",
                                              .address = "127.0.0.1:1",
                                              .metrics = "127.0.0.1:2",
                                              .pid = 7},
                                             {.name = "decode-0",
                                              .role = "decode",
                                              .address = "127.0.0.1:3",
                                              .metrics = "",
                                              .pid = 8}},
                                 .models = {.count = 2,
                                            .items = {{.name = "llama", .dir = "/models/a b"},
                                                      {.name = "words", .dir = ""}}}};
}

static void test_publish_find_withdraw(void **state)
{
    (void)state;
    struct error err;
    struct cluster_file written = example(getpid()), found;
    assert_int_equal(cluster_file_find("--http", &found, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "baton up"));
    assert_non_null(strstr(err.text, "--http HOST:PORT"));
    assert_int_equal(cluster_file_publish(&written, &err), STATUS_OK);
    assert_int_equal(cluster_file_find("--http", &found, &err), STATUS_OK);
    assert_memory_equal(&found, &written, sizeof found);
    assert_string_equal(cluster_file_model_dir(&found, "llama"), "/models/a b");
    assert_string_equal(cluster_file_model_dir(&found, "words"), "");
    assert_string_equal(cluster_file_model_dir(&found, ""), ""); /* which one? */
    found.models.count = 1;
    assert_string_equal(cluster_file_model_dir(&found, ""), "/models/a b");
    assert_string_equal(cluster_file_model_dir(&found, "gpt-5"), "");
    cluster_file_withdraw(getpid() + 1); /* another cluster's: stays */
    assert_int_equal(cluster_file_find("--http", &found, &err), STATUS_OK);
    cluster_file_withdraw(getpid());
    assert_int_equal(cluster_file_find("--http", &found, &err), STATUS_NOT_FOUND);
}

static void test_a_dead_clusters_file_is_no_cluster(void **state)
{
    (void)state;
    struct error err;
    struct cluster_file written = example(0x3ffffff0), found; /* beyond pid_max */
    assert_int_equal(cluster_file_publish(&written, &err), STATUS_OK);
    assert_int_equal(cluster_file_find("--http", &found, &err), STATUS_NOT_FOUND);
    cluster_file_withdraw(0x3ffffff0);
}

static bool is_there(const char *name)
{
    char path[2 * CLUSTER_PATH_BYTES];
    struct stat info;
    snprintf(path, sizeof path, "%s/baton/%s", folder, name);
    return lstat(path, &info) == 0;
}

/* A folder with one log in it, last changed `age` seconds ago. */
static void make_logs(const char *name, time_t age)
{
    char path[CLUSTER_PATH_BYTES], log[CLUSTER_PATH_BYTES + 16];
    struct error err;
    assert_int_equal(cluster_folder(path, &err), STATUS_OK);
    size_t length = strlen(path);
    snprintf(path + length, sizeof path - length, "/%s", name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(log, sizeof log, "%s/router.log", path);
    fclose(fopen(log, "w"));
    const struct timespec then[2] = {{.tv_sec = 1000000 - age}, {.tv_sec = 1000000 - age}};
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
}

static void remove_logs(const char *name)
{
    char path[2 * CLUSTER_PATH_BYTES];
    snprintf(path, sizeof path, "%s/baton/%s/router.log", folder, name);
    unlink(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
}

/* Files of killed clusters are deleted, except their newest logs. Files of living clusters, and
 * foreign files, stay. */
static void test_sweeping(void **state)
{
    (void)state;
    struct error err;
    struct cluster_file dead = example(0x3ffffff0), alive = example(getpid());
    char name[32], own[32], own_tls[32];
    assert_int_equal(cluster_file_publish(&dead, &err), STATUS_OK);
    assert_int_equal(cluster_file_publish(&alive, &err), STATUS_OK);
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "%d", 0x3ffffff0 + i);
        make_logs(name, i * 7 % 12); /* in no order */
    }
    snprintf(own, sizeof own, "%d", (int)getpid());
    make_logs(own, 99);
    make_logs("12monkeys", 99);
    make_logs("1073741808.tls", 99); /* a dead process's */
    make_logs("1073741808.tls2", 99);
    snprintf(own_tls, sizeof own_tls, "%d.tls", (int)getpid());
    make_logs(own_tls, 99);
    cluster_file_sweep();
    snprintf(name, sizeof name, "cluster-%d.json", 0x3ffffff0);
    assert_false(is_there(name));
    snprintf(name, sizeof name, "cluster-%d.json", (int)getpid());
    assert_true(is_there(name));
    assert_true(is_there(own));
    assert_true(is_there("12monkeys"));
    assert_false(is_there("1073741808.tls"));
    assert_true(is_there("1073741808.tls2"));
    assert_true(is_there(own_tls));
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "%d", 0x3ffffff0 + i);
        assert_int_equal(is_there(name), i * 7 % 12 < 8);
        remove_logs(name);
    }
    remove_logs(own);
    remove_logs("12monkeys");
    remove_logs("1073741808.tls2");
    remove_logs(own_tls);
    cluster_file_withdraw(getpid());
}

/* The newest cluster is the one meant; when it ends, the older one is found again. */
static void test_two_clusters(void **state)
{
    (void)state;
    struct error err;
    struct cluster_file older = example(getppid()), newest = example(getpid()), found;
    char path[CLUSTER_PATH_BYTES];
    assert_int_equal(cluster_file_publish(&older, &err), STATUS_OK);
    assert_int_equal(cluster_folder(path, &err), STATUS_OK);
    size_t length = strlen(path);
    snprintf(path + length, sizeof path - length, "/cluster-%d.json", (int)getppid());
    static const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
    assert_int_equal(cluster_file_publish(&newest, &err), STATUS_OK);
    assert_int_equal(cluster_file_find("--http", &found, &err), STATUS_OK);
    assert_int_equal(found.pid, getpid());
    char others[64];
    snprintf(others, sizeof others, "pid %d 127.0.0.1:2", (int)getppid());
    assert_string_equal(found.others, others);
    assert_int_equal(cluster_file_find("--server", &found, &err), STATUS_OK);
    snprintf(others, sizeof others, "pid %d 127.0.0.1:1", (int)getppid());
    assert_string_equal(found.others, others);
    cluster_file_withdraw(getpid());
    assert_int_equal(cluster_file_find("--http", &found, &err), STATUS_OK);
    assert_int_equal(found.pid, getppid());
    assert_string_equal(found.others, "");
    cluster_file_withdraw(getppid());
    assert_int_equal(cluster_file_find("--http", &found, &err), STATUS_NOT_FOUND);
}

static void test_a_folder_that_others_may_write(void **state)
{
    (void)state;
    struct error err;
    char path[CLUSTER_PATH_BYTES];
    assert_int_equal(cluster_folder(path, &err), STATUS_OK);
    chmod(path, 0777);
    assert_int_equal(cluster_folder(path, &err), STATUS_INVALID);
    chmod(path, 0700);
    assert_int_equal(cluster_folder(path, &err), STATUS_OK);
}

static void test_files_that_are_wrong(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "{\"pid\": 0}",
        "{\"pid\": 1, \"grpc\": \"a\", \"http\": \"b\", \"logs\": \"c\", \"processes\": [{}]}",
        "{\"pid\": 1, \"grpc\": \"a\", \"http\": \"b\", \"logs\": \"c\", \"processes\": [], "
        "\"models\": [{\"name\": \"a\"}]}",
        "{\"pid\": 1, \"grpc\": \"a\", \"http\": \"b\", \"logs\": \"c\", \"processes\": [], "
        "\"models\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}"};
    char path[CLUSTER_PATH_BYTES];
    snprintf(path, sizeof path, "%s/bad.json", folder);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FILE *stream = fopen(path, "w");
        assert_non_null(stream);
        fputs(bad[i], stream);
        fclose(stream);
        struct error err;
        struct cluster_file file;
        assert_int_not_equal(cluster_file_read(path, &file, &err), STATUS_OK);
        assert_non_null(strstr(err.text, path));
    }
    unlink(path);
}

static void test_status(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model\": \"llama\", \"numerics\": \"bf16-1/w-int4/kv-int8\", \"isa\": \"avx2\", "
        "\"queue\": 2, "
        "\"workers\": ["
        "{\"name\": \"decode-10\", \"role\": \"decode\", \"address\": "
        "\"127.0.0.1:5\", \"state\": \"down\", \"blocks_free\": 0},"
        "{\"name\": \"decode-2\", \"role\": \"decode\", \"address\": "
        "\"127.0.0.1:4\", \"state\": \"draining\", \"lane\": \"shm\", "
        "\"lane_bytes_per_second\": 5120000000, \"started_ms\": 1000},"
        "{\"name\": \"prefill-0\", \"role\": \"prefill\", \"address\": "
        "\"127.0.0.1:3\", \"state\": \"up\", \"blocks_free\": 10, \"blocks_cached\": 3, \"pairs\": "
        "[{\"worker\": \"decode-2\", \"breaker\": \"open\"}, {\"worker\": \"decode-10\", "
        "\"breaker\": \"half_open\"}]}]}";
    struct error err;
    static struct cluster_status status;
    assert_int_equal(cluster_status_parse(text, strlen(text), &status, &err), STATUS_OK);
    assert_int_equal(status.count, 3);
    assert_int_equal(status.queue, 2);
    assert_int_equal(cluster_status_up(&status), 1);
    assert_int_equal(status.workers[0].blocks_free, 10);
    assert_string_equal(status.workers[1].name, "decode-2");
    assert_string_equal(status.workers[2].name, "decode-10");
    struct str table;
    str_init(&table, 4096);
    struct cluster_file file = example(1);
    str_copy(file.members[1].name, sizeof file.members[1].name, "decode-2");
    file.members[1].restarts = 3;
    cluster_status_print(&status, 0, &table);
    assert_null(strstr(table.data, "router restarts"));
    str_clear(&table);
    file.members[0].restarts = 2;
    cluster_status_add_restarts(&status, &file);
    cluster_status_print(&status, 1000 + 130 * 1000, &table);
    assert_non_null(strstr(table.data, "of 3 up   router restarts 2\n"));
    assert_non_null(strstr(table.data, "model llama   numerics bf16-1/w-int4/kv-int8   isa avx2   "
                                       "queue 2   running 0   workers 1 of 3 up"));
    str_clear(&table);
    *status.models[0].numerics = *status.models[0].isa = 0;
    cluster_status_print(&status, 1000 + 130 * 1000, &table);
    assert_non_null(strstr(table.data, "model llama   queue 2   running 0   workers 1 of 3 up"));
    assert_non_null(strstr(
        table.data,
        "decode-2       decode   draining  127.0.0.1:4              2m        3 shm      5.12 "));
    assert_non_null(strstr(table.data, "decode-10      decode   down      127.0.0.1:5              "
                                       " -        - -           -      -"
                                       "        -           -        -        -        -\n"));
    assert_non_null(
        strstr(table.data, "  QUEUE  RUNNING BLOCKS FREE   CACHED   PINNED  LANDING\n"));
    assert_non_null(
        strstr(table.data, "       -      0        0          10        3        0        0\n"));
    assert_non_null(strstr(table.data,
                           "\nkept apart, as reads fail: prefill-0 and decode-2 (open), "
                           "decode-10 (half_open)\n"));
    str_deinit(&table);
    static const char *const bad[] = {"{}", "{\"workers\": [{\"name\": \"a\"}]}",
                                      "{\"workers\": 1}", "{\"queue\": -1, \"workers\": []}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(cluster_status_parse(bad[i], strlen(bad[i]), &status, &err),
                             STATUS_OK);
}

/* The router says of one worker that it is missing; of another it doesn't know any more. */
static void test_status_shows_what_is_missing(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model\": \"llama\", \"workers\": [{\"name\": \"prefill-0\", \"role\": \"prefill\", "
        "\"address\": \"127.0.0.1:3\", \"state\": \"up\", \"blocks_free\": 10}], "
        "\"missing\": [{\"name\": \"decode-0\", \"model\": \"llama\", \"role\": \"decode\", "
        "\"address\": \"127.0.0.1:4\", \"silent_ms\": 12000}]}";
    struct error err;
    static struct cluster_status status;
    struct str table;
    str_init(&table, 4096);
    struct cluster_file file = {
        .count = 4,
        .members = {{.name = "router", .role = "router"},
                    {.name = "prefill-0", .role = "prefill", .restarts = 1},
                    {.name = "decode-0", .role = "decode", .restarts = 2},
                    {.name = "decode-1", .role = "decode", .address = "127.0.0.1:5"}}};
    assert_int_equal(cluster_status_parse(text, strlen(text), &status, &err), STATUS_OK);
    assert_int_equal(cluster_status_up(&status), 1);
    cluster_status_print(&status, 0, &table);
    assert_non_null(strstr(table.data, "workers 1 of 2 up"));
    assert_non_null(strstr(table.data, "decode-0       decode   missing   127.0.0.1:4   "));
    str_clear(&table);
    cluster_status_add_restarts(&status, &file);
    cluster_status_print(&status, 0, &table);
    assert_non_null(strstr(table.data, "workers 1 of 3 up"));
    assert_non_null(strstr(table.data, "decode-0       decode   missing   127.0.0.1:4              "
                                       " -        2 -           -      -"));
    assert_non_null(strstr(table.data, "decode-1       decode   missing   127.0.0.1:5   "));
    str_deinit(&table);
    static const char *const bad[] = {"{\"workers\": [], \"missing\": 1}",
                                      "{\"workers\": [], \"missing\": [{\"name\": \"a\"}]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(cluster_status_parse(bad[i], strlen(bad[i]), &status, &err),
                             STATUS_OK);
}

static void test_status_of_two_models(void **state)
{
    (void)state;
    static const char text[] =
        "{\"queue\": 3, \"models\": [{\"name\": \"llama\", \"numerics\": \"f32\", \"queue\": 2}, "
        "{\"name\": \"qwen-of-a-long-name-which-is-cut-off\", \"queue\": 1, \"running\": 4}], "
        "\"workers\": ["
        "{\"name\": \"decode-1\", \"model\": \"qwen-of-a-long-name-which-is-cut-off\", \"role\": "
        "\"decode\", \"address\": \"127.0.0.1:5\", \"state\": \"down\"},"
        "{\"name\": \"decode-0\", \"model\": \"llama\", \"role\": \"decode\", \"address\": "
        "\"127.0.0.1:4\", \"state\": \"up\"}], "
        "\"refused\": [{\"name\": \"decode-2\", \"role\": \"decode\", \"address\": "
        "\"127.0.0.1:6\", \"sentence\": \"no folder\"}], "
        "\"slo\": [{\"name\": \"chat\", \"hour\": {\"attained\": 7, \"missed\": 1, "
        "\"missed_by\": {\"ttft\": 1, \"tpot\": 0, \"e2e\": 1, \"failed\": 0, \"rejected\": 2}}, "
        "\"goodput_per_second\": 1.5, \"goodput_per_device\": 0.75, \"error_budget_left\": -0.25}, "
        "{\"name\": \"batch\", \"goodput_per_second\": 0, \"goodput_per_device\": 0, "
        "\"error_budget_left\": 1}]}";
    struct error err;
    static struct cluster_status status;
    if (cluster_status_parse(text, strlen(text), &status, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(status.model_count, 2);
    assert_int_equal(status.refused_count, 1);
    struct str table;
    str_init(&table, 4096);
    cluster_status_print(&status, 0, &table);
    assert_ptr_equal(strstr(table.data,
                            "model llama   numerics f32   queue 2   running 0   workers 1 of 1 up\n"
                            "model qwen-of-a-long-name-which-is-cut-off   queue 1   running 4   "
                            "workers 0 of 1 up\n"
                            "class chat   last hour: attained 87.5% of 8, missed by ttft 1, e2e 1, "
                            "rejected 2, error budget left -25%   last minute: goodput 1.50/s, "
                            "0.75/s per device\n"
                            "class batch   last hour: no request, error budget left 100%   last "
                            "minute: goodput 0.00/s, 0.00/s per device\n\n"
                            "NAME           MODEL                            ROLE     STATE "),
                     table.data);
    assert_non_null(
        strstr(table.data, "\ndecode-0       llama                            decode   up  "));
    assert_non_null(
        strstr(table.data, "\ndecode-1       qwen-of-a-long-name-which-is-cut decode   down"));
    assert_non_null(
        strstr(table.data, "\n\nrefused: decode-2 (decode at 127.0.0.1:6): no folder\n"));
    str_deinit(&table);
    static const char *const bad[] = {"{\"models\": 1, \"workers\": []}",
                                      "{\"models\": [{\"name\": 1}], \"workers\": []}",
                                      "{\"refused\": [{}], \"workers\": []}",
                                      "{\"refused\": {}, \"workers\": []}",
                                      "{\"slo\": {}, \"workers\": []}",
                                      "{\"slo\": [{}], \"workers\": []}",
                                      "{\"slo\": [{\"name\": \"a\"}], \"workers\": []}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(cluster_status_parse(bad[i], strlen(bad[i]), &status, &err),
                             STATUS_OK);
}

/* As many models and refused workers as a router reports, and one more. */
static void test_status_of_many_models(void **state)
{
    (void)state;
    struct error err;
    static struct cluster_status status;
    static const struct {
        const char *list, *item;
        size_t limit;
    } lists[] = {
        {"models", "{\"name\": \"m\"}", CLUSTER_STATUS_MAX_MODELS},
        {"refused", "{\"name\": \"m\", \"role\": \"\", \"address\": \"\", \"sentence\": \"\"}",
         CLUSTER_STATUS_MAX_REFUSED},
    };
    for (size_t i = 0; i < 2 * sizeof lists / sizeof *lists; i++) {
        size_t count = lists[i / 2].limit + i % 2;
        struct str text;
        str_init(&text, 1u << 16);
        str_addf(&text, "{\"workers\": [], \"%s\": [", lists[i / 2].list);
        for (size_t k = 0; k < count; k++)
            str_addf(&text, "%s%s", k ? ", " : "", lists[i / 2].item);
        str_add(&text, "]}");
        assert_int_equal(cluster_status_parse(text.data, text.length, &status, &err),
                         i % 2 ? STATUS_LIMIT : STATUS_OK);
        str_deinit(&text);
    }
}

/* As many as a router may know, which are more than one `baton up` starts. */
static void test_status_of_many_workers(void **state)
{
    (void)state;
    struct error err;
    static struct cluster_status status;
    for (size_t count = CLUSTER_STATUS_MAX_WORKERS; count <= CLUSTER_STATUS_MAX_WORKERS + 1;
         count++) {
        struct str text;
        str_init(&text, 1u << 20);
        str_add(&text, "{\"workers\": [");
        for (size_t i = 0; i < count; i++)
            str_addf(&text,
                     "%s{\"name\": \"d%zu\", \"role\": \"decode\", \"address\": \"h:1\", "
                     "\"state\": \"up\"}",
                     i ? ", " : "", i);
        str_add(&text, "]}");
        assert_int_equal(cluster_status_parse(text.data, text.length, &status, &err),
                         count == CLUSTER_STATUS_MAX_WORKERS ? STATUS_OK : STATUS_LIMIT);
        str_deinit(&text);
    }
    assert_string_equal(err.text, "more than 4096 workers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_publish_find_withdraw),
        cmocka_unit_test(test_a_dead_clusters_file_is_no_cluster),
        cmocka_unit_test(test_sweeping),
        cmocka_unit_test(test_two_clusters),
        cmocka_unit_test(test_a_folder_that_others_may_write),
        cmocka_unit_test(test_files_that_are_wrong),
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_status_shows_what_is_missing),
        cmocka_unit_test(test_status_of_two_models),
        cmocka_unit_test(test_status_of_many_models),
        cmocka_unit_test(test_status_of_many_workers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
