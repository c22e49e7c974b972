#include "common/base/domain/api_key.h"

#include <string.h>

bool api_key_name(const char *text, size_t length)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    for (size_t i = 0; i < length; i++)
        if (!text[i] || !strchr(letters, text[i]))
            return false;
    return length > 0 && length <= API_KEY_MAX_NAME_BYTES;
}

bool api_key_priorities(const char *text, size_t length, bool allowed[PRIORITIES])
{
    bool found[PRIORITIES] = {false};
    for (const char *at = text, *end = text + length;; at++) {
        const char *comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
        size_t word = (size_t)((comma ? comma : end) - at);
        enum priority priority;
        if (!priority_find(at, word, &priority) || found[priority])
            return false;
        found[priority] = true;
        at += word;
        if (at == end)
            break;
    }
    memcpy(allowed, found, sizeof found);
    return true;
}
