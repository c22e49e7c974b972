/* Settings of a program, from one table with a row a setting. The table gives the defaults, the
 * YAML file's keys, the environment's names, the flags, the checks and `--help`.
 *
 *      static const struct config_setting settings[] = {
 *          {"listen", CONFIG_STRING, CONFIG_AT(struct router_config, listen), "[::1]:0",
 *           .help = "Address of the gRPC server"},
 *          {"lease", CONFIG_DURATION, CONFIG_AT(struct router_config, lease_us), "10s", "1s",
 *           "10m", .help = "How long ..."},
 *      };
 *
 * Sources, weakest first: the row's default, the file (--config FILE), the environment
 * (BATON_LISTEN), the flag (--listen V, --listen=V; a bool: --spin, --no-spin). The mistakes of all
 * sources are reported together. Defaults and bounds are texts that pass the same strict parser.
 * Not thread-safe; only at start. Refuses nested sections, expressions, and reading again while
 * running. */
#ifndef BATON_BASE_CONFIG_CONFIG_H
#define BATON_BASE_CONFIG_CONFIG_H

#include "common/base/status.h"
#include "common/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_MAX_SETTINGS       96
#define CONFIG_MAX_LIST           64
#define CONFIG_MAX_POSITIONALS    256
#define CONFIG_MAX_FILE_BYTES     (1u << 20)
#define CONFIG_MAX_VARIABLE_BYTES 72 /* with its NUL */

enum config_type {
    CONFIG_STRING, /* char[n]: a longer value is a mistake */
    CONFIG_U64,    /* uint64_t or uint32_t (by the field's size) */
    CONFIG_DOUBLE, /* double or float */
    CONFIG_BOOL,   /* bool: true, false */
    CONFIG_ENUM,   /* an int or enum: index into `choices` */
    CONFIG_BYTES,  /* uint64_t bytes: "4096", "64KiB", "1.5GiB" is a mistake */
    /* uint64_t microseconds: "20us", "500ms", "10s", "2m", "1h"; only 0 needs no unit */
    CONFIG_DURATION,
    CONFIG_LIST, /* struct config_list: the flag may be given several times; flags only */
};

/* Points into argv. */
struct config_list {
    const char *items[CONFIG_MAX_LIST];
    size_t count;
};

struct config_setting {
    const char *name; /* "ready-file": --ready-file, BATON_READY_FILE, ready-file: in the file */
    enum config_type type;
    size_t offset, size;        /* CONFIG_AT */
    const char *default_text;   /* NULL: none; the field keeps the caller's value */
    const char *min, *max;      /* NULL: the type's; max of a list: number of items */
    const char *unit;           /* "tokens", for --help */
    const char *help;           /* one sentence without full stop */
    const char *const *choices; /* CONFIG_ENUM: NULL-terminated */
    bool required;              /* some source must give it; a string must not be empty */
    /* CONFIG_STRING: the flag may be given several times, and this joins the texts; 0: once */
    char repeats;
    bool flag_only;    /* because the environment's name has another meaning in other programs */
    bool hidden;       /* accepted, but of no use to this program: not in --help */
    const char *value; /* "HOST:PORT": its value's name in --help; NULL: by its type */
    /* CONFIG_STRING: checks a given text that isn't empty. NULL: any text is right. */
    enum status (*check)(const char *text, struct error *err);
    /* CONFIG_STRING that goes to another program as it is: returns that program's row of this name,
     * which checks a text that isn't empty. NULL: this row does. */
    const struct config_setting *(*taker)(const char *name);
};
#define CONFIG_AT(type, field) offsetof(type, field), sizeof(((type *)0)->field)

/* A name that looks like a setting of a program but isn't, and the setting to use instead. */
struct config_hint {
    const char *name, *instead;
};

struct config_program {
    const char *name;    /* "baton-router", "baton generate" */
    const char *summary; /* its purpose in a sentence or more, for --help */
    /* the arguments behind the flags: "PROMPT"; NULL: no positional arguments */
    const char *usage;
    const struct config_setting *settings;
    size_t setting_count;
    size_t min_positionals, max_positionals;
    /* Adds mistakes in the combination of settings, by config_mistake. Called when each setting
     * alone is valid. NULL: no check. */
    void (*check)(const void *settings, struct str *mistakes);
    /* The same for texts that are judged together. Called even if there are other mistakes, so that
     * all are told at once; texts that are too long have their default then. NULL: no check. */
    void (*check_texts)(const void *settings, struct str *mistakes);
    bool starts_others;              /* it starts other programs and hands them its environment */
    const struct config_hint *hints; /* the last one's name is NULL; NULL: no hints */
};

enum config_source {
    CONFIG_FROM_DEFAULT,
    CONFIG_FROM_FILE,
    CONFIG_FROM_ENVIRONMENT,
    CONFIG_FROM_FLAG
};

struct config_result {
    bool help;    /* --help was asked for; nothing else was checked */
    bool version; /* --version, in the same way */
    enum config_source sources[CONFIG_MAX_SETTINGS];
    /* point into argv; after "--" everything is positional */
    const char *positionals[CONFIG_MAX_POSITIONALS];
    size_t positional_count;
};

/* Fills `settings` (the caller's struct). argv[0] is skipped. STATUS_INVALID: `mistakes` has one
 * line a mistake, and `settings` must not be used. */
enum status config_load(const struct config_program *program, int argc, char **argv, void *settings,
                        struct config_result *result, struct str *mistakes) WARN_UNUSED;

/* For a program's check: adds a mistake, unless the status is OK. */
void config_mistake(struct str *mistakes, enum status status, const struct error *err);

/* Loads for a main(): --help and --version print and exit 0, mistakes go to stderr and exit 2.
 * Warns about variables BATON_... in the environment that no program of Baton knows. */
void config_load_or_exit(const struct config_program *program, int argc, char **argv,
                         void *settings, struct config_result *result);

/* Warns on stderr about variables BATON_... in `environment` (NULL-terminated) that no program of
 * Baton knows. `where` stands before their names. */
void config_warn_environment(const struct config_program *program, const char *where,
                             char *const *environment);

/* Returns whether some source gave the setting of this name, which must be in the table. */
bool config_given(const struct config_program *program, const struct config_result *result,
                  const char *name);

/* "ready-file" -> BATON_READY_FILE. Returns `name`. */
const char *config_variable(const char *setting, char name[CONFIG_MAX_VARIABLE_BYTES]);

void config_help(const struct config_program *program, struct str *out);
/* Appends one line a setting: `name=value source=flag`. */
void config_describe(const struct config_program *program, const void *settings,
                     const struct config_result *result, struct str *out);
/* Logs the same lines at debug. */
void config_log(const struct config_program *program, const void *settings,
                const struct config_result *result);

#endif
