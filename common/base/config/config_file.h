/* The YAML file of settings: a flat mapping of names to values, all read as text. libcyaml is known
 * to config_file.c only. Inside common/base/config. */
#ifndef BATON_BASE_CONFIG_CONFIG_FILE_H
#define BATON_BASE_CONFIG_CONFIG_FILE_H

#include "common/base/config/config.h"

struct config_file {
    char *texts[CONFIG_MAX_SETTINGS]; /* by row; NULL: not in the file */
};

/* Reads `path`; whatever is wrong with the file as such becomes lines in `mistakes`. Free with
 * config_file_free either way. */
void config_file_read(const struct config_program *program, const char *path,
                      struct config_file *file, struct str *mistakes);
void config_file_free(struct config_file *file);

#endif
