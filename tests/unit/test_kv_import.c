/* kv_import: the prefill workers that a decode worker knows, of which new ones come for as long as
 * it lives. */
#include "decode_worker/kv_import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static uint64_t not_used, neither;

static bool peer_used(void *role, uint64_t peer)
{
    (void)role;
    return peer != not_used && peer != neither;
}

static uint64_t peer_at(struct kv_import *imports, unsigned number)
{
    char address[32];
    snprintf(address, sizeof address, "10.0.0.1:%u", number);
    return kv_import_peer(imports, address, "prefill");
}

static void test_workers_make_room(void **state)
{
    (void)state;
    static struct worker worker = {.info = {.context = 64, .block_tokens = 32}};
    struct error err;
    assert_int_equal(rpc_runtime_create(1, &worker.runtime, &err), STATUS_OK);
    assert_int_equal(transfer_loop_create(&worker.loop), STATUS_OK);
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
    /* One without a connection goes first, then one that has one. */
    assert_int_equal(kv_import_connect(imports, ids[3], 1), STATUS_OK);
    not_used = ids[3];
    neither = ids[7];
    uint64_t first = peer_at(imports, 1001);
    assert_int_equal(peer_at(imports, 3), ids[3]);
    assert_int_not_equal(first, 0);
    uint64_t second = peer_at(imports, 1002);
    assert_true(second > first && peer_at(imports, 1001) == first);
    assert_int_equal(peer_at(imports, 3), 0);
    kv_import_close(imports);
    rpc_runtime_destroy(worker.runtime);
    transfer_loop_destroy(worker.loop);
    kv_import_destroy(imports);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_workers_make_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
