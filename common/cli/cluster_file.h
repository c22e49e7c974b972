/* The file in which `baton up` describes its cluster. Scripts read it (--ready-file). A second copy
 * stands at a place that every command of this user knows, for `baton generate`, `baton status` and
 * the others:
 *
 *     {"pid": 1, "grpc": "127.0.0.1:4001", "http": "127.0.0.1:4002", "openai": "127.0.0.1:4004",
 *      "logs": "/tmp/...",
 *      "processes": [{"name": "prefill-0", "role": "prefill", "pid": 2,
 *                     "address": "127.0.0.1:4003", "metrics": "...", "restarts": 0}],
 *      "models": [{"name": "llama", "dir": "/models/llama"}]}
 *
 * It is written again, with the new pids and addresses, whenever a process was started again. */
#ifndef BATON_CLI_CLUSTER_FILE_H
#define BATON_CLI_CLUSTER_FILE_H

#include "common/base/status.h"
#include "common/language/model_config/model_list.h"

#include <stdint.h>
#include <sys/types.h>

#define CLUSTER_MAX_PROCESSES 65 /* the router and 64 workers */
#define CLUSTER_PATH_BYTES    512

struct cluster_member {
    char name[64], role[16], address[128], metrics[128];
    /* The router's, not in the file: where workers register, and where it serves HTTP clients ("":
     * nowhere). */
    char registry[128], front[128];
    pid_t pid;
    uint32_t restarts; /* times that it was started again */
};

struct cluster_file {
    pid_t pid;                                                        /* `baton up` */
    char grpc[128], http[128], openai[128], logs[CLUSTER_PATH_BYTES]; /* openai "": none */
    size_t count;
    struct cluster_member members[CLUSTER_MAX_PROCESSES];
    struct model_list models; /* by the names that clients use; folders are absolute */
    /* cluster_file_find alone: this user's other clusters, for people; "": there is none */
    char others[256];
};

/* Returns this user's run folder ($XDG_RUNTIME_DIR/baton or /tmp/baton-UID), and makes it if it is
 * missing. STATUS_INVALID: another user owns it or may write to it. */
enum status cluster_folder(char path[CLUSTER_PATH_BYTES], struct error *err) WARN_UNUSED;

/* Writes atomically: a reader sees the old file or the whole new one. */
enum status cluster_file_write(const struct cluster_file *file, const char *path,
                               struct error *err) WARN_UNUSED;
enum status cluster_file_read(const char *path, struct cluster_file *file,
                              struct error *err) WARN_UNUSED;

/* The well-known files, one for each cluster. publish: writes that of `file->pid`. find: reads the
 * newest one with a live process. STATUS_NOT_FOUND: no cluster runs here; the sentence advises to
 * name one with `flag`. withdraw: removes that of `pid`. */
enum status cluster_file_publish(const struct cluster_file *file, struct error *err) WARN_UNUSED;
enum status cluster_file_find(const char *flag, struct cluster_file *file,
                              struct error *err) WARN_UNUSED;
void cluster_file_withdraw(pid_t pid);
/* If several clusters of this user run: writes one line to standard error that says which of them
 * was found, which others there are, and that `flag` names one. */
void cluster_file_note(const struct cluster_file *file, const char *flag);
/* Returns the folder of the model `name` ("": of the only model), which lives as long as `file`.
 * "": not known. */
const char *cluster_file_model_dir(const struct cluster_file *file, const char *name);
/* Removes the files of this user's clusters that were killed, their certificates ("PID.tls"), and
 * all their log folders except the newest. */
void cluster_file_sweep(void);

#endif
