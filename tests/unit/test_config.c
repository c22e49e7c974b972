/* config: every source, their order, every kind of mistake, and that all mistakes are reported at
 * once. */
#include "common/base/config/config.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct settings {
    char listen[32];
    uint64_t queue;
    uint32_t threads;
    double factor;
    float share;
    bool spin, pin;
    int lane;
    uint64_t pool_bytes, lease_us;
    struct config_list stops;
};

static const char *const lanes[] = {"auto", "shm", "tcp", NULL};
static const struct config_setting rows[] = {
    {"listen", CONFIG_STRING, CONFIG_AT(struct settings, listen), "127.0.0.1:0", .help = "Address"},
    {"max-queue", CONFIG_U64, CONFIG_AT(struct settings, queue), "10", "1", "100",
     .unit = "requests", .help = "Queue"},
    {"threads", CONFIG_U64, CONFIG_AT(struct settings, threads), "2", "1", .help = "Threads"},
    {"factor", CONFIG_DOUBLE, CONFIG_AT(struct settings, factor), "0.5", "0", "1",
     .help = "Factor"},
    {"share", CONFIG_DOUBLE, CONFIG_AT(struct settings, share), .help = "Share"},
    {"spin", CONFIG_BOOL, CONFIG_AT(struct settings, spin), "false", .help = "Spin"},
    {"pin", CONFIG_BOOL, CONFIG_AT(struct settings, pin), "true", .help = "Pin"},
    {"lane", CONFIG_ENUM, CONFIG_AT(struct settings, lane), "auto", .help = "Lane",
     .choices = lanes},
    {"pool", CONFIG_BYTES, CONFIG_AT(struct settings, pool_bytes), "64MiB", "1KiB", .help = "Pool"},
    {"lease", CONFIG_DURATION, CONFIG_AT(struct settings, lease_us), "10s", "1s", "10m",
     .help = "Lease"},
    {"stop", CONFIG_LIST, CONFIG_AT(struct settings, stops), .help = "Stop string"},
};
static const struct config_program program = {.name = "prog",
                                              .summary = "Does it.",
                                              .usage = "[TEXT]",
                                              .settings = rows,
                                              .setting_count = sizeof rows / sizeof *rows,
                                              .max_positionals = 1};

struct loaded {
    struct settings settings;
    struct config_result result;
    struct str mistakes;
    enum status status;
};

/* Loads from a NULL-terminated list of arguments. */
static struct loaded load(const struct config_program *of, const char *const *arguments)
{
    struct loaded loaded = {0};
    char *argv[128] = {(char *)"prog"};
    int argc = 1;
    while (arguments[argc - 1]) {
        argv[argc] = (char *)arguments[argc - 1];
        argc++;
    }
    str_init(&loaded.mistakes, 8192);
    loaded.status = config_load(of, argc, argv, &loaded.settings, &loaded.result, &loaded.mistakes);
    return loaded;
}
#define LOAD(...) load(&program, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static char file_path[] = "/tmp/test_config.XXXXXX";

static const char *write_file(const char *text)
{
    FILE *stream = fopen(file_path, "w");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
    return file_path;
}

static void test_defaults(void **state)
{
    (void)state;
    struct loaded got = LOAD();
    assert_int_equal(got.status, STATUS_OK);
    assert_string_equal(got.settings.listen, "127.0.0.1:0");
    assert_int_equal(got.settings.queue, 10);
    assert_int_equal(got.settings.threads, 2);
    assert_true(got.settings.factor == 0.5 && got.settings.share == 0);
    assert_true(!got.settings.spin && got.settings.pin);
    assert_int_equal(got.settings.lane, 0);
    assert_int_equal(got.settings.pool_bytes, 64 << 20);
    assert_int_equal(got.settings.lease_us, 10000000);
    assert_false(config_given(&program, &got.result, "lane"));
    str_deinit(&got.mistakes);
}

