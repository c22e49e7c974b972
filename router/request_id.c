#include "router/request_id.h"

#include "common/base/rng.h"
#include "common/base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool can_be_one(const char *id)
{
    return id && *id && request_id_valid(id);
}

void request_id_choose(const char *of_message, const char *of_header, char id[REQUEST_ID_BYTES])
{
    const char *given = can_be_one(of_message) ? of_message : of_header;
    if (can_be_one(given))
        str_copy(id, REQUEST_ID_BYTES, given);
    else
        snprintf(id, REQUEST_ID_BYTES, "%016" PRIx64 "%016" PRIx64, rng_entropy(), rng_entropy());
}

const char *request_id_of_answer(const char *answer_id)
{
    static const char *const prefixes[] = {"cmpl-", "chatcmpl-"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(answer_id, prefixes[i], strlen(prefixes[i])))
            return answer_id + strlen(prefixes[i]);
    return NULL;
}
