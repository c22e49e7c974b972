/* access_keys: the content of a file of keys. A wrong line is refused with its number and without
 * its text. */
#include "router/ops/access_keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* SHA-256 of "test" */
#define HASH_A "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
/* SHA-256 of "test2" */
#define HASH_B "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"

static enum status parse(const char *text, struct access_keys *keys, struct error *err)
{
    return access_keys_parse(text, strlen(text), keys, err);
}

static const struct access_key *find(const struct access_keys *keys, const char *key)
{
    struct digest digest = digest_of(key, strlen(key));
    return access_keys_find(keys, &digest);
}

static void test_keys_are_read(void **state)
{
    (void)state;
    struct access_keys keys;
    struct error err = {""};
    const char *text = "# ours\n"
                       "\n"
                       "  id=ci sha256=" HASH_A " tenant=acme requests=60 tokens=100000 running=8 "
                       "priorities=high,normal classes=chat,batch\r\n"
                       "tenant=b.c_D-9  sha256=" HASH_B " id=2"; /* no newline at the end */
    if (parse(text, &keys, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(keys.count, 2);
    const struct access_key *key = find(&keys, "test");
    assert_string_equal(key->id, "ci");
    assert_string_equal(key->tenant, "acme");
    assert_int_equal(key->limits.requests_per_minute, 60);
    assert_int_equal(key->limits.tokens_per_minute, 100000);
    assert_int_equal(key->limits.running, 8);
    assert_true(key->priorities[PRIORITY_HIGH] && key->priorities[PRIORITY_NORMAL]);
    assert_false(key->priorities[PRIORITY_OFFLINE]);
    assert_string_equal(key->classes, "chat,batch");
    key = find(&keys, "test2");
    assert_string_equal(key->classes, "");
    assert_string_equal(key->tenant, "b.c_D-9");
    assert_int_equal(key->limits.requests_per_minute, 0);
    assert_true(key->priorities[PRIORITY_OFFLINE] && key->priorities[PRIORITY_NORMAL]);
    assert_false(key->priorities[PRIORITY_HIGH]);
    assert_null(find(&keys, "test3"));
    assert_null(find(&keys, ""));
    access_keys_deinit(&keys);
    assert_int_equal(parse("", &keys, &err), STATUS_OK); /* no key may call */
    assert_int_equal(keys.count, 0);
    assert_null(find(&keys, "test"));
    access_keys_deinit(&keys);
}

static void test_what_is_wrong_is_named_by_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"id=a tenant=t", "line 2 has no sha256="},
        {"sha256=" HASH_B " tenant=t", "line 2 has no id="},
        {"id=a sha256=" HASH_B, "line 2 has no tenant="},
        {"id=a sha256=test tenant=t",
         "line 2: sha256= must be 64 hex digits: the hash, not the key"},
        {"id=a sha256=" HASH_B "0 tenant=t", "line 2: sha256= must be 64 hex digits"},
        {"id=a id=b", "line 2: id= stands there twice"},
        {"id=a request=60", "line 2: word 2 is none of id=, sha256="},
        {"id=a baton_0123", "line 2: word 2 is not NAME=VALUE"},
        {"id= x", "line 2: id= must be 1 to 64 letters"},
        {"id=a/b", "line 2: id= must be 1 to 64 letters"},
        {"id=a requests=0", "line 2: requests= must be a number from 1 to 1000000000"},
        {"id=a requests=1000000001", "line 2: requests= must be a number"},
        {"id=a requests=60/min", "line 2: requests= must be a number"},
        {"id=a tokens=-1", "line 2: tokens= must be a number"},
        {"id=a tokens=99999999999999999999", "line 2: tokens= must be a number"},
        {"id=a running=1000001", "line 2: running= must be a number from 1 to 1000000"},
        {"id=a priorities=", "line 2: priorities= must be some of"},
        {"id=a priorities=urgent", "line 2: priorities= must be some of"},
        {"id=a priorities=high,high", "line 2: priorities= must be some of"},
        {"id=a classes=", "line 2: classes= must be names of SLO classes"},
        {"id=a classes=chat,chat", "line 2: classes= must be names of SLO classes"},
        {"id=a classes=chat classes=batch", "line 2: classes= stands there twice"},
        {"id=first sha256=" HASH_B " tenant=t", "two lines have the id first"},
        {"id=a sha256=" HASH_A " tenant=t", "are the same key"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        struct access_keys keys;
        struct error err = {""};
        snprintf(text, sizeof text, "id=first sha256=" HASH_A " tenant=t\n%s\n", cases[i].line);
        assert_int_equal(parse(text, &keys, &err), STATUS_INVALID);
        if (!strstr(err.text, cases[i].sentence))
            fail_msg("\"%s\": \"%s\" doesn't say \"%s\"", cases[i].line, err.text,
                     cases[i].sentence);
        assert_null(strstr(err.text, "baton_0123"));
    }
}

