/* One setting's value: from text into the field of the program's struct, and back. Inside
 * common/base/config. */
#ifndef BATON_BASE_CONFIG_CONFIG_VALUE_H
#define BATON_BASE_CONFIG_CONFIG_VALUE_H

#include "common/base/config/config.h"

/* Checks `text` and stores it in the row's field of `settings`; false and a clause in `why` ("must
 * be ...") otherwise. A CONFIG_LIST gains an item. */
bool config_value_set(const struct config_setting *row, void *settings, const char *text,
                      struct error *why);
/* The same, stored nowhere; of no CONFIG_LIST. */
bool config_value_check(const struct config_setting *row, const char *text, struct error *why);
/* Of a row that repeats: `text` behind what the field holds, and a comma. */
bool config_value_add(const struct config_setting *row, void *settings, const char *text,
                      struct error *why);
void config_value_format(const struct config_setting *row, const void *settings, struct str *out);
/* Asserts that default and bounds are values themselves and that the field has a size that fits its
 * type. */
void config_value_check_row(const struct config_setting *row);

#endif
