#include "common/base/domain/api_key.h"

#include "common/base/domain/slo.h"

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

/* Returns how often the name is in the list. */
static size_t count_name(const char *list, size_t length, const char *name, size_t name_length)
{
    size_t count = 0;
    for (const char *at = list, *end = list + length; at <= end; at++) {
        const char *comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
        size_t word = (size_t)((comma ? comma : end) - at);
        count += word == name_length && !memcmp(at, name, word);
        at += word;
    }
    return count;
}

bool api_key_classes(const char *text, size_t length)
{
    for (const char *at = text, *end = text + length; at <= end; at++) {
        const char *comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
        size_t word = (size_t)((comma ? comma : end) - at);
        if (!api_key_name(at, word) || word > SLO_MAX_NAME_BYTES ||
            count_name(text, length, at, word) > 1)
            return false;
        at += word;
    }
    return length < API_KEY_CLASSES_BYTES;
}

bool api_key_has_class(const char *classes, const char *name)
{
    return count_name(classes, strlen(classes), name, strlen(name)) > 0;
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
