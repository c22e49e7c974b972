/* access: which keys may call and how much, and the effect of a changed file of keys on running
 * calls. */
#include "router/ops/access.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HASH_TEST  "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
#define HASH_TEST2 "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
#define LOOK_US    5000u
#define NOW_US     1000000000u

struct world {
    char path[64];
    struct access *access;
};

static void write_keys(const struct world *world, const char *text)
{
    char beside[80];
    snprintf(beside, sizeof beside, "%s.new", world->path);
    FILE *file = fopen(beside, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(rename(beside, world->path), 0);
}

static const struct slo_classes classes = {
    .items = {{.name = "chat"}, {.name = "night"}}, .count = 2, .standard = SLO_NONE};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    strcpy(world->path, "/tmp/baton-keys-XXXXXX");
    close(mkstemp(world->path));
    write_keys(world, "id=a sha256=" HASH_TEST " tenant=acme requests=3 tokens=1000 running=2\n"
                      "id=b sha256=" HASH_TEST2 " tenant=other priorities=high "
                      "classes=chat,night\n");
    struct error err;
    if (access_open(world->path, LOOK_US, &classes, &world->access, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    access_close(world->access);
    unlink(world->path);
    free(world);
    return 0;
}

static struct access_grant *let_in(const struct world *world, const char *key, uint64_t now_us)
{
    struct access_grant *grant;
    struct access_refusal refusal;
    if (access_check(world->access, key, now_us, &grant, &refusal) != REASON_NONE)
        fail_msg("%s", refusal.why.text);
    return grant;
}

static enum reason turned_away(const struct world *world, const char *key, uint64_t now_us,
                               struct access_refusal *refusal)
{
    struct access_grant *grant;
    enum reason reason = access_check(world->access, key, now_us, &grant, refusal);
    assert_null(grant);
    return reason;
}

static void test_without_a_file_everybody_may(void **state)
{
    (void)state;
    struct access *none;
    struct access_grant *grant;
    struct access_refusal refusal;
    struct error err;
    uint8_t salt[ACCESS_SALT_BYTES];
    assert_int_equal(access_open("", 0, &classes, &none, &err), STATUS_OK);
    assert_null(none);
    assert_int_equal(access_check(none, "whatever", NOW_US, &grant, &refusal), REASON_NONE);
    assert_null(grant);
    assert_int_equal(access_reserve(grant, UINT64_MAX, PRIORITY_HIGH, NOW_US, &refusal),
                     REASON_NONE);
    assert_int_equal(access_salt(grant, salt), 0);
    assert_string_equal(access_key_id(grant), "");
    assert_string_equal(access_tenant(grant), "");
    access_settle(grant, 5, NOW_US);
    access_close(none);
}

static void test_a_file_that_cannot_be_used_is_no_start(void **state)
{
    struct world *world = *state;
    struct access *access;
    struct error err;
    assert_int_equal(access_open("/nowhere/keys", 0, &classes, &access, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "--api-keys: cannot read /nowhere/keys"));
    write_keys(world, "id=a\n");
    assert_int_equal(access_open(world->path, 0, &classes, &access, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "line 1 has no sha256="));
    write_keys(world, "id=a sha256=" HASH_TEST " tenant=acme classes=night,nigh\n"
                      "id=b sha256=" HASH_TEST2 " tenant=other classes=vip,chat,chats\n");
    assert_int_equal(access_open(world->path, 0, &classes, &access, &err), STATUS_INVALID);
    const char *told = strstr(err.text, world->path);
    assert_non_null(told);
    assert_string_equal(told + strlen(world->path),
                        ": classes= names SLO classes that this router doesn't have: vip of key b, "
                        "chats of key b, nigh of key a. It has chat, night (slo-class)");
    static const struct slo_classes none = {.standard = SLO_NONE};
    assert_int_equal(access_open(world->path, 0, &none, &access, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "It has none (slo-class)"));
}

static void test_tokens_of_headers(void **state)
{
    (void)state;
    assert_string_equal(access_token("Bearer abc"), "abc");
    assert_string_equal(access_token("bearer   abc"), "abc");
    assert_string_equal(access_token("Basic abc"), "");
    assert_string_equal(access_token("abc"), "");
    assert_string_equal(access_token("Bearer"), "");
    assert_string_equal(access_token("Bearer "), "");
    assert_string_equal(access_token(""), "");
}

static void test_keys_that_are_none(void **state)
{
    struct world *world = *state;
    struct access_refusal refusal;
    char large[ACCESS_MAX_TOKEN_BYTES + 2];
    memset(large, 'x', sizeof large);
    large[ACCESS_MAX_TOKEN_BYTES + 1] = 0;
    const char *const wrong[] = {"", "Test", "test ", "tes", HASH_TEST, "a", large};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(turned_away(world, wrong[i], NOW_US, &refusal), REASON_INVALID_API_KEY);
        assert_int_equal(refusal.retry_after_s, 0);
        assert_string_equal(refusal.key, "");
        assert_non_null(
            strstr(refusal.why.text, i ? "is not known here" : "authorization: Bearer"));
    }
}

static void test_a_key_has_its_limits_and_another_its_own(void **state)
{
    struct world *world = *state;
    struct access_refusal refusal;
    struct access_grant *one = let_in(world, "test", NOW_US), *two = let_in(world, "test", NOW_US);
    assert_string_equal(access_key_id(one), "a");
    assert_string_equal(access_tenant(one), "acme");
    assert_int_equal(turned_away(world, "test", NOW_US, &refusal), REASON_RATE_LIMITED);
    assert_int_equal(refusal.retry_after_s, 1);
    assert_non_null(strstr(refusal.why.text, "may have 2 requests running at once"));
    assert_string_equal(refusal.key, "a");
    assert_string_equal(refusal.tenant, "acme");
    access_settle(two, 0, NOW_US);
    two = let_in(world, "test", NOW_US);
    access_settle(two, 0, NOW_US);
    assert_int_equal(turned_away(world, "test", NOW_US, &refusal), REASON_RATE_LIMITED);
    assert_int_equal(refusal.retry_after_s, 20);
    assert_non_null(strstr(refusal.why.text, "3 requests a minute; try again in 20 s"));
    for (int i = 0; i < 100; i++)
        access_settle(let_in(world, "test2", NOW_US), 0, NOW_US);
    access_settle(one, 0, NOW_US);
}

/* A list of models: it needs a key, and uses nothing of it. */
static void test_what_is_not_counted(void **state)
{
    struct world *world = *state;
    struct access_grant *grant, *running[2];
    struct access_refusal refusal;
    running[0] = let_in(world, "test", NOW_US);
    running[1] = let_in(world, "test", NOW_US);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(access_know(world->access, "test", &grant, &refusal), REASON_NONE);
        assert_string_equal(access_key_id(grant), "a");
        assert_string_equal(access_tenant(grant), "acme");
        access_settle(grant, 0, NOW_US);
    }
    assert_int_equal(turned_away(world, "test", NOW_US, &refusal), REASON_RATE_LIMITED);
    assert_non_null(strstr(refusal.why.text, "may have 2 requests running at once"));
    access_settle(running[0], 0, NOW_US);
    access_settle(running[1], 0, NOW_US);
    access_settle(let_in(world, "test", NOW_US), 0, NOW_US); /* the third of the minute */
    assert_int_equal(turned_away(world, "test", NOW_US, &refusal), REASON_RATE_LIMITED);
    assert_int_equal(access_know(world->access, "test", &grant, &refusal), REASON_NONE);
    access_settle(grant, 0, NOW_US);
    assert_int_equal(access_know(world->access, "unknown", &grant, &refusal),
                     REASON_INVALID_API_KEY);
    assert_null(grant);
    assert_int_equal(access_know(world->access, "", &grant, &refusal), REASON_INVALID_API_KEY);
    assert_int_equal(access_know(NULL, "", &grant, &refusal), REASON_NONE);
    assert_null(grant);
}

