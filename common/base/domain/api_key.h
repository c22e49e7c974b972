/* The rules for names and priorities in a line of the file of API keys. The router reads the file,
 * and `baton key` writes it. */
#ifndef BATON_BASE_DOMAIN_API_KEY_H
#define BATON_BASE_DOMAIN_API_KEY_H

#include "common/base/domain/priority.h"

#include <stdbool.h>
#include <stddef.h>

#define API_KEY_MAX_NAME_BYTES 64 /* id or tenant */
#define API_KEY_NAME_BYTES     (API_KEY_MAX_NAME_BYTES + 1)

/* Returns whether the name is 1 to 64 letters, digits, '-', '_' or '.'. */
bool api_key_name(const char *text, size_t length);
/* Parses "normal,offline": one or more priorities, each once. allowed[]: by enum priority; written
 * only on success. */
bool api_key_priorities(const char *text, size_t length, bool allowed[PRIORITIES]);

#endif
