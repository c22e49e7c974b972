#include "common/language/text/text_hash.h"

#include <pthread.h>
#include <sys/random.h>

static uint64_t process_seed;

static void draw(void)
{
    /* Without the kernel's numbers an address will do: it is another one in each process. */
    if (getrandom(&process_seed, sizeof process_seed, 0) != sizeof process_seed)
        process_seed = text_hash_mix((uintptr_t)&process_seed, 0x9E3779B97F4A7C15u);
}

uint64_t text_hash_seed(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw);
    return process_seed;
}