static void test_tokens_and_priorities(void **state)
{
    struct world *world = *state;
    struct access_refusal refusal;
    struct access_grant *grant = let_in(world, "test", NOW_US);
    assert_int_equal(access_reserve(grant, 10, PRIORITY_HIGH, NOW_US, &refusal),
                     REASON_PRIORITY_NOT_ALLOWED);
    assert_string_equal(refusal.why.text, "this API key may not ask for priority high");
    assert_int_equal(access_reserve(grant, 1001, PRIORITY_NORMAL, NOW_US, &refusal), REASON_QUOTA);
    assert_int_equal(refusal.retry_after_s, 0);
    assert_int_equal(access_reserve(grant, 1000, PRIORITY_OFFLINE, NOW_US, &refusal), REASON_NONE);
    struct access_grant *next = let_in(world, "test", NOW_US);
    assert_int_equal(access_reserve(next, 500, PRIORITY_NORMAL, NOW_US, &refusal),
                     REASON_RATE_LIMITED);
    assert_int_equal(refusal.retry_after_s, 30);
    access_settle(grant, 400, NOW_US);
    assert_int_equal(access_reserve(next, 500, PRIORITY_NORMAL, NOW_US, &refusal), REASON_NONE);
    access_settle(next, 0, NOW_US);
    struct access_grant *other = let_in(world, "test2", NOW_US);
    assert_int_equal(access_reserve(other, 1, PRIORITY_NORMAL, NOW_US, &refusal),
                     REASON_PRIORITY_NOT_ALLOWED);
    assert_int_equal(access_reserve(other, UINT32_MAX, PRIORITY_HIGH, NOW_US, &refusal),
                     REASON_NONE);
    access_settle(other, 1, NOW_US);
}

