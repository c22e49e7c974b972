/* A prefill worker's life: commands of the router, messages of decode workers, steps, lost streams
 * and time, in any order and of any bytes, through the code that receives them. When all is over no
 * request and no block is held. Input: see worker_world.c. */
#include "prefill_worker/prefill_role.h"
#include "tests/fuzz/worker_world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    worker_world_play(&prefill_role_ops, &input);
    return 0;
}
