/* The rules for names, priorities and SLO classes in a line of the file of API keys. The router
 * reads the file, and `baton key` writes it. */
#ifndef BATON_BASE_DOMAIN_API_KEY_H
#define BATON_BASE_DOMAIN_API_KEY_H

#include "common/base/domain/priority.h"

#include <stdbool.h>
#include <stddef.h>

#define API_KEY_MAX_NAME_BYTES 64 /* id or tenant */
#define API_KEY_NAME_BYTES     (API_KEY_MAX_NAME_BYTES + 1)
#define API_KEY_CLASSES_BYTES  512 /* a key's SLO classes, with commas and a NUL */

/* Returns whether the name is 1 to 64 letters, digits, '-', '_' or '.'. */
bool api_key_name(const char *text, size_t length);
/* Parses "normal,offline": one or more priorities, each once. allowed[]: by enum priority; written
 * only on success. */
bool api_key_priorities(const char *text, size_t length, bool allowed[PRIORITIES]);
/* Returns whether the text is one or more names of SLO classes, each once, as "chat,batch". */
bool api_key_classes(const char *text, size_t length);
/* Returns whether such a text has the name. */
bool api_key_has_class(const char *classes, const char *name);

#endif
