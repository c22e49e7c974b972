/* peer_places: an address never holds more than its share, whatever others hold. */
#include "common/base/peer_places.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include <cmocka.h>

/* "10.0.0.1", "::1", or "unix". */
static const struct sockaddr *peer(const char *text)
{
    static union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
    } peers[4];
    static unsigned next;
    memset(&peers[next = (next + 1) % 4], 0, sizeof *peers);
    if (inet_pton(AF_INET, text, &peers[next].v4.sin_addr) == 1)
        peers[next].any.sa_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &peers[next].v6.sin6_addr) == 1)
        peers[next].any.sa_family = AF_INET6;
    else
        peers[next].any.sa_family = AF_UNIX;
    peers[next].v4.sin_port = (uint16_t)(next + 1); /* ports don't matter */
    return &peers[next].any;
}

static struct peer_places *book(size_t all, size_t share, size_t more, const char *uncounted)
{
    struct peer_ranges ranges;
    struct peer_places *places;
    assert_int_equal(peer_ranges_parse(uncounted, &ranges, NULL), STATUS_OK);
    assert_int_equal(peer_places_create(all, share, more, &ranges, &places), STATUS_OK);
    return places;
}

static void test_share(void **state)
{
    (void)state;
    struct peer_places *places = book(100, 3, 2, "");
    for (int i = 0; i < 3; i++)
        assert_int_equal(peer_places_take(places, peer("10.0.0.1")), PEER_PLACE_TAKEN);
    for (int i = 0; i < 2; i++)
        assert_int_equal(peer_places_take(places, peer("10.0.0.1")), PEER_PLACE_BEYOND);
    assert_int_equal(peer_places_take(places, peer("10.0.0.1")), PEER_PLACE_NONE);
    assert_int_equal(peer_places_held(places, peer("10.0.0.1")), 5);
    assert_int_equal(peer_places_take(places, peer("10.0.0.2")), PEER_PLACE_TAKEN);
    for (int i = 0; i < 3; i++)
        peer_places_give_back(places, peer("10.0.0.1"));
    assert_int_equal(peer_places_take(places, peer("10.0.0.1")), PEER_PLACE_TAKEN);
    assert_int_equal(peer_places_take(places, peer("10.0.0.1")), PEER_PLACE_BEYOND);
    peer_places_destroy(places);
}

static void test_addresses_that_are_one(void **state)
{
    (void)state;
    static const struct {
        const char *one, *other;
        bool same;
    } cases[] = {
        {"10.0.0.1", "10.0.0.1", true},
        {"10.0.0.1", "10.0.0.2", false},
        {"::ffff:10.0.0.1", "10.0.0.1", true}, /* a socket takes both families */
        {"2001:db8::1", "2001:db8::ffff:1:2", true},
        {"2001:db8:0:1::1", "2001:db8:0:2::1", false},
        {"::1", "127.0.0.1", false},
        {"unix", "unix", true},
        {"unix", "::1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct peer_places *places = book(100, 1, 0, "");
        assert_int_equal(peer_places_take(places, peer(cases[i].one)), PEER_PLACE_TAKEN);
        assert_int_equal(peer_places_held(places, peer(cases[i].other)), cases[i].same);
        assert_int_equal(peer_places_take(places, peer(cases[i].other)),
                         cases[i].same ? PEER_PLACE_NONE : PEER_PLACE_TAKEN);
        assert_int_equal(peer_places_same(peer(cases[i].one), peer(cases[i].other)), cases[i].same);
        peer_places_destroy(places);
    }
}

static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *list, *peer;
        bool in;
    } cases[] = {
        {"", "127.0.0.1", false},
        {"127.0.0.0/8,::1", "127.3.2.1", true},
        {"127.0.0.0/8, ::1", "::1", true},
        {"127.0.0.0/8,::1", "::ffff:127.0.0.1", true},
        {"127.0.0.0/8,::1", "128.0.0.1", false},
        {"127.0.0.0/8,::1", "::2", false},
        {"10.1.2.3", "10.1.2.3", true},
        {"10.1.2.3", "10.1.2.4", false},
        {"10.1.2.0/23", "10.1.3.255", true},
        {"10.1.2.0/23", "10.1.4.0", false},
        {"0.0.0.0/0", "9.9.9.9", true},
        {"0.0.0.0/0", "2001:db8::1", false},
        {"::/0", "9.9.9.9", true},
        {"fd00::/8", "fdab::1", true},
        {"fd00::/8", "fe80::1", false},
        {"::/0", "unix", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct peer_ranges ranges;
        assert_int_equal(peer_ranges_parse(cases[i].list, &ranges, NULL), STATUS_OK);
        assert_int_equal(peer_ranges_have(&ranges, peer(cases[i].peer)), cases[i].in);
    }
}

static void test_lists_that_are_wrong(void **state)
{
    (void)state;
    static const char *const lists[] = {"localhost", "10.0.0.0/33", "::/129", "10.0.0.1/",
                                        "1.2.3",     "10.0.0.1/-1", "[::1]",  "10.0.0.1:80"};
    char many[PEER_MAX_RANGES * 8 + 16] = "";
    struct peer_ranges ranges;
    struct error err;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        assert_int_equal(peer_ranges_parse(lists[i], &ranges, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, lists[i]));
    }
    for (int i = 0; i < PEER_MAX_RANGES; i++)
        strcat(many, "1.2.3.4,");
    assert_int_equal(peer_ranges_parse(many, &ranges, &err), STATUS_OK);
    assert_int_equal(ranges.count, PEER_MAX_RANGES);
    strcat(many, "1.2.3.4");
    assert_int_equal(peer_ranges_parse(many, &ranges, &err), STATUS_LIMIT);
}

/* A proxy brings connections of many clients. The book holds no place for it. */
static void test_uncounted(void **state)
{
    (void)state;
    struct peer_places *places = book(4, 1, 0, "10.0.0.9");
    for (int i = 0; i < 10; i++)
        assert_int_equal(peer_places_take(places, peer("10.0.0.9")), PEER_PLACE_TAKEN);
    assert_int_equal(peer_places_held(places, peer("10.0.0.9")), 0);
    for (int i = 0; i < 10; i++)
        peer_places_give_back(places, peer("10.0.0.9"));
    peer_places_destroy(places);
}

/* As many addresses as places: one more finds none, and the book doesn't grow as they change. */
static void test_full(void **state)
{
    (void)state;
    struct peer_places *places = book(4, 1, 0, "");
    char text[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "10.0.%d.%d", i / 200, i % 200);
        assert_int_equal(peer_places_take(places, peer(text)),
                         i < 4 ? PEER_PLACE_TAKEN : PEER_PLACE_NONE);
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "10.0.0.%d", i % 4);
        peer_places_give_back(places, peer(text));
        assert_int_equal(peer_places_take(places, peer(text)), PEER_PLACE_TAKEN);
    }
    assert_int_equal(peer_places_take(places, peer("10.9.9.9")), PEER_PLACE_NONE);
    peer_places_destroy(places);
}

static void test_default_share(void **state)
{
    (void)state;
    assert_int_equal(peer_places_default_share(4096), 1024);
    assert_int_equal(peer_places_default_share(5), 1);
    assert_int_equal(peer_places_default_share(1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),         cmocka_unit_test(test_addresses_that_are_one),
        cmocka_unit_test(test_ranges),        cmocka_unit_test(test_lists_that_are_wrong),
        cmocka_unit_test(test_full),          cmocka_unit_test(test_uncounted),
        cmocka_unit_test(test_default_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
