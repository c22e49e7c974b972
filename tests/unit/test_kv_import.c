/* kv_import: the prefill workers that a decode worker knows, of which new ones come for as long as
 * it lives. */
#include "decode_worker/kv_import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static uint64_t not_used;

static bool peer_used(void *role, uint64_t peer)
{
    (void)role;
    return peer != not_used;
}

static uint64_t peer_at(struct kv_import *imports, unsigned number)
{
    char address[32];
    snprintf(address, sizeof address, "10.0.0.1:%u", number);
    return kv_import_peer(imports, address, "prefill");
}

static void test_workers_that_left_make_room(void **state)
{
    (void)state;
    static struct worker worker = {.info = {.context = 64, .block_tokens = 32}};
    struct kv_import_handlers handlers = {.peer_used = peer_used};
    struct kv_import *imports;
    assert_int_equal(kv_import_create(&worker, &handlers, NULL, &imports), STATUS_OK);
    uint64_t ids[PREFILL_PEERS_MAX];
    for (unsigned i = 0; i < PREFILL_PEERS_MAX; i++) {
        ids[i] = peer_at(imports, i);
        assert_int_not_equal(ids[i], 0);
        assert_int_equal(peer_at(imports, i), ids[i]);
    }
    assert_int_equal(kv_import_peer(imports, "", "nobody"), 0);
    assert_int_equal(peer_at(imports, 1000), 0); /* all are used */
    not_used = ids[5];
    uint64_t id = peer_at(imports, 1000);
    assert_true(id > ids[PREFILL_PEERS_MAX - 1]); /* an id names one worker for ever */
    assert_int_equal(peer_at(imports, 1000), id);
    assert_int_equal(peer_at(imports, 5), 0);
    assert_int_equal(peer_at(imports, 6), ids[6]);
    kv_import_disconnect(imports, ids[5]); /* the sinks' table forgets it later: nothing happens */
    kv_import_destroy(imports);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_workers_that_left_make_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