/* A key's list of classes bounds it, and brings their priorities. Without a list every class is
 * fine, with a priority of the key's own. */
static void test_classes(void **state)
{
    struct world *world = *state;
    struct access_refusal refusal;
    const struct slo_class chat = {.name = "chat", .priority = PRIORITY_NORMAL},
                           vip = {.name = "vip", .priority = PRIORITY_HIGH};
    assert_int_equal(access_use_class(NULL, &vip, &refusal), REASON_NONE);
    struct access_grant *grant = let_in(world, "test", NOW_US);
    assert_int_equal(access_use_class(grant, NULL, &refusal), REASON_NONE);
    assert_int_equal(access_use_class(grant, &vip, &refusal), REASON_NONE);
    assert_int_equal(access_reserve(grant, 1, PRIORITY_HIGH, NOW_US, &refusal),
                     REASON_PRIORITY_NOT_ALLOWED);
    access_settle(grant, 0, NOW_US);

    grant = let_in(world, "test2", NOW_US);
    assert_int_equal(access_use_class(grant, &vip, &refusal), REASON_SLO_CLASS_NOT_ALLOWED);
    assert_string_equal(refusal.why.text, "this API key may not use the SLO class vip, only "
                                          "chat,night: name one in slo_class");
    assert_int_equal(refusal.retry_after_s, 0);
    assert_int_equal(access_reserve(grant, 1, PRIORITY_NORMAL, NOW_US, &refusal),
                     REASON_PRIORITY_NOT_ALLOWED);
    assert_int_equal(access_use_class(grant, &chat, &refusal), REASON_NONE);
    assert_int_equal(access_reserve(grant, 1, PRIORITY_OFFLINE, NOW_US, &refusal),
                     REASON_PRIORITY_NOT_ALLOWED);
    assert_int_equal(access_reserve(grant, 1, PRIORITY_NORMAL, NOW_US, &refusal), REASON_NONE);
    access_settle(grant, 1, NOW_US);
}

/* A call of two parts counts as one request. The tokens of its parts are added up, and it runs
 * until the last part ends. */