static void check_together(const void *settings, struct str *mistakes)
{
    const struct settings *read = settings;
    struct error err;
    if (read->spin && read->pin)
        config_mistake(mistakes, error_set(&err, STATUS_INVALID, "--spin needs --no-pin"), &err);
    if (read->queue < read->threads)
        config_mistake(mistakes, error_set(&err, STATUS_INVALID, "--threads is\nover"), &err);
    config_mistake(mistakes, STATUS_OK, &err);
}

static void check_texts(const void *settings, struct str *mistakes)
{
    if (strchr(((const struct settings *)settings)->listen, ','))
        str_add(mistakes, "--listen has a comma\n");
}

/* A program's own check runs if each setting alone is valid, and may find several mistakes. */
static void test_what_settings_get_wrong_together(void **state)
{
    (void)state;
    struct config_program checked = program;
    checked.check = check_together;
    static const struct {
        const char *arguments[5], *mistakes;
    } rows_of[] = {
        {{"--spin"}, "--spin needs --no-pin\n"},
        {{"--spin", "--no-pin"}, ""},
        {{"--spin", "--threads", "11"}, "--spin needs --no-pin\n--threads is?over\n"},
        {{"--spin", "--help"}, ""},
    };
    for (size_t i = 0; i < sizeof rows_of / sizeof *rows_of; i++) {
        struct loaded got = load(&checked, rows_of[i].arguments);
        assert_string_equal(got.mistakes.data, rows_of[i].mistakes);
        assert_int_equal(got.status, *rows_of[i].mistakes ? STATUS_INVALID : STATUS_OK);
        str_deinit(&got.mistakes);
    }
    struct loaded got = load(&checked, (const char *const[]){"--spin", "--threads", "x", NULL});
    assert_null(strstr(got.mistakes.data, "--no-pin"));
    assert_int_equal(got.status, STATUS_INVALID);
    str_deinit(&got.mistakes);
    /* Texts that are judged together are judged beside other mistakes, too. */
    checked.check_texts = check_texts;
    got = load(&checked, (const char *const[]){"--listen=one,two", "--threads", "x", NULL});
    assert_non_null(strstr(got.mistakes.data, "--threads must be a whole number"));
    assert_non_null(strstr(got.mistakes.data, "--listen has a comma\n"));
    str_deinit(&got.mistakes);
    got = load(&checked, (const char *const[]){"--listen=one", "--spin", NULL});
    assert_string_equal(got.mistakes.data, "--spin needs --no-pin\n");
    str_deinit(&got.mistakes);
}

static void test_flags_in_every_form(void **state)
{
    (void)state;
    struct loaded got =
        LOAD("--listen", "[::1]:80", "--max-queue=100", "text", "--spin", "--no-pin", "--lane",
             "tcp", "--share=0.25", "--stop", "a", "--stop=--b", "--lease=1500ms");
    assert_string_equal(got.mistakes.data, "");
    assert_string_equal(got.settings.listen, "[::1]:80");
    assert_int_equal(got.settings.queue, 100);
    assert_true(got.settings.spin && !got.settings.pin);
    assert_int_equal(got.settings.lane, 2);
    assert_true(got.settings.share == 0.25f);
    assert_int_equal(got.settings.stops.count, 2);
    assert_string_equal(got.settings.stops.items[1], "--b");
    assert_int_equal(got.settings.lease_us, 1500000);
    assert_int_equal(got.result.positional_count, 1);
    assert_string_equal(got.result.positionals[0], "text");
    assert_true(config_given(&program, &got.result, "lane"));
    str_deinit(&got.mistakes);

    got = LOAD("--", "--spin");
    assert_int_equal(got.status, STATUS_OK);
    assert_false(got.settings.spin);
    assert_string_equal(got.result.positionals[0], "--spin");
    str_deinit(&got.mistakes);
}

struct repeated {
    char models[12];
};

/* A text with a flag that may be repeated: joined with commas, from one source, up to its field's
 * end. */