static char *many_lines(size_t count)
{
    char *text = malloc(count * 128 + 1), *at = text;
    assert_non_null(text);
    for (size_t i = 0; i < count; i++)
        at += sprintf(at, "id=k%zu sha256=%064zx tenant=t\n", i, i + 1);
    return text;
}

static void test_limits_of_the_file(void **state)
{
    (void)state;
    struct access_keys keys;
    struct error err;
    char *text = many_lines(ACCESS_KEYS_MAX + 1);
    assert_int_equal(parse(text, &keys, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "line 4097: more than 4096 keys"));
    free(text);
    text = many_lines(ACCESS_KEYS_MAX);
    assert_int_equal(parse(text, &keys, &err), STATUS_OK);
    assert_int_equal(keys.count, ACCESS_KEYS_MAX);
    access_keys_deinit(&keys);
    free(text);

    text = calloc(1, ACCESS_KEYS_MAX_FILE_BYTES + 2);
    assert_non_null(text);
    memset(text, '\n', ACCESS_KEYS_MAX_FILE_BYTES + 1);
    assert_int_equal(access_keys_parse(text, ACCESS_KEYS_MAX_FILE_BYTES + 1, &keys, &err),
                     STATUS_LIMIT);
    assert_int_equal(access_keys_parse(text, ACCESS_KEYS_MAX_FILE_BYTES, &keys, &err), STATUS_OK);
    access_keys_deinit(&keys);
    memset(text, '#', ACCESS_KEYS_MAX_LINE_BYTES);
    assert_int_equal(access_keys_parse(text, ACCESS_KEYS_MAX_FILE_BYTES, &keys, &err), STATUS_OK);
    access_keys_deinit(&keys);
    text[ACCESS_KEYS_MAX_LINE_BYTES] = '#';
    assert_int_equal(access_keys_parse(text, ACCESS_KEYS_MAX_FILE_BYTES, &keys, &err),
                     STATUS_LIMIT);
    assert_non_null(strstr(err.text, "line 1 has over 1024 bytes"));
    free(text);

    char name[API_KEY_MAX_NAME_BYTES + 2] = "", line[300];
    memset(name, 'x', API_KEY_MAX_NAME_BYTES + 1);
    snprintf(line, sizeof line, "id=%s sha256=" HASH_A " tenant=t", name);
    assert_int_equal(parse(line, &keys, &err), STATUS_INVALID);
    snprintf(line, sizeof line, "id=%s sha256=" HASH_A " tenant=t", name + 1);
    assert_int_equal(parse(line, &keys, &err), STATUS_OK);
    access_keys_deinit(&keys);
}

static void test_every_key_of_many_is_found(void **state)
{
    (void)state;
    char *text = malloc(200 * 160), *at = text;
    assert_non_null(text);
    for (int i = 0; i < 200; i++) {
        char key[16], hex[DIGEST_HEX_BYTES];
        struct digest digest = digest_of(key, (size_t)sprintf(key, "key %d", i));
        digest_to_hex(&digest, hex);
        at += sprintf(at, "id=k%d sha256=%s tenant=t%d\n", i, hex, i % 7);
    }
    struct access_keys keys;
    struct error err;
    assert_int_equal(parse(text, &keys, &err), STATUS_OK);
    free(text);
    for (int i = 0; i < 200; i++) {
        char key[16], id[16];
        sprintf(key, "key %d", i);
        sprintf(id, "k%d", i);
        assert_string_equal(find(&keys, key)->id, id);
        key[0] = 'K';
        assert_null(find(&keys, key));
    }
    access_keys_deinit(&keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_are_read),
        cmocka_unit_test(test_what_is_wrong_is_named_by_its_line),
        cmocka_unit_test(test_limits_of_the_file),
        cmocka_unit_test(test_every_key_of_many_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