static void test_a_call_of_several_parts(void **state)
{
    struct world *world = *state;
    struct access_refusal refusal;
    assert_null(access_share(NULL));
    struct access_grant *grant = let_in(world, "test", NOW_US);
    assert_int_equal(access_reserve(grant, 1000, PRIORITY_NORMAL, NOW_US, &refusal), REASON_NONE);
    struct access_grant *first = access_share(grant), *second = access_share(grant);
    access_settle(grant, 0, NOW_US);
    access_settle(first, 300, NOW_US);
    struct access_grant *next = let_in(world, "test", NOW_US);
    assert_int_equal(turned_away(world, "test", NOW_US, &refusal), REASON_RATE_LIMITED);
    assert_non_null(strstr(refusal.why.text, "2 requests running at once"));
    assert_int_equal(access_reserve(next, 1, PRIORITY_NORMAL, NOW_US, &refusal),
                     REASON_RATE_LIMITED); /* nothing is given back yet */
    access_settle(second, 200, NOW_US);
    assert_int_equal(access_reserve(next, 501, PRIORITY_NORMAL, NOW_US, &refusal),
                     REASON_RATE_LIMITED);
    assert_int_equal(access_reserve(next, 500, PRIORITY_NORMAL, NOW_US, &refusal), REASON_NONE);
    access_settle(let_in(world, "test", NOW_US), 0,
                  NOW_US); /* the third of the minute's requests */
    access_settle(next, 500, NOW_US);
}

/* A key with two running requests may have two choices of one, or one of two. */
static void test_each_choice_counts_as_running(void **state)
{
    struct world *world = *state;
    struct access_refusal refusal;
    assert_int_equal(access_run(NULL, 16, &refusal), REASON_NONE);
    struct access_grant *grant = let_in(world, "test", NOW_US);
    assert_int_equal(access_run(grant, 3, &refusal), REASON_QUOTA);
    assert_non_null(strstr(refusal.why.text, "more choices than the 2"));
    assert_int_equal(refusal.retry_after_s, 0);
    assert_int_equal(access_run(grant, 2, &refusal), REASON_NONE);
    assert_int_equal(turned_away(world, "test", NOW_US, &refusal), REASON_RATE_LIMITED);
    assert_int_equal(refusal.retry_after_s, 1);
    access_choice_ended(NULL, NOW_US);
    access_choice_ended(grant, NOW_US + 8000000);
    struct access_grant *next = let_in(world, "test", NOW_US);
    assert_int_equal(access_run(next, 1, &refusal), REASON_NONE);
    assert_int_equal(access_run(next, 2, &refusal), REASON_RATE_LIMITED);
    assert_int_equal(refusal.retry_after_s, 4); /* two run, each for 8 s */
    access_choice_ended(grant, NOW_US);         /* the last one runs as long as its call */
    assert_int_equal(turned_away(world, "test", NOW_US, &refusal), REASON_RATE_LIMITED);
    access_settle(grant, 0, NOW_US);
    access_settle(next, 0, NOW_US);
    next = let_in(world, "test", NOW_US);
    assert_int_equal(access_run(next, 2, &refusal), REASON_NONE); /* all are given back */
    access_settle(next, 0, NOW_US);
}

static void test_salts_are_those_of_tenants(void **state)
{
    struct world *world = *state;
    uint8_t salts[3][ACCESS_SALT_BYTES];
    struct access_grant *grants[] = {let_in(world, "test", NOW_US), let_in(world, "test", NOW_US),
                                     let_in(world, "test2", NOW_US)};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(access_salt(grants[i], salts[i]), ACCESS_SALT_BYTES);
        access_settle(grants[i], 0, NOW_US);
    }
    assert_memory_equal(salts[0], salts[1], ACCESS_SALT_BYTES);
    assert_memory_not_equal(salts[0], salts[2], ACCESS_SALT_BYTES);
    /* Must never change: caches, and other routers, know tenants by it. */
    static const uint8_t acme[] = {0xa6, 0x0a, 0xa0, 0xf9, 0x0b, 0x6a, 0xcf, 0xef,
                                   0xe3, 0x85, 0x71, 0x3b, 0x40, 0x55, 0xaa, 0xbb};
    assert_memory_equal(salts[0], acme, ACCESS_SALT_BYTES);
}

