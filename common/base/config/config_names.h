/* Names that are nearly right: the environment's variables that no program of Baton knows, and the
 * name that was probably meant. Inside common/base/config. */
#ifndef BATON_BASE_CONFIG_CONFIG_NAMES_H
#define BATON_BASE_CONFIG_CONFIG_NAMES_H

#include "common/base/config/config.h"
#include "common/base/str.h"

/* The candidate that alone begins with `name`, or else the one that is nearest to it, if it is near
 * at all: NULL otherwise. */
const char *config_names_nearest(const char *name, const char *const *candidates, size_t count);
/* What others call it: the candidate that the flag of another server, or of another program of
 * ours, means; NULL: none. */
const char *config_names_meant(const char *name, const char *const *candidates, size_t count);
/* The program's own hint about `name`, also with "no-" before it; NULL: none. */
const char *config_names_hint(const struct config_program *program, const char *name);
/* Appends a line for each variable BATON_... of `environment` that is nobody's; `where` stands
 * before its name. */
void config_names_check(const char *where, char *const *environment, struct str *warnings);

/* The variable of a setting ("kv-tokens": BATON_KV_TOKENS), if a program has it; else NULL. */
const char *config_names_variable(const char *setting);

#endif
