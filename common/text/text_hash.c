#include "common/text/text_hash.h"

#include "common/base/assert.h"

#include <pthread.h>
#include <sys/random.h>

static uint64_t process_seed;

static void draw(void)
{
    ASSERT(getrandom(&process_seed, sizeof process_seed, 0) == sizeof process_seed);
}

uint64_t text_hash_seed(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw);
    return process_seed;
}