/* Until the file's change has come through: this key's answer is `reason`. */
static void wait_answer(const struct world *world, const char *key, enum reason reason)
{
    uint64_t end_us = clock_now_us() + 20000000;
    for (;;) {
        struct access_grant *grant;
        struct access_refusal refusal;
        enum reason seen = access_check(world->access, key, NOW_US + 3600000000u, &grant, &refusal);
        access_settle(grant, 0, NOW_US + 3600000000u);
        if (seen == reason)
            return;
        assert_true(clock_now_us() < end_us);
        poll(NULL, 0, 1);
    }
}

/* The log of errors during one test. */
static FILE *log_text;
static int real_stderr;

static void wait_logged(const char *text)
{
    uint64_t end_us = clock_now_us() + 20000000;
    char said[4096];
    for (;;) {
        ssize_t length = pread(fileno(log_text), said, sizeof said - 1, 0);
        assert_true(length >= 0);
        said[length] = 0;
        if (strstr(said, text))
            return;
        assert_true(clock_now_us() < end_us);
        poll(NULL, 0, 1);
    }
}

static int set_up_logged(void **state)
{
    log_text = tmpfile();
    real_stderr = dup(STDERR_FILENO);
    if (!log_text || real_stderr < 0 || dup2(fileno(log_text), STDERR_FILENO) < 0)
        return -1;
    log_init("test", LOG_ERROR);
    return set_up(state);
}

static int tear_down_logged(void **state)
{
    tear_down(state);
    dup2(real_stderr, STDERR_FILENO);
    log_init("test", LOG_ERROR + 1);
    close(real_stderr);
    return fclose(log_text);
}

static void test_a_changed_file(void **state)
{
    struct world *world = *state;
    struct access_refusal refusal;
    struct access_grant *one = let_in(world, "test", NOW_US), *two = let_in(world, "test", NOW_US);
    assert_int_equal(access_reserve(one, 900, PRIORITY_NORMAL, NOW_US, &refusal), REASON_NONE);
    /* b is gone, a has less, under another key's place in the order. */
    write_keys(world,
               "id=c sha256=0000000000000000000000000000000000000000000000000000000000000000 "
               "tenant=c\nid=a sha256=" HASH_TEST " tenant=acme requests=3 tokens=1000 "
               "running=2\n");
    wait_answer(world, "test2", REASON_INVALID_API_KEY);
    /* Tokens that key a has used stay used. */
    assert_int_equal(turned_away(world, "test", NOW_US, &refusal), REASON_RATE_LIMITED);
    assert_non_null(strstr(refusal.why.text, "running at once"));
    access_settle(two, 0, NOW_US);
    two = let_in(world, "test", NOW_US);
    assert_int_equal(access_reserve(two, 200, PRIORITY_NORMAL, NOW_US, &refusal),
                     REASON_RATE_LIMITED);
    access_settle(two, 0, NOW_US);
    /* A file that can't be used changes nothing; an empty one admits no key. */
    write_keys(world, "id=a sha256=test tenant=acme\n");
    wait_logged("the changed file of keys can't be used");
    assert_int_equal(turned_away(world, "test", NOW_US, &refusal), REASON_RATE_LIMITED);
    write_keys(world, "");
    wait_answer(world, "test", REASON_INVALID_API_KEY);
    access_settle(one, 900, NOW_US); /* runs on, and ends in order */
}

int main(void)
{
    log_init("test", LOG_ERROR + 1);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_file_everybody_may),
        CASE(test_a_file_that_cannot_be_used_is_no_start),
        cmocka_unit_test(test_tokens_of_headers),
        CASE(test_keys_that_are_none),
        CASE(test_a_key_has_its_limits_and_another_its_own),
        CASE(test_what_is_not_counted),
        CASE(test_tokens_and_priorities),
        CASE(test_classes),
        CASE(test_a_call_of_several_parts),
        CASE(test_each_choice_counts_as_running),
        CASE(test_salts_are_those_of_tenants),
        cmocka_unit_test_setup_teardown(test_a_changed_file, set_up_logged, tear_down_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
