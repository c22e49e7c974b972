#include "common/base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void assert_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "level=error mod=assert at=%s:%d msg=\"assertion failed: %s\"\n", file, line,
            condition);
    abort();
}
