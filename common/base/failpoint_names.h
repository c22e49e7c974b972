/* Lists every failpoint of every program. A specification with another name is refused.
 * tests/unit/test_failpoints.py compares this list with the sources, and
 * docs/operations/failpoints.md with this list.
 *
 * X(name, can_fail, meaning). can_fail: the code asks FAILPOINT_FAILS, so that the action `fail`
 * has a meaning there. A dropped message (send_...) stands for one that the stream, or the
 * connection under it, would have lost. */
#ifndef BATON_BASE_FAILPOINT_NAMES_H
#define BATON_BASE_FAILPOINT_NAMES_H

/* clang-format off */
#define FAILPOINT_NAMES(X)                                                                         \
    /* Router, in a turn of the dispatcher. */                                                     \
    X("router.arrived", false, "a request was taken in; it has no place yet")                      \
    X("router.placed", false, "workers are chosen; the command is about to be sent")               \
    X("router.opened", false, "Opened has come; Decode is not sent")                               \
    X("router.first_token", false, "the first token is about to go to the client")                 \
    X("router.token", false, "a token, the first or another, is about to go to the client")        \
    X("router.ended", false, "a request has ended; its status is about to go to the client")       \
    X("router.send_prefill", true, "fail: a Prefill command is dropped")                           \
    X("router.send_decode", true, "fail: a Decode command is dropped")                             \
    X("router.send_release", true, "fail: a Release command is dropped")                           \
    /* Router, on a thread that reads large requests. */                                           \
    X("doors.body", false, "a large request is about to be read, beside its door")                 \
    /* Router, on the thread that read the body of an HTTP request. */                             \
    X("doors.submit", false, "an HTTP request was read; its calls are not submitted")              \
    X("doors.submitted", false, "its calls are submitted; nothing watches the client yet")         \
    /* Workers: transfer thread, step thread. */                                                   \
    X("worker.session_lose", true, "a command has come; fail: the worker breaks its Session")      \
    X("worker.send_tokens", true, "tokens are about to be sent; fail: they are dropped")           \
    X("worker.send_cache", true,                                                                   \
      "events of the prefix cache are about to be sent; fail: they are dropped")                   \
    X("worker.tells_draining", false, "the router is about to be told that this worker leaves")    \
    X("transport.shared_memory", true, "at start; fail: no shared memory holds the KV pool")       \
    X("transport.sign_of_life", true, "at start; fail: only sockets tell of a peer's death")       \
    X("transport.hello", false, "a reader wants to pair with this pool; it is not admitted")       \
    X("transport.card", true,                                                                      \
      "the lane rdma is opened; fail: UCX reads over sockets in host memory, and says so")         \
    X("transport.import", true, "a peer gives its device's memory; fail: it can't be mapped")      \
    X("transport.probe", true,                                                                     \
      "the self-test has gathered its pattern; fail: a bit of it is wrong")                        \
    X("weights.keep", true,                                                                        \
      "packed weights are written to the file that will be kept; fail: the disk is full")          \
    X("step.computing", false, "rows are chosen and about to be computed")                         \
    X("step.fails", true, "fail: the engine can't compute this step")                              \
    X("device.copy_fails", true,                                                                   \
      "--device deferred, a copy for the transport begins; fail: it fails, reported later")        \
    X("device.fails", true,                                                                        \
      "--device deferred, an operation begins; fail: it fails, reported later")                    \
    X("device.move_fails", true,                                                                   \
      "--device deferred, a move beside steps begins; fail: it fails, reported later")             \
    X("device.lost", true,                                                                         \
      "--device deferred, an operation begins; fail: the device is lost for good")                 \
    X("pool.join", false, "a compute thread has woken for a job and hasn't begun it")              \
    X("step.misdirected", true, "fail: a sequence reads and writes its neighbour's KV blocks")     \
    X("step.move_fails", true, "fail: a KV block can't be copied, swapped out or swapped in")      \
    X("step.after_chunk", false, "rows of a prompt were computed")                                 \
    X("step.after_decode", false, "a step without prompt rows was computed")                       \
    /* Prefill worker, transfer thread. */                                                         \
    X("prefill.taken", false, "a Prefill command has come; nothing is held for it")                \
    X("prefill.reserved", false, "blocks for the whole prompt are held; Opened is not sent")       \
    X("prefill.send_opened", true, "fail: Opened is dropped")                                      \
    X("prefill.send_prefilled", true, "fail: the report of a computed prompt is dropped")          \
    X("prefill.after_chunk", false, "a chunk was computed and is about to be told to the reader")  \
    X("prefill.before_complete", false, "the prompt is computed; Complete is not sent")            \
    X("prefill.at_confirm", false, "Confirm has come; it is not answered")                         \
    X("prefill.send_ready", true, "fail: Ready is dropped")                                        \
    X("prefill.send_complete", true, "fail: Complete is dropped")                                  \
    X("prefill.send_held", true, "fail: the answer to Confirm is dropped")                         \
    X("prefill.send_gone", true, "fail: Gone is dropped")                                          \
    X("prefill.send_extended", true, "fail: the answer to Extend is dropped")                      \
    X("prefill.peer_lose", true, "a decode worker's message has come; fail: its Peer stream ends") \
    /* Decode worker, transfer thread. */                                                          \
    X("decode.taken", false, "a Decode command has come; nothing is held for it")                  \
    X("decode.reserved", false, "room is there; nothing is read")                                  \
    X("decode.reading", false, "a read of KV bytes is about to start")                             \
    X("decode.lane_lose", true, "a read has started; fail: the pairing is closed by force")        \
    X("decode.read_done", false, "a read has ended")                                               \
    X("decode.flip", true, "fail: a bit of the last block changes before its checksum is made")    \
    X("decode.rot", true, "fail: a bit of the last block changes after its checksum was compared") \
    X("decode.before_confirm", false, "all bytes are here and checked; Confirm is not sent")       \
    X("decode.after_confirm", false, "Confirm was sent")                                           \
    X("decode.held", false, "the answer to Confirm has come; the sequence is not in the batch")    \
    X("decode.after_tokens", false, "tokens of a step were sent")                                  \
    X("decode.send_subscribe", true, "fail: Subscribe is dropped")                                 \
    X("decode.send_extend", true, "fail: Extend is dropped")                                       \
    X("decode.send_confirm", true, "fail: Confirm is dropped")                                     \
    X("decode.send_release", true, "fail: Release to the prefill worker is dropped")               \
    X("decode.send_pulled", true, "fail: Pulled is dropped")                                       \
    X("decode.peer_lose", true, "a prefill worker's message has come; fail: the Peer stream ends") \
    X("decode.hello_layout", true, "fail: Hello to a prefill worker names another layout")         \
    X("decode.hello_numerics", true, "fail: Hello to a prefill worker names other numerics")       \
    /* HTTP listeners, their loops' threads. */                                                    \
    X("http.accept", true,                                                                         \
      "a connection has come; fail: it is closed, as though nothing were left for it")             \
    X("http.receive", true, "bytes may have come; fail: the connection is broken")                 \
    X("http.send", true, "bytes of an answer are about to leave; fail: the connection is broken")  \
    X("http.request", false, "a request is whole; its handler is about to be called")              \
    X("tls.files", true, "a changed certificate is about to be used; fail: it can't be")           \
    /* baton quantize. */                                                                          \
    X("quantize.matrix", false, "a matrix is about to be written beside the new model's name")     \
    X("quantize.named", false, "the new weights have their name, config.json hasn't")
/* clang-format on */

#endif