static void test_a_text_that_repeats(void **state)
{
    (void)state;
    static const struct config_setting row[] = {
        {"model", CONFIG_STRING, CONFIG_AT(struct repeated, models), .help = "Models",
         .repeats = ',', .required = true}};
    static const struct config_program repeats = {
        .name = "prog", .summary = "Does it.", .settings = row, .setting_count = 1};
    static const struct {
        const char *environment;
        char *argv[6];
        int argc;
        const char *models, *mistake;
    } cases[] = {
        {NULL, {"prog", "--model", "a", "--model=b,c"}, 4, "a,b,c", NULL},
        {"x,y", {"prog"}, 1, "x,y", NULL},
        {"x,y", {"prog", "--model", "a"}, 3, "a", NULL},
        {NULL, {"prog", "--model=12345", "--model=78901"}, 3, "12345,78901", NULL},
        {NULL,
         {"prog", "--model=12345", "--model=789012"},
         3,
         NULL,
         "longer than 11 bytes together"},
        {NULL, {"prog", "--model=a", "--model="}, 3, NULL, "--model must not be empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct repeated got = {{0}};
        struct config_result result;
        struct str mistakes;
        str_init(&mistakes, 8192);
        if (cases[i].environment)
            setenv("BATON_MODEL", cases[i].environment, 1);
        char *argv[6];
        memcpy(argv, cases[i].argv, sizeof argv);
        enum status status = config_load(&repeats, cases[i].argc, argv, &got, &result, &mistakes);
        unsetenv("BATON_MODEL");
        assert_int_equal(status, cases[i].mistake ? STATUS_INVALID : STATUS_OK);
        if (cases[i].mistake)
            assert_non_null(strstr(mistakes.data, cases[i].mistake));
        else
            assert_string_equal(got.models, cases[i].models);
        str_deinit(&mistakes);
    }
    char *from_file[] = {"prog", "--config", (char *)write_file("model:\n  - a\n  - b\n")};
    struct repeated got;
    struct config_result result;
    struct str help;
    str_init(&help, 8192);
    assert_int_equal(config_load(&repeats, 3, from_file, &got, &result, &help), STATUS_INVALID);
    assert_non_null(strstr(help.data, "expected one value for 'model', but found a list: write "
                                      "several as one text, with ',' between them\n"));
    str_clear(&help);
    config_help(&repeats, &help);
    assert_non_null(strstr(help.data, "Models; may be repeated"));
    str_deinit(&help);
}

/* The last of two would hide that one of them was meant for something else. */
static void test_a_flag_that_is_given_twice(void **state)
{
    (void)state;
    static const struct {
        const char *arguments[5], *mistake;
    } cases[] = {
        {{"--threads", "3", "--threads=4"}, "--threads is given more than once"},
        {{"--threads=3", "--threads=3"}, "--threads is given more than once"},
        {{"--spin", "--no-spin"}, "--spin is given more than once"},
        {{"--spin", "--spin"}, "--spin is given more than once"},
        {{"--lane=shm", "--pool=1KiB", "--lane", "tcp"}, "--lane is given more than once"},
        {{"--config", file_path, "--config=a"}, "--config is given more than once"},
        {{"--stop", "a", "--stop=a"}, NULL},
        {{"--spin", "--no-pin"}, NULL},
    };
    setenv("BATON_THREADS", "5", 1); /* another source gives way, as ever */
    (void)write_file("threads: 6\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct loaded got = load(&program, cases[i].arguments);
        assert_int_equal(got.status, cases[i].mistake ? STATUS_INVALID : STATUS_OK);
        if (cases[i].mistake && !strstr(got.mistakes.data, cases[i].mistake))
            fail_msg("no '%s' in: %s", cases[i].mistake, got.mistakes.data);
        str_deinit(&got.mistakes);
    }
    unsetenv("BATON_THREADS");
    struct loaded got = LOAD("--stop", "a", "--stop", "b");
    assert_int_equal(got.settings.stops.count, 2);
    str_deinit(&got.mistakes);
}

static void test_flag_beats_environment_beats_file_beats_default(void **state)
{
    (void)state;
    const char *path = write_file("max-queue: 20\nthreads: 3\nlane: shm # why\n");
    setenv("BATON_MAX_QUEUE", "30", 1);
    setenv("BATON_THREADS", "4", 1);
    struct loaded got = LOAD("--config", path, "--max-queue", "40");
    unsetenv("BATON_MAX_QUEUE");
    unsetenv("BATON_THREADS");
    assert_string_equal(got.mistakes.data, "");
    assert_int_equal(got.settings.queue, 40);
    assert_int_equal(got.settings.threads, 4);
    assert_int_equal(got.settings.lane, 1);
    struct str text;
    str_init(&text, 8192);
    config_describe(&program, &got.settings, &got.result, &text);
    assert_non_null(strstr(text.data, "max-queue=40 source=flag\n"));
    assert_non_null(strstr(text.data, "threads=4 source=environment\n"));
    assert_non_null(strstr(text.data, "lane=shm source=file\n"));
    assert_non_null(strstr(text.data, "pool=64MiB source=default\n"));
    assert_non_null(strstr(text.data, "lease=10s source=default\n"));
    str_deinit(&text);
    str_deinit(&got.mistakes);
}

static void test_all_mistakes_are_told_at_once(void **state)
{
    (void)state;
    const char *path = write_file("max-queue: 4x\nbogus: 1\n");
    setenv("BATON_LANE", "warp", 1);
    struct loaded got = LOAD("--config", path, "--factor", "2", "--nope", "--lease", "10",
                             "--no-lane", "a", "b", "--pool");
    unsetenv("BATON_LANE");
    assert_int_equal(got.status, STATUS_INVALID);
    static const char *const told[] = {
        "unknown setting 'bogus'",
        "max-queue must be a whole number, but is '4x'",
        "BATON_LANE must be one of auto, shm, tcp, but is 'warp'",
        "--factor must be a number in 0 .. 1, but is '2'",
        "unknown flag --nope",
        "--lease must be a whole number with a unit",
        "unknown flag --no-lane",
        "unexpected argument 'b': what has blanks stands between quotes",
        "--pool needs a value",
    };
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (!strstr(got.mistakes.data, told[i]))
            fail_msg("missing: %s\nin: %s", told[i], got.mistakes.data);
    str_deinit(&got.mistakes);
}

static void test_single_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *flag, *told;
    } cases[] = {
        {"--max-queue=0", "1 .. 100"},
        {"--max-queue=101", "1 .. 100"},
        {"--max-queue=-1", "must be in 1 .. 100, but is '-1'"},
        {"--threads=-1", "must be at least "},
        {"--max-queue=-", "whole number"},
        {"--max-queue=-1x", "whole number"},
        {"--lease=-1s", "a whole number with a unit"},
        {"--max-queue=", "whole number"},
        {"--threads=4294967296", "at most 4294967295"},
        {"--threads=18446744073709551616", "at most 4294967295"},
        {"--max-queue=18446744073709551616", "1 .. 100"},
        {"--pool=18446744073709551616", "at most 18446744073709551615"},
        {"--factor=nan", "0 .. 1"},
        {"--share=1e999", "--share must be a number, but is '1e999'"},
        {"--share=-1e39", "--share must be no more than 3.4e+38, but is '-1e39'"},
        {"--share=some", "--share must be a number, but is 'some'"},
        {"--spin=yes", "true or false"},
        {"--no-spin=true", "takes no value"},
        {"--pool=1.5GiB", "whole number of bytes"},
        {"--pool=1kb", "whole number of bytes"},
        {"--pool=99999999999TiB", "whole number of bytes"},
        {"--lease=11m", "1s .. 10m"},
        {"--listen=0123456789012345678901234567890123", "longer than 31 bytes"},
        {"-x", "unknown flag -x"},
        {"--config=/does/not/exist", "cannot read /does/not/exist: No such file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct loaded got = LOAD(cases[i].flag);
        assert_int_equal(got.status, STATUS_INVALID);
        if (!strstr(got.mistakes.data, cases[i].told))
            fail_msg("%s: expected '%s' in: %s", cases[i].flag, cases[i].told, got.mistakes.data);
        str_deinit(&got.mistakes);
    }
}

