/* Schemas, expressions and choices from outside: the first byte says which. Compiled or refused
 * soon, whatever they are; and an answer that the bytes behind steer is never stuck: until it may
 * end, some byte may come. */
#include "common/base/utf8.h"
#include "common/language/constrain/constraint.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define MAX_STEPS 256

/* The first byte from `from` on, around, that may come; false where none may. */
static bool take_some(const struct constraint *constraint, struct constraint_state *state,
                      uint8_t from)
{
    struct constraint_state before = *state;
    for (int i = 0; i < 256; i++) {
        char byte = (char)(from + i);
        if (constraint_state_take(constraint, state, &byte, 1))
            return true;
        FUZZ_CHECK(!memcmp(&before, state, sizeof before));
    }
    return false;
}

static void answer(const struct constraint *constraint, struct fuzz_input *input)
{
    struct constraint_state state;
    constraint_state_init(constraint, &state);
    for (int i = 0; i < MAX_STEPS; i++) {
        bool may_end = constraint_state_may_end(constraint, &state);
        if (!take_some(constraint, &state, fuzz_take_u8(input))) {
            FUZZ_CHECK(may_end);
            return;
        }
        FUZZ_CHECK(state.depth < CONSTRAINT_MAX_FRAMES);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    enum constraint_kind kind = (enum constraint_kind)fuzz_take_below(&input, CONSTRAINT_KINDS);
    struct fuzz_bytes text = fuzz_take_piece(&input);
    struct constraint *constraint = NULL;
    struct error err = {""};
    if (constraint_compile(kind, (const char *)text.data, text.size, &constraint, &err) ==
        STATUS_OK) {
        FUZZ_CHECK(constraint_state_count(constraint) > 0);
        answer(constraint, &input);
        constraint_destroy(constraint);
    } else {
        FUZZ_CHECK(!constraint);
        fuzz_check_sentence(err.text);
    }
    return 0;
}
