/* http_url: the URLs that a client may call. */
#include "common/net/http/http_url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_what_may_be_called(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *port, *authority;
        bool told, tls;
    } cases[] = {
        {"127.0.0.1:80", "127.0.0.1", "80", "127.0.0.1:80", false, false},
        {"router.example:0443", "router.example", "443", "router.example:443", false, false},
        {"[::1]:9090", "::1", "9090", "[::1]:9090", false, false},
        {"[fe80::1%eth0]:9090", "fe80::1%eth0", "9090", "[fe80::1%eth0]:9090", false, false},
        {"http://a", "a", "80", "a:80", true, false},
        {"http://a:65535/", "a", "65535", "a:65535", true, false},
        {"https://a_b-c.d", "a_b-c.d", "443", "a_b-c.d:443", true, true},
        {"https://[::1]", "::1", "443", "[::1]:443", true, true},
        {"https://[::1]:1/", "::1", "1", "[::1]:1", true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_url url;
        struct error err;
        if (http_url_parse(cases[i].text, &url, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_string_equal(url.host, cases[i].host);
        assert_string_equal(url.port, cases[i].port);
        assert_string_equal(url.authority, cases[i].authority);
        assert_int_equal(url.told, cases[i].told);
        assert_int_equal(url.tls, cases[i].tls);
    }
}

static void test_what_may_not(void **state)
{
    (void)state;
    static const struct {
        const char *text, *told;
    } cases[] = {
        {"", "the host is none"},
        {"nonsense", "the port is missing"},
        {":80", "the host is none"},
        {"a:", "a port is a number from 1 to 65535"},
        {"a:0", "a port is a number from 1 to 65535"},
        {"a:65536", "a port is a number from 1 to 65535"},
        {"a:80/", "nothing stands behind it"},
        {"a:80/v1/traces", "nothing stands behind it"},
        {"::1:80", "the host is none"},
        {"[::1", "the host is none"},
        {"[]:80", "the host is none"},
        {"[::1]x:80", "nothing may stand behind the host but a port"},
        {"https://", "the host is none"},
        {"https://a/v1", "nothing may stand behind the host but a port"},
        {"https://a?x", "nothing may stand behind the host but a port"},
        {"https://me@a", "it holds a user"},
        {"https://me:secret@a", "a port is a number"},
        {"ftp://a", "a port is a number"},
        {"HTTPS://a", "a port is a number"},
        {"http://a b", "the host is none"},
        {"a\r\nX: y:80", "the host is none"},
        {"http://\xc3\xa4", "the host is none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_url url = {.host = "before"};
        struct error err;
        assert_int_equal(http_url_parse(cases[i].text, &url, &err), STATUS_INVALID);
        if (!strstr(err.text, cases[i].told))
            fail_msg("%s", err.text);
        assert_string_equal(url.host, "before");
        assert_int_equal(http_check_url(cases[i].text, &err), STATUS_INVALID);
    }
}

static void test_a_host_of_the_limit_and_one_more(void **state)
{
    (void)state;
    char text[HTTP_URL_MAX_HOST_BYTES + 20];
    struct http_url url;
    struct error err;
    memset(text, 'a', sizeof text);
    strcpy(text + HTTP_URL_MAX_HOST_BYTES, ":65535");
    assert_int_equal(http_url_parse(text, &url, &err), STATUS_OK);
    assert_string_equal(url.authority, text);
    memset(text, 'a', sizeof text);
    strcpy(text + HTTP_URL_MAX_HOST_BYTES + 1, ":65535");
    assert_int_equal(http_url_parse(text, &url, &err), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_may_be_called),
        cmocka_unit_test(test_what_may_not),
        cmocka_unit_test(test_a_host_of_the_limit_and_one_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