static const struct config_setting *row_of_prog(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    fail_msg("there is no %s", name);
    return NULL;
}

/* A text for another program is kept as it was written, and that program's row decides which values
 * are valid. */
static void test_a_text_for_another_program(void **state)
{
    (void)state;
    struct handed_on {
        char queue[16], lease[16];
    };
    static const struct config_setting own[] = {
        {"max-queue", CONFIG_STRING, CONFIG_AT(struct handed_on, queue), "", .help = "Queue",
         .taker = row_of_prog},
        {"lease", CONFIG_STRING, CONFIG_AT(struct handed_on, lease), "", .help = "Lease",
         .taker = row_of_prog},
    };
    static const struct {
        const char *queue, *lease, *told;
    } cases[] = {
        {"007", "2m", ""},
        {"", "", ""},
        {"0", "1s", "--max-queue must be in 1 .. 100, but is '0'\n"},
        {"x", "11m",
         "--max-queue must be a whole number, but is 'x'\n"
         "--lease must be in 1s .. 10m, but is '11m'\n"},
        {"1", "0123456789abcdef", "--lease is longer than 15 bytes, but is '0123456789abcdef'\n"},
    };
    const struct config_program other = {
        .name = "other", .summary = "", .settings = own, .setting_count = 2};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct handed_on got;
        struct config_result result;
        struct str mistakes;
        char *argv[] = {(char *)"other",   (char *)"--max-queue",  (char *)cases[i].queue,
                        (char *)"--lease", (char *)cases[i].lease, NULL};
        str_init(&mistakes, 4096);
        enum status status = config_load(&other, 5, argv, &got, &result, &mistakes);
        assert_string_equal(mistakes.data, cases[i].told);
        assert_int_equal(status, *cases[i].told ? STATUS_INVALID : STATUS_OK);
        if (status == STATUS_OK)
            assert_string_equal(got.queue, cases[i].queue);
        str_deinit(&mistakes);
    }
}

