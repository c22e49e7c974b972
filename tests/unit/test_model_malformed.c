/* Model folders from hostile or careless hands: each is refused with a sentence that names the
 * place and the error, in bounded time and memory. Prints each case and the sentence it got:
 * build/debug/tests/unit_engine test_model_malformed */
#include "common/engine/engine.h"
#include "tests/unit/model_malformed_cases.h"

#include <sys/resource.h>
#include <time.h>

#define CASES           (sizeof MALFORMED / sizeof *MALFORMED)
#define WANTED_CASES    101 /* so that none gets lost unseen: change it with the list */
#define MOST_SECONDS    2.0 /* CPU time; most take a hundredth */
#define MOST_MORE_BYTES ((long)64 << 20)

static enum status open_folder(struct error *err)
{
    struct engine_config config = {.model_dir = model_folder,
                                   .kernels = {.f32 = true, .threads = 1},
                                   .block_tokens = 16,
                                   .block_count = 8,
                                   .max_rows = 8,
                                   .max_sequences = 2};
    struct engine *engine = NULL;
    enum status status = engine_open(&config, &engine, err);
    engine_close(engine);
    return status;
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static long peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * 1024;
}

/* Without the folder's random name. */
static const char *told(const struct error *err)
{
    const char *found = strstr(err->text, model_folder);
    const char *rest = err->text + strlen(model_folder);
    return found != err->text ? err->text : *rest == '/' ? rest + 1 : rest;
}

static void check_case(const struct malformed *c)
{
    struct error err = {""};
    model_copy(c->model, model_folder);
    for (int i = 0; i < 2; i++)
        model_mutate(model_folder, &c->mutations[i]);
    double before_seconds = cpu_seconds();
    long before_bytes = peak_bytes();
    enum status status = open_folder(&err);
    double seconds = cpu_seconds() - before_seconds;
    long bytes = peak_bytes() - before_bytes;
    printf("%-45s | %s\n", c->what, told(&err));
    if (status == STATUS_OK)
        fail_msg("%s: it was opened", c->what);
    if (!strstr(err.text, c->sentence))
        fail_msg("%s: expected \"%s\" in the sentence", c->what, c->sentence);
    for (const char *at = err.text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            fail_msg("%s: a control character in the sentence", c->what);
    if (seconds > MOST_SECONDS || bytes > MOST_MORE_BYTES)
        fail_msg("%s: took %.1f s and %ld more bytes", c->what, seconds, bytes);
}

static void test_every_one_is_refused(void **state)
{
    (void)state;
    assert_int_equal(CASES, WANTED_CASES);
    for (size_t i = 0; i < CASES; i++)
        check_case(&MALFORMED[i]);
    printf("%zu malformed model folders, each refused by a sentence\n", CASES);
}

/* The same folders without their faults open: it is the fault that is refused. */
static void test_the_sound_ones_open(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        struct error err = {""};
        if (i > 0 && strcmp(MALFORMED[i].model, MALFORMED[i - 1].model) == 0)
            continue;
        model_copy(MALFORMED[i].model, model_folder);
        if (open_folder(&err) != STATUS_OK)
            fail_msg("%s: %s", MALFORMED[i].model, err.text);
    }
}

/* Harmless leftovers of old or careful tools in a file are no error. */
static void test_what_does_no_harm(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        struct mutation mutations[2];
    } harmless[] = {
        /* generation_config.json is optional. */
        {"llama", {{.kind = REMOVE, .file = GENERATION}}},
        /* A table of rotary angles of no length. */
        {"llama",
         {HEADER_OF(
             WEIGHTS, "{\"format\":\"pt\"},",
             "{\"format\":\"pt\"},\"model.layers.0.self_attn.rotary_emb.inv_freq\":{\"dtype\":"
             "\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},")}},
        /* A header that isn't padded: every tensor lies at an odd byte. */
        {"llama", {HEADER_OF(WEIGHTS, "{\"format\":\"pt\"}", "{\"format\":\"ptx\"}")}},
        {"llama", {SWAP_IN(CONFIG, "\"use_cache\": true", "\"what_nobody_knows\": {\"a\": [1]}")}},
    };
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        struct error err = {""};
        model_copy(harmless[i].model, model_folder);
        for (int m = 0; m < 2; m++)
            model_mutate(model_folder, &harmless[i].mutations[m]);
        if (open_folder(&err) != STATUS_OK)
            fail_msg("case %zu: %s", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_one_is_refused),
        cmocka_unit_test(test_the_sound_ones_open),
        cmocka_unit_test(test_what_does_no_harm),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_drop);
}
