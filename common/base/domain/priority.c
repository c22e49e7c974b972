#include "common/base/domain/priority.h"

#include <string.h>

const char *const priority_names[PRIORITIES + 1] = {
    [PRIORITY_NORMAL] = "normal", [PRIORITY_HIGH] = "high", [PRIORITY_OFFLINE] = "offline"};

bool priority_find(const char *name, size_t length, enum priority *priority)
{
    for (int i = 0; i < PRIORITIES; i++) {
        if (strlen(priority_names[i]) == length && !memcmp(priority_names[i], name, length)) {
            *priority = (enum priority)i;
            return true;
        }
    }
    return false;
}