static const struct config_setting *row_of_nobody(const char *name)
{
    (void)name;
    return NULL;
}

/* Every start finds that the other program lacks the row, even a start that doesn't give the
 * setting. */
static void test_a_taker_without_the_row(void **state)
{
    (void)state;
    static const struct config_setting own[] = {
        {"max-queue", CONFIG_STRING, 0, 16, "", .help = "Queue", .taker = row_of_nobody}};
    const struct config_program other = {
        .name = "other", .summary = "", .settings = own, .setting_count = 1};
    pid_t child = fork();
    if (child == 0) {
        char queue[16], *argv[] = {(char *)"other", NULL};
        struct config_result result;
        struct str mistakes;
        str_init(&mistakes, 4096);
        close(STDERR_FILENO);
        _exit(config_load(&other, 1, argv, queue, &result, &mistakes) == STATUS_OK);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGABRT);
}

static void test_a_list_has_a_limit(void **state)
{
    (void)state;
    const char *arguments[CONFIG_MAX_LIST + 2] = {0};
    for (size_t i = 0; i < CONFIG_MAX_LIST; i++)
        arguments[i] = "--stop=x";
    struct loaded got = load(&program, arguments);
    assert_int_equal(got.status, STATUS_OK);
    assert_int_equal(got.settings.stops.count, CONFIG_MAX_LIST);
    str_deinit(&got.mistakes);
    arguments[CONFIG_MAX_LIST] = "--stop=x";
    got = load(&program, arguments);
    assert_int_equal(got.status, STATUS_INVALID);
    str_deinit(&got.mistakes);
}

