/* Any bytes that a client sends to the frame gate, in pieces, with answers of the server between
 * them. The cuts change neither the end nor the bytes that pass; an end has a name, and a GOAWAY
 * that is a whole frame. Input: cuts, bytes of the server, bytes of the client. */
#include "common/net/rpc/frame_gate.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static const struct frame_gate_limits limits = {.header_block_bytes = 1024,
                                                .streams = 64,
                                                .handshake_us = 10,
                                                .first_call_us = 60,
                                                .idle_us = 100};

struct outcome {
    size_t passed;
    enum frame_gate_end end;
    uint64_t due_us;
};

static void check_goaway(const struct frame_gate *gate, enum frame_gate_end end)
{
    uint8_t bytes[FRAME_GATE_MAX_GOAWAY_BYTES];
    size_t size = frame_gate_goaway(gate, end, bytes), at = 0;
    while (at < size) {
        FUZZ_CHECK(size - at >= 9);
        at += 9 + ((size_t)bytes[at] << 16 | (size_t)bytes[at + 1] << 8 | bytes[at + 2]);
    }
    FUZZ_CHECK(at == size);
}

/* Without cuts the server's bytes come first, with them too. */
static struct outcome judge(struct fuzz_bytes cuts, struct fuzz_bytes server,
                            struct fuzz_bytes client)
{
    struct frame_gate gate;
    struct outcome outcome = {0, FRAME_GATE_NONE, 0};
    enum status status = frame_gate_init(&gate, &limits, 1);
    FUZZ_CHECK(status == STATUS_OK);
    (void)frame_gate_from_server(&gate, server.data, server.size, 2);
    for (size_t at = 0, i = 0; at < client.size && !outcome.end; i++) {
        size_t count = i < cuts.size ? cuts.data[i] : client.size;
        count = count < client.size - at ? count : client.size - at;
        size_t passed = frame_gate_from_client(&gate, client.data + at, count, 3, &outcome.end);
        FUZZ_CHECK(outcome.end ? passed < count || !count : passed == count);
        outcome.passed += passed;
        at += count;
    }
    outcome.due_us = frame_gate_due_us(&gate);
    if (outcome.end) {
        fuzz_check_sentence(frame_gate_end_sentence(outcome.end));
        check_goaway(&gate, outcome.end);
    }
    frame_gate_deinit(&gate);
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    struct fuzz_bytes cuts = fuzz_take_piece(&input), server = fuzz_take_piece(&input);
    struct fuzz_bytes client = fuzz_take_rest(&input), none = {data, 0};
    struct outcome whole = judge(none, server, client), cut = judge(cuts, server, client);
    FUZZ_CHECK(whole.end == cut.end && whole.passed == cut.passed);
    FUZZ_CHECK(whole.end || whole.due_us == cut.due_us);
    return 0;
}
