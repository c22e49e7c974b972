/* The parts of config.c: one setting's value, the YAML file, and names that are nearly right.
 * Inside common/base/config. */
#ifndef BATON_BASE_CONFIG_CONFIG_PARTS_H
#define BATON_BASE_CONFIG_CONFIG_PARTS_H

#include "common/base/config/config.h"

/* --- config_value.c: from text into the field of the program's struct, and back --- */

/* Checks `text` and stores it in the row's field of `settings`. A CONFIG_LIST gains an item.
 * Otherwise returns false, and `why` holds a clause ("must be ..."). */
bool config_value_set(const struct config_setting *row, void *settings, const char *text,
                      struct error *why);
/* Checks `text` and stores nothing. The row isn't a CONFIG_LIST. */
bool config_value_check(const struct config_setting *row, const char *text, struct error *why);
/* Appends `text` to the field of a row that repeats, behind what joins them. */
bool config_value_add(const struct config_setting *row, void *settings, const char *text,
                      struct error *why);
void config_value_format(const struct config_setting *row, const void *settings, struct str *out);
/* Asserts that default and bounds are valid values, and that the field's size fits its type. */
void config_value_check_row(const struct config_setting *row);

/* --- config_file.c: a flat mapping of names to values, all read as text --- */

struct config_file {
    char *texts[CONFIG_MAX_SETTINGS]; /* by row; NULL: not in the file */
};

/* Reads `path`. Appends a line to `mistakes` for each mistake in the file's form. Free with
 * config_file_free in any case. */
void config_file_read(const struct config_program *program, const char *path,
                      struct config_file *file, struct str *mistakes);
void config_file_free(struct config_file *file);

/* --- config_names.c: unknown names, and the names that they may mean --- */

/* Returns the only candidate that begins with `name`, otherwise the nearest one, if it is near
 * enough. NULL: none. */
const char *config_names_nearest(const char *name, const char *const *candidates, size_t count);
/* Returns the candidate that has the meaning of `name` as a flag of another server, or of another
 * program of Baton. NULL: none. */
const char *config_names_meant(const char *name, const char *const *candidates, size_t count);
/* Returns the program's own hint about `name`, also with "no-" before it. NULL: none. */
const char *config_names_hint(const struct config_program *program, const char *name);
/* Appends a line for each variable BATON_... of `environment` that no program knows. `where` stands
 * before its name. */
void config_names_check(const char *where, char *const *environment, struct str *warnings);
/* Returns the variable of a setting ("kv-tokens": BATON_KV_TOKENS) if a program has it, otherwise
 * NULL. */
const char *config_names_variable(const char *setting);

#endif