static void test_files_that_are_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *told;
    } cases[] = {
        {"pin: true\nmax-queue: [1]\n",
         ", line 2: expected one value for 'max-queue', but found a list\n"},
        {"max-queue: {a: 1}\n", ", line 1: expected one value for 'max-queue', but found names"},
        {"- a\n", ": expected lines of 'name: value', but found a list\n"},
        {"spin\n", ": expected lines of 'name: value', but found a single word or text\n"},
        {"spin: true\nspin: false\n", ", in or after line 1: 'spin' is given a second time\n"},
        {"listen: \"a\n",
         ", in or after line 1: this is not YAML that can be read (found unexpected end of "
         "stream): expected lines of 'name: value'\n"},
        {"\tspin: true\n",
         ": this is not YAML that can be read (found character that cannot start any "
         "token): expected lines"},
        {"spin: *a\n", "No anchor found for alias: 'a'): expected lines of 'name: value'\n"},
        {"pin: true\n\nmax_queue: 1\n",
         ", line 3: unknown setting 'max_queue', did you mean max-queue?\n"},
        {"{bogus: 1}\n", ": unknown setting 'bogus'\n"},
        {"stop: a\n", ", line 1: unknown setting 'stop'\n"},
        {"spin:\n", "true or false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct loaded got = LOAD("--config", write_file(cases[i].text));
        assert_int_equal(got.status, STATUS_INVALID);
        if (!strstr(got.mistakes.data, cases[i].told))
            fail_msg("%s: expected '%s' in: %s", cases[i].text, cases[i].told, got.mistakes.data);
        str_deinit(&got.mistakes);
    }
    struct loaded got = LOAD("--config", write_file(""));
    assert_int_equal(got.status, STATUS_OK);
    str_deinit(&got.mistakes);
}

static void test_a_file_has_a_limit(void **state)
{
    (void)state;
    char *text = malloc(CONFIG_MAX_FILE_BYTES + 2);
    assert_non_null(text);
    for (size_t over = 0; over < 2; over++) {
        size_t length = CONFIG_MAX_FILE_BYTES + over;
        memset(text, 'x', length);
        memcpy(text, "# ", 2);
        text[length - 1] = '\n';
        text[length] = 0;
        struct loaded got = LOAD("--config", write_file(text));
        assert_int_equal(got.status, over ? STATUS_INVALID : STATUS_OK);
        assert_int_equal(strstr(got.mistakes.data, " has over 1048576 bytes") != NULL, over);
        str_deinit(&got.mistakes);
    }
    free(text);
}

static void test_required_settings_and_arguments(void **state)
{
    (void)state;
    struct config_setting needed[] = {rows[0]};
    needed[0].required = true;
    const struct config_program strict = {.name = "p",
                                          .summary = "",
                                          .usage = "PROMPT",
                                          .settings = needed,
                                          .setting_count = 1,
                                          .min_positionals = 1,
                                          .max_positionals = 1};
    struct loaded got = load(&strict, (const char *const[]){NULL});
    assert_int_equal(got.status, STATUS_INVALID);
    assert_non_null(strstr(got.mistakes.data, "--listen is needed"));
    assert_non_null(strstr(got.mistakes.data, "missing argument: PROMPT"));
    str_deinit(&got.mistakes);
}

static void test_help_names_defaults_bounds_and_units(void **state)
{
    (void)state;
    struct loaded got = LOAD("--nonsense", "--help");
    assert_int_equal(got.status, STATUS_OK);
    assert_true(got.result.help);
    config_help(&program, &got.mistakes);
    assert_non_null(strstr(got.mistakes.data, "Usage: prog [FLAGS] [TEXT]"));
    assert_non_null(strstr(got.mistakes.data, "Queue, in requests; 1 .. 100 (default 10)"));
    assert_non_null(strstr(got.mistakes.data, "--[no-]spin"));
    assert_non_null(strstr(got.mistakes.data, "--lane auto|shm|tcp"));
    str_deinit(&got.mistakes);
}

static int set_up(void **state)
{
    (void)state;
    int fd = mkstemp(file_path);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(file_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_flags_in_every_form),
        cmocka_unit_test(test_what_settings_get_wrong_together),
        cmocka_unit_test(test_a_text_that_repeats),
        cmocka_unit_test(test_a_flag_that_is_given_twice),
        cmocka_unit_test(test_flag_beats_environment_beats_file_beats_default),
        cmocka_unit_test(test_all_mistakes_are_told_at_once),
        cmocka_unit_test(test_single_mistakes),
        cmocka_unit_test(test_a_text_for_another_program),
        cmocka_unit_test(test_a_taker_without_the_row),
        cmocka_unit_test(test_a_list_has_a_limit),
        cmocka_unit_test(test_files_that_are_wrong),
        cmocka_unit_test(test_a_file_has_a_limit),
        cmocka_unit_test(test_required_settings_and_arguments),
        cmocka_unit_test(test_help_names_defaults_bounds_and_units),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
