/* figures_file: a stopped benchmark deletes its own file, and no other one's. */
#include "common/cli/bench.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    char folder[64], path[80], temporary[80];
};

static int begin(void **state)
{
    static struct fixture f;
    strcpy(f.folder, "/tmp/figures_file_XXXXXX");
    if (!mkdtemp(f.folder))
        return -1;
    snprintf(f.path, sizeof f.path, "%s/f", f.folder);
    snprintf(f.temporary, sizeof f.temporary, "%s/f.tmp", f.folder);
    *state = &f;
    return 0;
}

static int end(void **state)
{
    const struct fixture *f = *state;
    unlink(f->path);
    unlink(f->temporary);
    return rmdir(f->folder);
}

/* Plays another process that writes the same file, and is not done. */
static void begin_another(const struct fixture *f)
{
    static struct whole_file other;
    struct error err;
    if (whole_file_begin(&other, f->path, &err) != STATUS_OK)
        _exit(1);
}

static void must(enum status status)
{
    if (status != STATUS_OK)
        _exit(2);
}

static void stopped_while_open(const struct fixture *f)
{
    static struct figures_file file;
    struct error err;
    must(figures_file_open(&file, f->path, &err));
    raise(SIGTERM);
}

static void stopped_once_all_is_put(const struct fixture *f)
{
    static struct figures_file file;
    struct str text;
    struct error err;
    str_init(&text, 16);
    str_add(&text, "1");
    must(figures_file_open(&file, f->path, &err));
    must(figures_file_put(&file, &text, &err));
    begin_another(f);
    raise(SIGTERM);
}

static void stopped_once_it_is_closed(const struct fixture *f)
{
    static struct figures_file file;
    struct error err;
    must(figures_file_open(&file, f->path, &err));
    figures_file_close(&file);
    begin_another(f);
    raise(SIGTERM);
}

static void stopped_when_another_has_it(const struct fixture *f)
{
    static struct figures_file file;
    struct error err;
    begin_another(f);
    if (figures_file_open(&file, f->path, &err) != STATUS_UNAVAILABLE)
        _exit(3);
    raise(SIGTERM);
}

static void test_who_is_stopped_leaves_others_files(void **state)
{
    const struct fixture *f = *state;
    static const struct {
        void (*run)(const struct fixture *f);
        bool left;
    } cases[] = {{stopped_while_open, false},
                 {stopped_once_all_is_put, true},
                 {stopped_once_it_is_closed, true},
                 {stopped_when_another_has_it, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unlink(f->temporary);
        pid_t child = fork();
        if (child == 0) {
            signal(SIGTERM, SIG_DFL);
            cases[i].run(f);
            _exit(4);
        }
        int ended;
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGTERM);
        if ((access(f->temporary, F_OK) == 0) != cases[i].left)
            fail_msg("case %zu: the temporary is %s", i, cases[i].left ? "gone" : "left");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_who_is_stopped_leaves_others_files, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
